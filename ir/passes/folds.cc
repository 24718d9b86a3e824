// Folds of several axes become two where that lets a kernel take in what is in front of them:
// kernels of groups fold the last axis, or others than that, so that behind elementwise ops neither
// the terms of a sum of all elements nor those of a batch norm's statistics need be in memory.
#include <algorithm>
#include <numeric>

#include "ir/passes/rewrites.h"

namespace opwire {
namespace {

constexpr int64_t kShortRow =
    16;  // elements; of all axes the leading ones are folded first then, so that little is left

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
  const auto folded = static_cast<int64_t>(axes.size());
  if (folded < 2 || axes.back() != rank - 1) return Done::kNothing;
  // Trailing axes are folded by one kernel of the op's own.
  const Node* const maker = r.Producer(node.operands[0]);
  const bool elementwise =
      maker != nullptr && maker->pin.empty() && !r.FindRow(maker->op)->body.Empty();
  if (axes.front() == rank - folded && !elementwise) return Done::kNothing;

  const Dim row = x.shape.back();
  const bool leading =
      folded == rank && r.dims().IsConstant(row) && r.dims().ConstantValue(row) <= kShortRow;
  Ints first(axes.end() - 1, axes.end()), then(axes.begin(), axes.end() - 1);
  if (leading) {
    std::swap(first, then);
    if (!keepdim) then = {0};
  }
  const bool narrow =
      (node.op == "sum" || node.op == "mean") &&
      (x.dtype == DType::kF16 || x.dtype == DType::kBF16);  // whose parts are not to be rounded
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

constexpr Rewrite kFoldRewrites[] = {
    {"sum(x) -> sum(sum(x)), over the last axis and over others", "sum", InTwo},
    {"mean(x) -> mean(mean(x)), over the last axis and over others", "mean", InTwo},
    {"amax(x) -> amax(amax(x)), over the last axis and over others", "amax", InTwo},
    {"amin(x) -> amin(amin(x)), over the last axis and over others", "amin", InTwo},
};

}  // namespace

std::span<const Rewrite> FoldRewrites() { return kFoldRewrites; }

// Not where results are to be exact: sums are added up in another order.
void DivideFolds(PassContext& context) {
  if (context.accuracy != Accuracy::kExact) ApplyRewrites(context, kFoldRewrites);
}

}  // namespace opwire
