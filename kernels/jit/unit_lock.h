// The lock of the process that builds a unit. It is a lock of the operating system, so it ends with
// its holder. Its file names the holder, and contains the last failure.
#ifndef OPWIRE_KERNELS_JIT_UNIT_LOCK_H_
#define OPWIRE_KERNELS_JIT_UNIT_LOCK_H_

#include <optional>
#include <string>

#include "ir/base/owned_fd.h"
#include "ir/base/status.h"

namespace opwire::jit {

class UnitLock {
 public:
  // Waits at most this long; DEADLINE_EXCEEDED names the process that holds it.
  static StatusOr<UnitLock> Acquire(const std::string& path, double seconds);

  // The error of a holder that this process waited for. nullopt if it did not wait, or no error was
  // noted meanwhile.
  std::optional<Status> FailureWhileWaiting() const;
  // Notes that this process builds; discards earlier notes.
  void NoteHolder();
  // Notes the failure for processes that wait now.
  void NoteFailure(const Status& status);

 private:
  UnitLock(OwnedFd fd, int64_t began) : fd_(std::move(fd)), began_(began) {}
  void Write(const std::string& text);

  OwnedFd fd_;
  int64_t began_;  // start of the wait; nanoseconds of the system's monotonic clock, which all
                   // processes share
};

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_UNIT_LOCK_H_
