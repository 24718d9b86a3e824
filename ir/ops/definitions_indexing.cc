// Ops whose operands' values say which elements are meant.
#include <fmt/format.h>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

Status InferIndexSelect(InferContext& c) {
  OPWIRE_ASSIGN_OR_RETURN(const int axis, c.Axis(c.Attr<int64_t>(0), c.In(0).rank(), "dim"));
  std::vector<Dim> shape = c.In(0).shape;
  const std::vector<Dim>& index = c.In(1).shape;
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, index.begin(), index.end());
  c.Result(0).shape = std::move(shape);
  return absl::OkStatus();
}

// The rules that gather and scatter_add share; the axis.
StatusOr<int> RequireIndexWithin(InferContext& c) {
  OPWIRE_ASSIGN_OR_RETURN(const int axis, c.Axis(c.Attr<int64_t>(0), c.In(0).rank(), "dim"));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, c.In(0).rank()));
  for (int i = 0; i < c.In(0).rank(); ++i) {
    if (i == axis) continue;
    OPWIRE_RETURN_IF_ERROR(
        c.RequireAtMost(c.In(1).shape[i], c.In(0).shape[i], "index's extents beside dim"));
  }
  return axis;
}

Status InferGather(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(RequireIndexWithin(c).status());
  c.Result(0).shape = c.In(1).shape;
  return absl::OkStatus();
}

Status InferScatterAdd(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(RequireIndexWithin(c).status());
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(2, c.In(0).rank()));
  for (int i = 0; i < c.In(0).rank(); ++i) {
    OPWIRE_RETURN_IF_ERROR(
        c.RequireAtMost(c.In(1).shape[i], c.In(2).shape[i], "index's extents, of src"));
  }
  return SameAsFirst(c);
}

Status InferIndexPut(InferContext& c) {
  const std::span<const TensorType* const> index = c.List(2);
  if (index.empty()) return c.Error("expected at least one index");
  const TensorType &x = c.In(0), &src = c.In(1);
  OPWIRE_ASSIGN_OR_RETURN(const int axis, c.Axis(c.Attr<int64_t>(0), x.rank(), "dim"));
  const size_t begin = static_cast<size_t>(axis), end = begin + index.size();
  if (end > x.shape.size())
    return c.Error(fmt::format("{} axes from dim {} on: expected at most {}, those of {}",
                               index.size(), axis, x.rank() - axis, c.Print(x)));
  for (const TensorType* i : index)
    OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(i->shape, index[0]->shape, "shapes of index"));
  std::vector<Dim> shape = x.shape;
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(begin),
              shape.begin() + static_cast<ptrdiff_t>(end));
  shape.insert(shape.begin() + axis, index[0]->shape.begin(), index[0]->shape.end());
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(src.shape, shape, "shapes of src and of what index names"));
  return SameAsFirst(c);
}

Status InferChoose(InferContext& c) {
  if (c.List(1).empty()) return c.Error("expected at least one operand to choose from");
  for (const TensorType* x : c.List(1))
    OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(c.In(0).shape, x->shape, "shapes of case and xs"));
  c.Result(0).shape = c.In(0).shape;
  return absl::OkStatus();
}

Status InferOneHot(InferContext& c) {
  c.Result(0).shape = c.In(0).shape;
  c.Result(0).shape.push_back(c.Attr<Dim>(0));
  c.Result(0).dtype = c.Attr<DType>(1);
  return absl::OkStatus();
}

Status InferEmbedding(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(0, 2));
  c.Result(0).shape = c.In(1).shape;
  c.Result(0).shape.push_back(c.In(0).shape[1]);
  return absl::OkStatus();
}

Status InferEmbeddingBackward(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(0, c.In(1).rank() + 1));
  const std::span<const Dim> grad = c.In(0).shape;
  OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(grad.first(grad.size() - 1), c.In(1).shape,
                                              "extents of grad before its last and of indices"));
  c.Result(0).shape = {c.Attr<Dim>(0), grad.back()};
  return absl::OkStatus();
}

}  // namespace

std::vector<OpDef> IndexingOps() {
  constexpr std::string_view kFamily = "shape";
  const AttrSpec dim = Optional("dim", Int(0), "The axis of x.");
  const std::vector<std::pair<std::string_view, Domain>> index = {{"index", Domain::kIndex}};
  return {
      Make({.name = "index_select",
            .signature = "x: T, index: I -> y: T",
            .attrs = {dim},
            .domains = index,
            .infer = InferIndexSelect,
            .cost = MoveCost,
            .family = kFamily,
            .doc = "The slices of x along dim that index, of any rank, names in [-x[dim], x[dim]); "
                   "its shape stands where dim stood."}),
      Make({.name = "gather",
            .signature = "x: T, index: I -> y: T",
            .attrs = {dim},
            .domains = index,
            .infer = InferGather,
            .cost = MoveCost,
            .family = kFamily,
            .doc = "Along dim the element of x that index, in [-x[dim], x[dim]), names for each "
                   "place, as torch.gather."}),
      Make({.name = "scatter_add",
            .signature = "x: A, index: I, src: A -> y: A",
            .attrs = {dim},
            .domains = index,
            .infer = InferScatterAdd,
            .cost =
                [](const CostArgs& a) {
                  return OpCost{Elements(a.operands[1]), TrafficBytes(a)};
                },
            .family = kFamily,
            .doc = "x plus the elements of src, each at the place along dim that index, in "
                   "[-x[dim], x[dim]), names; in order of "
                   "src."}),
      Make({.name = "index_put",
            .signature = "x: T, src: T, index...: I -> y: T",
            .attrs = {Optional("dim", Int(0), "The first axis of x that index names places of.")},
            .domains = index,
            .infer = InferIndexPut,
            .aliasing = Aliasing::kUpdate,
            .cost = UpdateCost,
            .family = kFamily,
            .doc =
                "x with the slices of src at the places that index names. index has one tensor for "
                "each axis from dim on, all of one shape, which replaces those axes in src's "
                "shape. Of several for one place the last is taken. If one is outside, y is x "
                "and it flags. In place if nothing else reads x."}),
      Make({.name = "choose",
            .signature = "case: I, xs...: T -> y: T",
            .domains = {{"case", Domain::kIndex}},
            .infer = InferChoose,
            .cost = PerResult(0),
            .family = kFamily,
            .doc =
                "Element by element that of xs[case], with case in [-n, n) of the n tensors xs."}),
      Make({.name = "one_hot",
            .signature = "index: I -> y: U",
            .attrs = {Required("classes", AttrKind::kDim, "The extent of the new last axis."),
                      Optional("dtype", DType::kF32, "The result's element type.")},
            .domains = index,
            .infer = InferOneHot,
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "A last axis with 1 at index, in [-classes, classes), and 0 elsewhere; a row of "
                   "zeros where out of range."}),
      Make({.name = "embedding",
            .signature = "weight: T, index: I -> y: T",
            .domains = index,
            .infer = InferEmbedding,
            .cost = MoveCost,
            .family = kFamily,
            .doc = "The rows of weight [V, D] that index, in [-V, V), names."}),
      Make({.name = "embedding_backward",
            .signature = "grad: F, indices: I -> grad_weight: F",
            .attrs = {Required("rows", AttrKind::kDim, "How many rows the weight has: V.")},
            .domains = {{"indices", Domain::kIndex}},
            .infer = InferEmbeddingBackward,
            .cost =
                [](const CostArgs& a) {
                  return OpCost{Elements(a.operands[0]), TrafficBytes(a)};
                },
            .family = kFamily,
            .doc = "The gradient of embedding(weight [V, D], indices) with respect to its weight, "
                   "times grad [..., D]. Row v is the sum of the rows of grad where indices, in "
                   "[-V, V), names v, in order of their positions. Many of them are summed in "
                   "pieces, whose sums are added. Order and size of the pieces follow from the "
                   "sizes and the indices."}),
  };
}

}  // namespace opwire::definitions
