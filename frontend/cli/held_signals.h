// What has to be put in order before Ctrl-C ends a command.
#ifndef OPWIRE_FRONTEND_CLI_HELD_SIGNALS_H_
#define OPWIRE_FRONTEND_CLI_HELD_SIGNALS_H_

#include <csignal>

namespace opwire::cli {

// Holds SIGINT and SIGTERM back while it lives; one that came then takes effect.
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
  // The mask as it was, for children.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t set_, before_;
};

}  // namespace opwire::cli

#endif  // OPWIRE_FRONTEND_CLI_HELD_SIGNALS_H_
