// How large a fused group may be. Also part of compiled units.
#ifndef OPWIRE_KERNELS_FUSED_LIMITS_H_
#define OPWIRE_KERNELS_FUSED_LIMITS_H_

namespace opwire::fused {

inline constexpr int kMaxInputs = 16;
inline constexpr int kMaxOutputs = 16;
inline constexpr int kMaxTensors = kMaxInputs + kMaxOutputs;
inline constexpr int kMaxArguments = 64;

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_LIMITS_H_
