// Joins views of views to one view, removes views that change nothing, and lets matmuls absorb
// transposes.
#include <algorithm>
#include <numeric>

#include "ir/passes/rewrites.h"

namespace opwire {
namespace {

Done ReplacedBy(Rewriter& r, ValueId v) { return r.Replace(v) ? Done::kReplaced : Done::kNothing; }

// Returns the operand of the node that makes `v`, if that is an `op` without a pin; else kAbsent.
ValueId Under(const Rewriter& r, ValueId v, std::string_view op) {
  const Node* const node = r.Producer(v);
  return node != nullptr && node->op == op && node->pin.empty() ? node->operands[0] : kAbsent;
}

Done Unchanged(Rewriter& r, Node& node, const std::vector<AttrValue>&) {
  return r.TypeOf(node.operands[0]) == node.results[0] ? ReplacedBy(r, node.operands[0])
                                                       : Done::kNothing;
}

// The attribute has the final shape, whatever the shape between is.
Done OverSame(Rewriter& r, Node& node, const std::vector<AttrValue>&) {
  const ValueId x = Under(r, node.operands[0], node.op);
  if (x == kAbsent) return Done::kNothing;
  // If extents are not equal, a symbol between them may have made a run refuse them.
  const ValueId v = r.Append(node.op, {x}, node.attrs);
  return r.ReplaceOrTakeBack(v) ? Done::kReplaced : Done::kNothing;
}

Ints AxesOf(const AttrValue& dims) {
  Ints axes = std::get<Ints>(dims);
  for (int64_t& a : axes) a += a < 0 ? static_cast<int64_t>(axes.size()) : 0;
  return axes;
}

Done PermuteOfNothing(Rewriter& r, Node& node, const std::vector<AttrValue>& attrs) {
  const Ints axes = AxesOf(attrs[0]);
  return std::ranges::is_sorted(axes) ? ReplacedBy(r, node.operands[0]) : Done::kNothing;
}

// If all axes of more than one element keep their order.
Done PermuteOfPlaces(Rewriter& r, Node& node, const std::vector<AttrValue>& attrs) {
  const std::vector<Dim>& from = r.TypeOf(node.operands[0]).shape;
  Ints axes = AxesOf(attrs[0]);
  std::erase_if(axes, [&](int64_t a) {
    return r.dims().IsConstant(from[static_cast<size_t>(a)]) &&
           r.dims().ConstantValue(from[static_cast<size_t>(a)]) == 1;
  });
  if (!std::ranges::is_sorted(axes)) return Done::kNothing;
  const ValueId v =
      r.Append("reshape", {node.operands[0]}, {{"shape", Dims(node.results[0].shape)}});
  return r.ReplaceOrTakeBack(v) ? Done::kReplaced : Done::kNothing;
}

Done PermuteOfPermute(Rewriter& r, Node& node, const std::vector<AttrValue>& attrs) {
  const ValueId x = Under(r, node.operands[0], "permute");
  if (x == kAbsent) return Done::kNothing;
  const Ints inner = AxesOf(r.Resolved(*r.Producer(node.operands[0]))[0]);
  Ints axes = AxesOf(attrs[0]);
  for (int64_t& a : axes) a = inner[static_cast<size_t>(a)];
  node.operands[0] = x;
  node.attrs = {{"dims", std::move(axes)}};
  return Done::kEdited;
}

// Whether every value of `from` is one of `to`, and both are floats or both integers. (A real
// number saturates, but an integer wraps.) Then a cast of `to` has the same result as a cast of
// `from`.
bool Holds(DType to, DType from) {
  const DTypeSet floats = kFloats | kFloat8s;
  if (floats.Has(to) && floats.Has(from)) {
    if (to == DType::kF64 || (to == DType::kF32 && from != DType::kF64)) return true;
    return (to == DType::kF16 || to == DType::kBF16) && kFloat8s.Has(from);
  }
  if (!kIntegers.Has(to) || !kIntegers.Has(from) || DTypeBytes(to) <= DTypeBytes(from))
    return false;
  return kSigned.Has(to) || kUnsigned.Has(from);
}

Done CastOfNothing(Rewriter& r, Node& node, const std::vector<AttrValue>& attrs) {
  return std::get<bool>(attrs[1]) ? Done::kNothing : Unchanged(r, node, attrs);
}

Done CastOfCast(Rewriter& r, Node& node, const std::vector<AttrValue>&) {
  const ValueId x = Under(r, node.operands[0], "cast");
  if (x == kAbsent || !Holds(r.TypeOf(node.operands[0]).dtype, r.TypeOf(x).dtype))
    return Done::kNothing;
  node.operands[0] = x;
  return Done::kEdited;
}

Done CatOfOne(Rewriter& r, Node& node, const std::vector<AttrValue>&) {
  return node.operands.size() == 1 ? ReplacedBy(r, node.operands[0]) : Done::kNothing;
}

// Returns x if the value is x with its last two axes swapped.
ValueId Transposed(const Rewriter& r, ValueId v) {
  const ValueId x = Under(r, v, "permute");
  if (x == kAbsent) return kAbsent;
  Ints axes = AxesOf(r.Resolved(*r.Producer(v))[0]);
  if (axes.size() < 2) return kAbsent;
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return std::ranges::is_sorted(axes) ? x : kAbsent;
}

Done MatmulOfTransposed(Rewriter& r, Node& node, const std::vector<AttrValue>& attrs) {
  bool transposed[2] = {std::get<bool>(attrs[0]), std::get<bool>(attrs[1])}, found = false;
  for (size_t i = 0; i < 2; ++i) {
    const ValueId x = Transposed(r, node.operands[i]);
    if (x == kAbsent) continue;
    node.operands[i] = x;
    transposed[i] = !transposed[i];
    found = true;
  }
  if (!found) return Done::kNothing;
  std::erase_if(node.attrs, [](const NamedAttr& a) { return a.name.starts_with("transpose_"); });
  if (transposed[1]) node.attrs.insert(node.attrs.begin(), {"transpose_y", true});
  if (transposed[0]) node.attrs.insert(node.attrs.begin(), {"transpose_x", true});
  return Done::kEdited;
}

constexpr Rewrite kShapeRewrites[] = {
    // clang-format off
    {"reshape(x) -> x, where the shape is the same", "reshape", Unchanged},
    {"reshape(reshape(x)) -> reshape(x)", "reshape", OverSame},
    {"expand(x) -> x, where the shape is the same", "expand", Unchanged},
    {"expand(expand(x)) -> expand(x)", "expand", OverSame},
    {"permute(x) -> x, where each axis stays", "permute", PermuteOfNothing},
    {"permute(permute(x)) -> permute(x)", "permute", PermuteOfPermute},
    {"permute(x) -> reshape(x), where all axes of more than one place keep their order", "permute", PermuteOfPlaces},
    {"cast(x) -> x, where the type is the same", "cast", CastOfNothing},
    {"cast(cast(x)) -> cast(x), where the first loses nothing", "cast", CastOfCast},
    {"cat([x]) -> x", "cat", CatOfOne},
    // Kernels may add the terms of transposed operands in another order.
    {"matmul(permute(x), permute(y)) -> matmul(x, y) with transpose_x and transpose_y", "matmul", MatmulOfTransposed, Accuracy::kUsual},
    // clang-format on
};

}  // namespace

std::span<const Rewrite> ShapeRewrites() { return kShapeRewrites; }

void SimplifyShapes(PassContext& context) { ApplyRewrites(context, kShapeRewrites); }

}  // namespace opwire
