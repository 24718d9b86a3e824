// A loss and its gradient by the same logits become one op, which reads them once. The op takes the
// place of the loss, if the factor of the gradient can be known there. Logits of a vocabulary are
// the largest tensor of a language model's step.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ir/passes/rewriter.h"

namespace opwire {
namespace {

constexpr size_t kMostMoved = 8;  // nodes

// The nodes that a loss takes in: its gradient's node, and those that compute the gradient's
// factor. They come after the loss and do not read it.
struct Pair {
  uint32_t gradient;
  std::vector<uint32_t> moved;  // in their order
};

class LossJoiner {
 public:
  LossJoiner(PassContext& context, uint32_t function)
      : typing_(context.typing.functions[function]),
        f_(context.module.functions[function]),
        values_(f_) {
    producer_.assign(values_.size(), -1);
    for (uint32_t n = 0; n < f_.nodes.size(); ++n) {
      for (size_t r = 0; r < f_.nodes[n].results.size(); ++r)
        producer_[values_.first_result[n] + r] = static_cast<int32_t>(n);
    }
  }

  std::optional<Pair> PairOf(uint32_t loss) const {
    const Node& l = f_.nodes[loss];
    if (l.op != "cross_entropy" || !l.pin.empty()) return std::nullopt;
    for (uint32_t n = loss + 1; n < f_.nodes.size(); ++n) {
      const Node& g = f_.nodes[n];
      if (g.op != "cross_entropy_backward" || !g.pin.empty() || g.operands[1] != l.operands[0] ||
          g.operands[2] != l.operands[1] || !SameAttrs(loss, n) || IsReturned(n))
        continue;
      Pair pair{n, {}};
      if (CanMove(g.operands[0], loss, pair.moved)) {
        std::ranges::sort(pair.moved);
        return pair;
      }
    }
    return std::nullopt;
  }

 private:
  bool SameAttrs(uint32_t a, uint32_t b) const {
    return std::ranges::equal(
        typing_.nodes[a].attrs, typing_.nodes[b].attrs,
        [](const AttrValue& x, const AttrValue& y) { return SameBits(x, y); });
  }
  bool IsReturned(uint32_t n) const {
    return std::ranges::any_of(f_.results, [&](const Result& r) {
      return r.value == static_cast<ValueId>(values_.first_result[n]);
    });
  }
  // Whether the value exists at node `before`, or a few nodes can compute it there. Adds these
  // nodes to `moved`.
  bool CanMove(ValueId v, uint32_t before, std::vector<uint32_t>& moved) const {
    const int32_t n = v == kAbsent ? -1 : producer_[static_cast<size_t>(v)];
    if (n < static_cast<int32_t>(before)) return true;
    const auto node = static_cast<uint32_t>(n);
    if (std::ranges::find(moved, node) != moved.end()) return true;
    const OpDef& row = *typing_.nodes[node].row;
    if (node == before || moved.size() == kMostMoved || row.effects != Effects::kPure ||
        row.control != Control::kNone || !f_.nodes[node].pin.empty())
      return false;
    moved.push_back(node);
    return std::ranges::all_of(f_.nodes[node].operands,
                               [&](ValueId o) { return CanMove(o, before, moved); });
  }

  const FunctionTyping& typing_;
  const Function& f_;
  const ValueTypes values_;
  std::vector<int32_t> producer_;  // by value
};

void JoinIn(PassContext& context, uint32_t function) {
  std::unordered_map<uint32_t, Pair> pairs;  // by the loss's node
  {
    const LossJoiner joiner(context, function);
    for (uint32_t n = 0; n < context.module.functions[function].nodes.size(); ++n) {
      if (auto pair = joiner.PairOf(n)) pairs.emplace(n, *std::move(pair));
    }
  }
  if (pairs.empty()) return;
  Rewriter r(context, function);
  const ValueTypes values(r.old());
  std::unordered_map<uint32_t, ValueId> made;  // by the gradient's node
  for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
    const Node loss = r.Begin(n);
    if (const auto known = made.find(n); known != made.end() && r.Replace(known->second)) continue;
    const auto pair = pairs.find(n);
    if (pair == pairs.end() || made.contains(pair->second.gradient)) {
      r.Keep();
      continue;
    }
    std::unordered_map<ValueId, ValueId> moved;  // old values to new
    const auto moved_to = [&](ValueId v) {
      const auto it = moved.find(v);
      return v == kAbsent ? v : it != moved.end() ? it->second : r.Renamed(v);
    };
    bool whole = true;
    for (const uint32_t m : pair->second.moved) {
      Node copy = r.old().nodes[m];
      for (ValueId& v : copy.operands) v = moved_to(v);
      whole = whole && r.HasRoom();
      if (!whole) break;
      const std::vector<ValueId> results = r.AppendNode(std::move(copy));
      for (size_t i = 0; i < results.size(); ++i)
        moved.emplace(static_cast<ValueId>(values.first_result[m] + i), results[i]);
    }
    if (whole) {
      const std::vector<ValueId> both =
          r.AppendAll("cross_entropy_with_gradient",
                      {moved_to(r.old().nodes[pair->second.gradient].operands[0]), loss.operands[0],
                       loss.operands[1]},
                      loss.attrs);
      if (both.size() == 2 && r.Replace(both[0])) {
        made.emplace(pair->second.gradient, both[1]);
        continue;
      }
    }
    r.TakeBack();
    r.Keep();
  }
  r.Finish();
}

}  // namespace

// Not with exact results: a kernel of both may add exponentials in another order than a kernel of
// the loss alone.
void JoinLosses(PassContext& context) {
  if (context.accuracy == Accuracy::kExact ||
      context.ops.Find("cross_entropy_with_gradient") == nullptr)
    return;
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) JoinIn(context, f);
}

}  // namespace opwire
