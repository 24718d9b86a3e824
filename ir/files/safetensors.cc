// Reads safetensors headers. Parses only the JSON syntax that they use, so that each error has its
// byte.
#include "ir/files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/base/checked.h"
#include "ir/base/type.h"
#include "ir/ops/names.h"

namespace opwire {
namespace {

constexpr int64_t kMaxMetadata = 65536;  // entries
constexpr int64_t kLengthBytes = 8;
constexpr size_t kMostAxes = 64;  // of a tensor; those of more than kMaxRank are not loaded

// Element types by their names. Those with kInvalid have no counterpart here.
struct SafetensorsType {
  std::string_view name;
  int bits;
  DType dtype = DType::kInvalid;
};
constexpr SafetensorsType kSafetensorsTypes[] = {
    {"BOOL", 8, DType::kBool},
    {"U8", 8, DType::kU8},
    {"I8", 8, DType::kI8},
    {"F8_E5M2", 8, DType::kF8E5M2},
    {"F8_E4M3", 8, DType::kF8E4M3},
    {"I16", 16, DType::kI16},
    {"U16", 16, DType::kU16},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},
    {"U32", 32, DType::kU32},
    {"F32", 32, DType::kF32},
    {"I64", 64, DType::kI64},
    {"U64", 64, DType::kU64},
    {"F64", 64, DType::kF64},
    {"C64", 64},
    {"F8_E8M0", 8},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
    {"F4", 4},
};

void AppendUtf8(std::string& to, uint32_t code) {
  if (code < 0x80) {
    to += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint32_t kLeads[] = {0, 0xc0, 0xe0, 0xf0};
  to += static_cast<char>(kLeads[more] | code >> 6 * more);
  for (int k = more - 1; k >= 0; --k) to += static_cast<char>(0x80 | (code >> 6 * k & 0x3f));
}

class SafetensorsReader {
 public:
  // `text` is the file up to the header's end.
  explicit SafetensorsReader(std::string_view text) : text_(text), at_(kLengthBytes) {}

  Status Read(SafetensorsHeader& out) {
    OPWIRE_RETURN_IF_ERROR(
        Object("a tensor's name", [&](std::string key, int64_t declared) -> Status {
          if (key == "__metadata__") return Metadata(out, declared);
          return Tensor(out, std::move(key), declared);
        }));
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ == text_.size() ? absl::OkStatus() : Error("the header's end");
  }

 private:
  Status Error(std::string_view expected) const {
    const std::string_view rest = text_.substr(std::min(at_, text_.size()));
    return InvalidArgument("safetensors: byte {}: expected {}, got {}", at_, expected,
                           rest.empty() ? "the header's end" : Clip(rest, 16));
  }
  static Status ErrorAt(int64_t at, std::string_view what) {
    return InvalidArgument("safetensors: byte {}: {}", at, what);
  }

  void Space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool TakeIf(char c) {
    Space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Calls field(name, the byte of its begin) with the reader at its value.
  template <typename F>
  Status Object(std::string_view what, const F& field) {
    if (!TakeIf('{')) return Error("'{'");
    if (TakeIf('}')) return absl::OkStatus();
    do {
      Space();
      const auto begin = static_cast<int64_t>(at_);
      OPWIRE_ASSIGN_OR_RETURN(std::string name, String(what));
      if (!TakeIf(':')) return Error("':'");
      OPWIRE_RETURN_IF_ERROR(field(std::move(name), begin));
    } while (TakeIf(','));
    return TakeIf('}') ? absl::OkStatus() : Error("',' or '}'");
  }
  StatusOr<std::vector<int64_t>> Numbers(size_t most) {
    std::vector<int64_t> out;
    if (!TakeIf('[')) return Error("'['");
    if (TakeIf(']')) return out;
    do {
      if (out.size() == most) return Error(fmt::format("at most {} numbers", most));
      OPWIRE_ASSIGN_OR_RETURN(const int64_t n, Number());
      out.push_back(n);
    } while (TakeIf(','));
    if (!TakeIf(']')) return Error("',' or ']'");
    return out;
  }
  StatusOr<int64_t> Number() {
    Space();
    const size_t begin = at_;
    int64_t n = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto tens = CheckedMul(n, 10);
      const auto next = tens ? CheckedAdd(*tens, text_[at_] - '0') : std::nullopt;
      if (!next) return ErrorAt(static_cast<int64_t>(begin), "expected a number below 2^63");
      n = *next;
    }
    if (at_ == begin || (text_[begin] == '0' && at_ > begin + 1)) {
      at_ = begin;
      return Error("a whole number");
    }
    return n;
  }

  StatusOr<uint32_t> Hex() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return Error("four hexadecimal digits");
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }
  // Reads the characters after a backslash.
  Status Escaped(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (const size_t i = kNames.find(c); c != '\0' && i != kNames.npos) {
      out += kMeanings[i];
      ++at_;
      return absl::OkStatus();
    }
    if (c != 'u') return Error("an escape of JSON");
    ++at_;
    OPWIRE_ASSIGN_OR_RETURN(uint32_t code, Hex());
    if (code >= 0xd800 && code < 0xdc00) {
      if (text_.substr(at_, 2) != "\\u") return Error("the second half of a surrogate pair");
      at_ += 2;
      OPWIRE_ASSIGN_OR_RETURN(const uint32_t low, Hex());
      if (low < 0xdc00 || low >= 0xe000)
        return Error("the second half of a surrogate pair before this");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return Error("the first half of a surrogate pair before this");
    }
    AppendUtf8(out, code);
    return absl::OkStatus();
  }
  StatusOr<std::string> String(std::string_view what) {
    Space();
    const auto begin = static_cast<int64_t>(at_);
    if (!TakeIf('"')) return Error(fmt::format("{} in quotes", what));
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<uint8_t>(text_[at_]) < 0x20) return Error("no control character in a string");
      if (text_[at_] != '\\') {
        out += text_[at_++];
        continue;
      }
      ++at_;
      OPWIRE_RETURN_IF_ERROR(Escaped(out));
    }
    if (!TakeIf('"')) return Error("the end of a string");
    if (!IsUtf8(out)) return ErrorAt(begin, "expected a string of UTF-8");
    return out;
  }

  Status Metadata(SafetensorsHeader& out, int64_t declared) {
    if (metadata_) return ErrorAt(declared, "__metadata__ is there twice");
    metadata_ = true;
    return Object("a key", [&](std::string key, int64_t begin) -> Status {
      if (static_cast<int64_t>(out.metadata.size()) == kMaxMetadata)
        return ErrorAt(begin,
                       fmt::format("expected at most {} entries of __metadata__", kMaxMetadata));
      OPWIRE_ASSIGN_OR_RETURN(std::string value, String("a value"));
      if (!out.metadata.try_emplace(key, std::move(value)).second)
        return ErrorAt(begin, fmt::format("key {} is there twice", Clip(key, kShownName)));
      return absl::OkStatus();
    });
  }

  Status Tensor(SafetensorsHeader& out, std::string name, int64_t declared) {
    if (static_cast<int64_t>(out.tensors.size()) == kMaxFileTensors)
      return ErrorAt(declared, fmt::format("expected at most {} tensors", kMaxFileTensors));
    const std::string shown = Clip(name, kShownName);
    const auto fail = [&](std::string_view what) {
      return ErrorAt(declared, fmt::format("tensor {}: {}", shown, what));
    };
    if (name.empty()) return fail("expected a name");
    std::optional<std::string> type;
    std::optional<std::vector<int64_t>> shape, offsets;
    OPWIRE_RETURN_IF_ERROR(
        Object("a field", [&](const std::string& field, int64_t begin) -> Status {
          const auto once = [&](const auto& have) {
            return have ? ErrorAt(begin, fmt::format("tensor {}: {} is there twice", shown, field))
                        : absl::OkStatus();
          };
          if (field == "dtype") {
            OPWIRE_RETURN_IF_ERROR(once(type));
            OPWIRE_ASSIGN_OR_RETURN(type, String("an element type"));
          } else if (field == "shape") {
            OPWIRE_RETURN_IF_ERROR(once(shape));
            OPWIRE_ASSIGN_OR_RETURN(shape, Numbers(kMostAxes));
          } else if (field == "data_offsets") {
            OPWIRE_RETURN_IF_ERROR(once(offsets));
            OPWIRE_ASSIGN_OR_RETURN(offsets, Numbers(2));
          } else {
            return ErrorAt(begin,
                           fmt::format("tensor {}: expected dtype, shape or data_offsets, got {}",
                                       shown, Clip(field, kShownName)));
          }
          return absl::OkStatus();
        }));
    if (!type || !shape || !offsets)
      return fail(fmt::format("{} is missing", !type    ? "dtype"
                                               : !shape ? "shape"
                                                        : "data_offsets"));
    if (offsets->size() != 2 || (*offsets)[0] > (*offsets)[1])
      return fail("expected data_offsets to be where it begins and ends");
    const int64_t bytes = (*offsets)[1] - (*offsets)[0];
    DType dtype = DType::kInvalid;
    // A type that is newer than this table costs only its own tensors: data_offsets say where the
    // others are.
    if (const SafetensorsType* const known =
            std::ranges::find(kSafetensorsTypes, std::string_view(*type), &SafetensorsType::name);
        known != std::end(kSafetensorsTypes)) {
      const auto elements = CheckedElements(*shape);
      const auto bits = elements ? CheckedMul(*elements, known->bits) : std::nullopt;
      if (!bits || *bits % 8 != 0 || *bits / 8 != bytes) {
        return fail(fmt::format("{}{} takes {} bytes, but data_offsets are {} apart", *type,
                                ShapeToString(*shape),
                                bits ? fmt::to_string(*bits / 8) : "more than 2^60", bytes));
      }
      dtype = known->dtype;
    }
    *type = Clip(*type, kShownName);
    if (shape->size() > kMaxRank) {
      dtype = DType::kInvalid;
      *type += fmt::format(" with {} axes", shape->size());
    }
    const auto offset = CheckedAdd((*offsets)[0], static_cast<int64_t>(text_.size()));
    if (!offset) return fail("expected data_offsets within the file");
    out.tensors.push_back({std::move(name), *std::move(type), dtype, Encoding::kDense,
                           *std::move(shape), *offset, bytes, declared});
    return absl::OkStatus();
  }

  const std::string_view text_;
  size_t at_;
  bool metadata_ = false;
};

}  // namespace

StatusOr<SafetensorsHeader> ParseSafetensors(std::span<const uint8_t> file, int64_t file_bytes) {
  if (file_bytes < kLengthBytes)
    return InvalidArgument("safetensors: byte 0: expected a length of 8 bytes, got a file of {}",
                           file_bytes);
  if (static_cast<int64_t>(file.size()) < kLengthBytes)
    return OutOfRange("safetensors: byte 0: the header continues after the {} bytes that were read",
                      file.size());
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{file[i]} << 8 * i;
  if (length > static_cast<uint64_t>(kSafetensorsMaxHeader - kLengthBytes)) {
    return InvalidArgument("safetensors: byte 0: expected a header of at most {} bytes, got {}",
                           kSafetensorsMaxHeader - kLengthBytes, length);
  }
  if (length > static_cast<uint64_t>(file_bytes - kLengthBytes))
    return InvalidArgument("safetensors: byte 0: the header has {} bytes, but the file ends at {}",
                           length, file_bytes);
  SafetensorsHeader out;
  out.data_offset = static_cast<int64_t>(length) + kLengthBytes;
  if (static_cast<int64_t>(file.size()) < out.data_offset)
    return OutOfRange("safetensors: byte {}: the header continues after the bytes that were read",
                      file.size());
  const std::string_view text(reinterpret_cast<const char*>(file.data()),
                              static_cast<size_t>(out.data_offset));
  OPWIRE_RETURN_IF_ERROR(SafetensorsReader(text).Read(out));
  OPWIRE_RETURN_IF_ERROR(
      CheckPlaces(out.tensors, out.data_offset, file_bytes, /*alignment=*/1, "safetensors"));
  return out;
}

}  // namespace opwire
