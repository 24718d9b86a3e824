// Ops that reduce axes.
#include <fmt/format.h>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

void SetReduced(InferContext& c, const std::vector<bool>& reduced, bool keepdim) {
  const std::vector<Dim>& from = c.In(0).shape;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!reduced[i]) {
      c.Result(0).shape.push_back(from[i]);
    } else if (keepdim) {
      c.Result(0).shape.push_back(c.dims().Constant(1));
    }
  }
}

Status InferReduce(InferContext& c) {
  const int rank = c.In(0).rank();
  const Ints& axes = c.Attr<Ints>(0);
  std::vector<bool> reduced(rank, axes.empty());
  for (int64_t axis : axes) {
    OPWIRE_ASSIGN_OR_RETURN(const int a, c.Axis(axis, rank, "dims"));
    if (reduced[a]) return c.Error(fmt::format("dims: axis {} is named twice", axis));
    reduced[a] = true;
  }
  SetReduced(c, reduced, c.Attr<bool>(1));
  return absl::OkStatus();
}

Status InferArgReduce(InferContext& c) {
  const int rank = c.In(0).rank();
  OPWIRE_ASSIGN_OR_RETURN(const int axis, c.Axis(c.Attr<int64_t>(0), rank, "dim"));
  std::vector<bool> reduced(rank, false);
  reduced[axis] = true;
  SetReduced(c, reduced, c.Attr<bool>(1));
  return absl::OkStatus();
}

Status InferCumsum(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.Axis(c.Attr<int64_t>(0), c.In(0).rank(), "dim").status());
  return SameAsFirst(c);
}

}  // namespace

std::vector<OpDef> ReduceOps() {
  constexpr std::string_view kFamily = "reduce";
  const AttrSpec keepdim = Optional("keepdim", false, "Reduced axes stay, with extent 1.");
  const AttrSpec dims =
      Optional("dims", Ints{}, "The axes to reduce, each once, negative from the end; empty: all.");
  const AttrSpec dim = Required("dim", AttrKind::kInt, "The axis, negative from the end.");
  struct Reduce {
    std::string_view name, signature, doc;
  };
  const Reduce reductions[] = {
      // clang-format off
      {"sum", "x: A -> y: A", "The sum; 0 of nothing. f16 and bf16 accumulate in f32; integers wrap."},
      {"prod", "x: A -> y: A", "The product; 1 of nothing. f16 and bf16 accumulate in f32; integers wrap."},
      {"amax", "x: C -> y: C", "The largest; NaN if any is NaN. Reducing an extent of 0 is an error at run time."},
      {"amin", "x: C -> y: C", "The smallest; NaN if any is NaN. Reducing an extent of 0 is an error at run time."},
      {"mean", "x: F -> y: F", "The mean; NaN of nothing. f16 and bf16 accumulate in f32."},
      {"any", "x: bool -> y: bool", "Whether one is true; false of nothing."},
      {"all", "x: bool -> y: bool", "Whether none is false; true of nothing."},
      // clang-format on
  };
  std::vector<OpDef> rows;
  for (const Reduce& f : reductions) {
    rows.push_back(Make({.name = f.name,
                         .signature = f.signature,
                         .attrs = {dims, keepdim},
                         .infer = InferReduce,
                         .cost = PerOperand(1),
                         .family = kFamily,
                         .doc = f.doc}));
  }
  for (const auto& [name, doc] :
       {std::pair{"argmax",
                  "The index of the largest, the lowest of several; a NaN counts as the largest."},
        std::pair{
            "argmin",
            "The index of the smallest, the lowest of several; a NaN counts as the smallest."}}) {
    rows.push_back(Make({.name = name,
                         .signature = "x: A -> y: i64",
                         .attrs = {dim, keepdim},
                         .infer = InferArgReduce,
                         .cost = PerOperand(1),
                         .family = kFamily,
                         .doc = doc}));
  }
  rows.push_back(Make({.name = "cumsum",
                       .signature = "x: A -> y: A",
                       .attrs = {dim},
                       .infer = InferCumsum,
                       .cost = PerOperand(1),
                       .family = kFamily,
                       .doc = "Sums of the elements up to each one along an axis. f16 and bf16 "
                              "accumulate in f32; integers wrap."}));
  return rows;
}

}  // namespace opwire::definitions
