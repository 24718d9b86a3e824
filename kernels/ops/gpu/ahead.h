// The kernels that are compiled before a program needs them. They serve a fixed list of calls,
// which training and serving of transformers and of CNNs make in bf16 and f32.
//
//   OPWIRE_ASSIGN_OR_RETURN(const std::vector<AheadUnit> units, AheadUnits(device));
//   for (const AheadUnit& unit : units) code.Prepare(unit);      // in any order, by any threads
//
// To add calls, add a line in ahead.cc. Kernels depend on the class of the sizes, not on the sizes,
// so one call represents all calls of its class.
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
  std::string_view operands;  // "T[8192, 1024], -, i64[8192]": T is bf16 and then f32, - an absent
                              // operand, (...) a list
  std::vector<NamedAttr> attrs;  // a number for a dim
};
std::span<const AheadCall> AheadCalls();

// Most kernels that AheadUnits returns: a few processors compile this many in some seconds.
inline constexpr size_t kAheadKernels = 150;

// Kernels of one prelude, compiled as one unit: fewer than 50, and few enough that NVRTC takes at
// most about 2 s.
using AheadUnit = std::vector<KernelText>;

// Divides these kernels, each once, into units of at most `most_of(prelude)` kernels. The units of
// a prelude differ in size by at most one kernel.
std::vector<AheadUnit> UnitsOf(std::vector<KernelText> kernels,
                               const std::function<size_t(std::string_view prelude)>& most_of);

// Returns the kernels that the plans of these calls need on this device, each once. Calls that only
// a library supports need none. Nothing is put on the device. Returns the error of the first call
// that cannot be planned, and names the call: the calls are our own. Any thread.
StatusOr<std::vector<AheadUnit>> AheadUnits(GpuDevice& device,
                                            std::span<const AheadCall> calls = AheadCalls());

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_AHEAD_H_
