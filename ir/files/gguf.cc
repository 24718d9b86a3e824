// Reads GGUF headers from front to back.
#include "ir/files/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "ir/base/checked.h"
#include "ir/base/type.h"
#include "ir/ops/names.h"

namespace opwire {
namespace {

// ggml's element types, by number. Those with kInvalid have no counterpart here.
struct GgufType {
  uint32_t number;
  std::string_view name;
  int64_t elements, bytes;  // of a block
  DType dtype = DType::kInvalid;
  Encoding encoding = Encoding::kDense;
};
constexpr GgufType kGgufTypes[] = {
    {0, "F32", 1, 4, DType::kF32},
    {1, "F16", 1, 2, DType::kF16},
    {2, "Q4_0", 32, 18, DType::kI8, Encoding::kQ4_0},
    {3, "Q4_1", 32, 20, DType::kI8, Encoding::kQ4_1},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34, DType::kI8, Encoding::kQ8_0},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210, DType::kI8, Encoding::kQ6_K},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1, DType::kI8},
    {25, "I16", 1, 2, DType::kI16},
    {26, "I32", 1, 4, DType::kI32},
    {27, "I64", 1, 8, DType::kI64},
    {28, "F64", 1, 8, DType::kF64},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, DType::kBF16},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
};

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

constexpr int64_t kUnknown = -1;  // bytes of a tensor, until all offsets are known

class GgufReader {
 public:
  GgufReader(std::span<const uint8_t> file, int64_t file_bytes)
      : file_(file), file_bytes_(file_bytes) {}

  StatusOr<GgufHeader> Read() {
    GgufHeader out;
    OPWIRE_RETURN_IF_ERROR(Begin(out));
    OPWIRE_ASSIGN_OR_RETURN(const int64_t tensors, Count("tensors", kMaxFileTensors));
    OPWIRE_ASSIGN_OR_RETURN(const int64_t keys, Count("key-values", kGgufMaxKeys));
    for (int64_t i = 0; i < keys; ++i) OPWIRE_RETURN_IF_ERROR(KeyValue(out));
    OPWIRE_RETURN_IF_ERROR(TakeAlignment(out));
    for (int64_t i = 0; i < tensors; ++i) OPWIRE_RETURN_IF_ERROR(Tensor(out));
    // A file without tensors may end after its header.
    out.data_offset = tensors == 0 ? std::min(Aligned(at_, out.alignment), file_bytes_)
                                   : Aligned(at_, out.alignment);
    for (FileTensor& t : out.tensors) {
      const auto offset = CheckedAdd(t.offset, out.data_offset);
      if (!offset)
        return Error(t.declared, "expected an offset within the file, got {} behind {}", t.offset,
                     out.data_offset);
      t.offset = *offset;
    }
    EndUnknown(out.tensors);
    OPWIRE_RETURN_IF_ERROR(
        CheckPlaces(out.tensors, out.data_offset, file_bytes_, out.alignment, "gguf"));
    return out;
  }

 private:
  template <typename... Args>
  Status Error(int64_t at, fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument("gguf: byte {}: {}", at,
                           fmt::format(format, std::forward<Args>(args)...));
  }
  static int64_t Aligned(int64_t at, int64_t alignment) {
    return (at + alignment - 1) / alignment * alignment;
  }

  // Checks that `bytes` more bytes follow.
  Status Need(uint64_t bytes, std::string_view what) const {
    const auto there = static_cast<uint64_t>(static_cast<int64_t>(file_.size()) - at_);
    if (bytes <= there) return absl::OkStatus();
    if (bytes > static_cast<uint64_t>(file_bytes_ - at_))
      return Error(at_, "expected {} of {} bytes, but the file ends at {}", what, bytes,
                   file_bytes_);
    if (bytes > static_cast<uint64_t>(kGgufMaxHeader - at_))
      return Error(at_, "expected a header of at most {} bytes, got {} of {} more", kGgufMaxHeader,
                   what, bytes);
    return OutOfRange("gguf: byte {}: the header continues after the {} bytes that were read", at_,
                      file_.size());
  }
  template <typename T>
  StatusOr<T> Take(std::string_view what) {
    OPWIRE_RETURN_IF_ERROR(Need(sizeof(T), what));
    T v;
    std::memcpy(&v, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return v;
  }
  StatusOr<std::string> Text(std::string_view what) {
    OPWIRE_ASSIGN_OR_RETURN(const uint64_t length, Take<uint64_t>("the length of a string"));
    OPWIRE_RETURN_IF_ERROR(Need(length, what));
    std::string text(reinterpret_cast<const char*>(file_.data()) + at_, length);
    at_ += static_cast<int64_t>(length);
    return text;
  }
  StatusOr<int64_t> Count(std::string_view what, int64_t most) {
    const int64_t begin = at_;
    OPWIRE_ASSIGN_OR_RETURN(const uint64_t n, Take<uint64_t>(what));
    if (n > static_cast<uint64_t>(most))
      return Error(begin, "expected at most {} {}, got {}", most, what, n);
    return static_cast<int64_t>(n);
  }

  Status Begin(GgufHeader& out) {
    if (file_bytes_ < 24)
      return Error(0, "expected a header of 24 bytes at least, got a file of {}", file_bytes_);
    OPWIRE_ASSIGN_OR_RETURN(const uint32_t magic, Take<uint32_t>("the magic"));
    if (magic != 0x46554747)
      return Error(0, "expected GGUF, got {}",
                   Clip({reinterpret_cast<const char*>(file_.data()), 4}, 4));
    OPWIRE_ASSIGN_OR_RETURN(out.version, Take<uint32_t>("the version"));
    if (out.version != 0 && (out.version & 0xffff) == 0)
      return Error(4, "expected a little-endian file, got a big-endian one");
    if (out.version != 2 && out.version != 3)
      return Error(4, "expected version 2 or 3, got {}", out.version);
    return absl::OkStatus();
  }

  Status KeyValue(GgufHeader& out) {
    const int64_t begin = at_;
    OPWIRE_ASSIGN_OR_RETURN(std::string key, Text("a key"));
    if (key.empty() || static_cast<int64_t>(key.size()) > kGgufMaxKeyBytes)
      return Error(begin, "expected a key of 1 to {} bytes, got {}", kGgufMaxKeyBytes, key.size());
    if (!std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; }))
      return Error(begin, "expected a key of ASCII, got {}", Clip(key, kShownName));
    const int64_t type_at = at_;
    OPWIRE_ASSIGN_OR_RETURN(const uint32_t type, Take<uint32_t>("a value's type"));
    StatusOr<GgufValue> value = type == kArray ? Array() : One(type, type_at);
    OPWIRE_RETURN_IF_ERROR(value.status());
    if (!out.values.try_emplace(key, *std::move(value)).second)
      return Error(begin, "key {} is there twice", Clip(key, kShownName));
    return absl::OkStatus();
  }

  template <typename Stored, typename T>
  StatusOr<GgufValue> Number() {
    OPWIRE_ASSIGN_OR_RETURN(const Stored v, Take<Stored>("a value"));
    return GgufValue(static_cast<T>(v));
  }
  StatusOr<bool> Bool() {
    const int64_t begin = at_;
    OPWIRE_ASSIGN_OR_RETURN(const uint8_t v, Take<uint8_t>("a value"));
    if (v > 1) return Error(begin, "expected 0 or 1 for a bool, got {}", v);
    return v == 1;
  }
  StatusOr<GgufValue> One(uint32_t type, int64_t type_at) {
    switch (type) {
      case kU8:
        return Number<uint8_t, uint64_t>();
      case kI8:
        return Number<int8_t, int64_t>();
      case kU16:
        return Number<uint16_t, uint64_t>();
      case kI16:
        return Number<int16_t, int64_t>();
      case kU32:
        return Number<uint32_t, uint64_t>();
      case kI32:
        return Number<int32_t, int64_t>();
      case kU64:
        return Number<uint64_t, uint64_t>();
      case kI64:
        return Number<int64_t, int64_t>();
      case kF32:
        return Number<float, double>();
      case kF64:
        return Number<double, double>();
      case kBool:
        return Bool();
      case kString:
        return Text("a string");
      default:
        return Error(type_at, "expected a value's type of 0 to 12, got {}", type);
    }
  }

  template <typename Stored, typename T>
  StatusOr<GgufValue> Numbers(int64_t n) {
    OPWIRE_RETURN_IF_ERROR(Need(static_cast<uint64_t>(n) * sizeof(Stored), "an array"));
    std::vector<T> out(static_cast<size_t>(n));
    for (T& v : out) v = static_cast<T>(*Take<Stored>("an element"));
    return GgufValue(std::move(out));
  }
  StatusOr<GgufValue> Array() {
    const int64_t type_at = at_;
    OPWIRE_ASSIGN_OR_RETURN(const uint32_t type, Take<uint32_t>("an array's type"));
    OPWIRE_ASSIGN_OR_RETURN(const int64_t n,
                            Count("elements of arrays in all", kGgufMaxElements - elements_));
    elements_ += n;
    switch (type) {
      case kU8:
        return Numbers<uint8_t, uint64_t>(n);
      case kI8:
        return Numbers<int8_t, int64_t>(n);
      case kU16:
        return Numbers<uint16_t, uint64_t>(n);
      case kI16:
        return Numbers<int16_t, int64_t>(n);
      case kU32:
        return Numbers<uint32_t, uint64_t>(n);
      case kI32:
        return Numbers<int32_t, int64_t>(n);
      case kU64:
        return Numbers<uint64_t, uint64_t>(n);
      case kI64:
        return Numbers<int64_t, int64_t>(n);
      case kF32:
        return Numbers<float, double>(n);
      case kF64:
        return Numbers<double, double>(n);
      case kBool: {
        std::vector<bool> out;
        for (int64_t i = 0; i < n; ++i) {
          OPWIRE_ASSIGN_OR_RETURN(const bool v, Bool());
          out.push_back(v);
        }
        return GgufValue(std::move(out));
      }
      case kString: {
        std::vector<std::string> out;
        for (int64_t i = 0; i < n; ++i) {
          OPWIRE_ASSIGN_OR_RETURN(std::string text, Text("a string"));
          out.push_back(std::move(text));
        }
        return GgufValue(std::move(out));
      }
      case kArray:
        return Error(type_at, "expected an array of numbers, bools or strings, got one of arrays");
      default:
        return Error(type_at, "expected an array's type of 0 to 12, got {}", type);
    }
  }

  Status TakeAlignment(GgufHeader& out) const {
    const auto it = out.values.find("general.alignment");
    if (it == out.values.end()) return absl::OkStatus();
    const auto* const given = std::get_if<uint64_t>(&it->second);
    if (given == nullptr || *given < 8 || *given > (1 << 20) || !std::has_single_bit(*given)) {
      return Error(at_, "expected general.alignment to be a power of two from 8 to {}, got {}",
                   1 << 20, given == nullptr ? "another type" : fmt::to_string(*given));
    }
    out.alignment = static_cast<int64_t>(*given);
    return absl::OkStatus();
  }

  Status Tensor(GgufHeader& out) {
    FileTensor t;
    t.declared = at_;
    OPWIRE_ASSIGN_OR_RETURN(t.name, Text("a tensor's name"));
    if (t.name.empty() || static_cast<int64_t>(t.name.size()) > kGgufMaxNameBytes ||
        !IsUtf8(t.name)) {
      return Error(t.declared, "expected a tensor's name of 1 to {} bytes of UTF-8, got {}",
                   kGgufMaxNameBytes, Clip(t.name, kShownName));
    }
    const std::string shown = Clip(t.name, kShownName);
    int64_t at = at_;
    OPWIRE_ASSIGN_OR_RETURN(const uint32_t rank, Take<uint32_t>("a tensor's rank"));
    if (rank < 1 || rank > static_cast<uint32_t>(kGgufMaxRank))
      return Error(at, "tensor {}: expected rank 1 to {}, got {}", shown, kGgufMaxRank, rank);
    for (uint32_t i = 0; i < rank; ++i) {
      at = at_;
      OPWIRE_ASSIGN_OR_RETURN(const uint64_t extent, Take<uint64_t>("a tensor's extent"));
      if (extent > static_cast<uint64_t>(INT64_MAX))
        return Error(at, "tensor {}: expected extents of at most 2^63 - 1, got {}", shown, extent);
      t.shape.insert(t.shape.begin(),
                     static_cast<int64_t>(extent));  // the file has the innermost first
    }
    at = at_;
    OPWIRE_ASSIGN_OR_RETURN(const uint32_t number, Take<uint32_t>("a tensor's type"));
    const GgufType* const type = std::ranges::find(kGgufTypes, number, &GgufType::number);
    if (type == std::end(kGgufTypes)) {
      t.type = fmt::format("type {}", number);
      t.bytes = kUnknown;
    } else {
      OPWIRE_RETURN_IF_ERROR(Measure(t, *type, at));
    }
    at = at_;
    OPWIRE_ASSIGN_OR_RETURN(const uint64_t offset, Take<uint64_t>("a tensor's offset"));
    if (offset % static_cast<uint64_t>(out.alignment) != 0)
      return Error(at, "tensor {}: expected an offset that is a multiple of {}, got {}", shown,
                   out.alignment, offset);
    if (offset > static_cast<uint64_t>(file_bytes_))
      return Error(at, "tensor {}: expected an offset within the file's {} bytes, got {}", shown,
                   file_bytes_, offset);
    t.offset = static_cast<int64_t>(offset);
    out.tensors.push_back(std::move(t));
    return absl::OkStatus();
  }

  // Sets type and bytes. `at`: the byte of the type.
  Status Measure(FileTensor& t, const GgufType& type, int64_t at) const {
    const std::string shown = Clip(t.name, kShownName);
    t.type = type.name;
    t.dtype = type.dtype;
    t.encoding = type.encoding;
    if (t.shape.back() % type.elements != 0)
      return Error(at, "tensor {}: expected rows of whole blocks of {} for {}, got {}", shown,
                   type.elements, type.name, t.shape.back());
    const auto elements = CheckedElements(t.shape);
    const auto bytes = elements ? CheckedMul(*elements / type.elements, type.bytes) : std::nullopt;
    if (!bytes)
      return Error(at, "tensor {}: {}{} has more than 2^63 bytes", shown, type.name,
                   ShapeToString(t.shape));
    t.bytes = *bytes;
    return absl::OkStatus();
  }

  // Tensors of types from a later ggml end at the begin of the next tensor.
  void EndUnknown(std::vector<FileTensor>& tensors) const {
    std::vector<int64_t> offsets = {file_bytes_};
    for (const FileTensor& t : tensors) offsets.push_back(t.offset);
    std::ranges::sort(offsets);
    for (FileTensor& t : tensors) {
      if (t.bytes != kUnknown) continue;
      const auto next = std::ranges::upper_bound(offsets, t.offset);
      t.bytes = next == offsets.end() ? 0 : *next - t.offset;
    }
  }

  const std::span<const uint8_t> file_;
  const int64_t file_bytes_;
  int64_t at_ = 0;
  int64_t elements_ = 0;  // of arrays
};

}  // namespace

StatusOr<GgufHeader> ParseGguf(std::span<const uint8_t> file, int64_t file_bytes) {
  const auto most = static_cast<size_t>(std::min(file_bytes, kGgufMaxHeader));
  return GgufReader(file.first(std::min(file.size(), most)), file_bytes).Read();
}

}  // namespace opwire
