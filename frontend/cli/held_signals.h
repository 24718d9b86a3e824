// Work that must be finished before Ctrl-C ends a command.
#ifndef OPWIRE_FRONTEND_CLI_HELD_SIGNALS_H_
#define OPWIRE_FRONTEND_CLI_HELD_SIGNALS_H_

#include <csignal>

namespace opwire::cli {

// Blocks SIGINT and SIGTERM while it lives. A signal that came then takes effect afterwards.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  bool Came() const {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM);
  }
  // The original mask, for children.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t set_, before_;
};

}  // namespace opwire::cli

#endif  // OPWIRE_FRONTEND_CLI_HELD_SIGNALS_H_
