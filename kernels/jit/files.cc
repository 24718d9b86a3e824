// System calls, with a status for each error: errno distinguishes the errors of a file system.
#include "kernels/jit/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "ir/base/owned_fd.h"

namespace opwire::jit {
namespace {

int64_t Nanoseconds(const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

}  // namespace

Status FileError(const std::string& path, const char* what, int error) {
  const char* why = std::strerror(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return ResourceExhausted("{}: {}: {}", path, what, why);
    case ENOENT:
    case ENOTDIR:
      return NotFound("{}: {}: {}", path, what, why);
    case EACCES:
    case EPERM:
    case EROFS:
      return PermissionDenied("{}: {}: {}", path, what, why);
    default:
      return Internal("{}: {}: {}", path, what, why);
  }
}

Status CheckOwner(const std::string& path, bool folder) {
  struct stat st;
  if (lstat(path.c_str(), &st) != 0) return NotFound("{}: {}", path, std::strerror(errno));
  if (S_ISLNK(st.st_mode))
    return PermissionDenied("{}: expected a {}, got a symbolic link", path,
                            folder ? "folder" : "file");
  if (folder ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
    return InvalidArgument("{}: expected a {}", path, folder ? "folder" : "file");
  if (st.st_uid != geteuid() && st.st_uid != 0) {
    return PermissionDenied(
        "{}: belongs to user {}; an executor of user {} takes ops of its own user only", path,
        st.st_uid, geteuid());
  }
  if (st.st_mode & (S_IWGRP | S_IWOTH))
    return PermissionDenied("{}: others may write it; chmod go-w it", path);
  return absl::OkStatus();
}

StatusOr<std::string> ReadFile(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat s;
  if (fd.get() < 0 || fstat(fd.get(), &s) != 0) return FileError(path, "cannot be read", errno);
  if (!S_ISREG(s.st_mode)) return NotFound("{}: cannot be read: no regular file", path);
  std::string bytes(static_cast<size_t>(s.st_size), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n = read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path, "cannot be read", errno);
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

Status WriteFile(const std::string& path, std::string_view bytes, bool sync) {
  const OwnedFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (fd.get() < 0) return FileError(path, "cannot be written", errno);
  while (!bytes.empty()) {
    const ssize_t n = write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path, "cannot be written", errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (sync && fsync(fd.get()) != 0) return FileError(path, "cannot be synced", errno);
  return absl::OkStatus();
}

Status SyncPath(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || fsync(fd.get()) != 0) return FileError(path, "cannot be synced", errno);
  return absl::OkStatus();
}

Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  const int error = errno;
  std::error_code ignored;
  if (error == EEXIST && std::filesystem::is_directory(path, ignored)) return absl::OkStatus();
  return FileError(path, "cannot be made", error);
}

void RemoveTree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::optional<FileStamp> StampOf(const std::string& path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0) return std::nullopt;
  return FileStamp{s.st_size, Nanoseconds(s.st_mtim), Nanoseconds(s.st_ctim)};
}

}  // namespace opwire::jit
