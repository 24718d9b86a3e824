// Reads and writes .npy files.
#include "ir/base/npy.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "ir/base/type.h"

namespace opwire {
namespace {

struct Name {
  std::string_view descr;  // without the byte order
  DType dtype;
};
constexpr std::array<Name, 13> kNames = {{{"f8", DType::kF64},
                                          {"f4", DType::kF32},
                                          {"f2", DType::kF16},
                                          {"V2", DType::kBF16},
                                          {"i8", DType::kI64},
                                          {"i4", DType::kI32},
                                          {"i2", DType::kI16},
                                          {"i1", DType::kI8},
                                          {"u8", DType::kU64},
                                          {"u4", DType::kU32},
                                          {"u2", DType::kU16},
                                          {"u1", DType::kU8},
                                          {"b1", DType::kBool}}};

// Returns the text after `key` and the colon that follows it.
StatusOr<std::string_view> After(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return InvalidArgument("npy: the header has no {}", key);
  const size_t colon = header.find(':', at + key.size());
  if (colon == std::string_view::npos)
    return InvalidArgument("npy: the header has no value of {}", key);
  header.remove_prefix(colon + 1);
  while (!header.empty() && header.front() == ' ') header.remove_prefix(1);
  return header;
}

}  // namespace

StatusOr<NpyHeader> ParseNpyHeader(std::span<const uint8_t> file, int64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.size() < 12 || text.substr(0, 6) != "\x93NUMPY")
    return InvalidArgument("npy: the file does not begin as one");
  const int major = file[6];
  size_t length, begin;
  if (major == 1) {
    length = file[8] | (file[9] << 8);
    begin = 10;
  } else if (major == 2 || major == 3) {
    length = file[8] | (size_t{file[9]} << 8) | (size_t{file[10]} << 16) | (size_t{file[11]} << 24);
    begin = 12;
  } else {
    return InvalidArgument("npy: expected format 1 to 3, got {}", major);
  }
  if (length > text.size() - begin)
    return InvalidArgument("npy: a header of {} bytes is longer than the file or than {}", length,
                           kNpyMaxHeader);
  const std::string_view header = text.substr(begin, length);
  NpyHeader out;

  OPWIRE_ASSIGN_OR_RETURN(std::string_view descr, After(header, "'descr'"));
  const size_t quote = descr.find('\'', 1);
  if (descr.empty() || descr.front() != '\'' || quote == std::string_view::npos)
    return InvalidArgument("npy: expected a plain element type");
  descr = descr.substr(1, quote - 1);
  if (!descr.empty() && (descr.front() == '<' || descr.front() == '|' || descr.front() == '=')) {
    for (const Name& n : kNames) {
      if (n.descr == descr.substr(1)) out.dtype = n.dtype;
    }
  }
  if (out.dtype == DType::kInvalid)
    return InvalidArgument(
        "npy: element type '{}' is not supported (expected little-endian f, i, u or b)",
        descr.substr(0, 32));

  OPWIRE_ASSIGN_OR_RETURN(const std::string_view order, After(header, "'fortran_order'"));
  if (order.substr(0, 5) != "False")
    return InvalidArgument("npy: expected C order; save with numpy.ascontiguousarray");

  OPWIRE_ASSIGN_OR_RETURN(std::string_view shape, After(header, "'shape'"));
  if (shape.empty() || shape.front() != '(')
    return InvalidArgument("npy: expected a shape in parentheses");
  shape.remove_prefix(1);
  while (true) {
    while (!shape.empty() && (shape.front() == ' ' || shape.front() == ',')) shape.remove_prefix(1);
    if (shape.empty()) return InvalidArgument("npy: the shape does not end");
    if (shape.front() == ')') break;
    int64_t extent = 0;
    const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), extent);
    if (error != std::errc() || extent < 0)
      return InvalidArgument("npy: expected extents that are numbers of at least 0");
    if (out.shape.size() == kMaxRank)
      return InvalidArgument("npy: expected at most {} dimensions", kMaxRank);
    out.shape.push_back(extent);
    shape.remove_prefix(static_cast<size_t>(end - shape.data()));
  }
  const auto bytes = TensorBytes(out.dtype, Encoding::kDense, out.shape);
  out.data_offset = static_cast<int64_t>(begin + length);
  if (!bytes || *bytes > file_bytes - out.data_offset) {
    return InvalidArgument("npy: {}{} has more bytes than the {} that follow the header",
                           DTypeName(out.dtype), ShapeToString(out.shape),
                           file_bytes - out.data_offset);
  }
  out.data_bytes = *bytes;
  return out;
}

StatusOr<std::string> MakeNpyHeader(DType dtype, std::span<const int64_t> shape) {
  std::string_view descr;
  for (const Name& n : kNames) {
    if (n.dtype == dtype) descr = n.descr;
  }
  if (descr.empty())
    return Unimplemented("npy: NumPy has no element type for {}; cast first", DTypeName(dtype));
  std::string extents;
  for (int64_t d : shape) extents += std::to_string(d) + ", ";
  if (shape.size() > 1)
    extents.resize(extents.size() - 2);
  else if (shape.size() == 1)
    extents.resize(extents.size() - 1);
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   DTypeBytes(dtype) > 1 ? '<' : '|', descr, extents);
  const size_t total = (10 + header.size() + 1 + 63) / 64 * 64;
  header.append(total - 10 - header.size() - 1, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  return out + header;
}

bool WriteNpy(int fd, std::string_view header, std::span<const uint8_t> elements) {
  const std::span<const uint8_t> parts[] = {
      {reinterpret_cast<const uint8_t*>(header.data()), header.size()}, elements};
  for (std::span<const uint8_t> part : parts) {
    while (!part.empty()) {
      const ssize_t n = write(fd, part.data(), part.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return false;
      part = part.subspan(static_cast<size_t>(n));
    }
  }
  return true;
}

}  // namespace opwire
