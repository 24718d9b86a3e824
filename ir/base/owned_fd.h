// A file descriptor that is closed with its owner.
#ifndef OPWIRE_IR_BASE_OWNED_FD_H_
#define OPWIRE_IR_BASE_OWNED_FD_H_

#include <unistd.h>

#include <utility>

namespace opwire {

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(OwnedFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_OWNED_FD_H_
