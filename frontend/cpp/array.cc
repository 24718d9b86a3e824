// Files and random contents of arrays.
#include "frontend/cpp/array.h"

#include <cerrno>
#include <fstream>
#include <random>

#include "ir/base/float.h"
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
    const uint64_t small = r & 7;
    switch (dtype) {
      case DType::kF64: a.values<double>()[i] = real; break;
      case DType::kF32: a.values<float>()[i] = static_cast<float>(real); break;
      case DType::kF16: a.values<uint16_t>()[i] = FloatToF16(static_cast<float>(real)); break;
      case DType::kBF16: a.values<uint16_t>()[i] = FloatToBF16(static_cast<float>(real)); break;
      case DType::kF8E4M3: a.bytes_[i] = FloatToF8E4M3(static_cast<float>(real)); break;
      case DType::kF8E5M2: a.bytes_[i] = FloatToF8E5M2(static_cast<float>(real)); break;
      case DType::kBool: a.bytes_[i] = small & 1; break;
      default: std::memcpy(a.bytes_.data() + i * DTypeBytes(dtype), &small, static_cast<size_t>(DTypeBytes(dtype))); break;
    }
  }
  return a;
}

}  // namespace opwire
