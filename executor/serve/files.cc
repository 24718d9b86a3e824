// Files beneath the data directory.
#include "executor/serve/files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "ir/base/npy.h"
#include "ir/files/file_kind.h"
#include "ir/files/gguf.h"
#include "ir/files/read_header.h"
#include "ir/files/safetensors.h"
#include "ir/ops/names.h"
#include "ir/wire/clock.h"

namespace opwire::executor {
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
    case ENOENT:
      return NotFound("file {}: there is none in the data directory", shown);
    case EXDEV:
    case ELOOP:
    case EACCES:
      return PermissionDenied("file {}: expected a path beneath the data directory, without links",
                              shown);
    case ENAMETOOLONG:
      return InvalidArgument("file {}: its name is too long", shown);
    case ENOSPC:
    case EDQUOT:
      return ResourceExhausted("file {}: the disk is full", shown);
    default:
      return Unavailable("file {}: {}", shown, std::strerror(errno));
  }
}

// The principal's own directory: "uid:1000" has uid-1000. No two principals share one: a principal
// has one ':', and its name letters, digits, '_' and '-'. All other characters are escaped.
StatusOr<OwnedFd> PrincipalDirectory(const std::string& directory, const std::string& principal) {
  std::string name;
  for (char c : principal) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-')
      name += c;
    else if (c == ':')
      name += '-';
    else
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  OwnedFd top(open(directory.c_str(), O_DIRECTORY | O_PATH | O_CLOEXEC));
  if (top.get() < 0) return FileError(directory);
  if (mkdirat(top.get(), name.c_str(), 0700) != 0 && errno != EEXIST) return FileError(name);
  OwnedFd own(OpenBeneath(top.get(), name, O_DIRECTORY | O_RDONLY, 0));
  if (own.get() < 0) return FileError(name);
  return own;
}

Status CheckPath(const std::string& path) {
  if (path.empty() || path.size() > 1024 || path.front() == '/' ||
      path.find('\0') != std::string::npos) {
    return InvalidArgument("file '{}': expected a relative path of 1 to 1024 characters",
                           path.substr(0, 256));
  }
  return absl::OkStatus();
}

// `end`: the expected size of the file, for messages.
Status ReadAt(const OwnedFd& fd, const std::string& path, uint8_t* into, int64_t bytes,
              int64_t offset, int64_t end) {
  while (bytes > 0) {
    const ssize_t n = pread(fd.get(), into, static_cast<size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path);
    if (n == 0)
      return InvalidArgument("file {}: expected {} bytes at least, it ends after {}",
                             path.substr(0, 256), end, offset);
    into += n;
    bytes -= n;
    offset += n;
  }
  return absl::OkStatus();
}

template <typename Header>
StatusOr<std::vector<FileTensor>> TensorsOf(StatusOr<Header> header) {
  OPWIRE_RETURN_IF_ERROR(header.status());
  return std::move(header->tensors);
}

StatusOr<FileTensor> ReadNpyHeader(const OwnedFd& fd, const std::string& path, int64_t file_bytes) {
  std::vector<uint8_t> head(static_cast<size_t>(std::min<int64_t>(file_bytes, kNpyMaxHeader + 16)));
  OPWIRE_RETURN_IF_ERROR(ReadAt(fd, path, head.data(), static_cast<int64_t>(head.size()), 0,
                                static_cast<int64_t>(head.size())));
  OPWIRE_ASSIGN_OR_RETURN(NpyHeader header, ParseNpyHeader(head, file_bytes));
  FileTensor t;
  t.dtype = header.dtype;
  t.shape = std::move(header.shape);
  t.offset = header.data_offset;
  t.bytes = header.data_bytes;
  return t;
}

}  // namespace

Status SaveNpy(const std::string& directory, const std::string& principal, const std::string& path,
               DType dtype, std::span<const int64_t> shape, Bytes bytes) {
  OPWIRE_RETURN_IF_ERROR(CheckPath(path));
  OPWIRE_ASSIGN_OR_RETURN(const std::string header, MakeNpyHeader(dtype, shape));
  OPWIRE_ASSIGN_OR_RETURN(const OwnedFd own, PrincipalDirectory(directory, principal));
  // The folder that the path names must exist. The temporary file is in it, so the rename is
  // atomic.
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty() || name == "." || name == "..")
    return InvalidArgument("file {}: expected the name of a file", path.substr(0, 256));
  const OwnedFd parent(OpenBeneath(own.get(), folder, O_DIRECTORY | O_RDONLY, 0));
  if (parent.get() < 0) return FileError(path);
  // Every save has its own, so that each of two concurrent saves publishes its own bytes.
  static std::atomic<uint64_t> saves{0};
  const std::string temporary =
      fmt::format(".opwire.{}.{}.{}.part", getpid(), MonotonicNow(), ++saves);
  // A file without a name is removed with its process, however that ends. Some file systems do not
  // support it.
  OwnedFd file(OpenBeneath(parent.get(), ".", O_TMPFILE | O_WRONLY, 0600));
  const bool named = file.get() < 0;
  if (named)
    file = OwnedFd(OpenBeneath(parent.get(), temporary, O_WRONLY | O_CREAT | O_EXCL, 0600));
  if (file.get() < 0) return FileError(path);
  const auto publish = [&] {
    if (!named) {
      const std::string self = fmt::format("/proc/self/fd/{}", file.get());
      const auto link = [&](const std::string& to) {
        return linkat(AT_FDCWD, self.c_str(), parent.get(), to.c_str(), AT_SYMLINK_FOLLOW) == 0;
      };
      if (link(name)) return true;
      if (errno != EEXIST || !link(temporary)) return false;  // a link replaces nothing
    }
    return renameat(parent.get(), temporary.c_str(), parent.get(), name.c_str()) == 0;
  };
  if (WriteNpy(file.get(), header, bytes) && fsync(file.get()) == 0 && publish() &&
      fsync(parent.get()) == 0) {
    return absl::OkStatus();
  }
  const Status status = FileError(path);
  unlinkat(parent.get(), temporary.c_str(), 0);
  return status;
}

FileHeaders::Tensors FileHeaders::Find(const Identity& file) {
  std::lock_guard lock(mutex_);
  for (const auto& [identity, tensors] : kept_) {
    if (identity == file) return tensors;
  }
  return nullptr;
}

void FileHeaders::Keep(const Identity& file, Tensors tensors) {
  std::lock_guard lock(mutex_);
  if (kept_.size() == kKept) kept_.erase(kept_.begin());
  kept_.emplace_back(file, std::move(tensors));
}

StatusOr<OpenedTensor> OpenTensor(const std::string& directory, const std::string& principal,
                                  const std::string& path, const std::string& name,
                                  FileHeaders& headers) {
  OPWIRE_RETURN_IF_ERROR(CheckPath(path));
  OPWIRE_ASSIGN_OR_RETURN(const OwnedFd own, PrincipalDirectory(directory, principal));
  OpenedTensor file{path, OwnedFd(OpenBeneath(own.get(), path, O_RDONLY | O_NONBLOCK, 0)), {}, 0};
  if (file.fd.get() < 0) return FileError(path);
  struct stat st;
  const std::string shown = path.substr(0, 256);
  if (fstat(file.fd.get(), &st) != 0 || !S_ISREG(st.st_mode))
    return InvalidArgument("file {}: expected a regular file", shown);
  file.file_bytes = st.st_size;
  const FileHeaders::Identity identity = {st.st_dev, st.st_ino, st.st_size,
                                          st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec};
  FileHeaders::Tensors tensors = headers.Find(identity);
  if (!tensors) {
    const auto bytes = [&](uint8_t* into, int64_t n, int64_t offset) {
      return ReadAt(file.fd, path, into, n, offset, offset + n);
    };
    std::vector<uint8_t> first(static_cast<size_t>(std::min<int64_t>(st.st_size, kKindBytes)));
    OPWIRE_RETURN_IF_ERROR(bytes(first.data(), static_cast<int64_t>(first.size()), 0));
    const StatusOr<FileKind> kind = KindOfFile(first, st.st_size, path);
    if (!kind.ok()) return InvalidArgument("file {}: {}", shown, MessageOf(kind.status()));
    if (*kind == FileKind::kNpy) {
      if (!name.empty())
        return InvalidArgument(
            "file {}: expected a file of GGUF or safetensors, which name tensors; tensor {} was "
            "asked for",
            shown, Clip(name, kShownName));
      OPWIRE_ASSIGN_OR_RETURN(file.tensor, ReadNpyHeader(file.fd, path, st.st_size));
      return file;
    }
    auto read =
        *kind == FileKind::kGguf
            ? TensorsOf(ReadHeader(ParseGguf, kGgufMaxHeader, st.st_size, bytes))
            : TensorsOf(ReadHeader(ParseSafetensors, kSafetensorsMaxHeader, st.st_size, bytes));
    if (!read.ok())
      return absl::Status(read.status().code(),
                          fmt::format("file {}: {}", shown, MessageOf(read.status())));
    tensors = std::make_shared<const std::vector<FileTensor>>(*std::move(read));
    headers.Keep(identity, tensors);
  }
  if (name.empty()) {
    int64_t header = st.st_size;
    for (const FileTensor& t : *tensors) header = std::min(header, t.offset);
    file.tensor.dtype = DType::kU8;
    file.tensor.shape = {header};
    file.tensor.bytes = header;
    return file;
  }
  const StatusOr<const FileTensor*> found = FindTensor(*tensors, name);
  if (!found.ok())
    return absl::Status(found.status().code(),
                        fmt::format("file {}: {}", shown, MessageOf(found.status())));
  file.tensor = **found;
  return file;
}

Status ReadTensor(const OpenedTensor& opened, int64_t at, int64_t bytes, uint8_t* into) {
  const FileTensor& t = opened.tensor;
  return ReadAt(opened.fd, opened.path, into, bytes, t.offset + at, t.offset + t.bytes);
}

}  // namespace opwire::executor
