// Who builds a unit. The lock is the kernel's, so it ends with its holder; its file tells who that
// is, and of the last failure.
#ifndef OPWIRE_KERNELS_JIT_UNIT_LOCK_H_
#define OPWIRE_KERNELS_JIT_UNIT_LOCK_H_

#include <optional>
#include <string>

#include "ir/base/owned_fd.h"
#include "ir/base/status.h"

namespace opwire::jit {

class UnitLock {
 public:
  // Waits for it for this time at the most; DEADLINE_EXCEEDED names the process that holds it.
  static StatusOr<UnitLock> Acquire(const std::string& path, double seconds);

  // The error of a holder that this one waited for. None: it did not wait, or none was noted
  // meanwhile.
  std::optional<Status> FailureWhileWaiting() const;
  // This process builds: what was noted before is over.
  void NoteHolder();
  // For those who wait now.
  void NoteFailure(const Status& status);

 private:
  UnitLock(OwnedFd fd, int64_t began) : fd_(std::move(fd)), began_(began) {}
  void Write(const std::string& text);

  OwnedFd fd_;
  int64_t
      began_;  // to wait; nanoseconds of the system's monotonic clock, which all processes share
};

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_UNIT_LOCK_H_
