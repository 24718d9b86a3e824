// Which of several ways to plan a call a device runs the fastest: measured once for each class of
// calls, in memory taken for it, and kept (tune.h).
//
//   const Ways ways{.key = [&] { return KeyOf("fused", text, tensors); }, .count = 8, .least_bytes
//       = kLeastTuned};
//   const int way = FastestPlan(code, row, c, ways, [&](int way, Plan& plan) { return
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

// Bytes of a call's tensors from which on an elementwise or folding kernel takes long enough to
// measure.
inline constexpr int64_t kLeastTuned = int64_t{32} << 20;

struct Ways {
  std::function<std::string()>
      key;  // of the class of calls; asked for where it is to be measured, or was
  int count;
  int64_t least_bytes = 0;  // of a call's tensors; those of fewer are not measured
};

// A key of calls that run this text, which says all but sizes, on tensors of as many elements, by
// powers of two.
std::string KeyOf(std::string_view kind, std::string_view text,
                  std::span<const opw_tensor* const> tensors);

// From 0, the way of a rule, to `ways.count` - 1. `plan_of` plans the call by a way, of which the
// first that is not OK and those that fail are passed over. 0 where nothing is measured, or the
// call is too small or too large for it. Blocks for as long as compiling and a few runs of each
// take. On the device's thread, while nothing is recorded.
int FastestPlan(Code& code, const OpRow& row, const opw_call* c, const Ways& ways,
                const std::function<Status(int way, Plan& plan)>& plan_of);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_FASTEST_PLAN_H_
