// Files beneath the data directory.
#include "executor/serve/files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "ir/wire/clock.h"

namespace opwire {
namespace {

int OpenBeneath(int directory, const std::string& path, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(syscall(SYS_openat2, directory, path.c_str(), &how, sizeof(how)));
}

Status FileError(const std::string& path) {
  const std::string shown = path.substr(0, 256);
  switch (errno) {
    case ENOENT: return NotFound("file {}: there is none in the data directory", shown);
    case EXDEV:
    case ELOOP:
    case EACCES: return PermissionDenied("file {}: expected a path beneath the data directory, without links", shown);
    case ENAMETOOLONG: return InvalidArgument("file {}: its name is too long", shown);
    case ENOSPC:
    case EDQUOT: return ResourceExhausted("file {}: the disk is full", shown);
    default: return Unavailable("file {}: {}", shown, std::strerror(errno));
  }
}

// The principal's own directory: "uid:1000" has uid-1000. No two principals share one: a principal has one ':', and its name letters,
// digits, '_' and '-'; anything else is escaped.
StatusOr<OwnedFd> PrincipalDirectory(const std::string& directory, const std::string& principal) {
  std::string name;
  for (char c : principal) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-') name += c;
    else if (c == ':') name += '-';
    else name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  OwnedFd top(open(directory.c_str(), O_DIRECTORY | O_PATH | O_CLOEXEC));
  if (top.get() < 0) return FileError(directory);
  if (mkdirat(top.get(), name.c_str(), 0700) != 0 && errno != EEXIST) return FileError(name);
  OwnedFd own(OpenBeneath(top.get(), name, O_DIRECTORY | O_RDONLY, 0));
  if (own.get() < 0) return FileError(name);
  return own;
}

Status CheckPath(const std::string& path) {
  if (path.empty() || path.size() > 1024 || path.front() == '/' || path.find('\0') != std::string::npos) {
    return InvalidArgument("file '{}': expected a relative path of 1 to 1024 characters", path.substr(0, 256));
  }
  return absl::OkStatus();
}

Status ReadAt(const NpyFile& file, uint8_t* into, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t n = pread(file.fd.get(), into, static_cast<size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(file.path);
    if (n == 0) return InvalidArgument("file {}: it ends {} bytes early", file.path.substr(0, 256), bytes);
    into += n;
    bytes -= n;
    offset += n;
  }
  return absl::OkStatus();
}

}  // namespace

Status SaveNpy(const std::string& directory, const std::string& principal, const std::string& path, DType dtype,
               std::span<const int64_t> shape, Bytes bytes) {
  OPWIRE_RETURN_IF_ERROR(CheckPath(path));
  OPWIRE_ASSIGN_OR_RETURN(const std::string header, MakeNpyHeader(dtype, shape));
  OPWIRE_ASSIGN_OR_RETURN(const OwnedFd own, PrincipalDirectory(directory, principal));
  // The folder that the path names must be there; the temporary file lies in it, so the rename is atomic.
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty() || name == "." || name == "..") return InvalidArgument("file {}: expected the name of a file", path.substr(0, 256));
  const OwnedFd parent(OpenBeneath(own.get(), folder, O_DIRECTORY | O_RDONLY, 0));
  if (parent.get() < 0) return FileError(path);
  // Its own for every save, so that of two at once each publishes what it wrote.
  static std::atomic<uint64_t> saves{0};
  const std::string temporary = fmt::format(".opwire.{}.{}.{}.part", getpid(), MonotonicNow(), ++saves);
  const OwnedFd file(OpenBeneath(parent.get(), temporary, O_WRONLY | O_CREAT | O_EXCL, 0600));
  if (file.get() < 0) return FileError(path);
  if (WriteNpy(file.get(), header, bytes) && fsync(file.get()) == 0 &&
      renameat(parent.get(), temporary.c_str(), parent.get(), name.c_str()) == 0) {
    return absl::OkStatus();
  }
  const Status status = FileError(path);
  unlinkat(parent.get(), temporary.c_str(), 0);
  return status;
}

StatusOr<NpyFile> OpenNpy(const std::string& directory, const std::string& principal, const std::string& path) {
  OPWIRE_RETURN_IF_ERROR(CheckPath(path));
  OPWIRE_ASSIGN_OR_RETURN(const OwnedFd own, PrincipalDirectory(directory, principal));
  NpyFile file{path, OwnedFd(OpenBeneath(own.get(), path, O_RDONLY | O_NONBLOCK, 0)), {}};
  if (file.fd.get() < 0) return FileError(path);
  struct stat st;
  if (fstat(file.fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return InvalidArgument("file {}: expected a regular file", path.substr(0, 256));
  std::vector<uint8_t> head(static_cast<size_t>(std::min<int64_t>(st.st_size, kNpyMaxHeader + 16)));
  OPWIRE_RETURN_IF_ERROR(ReadAt(file, head.data(), static_cast<int64_t>(head.size()), 0));
  OPWIRE_ASSIGN_OR_RETURN(file.header, ParseNpyHeader(head, st.st_size));
  return file;
}

Status ReadNpy(const NpyFile& file, uint8_t* into) { return ReadAt(file, into, file.header.data_bytes, file.header.data_offset); }

}  // namespace opwire
