// Loops, branches, and values for the client.
#include <fmt/format.h>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

OpCost Nothing(const CostArgs&) { return {}; }

Status SameAsCarried(InferContext& c, int carried) {
  const std::span<const TensorType* const> in = c.List(carried);
  for (size_t i = 0; i < in.size(); ++i) c.ResultList(0)[i] = *in[i];
  return absl::OkStatus();
}

Status InferIf(InferContext& c) { return c.RequireRank(0, 0); }

Status InferWhile(InferContext& c) {
  if (const auto most = c.Attr<int64_t>(0); most < 0)
    return InvalidArgument("while: max_trips: expected 0 or more, got {}", most);
  return SameAsCarried(c, 0);
}

Status InferRepeat(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(0, 0));
  return SameAsCarried(c, 1);
}

Status InferEmit(InferContext& c) {
  if (c.Attr<std::string>(0).empty()) return c.Error("name: expected a name, got none");
  if (c.In(0).encoding != Encoding::kDense)
    return c.Error(fmt::format("operand x: expected a dense tensor, got {}", c.Print(c.In(0))));
  return absl::OkStatus();
}

}  // namespace

std::vector<OpDef> ControlOps() {
  return {
      Make({.name = "if",
            .signature = "condition: bool, inputs...: any -> results...: any",
            .infer = InferIf,
            .cost = Nothing,
            .control = Control::kIf,
            .calls = {"then", "otherwise"},
            .family = "control",
            .doc = "then(inputs) if the 0-d condition is true, else otherwise(inputs). Only that "
                   "one runs. The node has the results' types."}),
      Make({.name = "while",
            .signature = "carried...: any, inputs...: any -> carried...: any",
            .attrs = {Required("max_trips", AttrKind::kInt,
                               "The most iterations. If the condition is still true after them, "
                               "the run ends with OUT_OF_RANGE.")},
            .infer = InferWhile,
            .cost = Nothing,
            .control = Control::kWhile,
            .calls = {"condition", "body"},
            .family = "control",
            .doc = "carried = body(carried, inputs), repeated as long as condition(carried, "
                   "inputs) is true. The condition is computed before each iteration."}),
      Make({.name = "repeat",
            .signature = "times: i64, carried...: any, inputs...: any -> carried...: any",
            .infer = InferRepeat,
            .cost = Nothing,
            .control = Control::kRepeat,
            .calls = {"body"},
            .family = "control",
            .doc = "carried = body(iteration, carried, inputs) for iteration = 0, 1, ... below the "
                   "0-d times; not at all if times is 0 or less."}),
      Make({.name = "emit",
            .signature = "x: any ->",
            .attrs = {Required("name", AttrKind::kString, "Under which the client gets it.")},
            .infer = InferEmit,
            .effects = Effects::kEmit,
            .cost = Nothing,
            .control = Control::kEmit,
            .family = "control",
            .doc = "Sends x to the client while the run continues, each time that it is reached, "
                   "in that order."}),
  };
}

}  // namespace opwire::definitions
