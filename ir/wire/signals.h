// SIGTERM and SIGINT as a descriptor, for programs that end in order.
#ifndef OPWIRE_IR_WIRE_SIGNALS_H_
#define OPWIRE_IR_WIRE_SIGNALS_H_

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace opwire {

// Blocks the signals for the calling thread and those it starts later: make it first in main.
class TerminationSignals {
 public:
  TerminationSignals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    std::signal(SIGPIPE, SIG_IGN);
  }
  ~TerminationSignals() { close(fd_); }
  TerminationSignals(const TerminationSignals&) = delete;

  int fd() const { return fd_; }
  // How many arrived since the last call.
  int Take() {
    int count = 0;
    signalfd_siginfo info;
    while (read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) ++count;
    return count;
  }

 private:
  int fd_;
};

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_SIGNALS_H_
