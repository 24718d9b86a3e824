// Splits a reduction of several axes in two if a kernel can then include the nodes before it.
// Kernels of groups reduce either the last axis or other axes. After elementwise ops, the terms of
// a sum of all elements need not be in memory then. Nor need those of a batch norm's statistics.
#include <algorithm>
#include <numeric>

#include "ir/passes/rewrites.h"

namespace opwire {
namespace {

constexpr int64_t kShortRow = 16;  // elements; if all axes are reduced, the leading ones come first
                                   // then, so that few elements remain

Done InTwo(Rewriter& r, Node& node, const std::vector<AttrValue>& attrs) {
  const TensorType x = r.TypeOf(node.operands[0]);
  const auto rank = static_cast<int64_t>(x.shape.size());
  const bool keepdim = std::get<bool>(attrs[1]);
  Ints axes = std::get<Ints>(attrs[0]);
  if (axes.empty()) {
    axes.resize(x.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t& a : axes) a += a < 0 ? rank : 0;
  std::ranges::sort(axes);
  const auto reduced = static_cast<int64_t>(axes.size());
  if (reduced < 2 || axes.back() != rank - 1) return Done::kNothing;
  // One kernel of the op reduces trailing axes.
  const Node* const maker = r.Producer(node.operands[0]);
  const bool elementwise =
      maker != nullptr && maker->pin.empty() && !r.FindRow(maker->op)->body.Empty();
  if (axes.front() == rank - reduced && !elementwise) return Done::kNothing;

  const Dim row = x.shape.back();
  const bool leading =
      reduced == rank && r.dims().IsConstant(row) && r.dims().ConstantValue(row) <= kShortRow;
  Ints first(axes.end() - 1, axes.end()), then(axes.begin(), axes.end() - 1);
  if (leading) {
    std::swap(first, then);
    if (!keepdim) then = {0};
  }
  const bool narrow = (node.op == "sum" || node.op == "mean") &&
                      (x.dtype == DType::kF16 ||
                       x.dtype == DType::kBF16);  // their intermediate results must not be rounded
  ValueId v = node.operands[0];
  const auto append = [&](std::string_view op, std::vector<NamedAttr> own) {
    if (v != kAbsent) v = r.Append(op, {v}, std::move(own));
  };
  if (narrow) append("cast", {{"dtype", DType::kF32}});
  append(node.op, {{"dims", std::move(first)}, {"keepdim", keepdim}});
  append(node.op, {{"dims", std::move(then)}, {"keepdim", keepdim}});
  if (narrow) append("cast", {{"dtype", x.dtype}});
  return r.ReplaceOrTakeBack(v) ? Done::kReplaced : Done::kNothing;
}

constexpr Rewrite kSplitRewrites[] = {
    {"sum(x) -> sum(sum(x)), over the last axis and over others", "sum", InTwo},
    {"mean(x) -> mean(mean(x)), over the last axis and over others", "mean", InTwo},
    {"amax(x) -> amax(amax(x)), over the last axis and over others", "amax", InTwo},
    {"amin(x) -> amin(amin(x)), over the last axis and over others", "amin", InTwo},
};

}  // namespace

std::span<const Rewrite> SplitRewrites() { return kSplitRewrites; }

// Not with exact results: sums are added in another order.
void SplitReductions(PassContext& context) {
  if (context.accuracy != Accuracy::kExact) ApplyRewrites(context, kSplitRewrites);
}

}  // namespace opwire
