// A lock of a file, which ends with the process.
#include "executor/serve/name_lock.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace opwire::executor {
namespace {

constexpr size_t kClaimBytes = 16;
constexpr int kTries = 20;
constexpr std::chrono::milliseconds kBetweenTries(50);

// The process that has the lock, as it wrote; "" before it has.
std::string OwnerOf(int fd) {
  std::array<char, 32> text{};
  const ssize_t n = pread(fd, text.data(), text.size(), kClaimBytes);
  return n > 0 ? std::string(text.data(), static_cast<size_t>(n)) : std::string();
}

// Whether the path still names this file: who had the lock may have removed it.
bool IsAt(int fd, const std::string& path) {
  struct stat here {
  }, there{};
  return fstat(fd, &here) == 0 && stat(path.c_str(), &there) == 0 && here.st_ino == there.st_ino &&
         here.st_dev == there.st_dev;
}

}  // namespace

StatusOr<std::unique_ptr<NameLock>> NameLock::Take(const std::string& directory,
                                                   const std::string& name) {
  const std::string path = fmt::format("{}/{}.lock", directory, name);
  for (int tries = 0;; ++tries) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return Unavailable("{}: {}", path, std::strerror(errno));
    auto lock = std::unique_ptr<NameLock>(new NameLock(fd, path));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
      if (!IsAt(fd, path)) continue;
      OPWIRE_RETURN_IF_ERROR(lock->ReadOrWriteClaim());
      return lock;
    }
    if (errno != EWOULDBLOCK) return Unavailable("{}: {}", path, std::strerror(errno));
    if (tries == kTries) {
      const std::string owner = OwnerOf(fd);
      return AlreadyExists("an executor named {} runs already{}; stop it, or take another --name",
                           name, owner.empty() ? "" : fmt::format(" (process {})", owner));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Status NameLock::ReadOrWriteClaim() {
  claim_.resize(kClaimBytes);
  if (pread(fd_, claim_.data(), kClaimBytes, 0) != static_cast<ssize_t>(kClaimBytes))
    randombytes_buf(claim_.data(), kClaimBytes);
  const std::string contents = std::string(claim_.begin(), claim_.end()) + std::to_string(getpid());
  if (ftruncate(fd_, 0) != 0 ||
      pwrite(fd_, contents.data(), contents.size(), 0) != static_cast<ssize_t>(contents.size())) {
    const int error = errno;
    return error == ENOSPC || error == EDQUOT
               ? ResourceExhausted("{}: {} bytes do not fit: {}", path_, contents.size(),
                                   std::strerror(error))
               : Unavailable("{}: {}", path_, std::strerror(error));
  }
  return absl::OkStatus();
}

void NameLock::Remove() { unlink(path_.c_str()); }

NameLock::~NameLock() { close(fd_); }

}  // namespace opwire::executor
