// Files and random contents of arrays.
#include "frontend/cpp/array.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include "ir/base/element.h"
#include "ir/base/npy.h"
#include "ir/base/owned_fd.h"

namespace opwire::client {

StatusOr<Array> Array::ReadNpy(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return NotFound("file {}: {}", path, std::strerror(errno));
  const int64_t size = in.tellg();
  in.seekg(0);
  std::vector<uint8_t> head(static_cast<size_t>(std::min<int64_t>(size, kNpyMaxHeader + 16)));
  in.read(reinterpret_cast<char*>(head.data()), static_cast<std::streamsize>(head.size()));
  auto header = ParseNpyHeader(head, size);
  if (!header.ok())
    return Status(header.status().code(),
                  fmt::format("file {}: {}", path, MessageOf(header.status())));
  Array a = Uninitialised(header->dtype, header->shape);
  in.seekg(header->data_offset);
  in.read(reinterpret_cast<char*>(a.bytes_.data()), static_cast<std::streamsize>(a.bytes_.size()));
  if (!in) return InvalidArgument("file {}: it ends early", path);
  return a;
}

namespace {

Status FileError(const std::string& path) {
  const int error = errno;
  if (error == EACCES || error == EPERM)
    return PermissionDenied("file {}: {}", path, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT)
    return ResourceExhausted("file {}: {}", path, std::strerror(error));
  return FailedPrecondition("file {}: {}", path, std::strerror(error));
}

}  // namespace

Status Array::WriteNpy(const std::string& path) const {
  OPWIRE_ASSIGN_OR_RETURN(const std::string header, MakeNpyHeader(dtype_, shape_));
  struct stat st;
  const bool there = stat(path.c_str(), &st) == 0;
  if (there && S_ISDIR(st.st_mode)) return FailedPrecondition("file {}: it is a directory", path);
  // An existing file stays until the new one is complete. A pipe or a device is written directly.
  const bool replace = !there || S_ISREG(st.st_mode);
  const std::string to = replace ? fmt::format("{}.{}.part", path, getpid()) : path;
  const OwnedFd fd(
      open(to.c_str(), O_WRONLY | O_CLOEXEC | (replace ? O_CREAT | O_TRUNC : 0), 0666));
  if (fd.get() < 0) return FileError(path);
  if (opwire::WriteNpy(fd.get(), header, bytes_) &&
      (!replace || rename(to.c_str(), path.c_str()) == 0))
    return absl::OkStatus();
  const Status status = FileError(path);
  if (replace) unlink(to.c_str());
  return status;
}

Array Array::Random(DType dtype, std::vector<int64_t> shape, uint64_t seed) {
  Array a(dtype, std::move(shape));
  std::mt19937_64 random(seed);
  const int64_t n = a.elements();
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t r = random();
    const double real = static_cast<double>(r >> 11) * 0x1p-52 - 1;
    const auto small = static_cast<int64_t>(dtype == DType::kBool ? r & 1 : r & 7);
    const uint64_t bits =
        (kFloats | kFloat8s).Has(dtype) ? ElementBits(dtype, real) : ElementBits(dtype, small);
    std::memcpy(a.bytes_.data() + i * DTypeBytes(dtype), &bits,
                static_cast<size_t>(DTypeBytes(dtype)));
  }
  return a;
}

}  // namespace opwire::client
