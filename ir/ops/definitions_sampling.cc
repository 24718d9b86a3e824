// Ops that draw tokens.
#include <fmt/format.h>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 27;  // whose weights' sum is below 2^64

Status InferSample(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(0, 2));
  OPWIRE_RETURN_IF_ERROR(RequireKey(c, 1));
  const Dim rows = c.In(0).shape[0], tokens = c.In(0).shape[1];
  OPWIRE_RETURN_IF_ERROR(
      c.RequireAtMost(c.dims().Constant(1), tokens, "1 and logits' last extent"));
  OPWIRE_RETURN_IF_ERROR(
      c.RequireAtMost(tokens, c.dims().Constant(kMostTokens), "logits' last extent"));
  for (const auto& [operand, name] : {std::pair{2, "temperature"}, {3, "top_k"}, {4, "top_p"}}) {
    if (c.Operand(operand) == nullptr || c.In(operand).rank() == 0) continue;
    OPWIRE_RETURN_IF_ERROR(c.RequireRank(operand, 1));
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqual(c.In(operand).shape[0], rows, fmt::format("rows of {} and logits", name)));
  }
  c.Result(0).shape = {rows};
  return absl::OkStatus();
}

}  // namespace

std::vector<OpDef> SamplingOps() {
  return {
      Make({.name = "sample",
            .signature =
                "logits: F, key: u64, temperature?: f32, top_k?: I, top_p?: f32 -> tokens: i64",
            .attrs = {Optional("site", Int(0), "Tells apart the uses of one key.")},
            .infer = InferSample,
            .cost = PerOperand(20),
            .family = "sampling",
            .doc = "A token of each row of logits [B, V], drawn by softmax(logits / temperature) "
                   "among those that are kept. Every device draws the same token. temperature, "
                   "top_k and top_p are 0-d or [B]; absent they are 1, 0 and 1. A row is ordered "
                   "from its largest logit on, equal ones by index; a NaN counts as -inf. A "
                   "token's weight is floor(2^36 exp((logit - largest) / temperature)), computed "
                   "in f64. It is 2^36 for the largest logit, and 0 if the formula gives NaN "
                   "otherwise. Kept are the first top_k tokens, all if top_k is 0 or less. Of "
                   "these, the first are kept whose weights add up to top_p of their sum, at least "
                   "one. All are kept if top_p is 1 or more, or NaN. If temperature is not above "
                   "0, only the first token is kept. w is the sum of the kept weights. r are the "
                   "64 random bits from which uniform computes element b in f64. The token is the "
                   "first by index at which the running sum of kept weights exceeds floor(r w / "
                   "2^64)."}),
  };
}

}  // namespace opwire::definitions
