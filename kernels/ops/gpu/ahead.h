// The kernels that are compiled before a program asks for them: those of a fixed list of calls, as
// training and serving of transformers and of CNNs make them in bf16 and f32.
//
//   OPWIRE_ASSIGN_OR_RETURN(const std::vector<AheadUnit> units, AheadUnits(device));
//   for (const AheadUnit& unit : units) code.Prepare(unit);      // in any order, by any threads
//
// A row more is a line in ahead.cc. What decides kernels is the class of the sizes, not the sizes:
// a call stands for all of its class.
#ifndef OPWIRE_KERNELS_OPS_GPU_AHEAD_H_
#define OPWIRE_KERNELS_OPS_GPU_AHEAD_H_

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/ops/catalogue.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::gpu {

struct AheadCall {
  std::string_view op;
  std::string_view operands;  // "T[8192, 1024], -, i64[8192]": T stands for bf16 and then for f32,
                              // - for one that is absent, (...) for a list
  std::vector<NamedAttr> attrs;  // a number where a dim is asked for
};
std::span<const AheadCall> AheadCalls();

// What AheadUnits gives at the most: a few processors compile as many in some seconds.
inline constexpr size_t kAheadKernels = 150;

// Kernels of one prelude, compiled in one go: fewer than 50, and few enough that NVRTC takes no
// more than about 2 s.
using AheadUnit = std::vector<KernelText>;

// These kernels, each once, in units of at most `most_of(prelude)` kernels. The units of a prelude
// differ in size by one kernel at most.
std::vector<AheadUnit> UnitsOf(std::vector<KernelText> kernels,
                               const std::function<size_t(std::string_view prelude)>& most_of);

// What the plans of these calls ask for on this device, each kernel once. Calls that only a library
// serves ask for none. Nothing is put on the device. The error of the first call that is not
// planned, with the call: they are our own. Any thread.
StatusOr<std::vector<AheadUnit>> AheadUnits(GpuDevice& device,
                                            std::span<const AheadCall> calls = AheadCalls());

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_AHEAD_H_
