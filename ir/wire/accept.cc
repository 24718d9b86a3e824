// The program's own accept() and accept4(): the system's, and what is over the bound closed.
#include "ir/wire/accept.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>

namespace {

std::atomic<int> most = INT_MAX;

}  // namespace

void opwire::BoundAcceptedDescriptors(int bound) { most = bound; }

// Descriptors are the lowest that are free: one at the bound says that all below are taken.
extern "C" int accept4(int listener, sockaddr* address, socklen_t* size, int flags) {
  const int fd = static_cast<int>(syscall(SYS_accept4, listener, address, size, flags));
  if (fd < most) return fd;
  close(fd);
  errno = ECONNABORTED;
  return -1;
}

extern "C" int accept(int listener, sockaddr* address, socklen_t* size) {
  return accept4(listener, address, size, 0);
}
