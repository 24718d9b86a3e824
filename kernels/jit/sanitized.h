// Whether this program was built with a sanitizer: those reserve terabytes of addresses, so its
// children, which may be this program again, get no limit of address space.
#ifndef OPWIRE_KERNELS_JIT_SANITIZED_H_
#define OPWIRE_KERNELS_JIT_SANITIZED_H_

namespace opwire::jit {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_SANITIZED_H_
