// Files and random contents of arrays.
#include "frontend/cpp/array.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "ir/base/element.h"
#include "ir/base/npy.h"

namespace opwire {

StatusOr<Array> Array::ReadNpy(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return NotFound("file {}: {}", path, std::strerror(errno));
  const int64_t size = in.tellg();
  in.seekg(0);
  std::vector<uint8_t> head(static_cast<size_t>(std::min<int64_t>(size, kNpyMaxHeader + 16)));
  in.read(reinterpret_cast<char*>(head.data()), static_cast<std::streamsize>(head.size()));
  auto header = ParseNpyHeader(head, size);
  if (!header.ok()) return Status(header.status().code(), fmt::format("file {}: {}", path, MessageOf(header.status())));
  Array a = Uninitialised(header->dtype, header->shape);
  in.seekg(header->data_offset);
  in.read(reinterpret_cast<char*>(a.bytes_.data()), static_cast<std::streamsize>(a.bytes_.size()));
  if (!in) return InvalidArgument("file {}: it ends early", path);
  return a;
}

Status Array::WriteNpy(const std::string& path) const {
  OPWIRE_ASSIGN_OR_RETURN(const std::string header, MakeNpyHeader(dtype_, shape_));
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
  out.flush();
  if (!out) return Unavailable("file {}: {}", path, std::strerror(errno));
  return absl::OkStatus();
}

Array Array::Random(DType dtype, std::vector<int64_t> shape, uint64_t seed) {
  Array a(dtype, std::move(shape));
  std::mt19937_64 random(seed);
  const int64_t n = a.elements();
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t r = random();
    const double real = static_cast<double>(r >> 11) * 0x1p-52 - 1;
    const auto small = static_cast<int64_t>(dtype == DType::kBool ? r & 1 : r & 7);
    const uint64_t bits = (kFloats | kFloat8s).Has(dtype) ? ElementBits(dtype, real) : ElementBits(dtype, small);
    std::memcpy(a.bytes_.data() + i * DTypeBytes(dtype), &bits, static_cast<size_t>(DTypeBytes(dtype)));
  }
  return a;
}

}  // namespace opwire
