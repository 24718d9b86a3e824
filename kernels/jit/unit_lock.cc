// The file has "process PID" on the first line. After a failure "failed TIME CODE" and the message
// follow.
#include "kernels/jit/unit_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "kernels/jit/files.h"

namespace opwire::jit {
namespace {

constexpr size_t kMostBytes = 64 << 10;

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Whether the path still names the locked file; otherwise it was pruned in between.
bool Names(const std::string& path, int fd) {
  struct stat a, b;
  return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_ino == b.st_ino &&
         a.st_dev == b.st_dev;
}

std::string Contents(int fd) {
  std::string text(kMostBytes, '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

std::string HolderOf(int fd) {
  const std::string text = Contents(fd);
  return text.empty() ? "another process" : text.substr(0, text.find('\n'));
}

}  // namespace

StatusOr<UnitLock> UnitLock::Acquire(const std::string& path, double seconds) {
  const int64_t began = MonotonicNs(),
                deadline = began + static_cast<int64_t>(std::min(seconds, 1e9) * 1e9);
  auto pause = std::chrono::microseconds(500);
  while (true) {
    OwnedFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (fd.get() < 0) return FileError(path, "cannot be opened", errno);
    while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return FileError(path, "cannot be locked", errno);
      if (MonotonicNs() >= deadline)
        return DeadlineExceeded("{} has held {} for more than {:g} s", HolderOf(fd.get()), path,
                                seconds);
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(10'000));
    }
    if (Names(path, fd.get())) return UnitLock(std::move(fd), began);
  }
}

std::optional<Status> UnitLock::FailureWhileWaiting() const {
  const std::string text = Contents(fd_.get());
  const size_t line = text.find("\nfailed ");
  const size_t message = line == text.npos ? text.npos : text.find('\n', line + 1);
  long long at = 0;
  int code = 0;
  if (message == text.npos ||
      std::sscanf(text.c_str() + line, "\nfailed %lld %d", &at, &code) != 2 || at < began_)
    return std::nullopt;
  return Status(static_cast<absl::StatusCode>(code), text.substr(message + 1));
}

void UnitLock::NoteHolder() { Write(fmt::format("process {}\n", getpid())); }

void UnitLock::NoteFailure(const Status& status) {
  const std::string message = MessageOf(status).substr(0, kMostBytes / 2);
  Write(fmt::format("process {}\nfailed {} {}\n{}", getpid(), MonotonicNs(),
                    static_cast<int>(status.code()), message));
}

void UnitLock::Write(const std::string& text) {
  // If the disk is full the failure is not recorded; waiting processes then build for themselves.
  if (ftruncate(fd_.get(), 0) != 0 || pwrite(fd_.get(), text.data(), text.size(), 0) < 0) return;
}

}  // namespace opwire::jit
