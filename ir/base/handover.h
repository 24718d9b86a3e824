// Tells ThreadSanitizer of memory that passes from thread to thread through a library which it does
// not see into.
#ifndef OPWIRE_IR_BASE_HANDOVER_H_
#define OPWIRE_IR_BASE_HANDOVER_H_

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace opwire {

// Before `what` is given to the library, and where the library gives it back. Nothing in other
// builds.
inline void HandOver([[maybe_unused]] void* what) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(what);
#endif
}

inline void TakeOver([[maybe_unused]] void* what) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(what);
#endif
}

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_HANDOVER_H_
