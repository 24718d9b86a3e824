// Selects the fastest of several ways to plan a call on a device. It is measured once for each
// class of calls, in memory allocated for that, and kept (tune.h).
//
//   const TuningCandidates candidates{.key = [&] { return KeyOf("fused", text, tensors); }, .count = 8, .least_bytes
//       = kLeastTuned};
//   const int way = FastestPlan(code, row, c, candidates, [&](int way, Plan& plan) { return
//       PlanForm(forms[way], plan); });
#ifndef OPWIRE_KERNELS_OPS_GPU_FASTEST_PLAN_H_
#define OPWIRE_KERNELS_OPS_GPU_FASTEST_PLAN_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ir/base/status.h"
#include "ir/ops/catalogue.h"
#include "kernels/abi.h"
#include "kernels/ops/gpu/code.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu {

// From this many bytes of tensors, an elementwise kernel or reduction takes long enough to measure.
inline constexpr int64_t kLeastTuned = int64_t{32} << 20;

struct TuningCandidates {
  std::function<std::string()>
      key;  // of the class of calls; called if it is to be measured, or was
  int count;
  int64_t least_bytes = 0;  // of a call's tensors; smaller calls are not measured
};

// A key for calls that run this text, which defines everything except sizes, on tensors of as many
// elements, by powers of two.
std::string KeyOf(std::string_view kind, std::string_view text,
                  std::span<const opw_tensor* const> tensors);

// Returns a way, from 0, the rule's way, to `candidates.count` - 1. `plan_of` plans the call by a
// way. TuningCandidates that cannot be planned, or that fail, are skipped. Returns 0 if nothing is
// measured, or if the call is too small or too large for it. Blocks while each way is compiled and
// run a few times. On the device's thread, while nothing is recorded.
int FastestPlan(Code& code, const OpDef& row, const opw_call* c, const TuningCandidates& candidates,
                const std::function<Status(int way, Plan& plan)>& plan_of);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_FASTEST_PLAN_H_
