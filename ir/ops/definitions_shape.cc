// Ops that arrange elements without a look at them.
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

// The product of a shape with its factors in one order, so that equal products meet: [?a*?b, 4] and
// [?a, 2, ?b, 2].
Dim CanonicalProduct(DimTable& dims, std::span<const Dim> shape) {
  std::vector<Dim> pending(shape.rbegin(), shape.rend()), factors;
  Dim product = dims.Constant(1);
  for (int budget = 64; !pending.empty();
       --budget) {  // a hostile program has large products on every node
    const Dim d = pending.back();
    pending.pop_back();
    const DimNode n = dims.node(d);
    if (n.kind == DimKind::kMul && budget > 0) {
      pending.insert(pending.end(), {n.b, n.a});
    } else if (n.kind == DimKind::kConstant) {
      product = dims.Mul(product, d);
    } else {
      factors.push_back(d);
    }
  }
  std::sort(factors.begin(), factors.end(), [](Dim a, Dim b) { return a.index < b.index; });
  for (Dim d : factors) product = dims.Mul(product, d);
  return product;
}

Status InferReshape(InferContext& c) {
  const Dims& shape = c.Attr<Dims>(0);
  const Dim from = CanonicalProduct(c.dims(), c.In(0).shape),
            to = CanonicalProduct(c.dims(), shape);
  c.Result(0).shape = shape;
  if (c.dims().Compare(from, to) == DimOrder::kDifferent) {
    return c.Error(fmt::format("element counts differ: {} has {}, {} has {}", c.Print(c.In(0)),
                               c.dims().ToString(from), c.Print(c.Result(0)),
                               c.dims().ToString(to)));
  }
  return c.RequireEqual(from, to, "element counts");
}

Status InferPermute(InferContext& c) {
  const Ints& order = c.Attr<Ints>(0);
  const int rank = c.In(0).rank();
  if (order.size() != static_cast<size_t>(rank)) {
    return c.Error(
        fmt::format("dims: expected {} axes for {}, got {}", rank, c.Print(c.In(0)), order.size()));
  }
  std::vector<bool> seen(rank);
  for (int64_t axis : order) {
    OPWIRE_ASSIGN_OR_RETURN(const int a, c.Axis(axis, rank, "dims"));
    if (seen[a]) return c.Error(fmt::format("dims: axis {} is named twice", axis));
    seen[a] = true;
    c.Result(0).shape.push_back(c.In(0).shape[a]);
  }
  return absl::OkStatus();
}

Status InferExpand(InferContext& c) {
  const Dims& shape = c.Attr<Dims>(0);
  const std::vector<Dim>& from = c.In(0).shape;
  if (shape.size() < from.size()) {
    return c.Error(fmt::format("shape: expected {} extents or more for {}, got {}", from.size(),
                               c.Print(c.In(0)), shape.size()));
  }
  const Dim one = c.dims().Constant(1);
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == one) continue;
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqual(from[i], shape[shape.size() - from.size() + i], "extents that are not 1"));
  }
  c.Result(0).shape = shape;
  return absl::OkStatus();
}

Status InferCat(InferContext& c) {
  const auto xs = c.List(0);
  if (xs.empty()) return c.Error("expected at least one operand");
  const int rank = xs[0]->rank();
  OPWIRE_ASSIGN_OR_RETURN(const int axis, c.Axis(c.Attr<int64_t>(0), rank, "dim"));
  std::vector<Dim> shape = xs[0]->shape;
  for (const TensorType* x : xs.subspan(1)) {
    if (x->rank() != rank) {
      return c.Error(fmt::format("expected operands of one rank, got {} and {}", c.Print(*xs[0]),
                                 c.Print(*x)));
    }
    for (int i = 0; i < rank; ++i) {
      if (i == axis) {
        shape[i] = c.dims().Add(shape[i], x->shape[i]);
      } else {
        OPWIRE_RETURN_IF_ERROR(
            c.RequireEqual(shape[i], x->shape[i], "extents of axes that are not joined"));
      }
    }
    // Not only the result: a long list would make one too large to print on the way.
    if (c.dims().TreeSize(shape[axis]) > kMaxTreeSize) {
      return c.Error(
          fmt::format("the joined extent is an expression of more than {} terms", kMaxTreeSize));
    }
  }
  c.Result(0).shape = std::move(shape);
  return absl::OkStatus();
}

Status InferTile(InferContext& c) {
  const Ints& repeats = c.Attr<Ints>(0);
  const std::vector<Dim>& from = c.In(0).shape;
  const size_t rank = std::max(repeats.size(), from.size());
  std::vector<Dim> shape(rank, c.dims().Constant(1));
  std::copy(from.begin(), from.end(), shape.end() - from.size());
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 0)
      return c.Error(fmt::format("repeats: expected 0 or more, got {}", repeats[i]));
    Dim& d = shape[rank - repeats.size() + i];
    d = c.dims().Mul(d, c.dims().Constant(repeats[i]));
  }
  c.Result(0).shape = std::move(shape);
  return absl::OkStatus();
}

// `length` positions of an axis of x, `step` apart.
Status RequireFits(InferContext& c, Dim length, int64_t step, Dim extent) {
  if (step < 1) return c.Error(fmt::format("step: expected 1 or more, got {}", step));
  const DimBounds have = c.dims().Bounds(extent), want = c.dims().Bounds(length);
  // The least length that must fit into the largest extent.
  if (want.lower <= 0) return absl::OkStatus();
  const auto reach = CheckedMul(want.lower - 1, step);
  if (reach && *reach < have.upper) return absl::OkStatus();
  return c.Error(fmt::format("length {} at step {} does not fit into {} of {}",
                             c.dims().ToString(length), step, c.dims().ToString(extent),
                             c.Print(c.In(0))));
}

Status InferSlice(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, 0));
  OPWIRE_ASSIGN_OR_RETURN(const int axis, c.Axis(c.Attr<int64_t>(0), c.In(0).rank(), "dim"));
  const Dim length = c.Attr<Dim>(1), extent = c.In(0).shape[axis];
  const int64_t step = c.Attr<int64_t>(2);
  OPWIRE_RETURN_IF_ERROR(RequireFits(c, length, step, extent));
  c.Result(0).shape = c.In(0).shape;
  c.Result(0).shape[axis] = length;
  return absl::OkStatus();
}

Status InferSliceUpdate(InferContext& c) {
  const int rank = c.In(0).rank();
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, rank));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(2, 1));
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqual(c.In(2).shape[0], c.dims().Constant(rank), "starts and the axes of x"));
  const Ints& steps = c.Attr<Ints>(0);
  if (!steps.empty() && steps.size() != static_cast<size_t>(rank))
    return c.Error(fmt::format("steps: expected {} or none, got {}", rank, steps.size()));
  for (int a = 0; a < rank; ++a) {
    const int64_t step = steps.empty() ? 1 : steps[static_cast<size_t>(a)];
    OPWIRE_RETURN_IF_ERROR(RequireFits(c, c.In(1).shape[a], step, c.In(0).shape[a]));
  }
  return SameAsFirst(c);
}

AttrSpec ShapeAttr(std::string_view doc) { return Required("shape", AttrKind::kDims, doc); }

}  // namespace

std::vector<OpDef> ShapeOps() {
  constexpr std::string_view kFamily = "shape";
  return {
      Make({.name = "reshape",
            .signature = "x: T -> y: T",
            .attrs = {ShapeAttr("The result's extents, of as many elements as x.")},
            .infer = InferReshape,
            .aliasing = Aliasing::kReshape,
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "The elements of x in the same order under another shape."}),
      Make({.name = "recompute",
            .signature = "x: T -> y: T",
            .infer = SameAsFirst,
            .aliasing = Aliasing::kReshape,
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "x. A gradient does not keep x: it computes x again from the values that x is "
                   "made of. No node that reads the result is merged with one that reads x."}),
      Make(
          {.name = "permute",
           .signature = "x: T -> y: T",
           .attrs = {Required(
               "dims", AttrKind::kInts,
               "The axis of x that each axis of the result is; each once, negative from the end.")},
           .infer = InferPermute,
           .cost = PerResult(0),
           .family = kFamily,
           .doc = "The axes of x in another order."}),
      Make({.name = "expand",
            .signature = "x: T -> y: T",
            .attrs = {ShapeAttr("The result's extents, to which x broadcasts.")},
            .infer = InferExpand,
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "x repeated along new leading axes and along extents of 1."}),
      Make({.name = "cat",
            .signature = "xs...: T -> y: T",
            .attrs = {Optional("dim", Int(0), "The axis along which they are joined.")},
            .infer = InferCat,
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "One or more tensors joined along an axis."}),
      Make({.name = "tile",
            .signature = "x: T -> y: T",
            .attrs = {Required(
                "repeats", AttrKind::kInts,
                "How often along each of the last axes; more than x has add leading ones.")},
            .infer = InferTile,
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "x repeated along its axes, as torch.tile."}),
      Make({.name = "slice",
            .signature = "x: T, start: I -> y: T",
            .attrs = {Optional("dim", Int(0), "The axis."),
                      Required("length", AttrKind::kDim, "The result's extent along it."),
                      Optional("step", Int(1), "Elements of x from one to the next; 1 or more.")},
            .domains = {{"start", Domain::kIndex}},
            .infer = InferSlice,
            .cost = MoveCost,
            .family = kFamily,
            .doc = "`length` elements along an axis from the 0-d `start`, negative from the end; "
                   "those beyond the extent read 0 "
                   "and flag."}),
      Make({.name = "slice_update",
            .signature = "x: T, v: T, starts: I -> y: T",
            .attrs = {Optional("steps", Ints{},
                               "Elements of x from one to the next, for each axis; 1 or more. "
                               "Empty: 1 each.")},
            .domains = {{"starts", Domain::kIndex}},
            .infer = InferSliceUpdate,
            .aliasing = Aliasing::kUpdate,
            .cost = UpdateCost,
            .family = kFamily,
            .doc = "x with v, of as many axes, at the positions that begin at `starts`, one for "
                   "each axis, negative from the end. If one of them lies outside, y is x and it "
                   "flags. In place if nothing else reads x."}),
  };
}

}  // namespace opwire::definitions
