// Ops that put elements in order.
#include <cmath>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

Status InferSort(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.Axis(c.Attr<int64_t>(0), c.In(0).rank(), "dim").status());
  for (TensorType& result : c.results()) result.shape = c.In(0).shape;
  return absl::OkStatus();
}

Status InferTopk(InferContext& c) {
  OPWIRE_ASSIGN_OR_RETURN(const int axis, c.Axis(c.Attr<int64_t>(1), c.In(0).rank(), "dim"));
  const Dim k = c.Attr<Dim>(0);
  OPWIRE_RETURN_IF_ERROR(c.RequireAtMost(k, c.In(0).shape[axis], "k"));
  for (TensorType& result : c.results()) {
    result.shape = c.In(0).shape;
    result.shape[axis] = k;
  }
  return absl::OkStatus();
}

// A comparison for each doubling of the elements, as if all were one slice.
OpCost SortCost(const CostArgs& a) {
  const double n = Elements(a.operands[0]);
  return {n * std::log2(n + 1), TrafficBytes(a)};
}

}  // namespace

std::vector<OpDef> SortOps() {
  constexpr std::string_view kFamily = "sort";
  const AttrSpec dim = Optional("dim", Int(-1), "The axis, negative from the end.");
  const AttrSpec descending = Optional("descending", false, "The largest first.");
  return {
      Make({.name = "sort",
            .signature = "x: C -> values: C, indices: i64",
            .attrs = {dim, descending},
            .infer = InferSort,
            .cost = SortCost,
            .family = kFamily,
            .doc = "The elements along an axis in order, the smallest first, and the place that "
                   "each had there: torch.sort with stable=True. A NaN counts as larger than every "
                   "number and as equal to another NaN, and -0 as equal to 0. Equal elements stay "
                   "in their order in both directions. Each value has the bits of its element."}),
      Make({.name = "argsort",
            .signature = "x: C -> indices: i64",
            .attrs = {dim, descending},
            .infer = InferSort,
            .cost = SortCost,
            .family = kFamily,
            .doc = "The indices of sort."}),
      Make({.name = "topk",
            .signature = "x: C -> values: C, indices: i64",
            .attrs = {Required("k", AttrKind::kDim, "How many, at most the extent of dim."), dim,
                      Optional("largest", true,
                               "The largest ones, from the largest on; else the smallest, from the "
                               "smallest on.")},
            .infer = InferTopk,
            .cost = PerOperand(2),
            .family = kFamily,
            .doc =
                "The k largest elements along an axis, in order, and their places: the first k of "
                "sort with descending = largest. So equal elements of lower indices are taken "
                "first, and a NaN is the largest. torch.topk with sorted=True leaves both open."}),
  };
}

}  // namespace opwire::definitions
