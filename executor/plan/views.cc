// Finds the readers of values, and the values that may therefore share another's memory.
#include "executor/plan/views.h"

#include <cmath>
#include <optional>

#include "ir/base/checked.h"

namespace opwire::executor {
namespace {

enum class Move : uint8_t { kNone, kReshape, kPermute, kSlice, kCat };
Move MoveOf(const Node& node, const OpDef& row) {
  if (row.aliasing == Aliasing::kReshape) return Move::kReshape;
  if (!node.pin.empty()) return Move::kNone;
  return node.op == "permute" ? Move::kPermute
         : node.op == "slice" ? Move::kSlice
         : node.op == "cat"   ? Move::kCat
                              : Move::kNone;
}

size_t Axis(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

// By axis of `to`, the axis of `from` that contains it. -1: the axis has extent 1 and is part of
// no axis. Empty: axes of `from` would be joined. `equal(i, j)`: whether extent i of `from` and
// extent j of `to` are known to be equal. `from_extent` and `to_extent`: the extents, or nothing.
template <typename Equal, typename FromExtent, typename ToExtent>
std::vector<int> SplitsOf(size_t from_rank, size_t to_rank, const Equal& equal,
                          const FromExtent& from_extent, const ToExtent& to_extent) {
  std::vector<int> part_of(to_rank, -1);
  size_t j = 0;
  for (size_t i = 0; i < from_rank; ++i) {
    const std::optional<int64_t> whole = from_extent(i);
    if (whole == 1) continue;
    while (j < to_rank && to_extent(j) == 1) ++j;
    if (j < to_rank && equal(i, j)) {
      part_of[j++] = static_cast<int>(i);
      continue;
    }
    if (!whole) return {};
    int64_t product = 1;
    while (product < *whole || *whole == 0) {
      const std::optional<int64_t> part = j < to_rank ? to_extent(j) : std::nullopt;
      if (!part || *part == 0) return {};
      product *= *part;
      part_of[j++] = static_cast<int>(i);
    }
    if (product != *whole) return {};
  }
  while (j < to_rank && to_extent(j) == 1) ++j;
  return j == to_rank ? part_of : std::vector<int>();
}

// Returns the strides after the axes of `from` are split.
std::vector<int64_t> Split(std::span<const int64_t> from, std::span<const int64_t> strides,
                           std::span<const int64_t> to) {
  const auto of = [](std::span<const int64_t> extents) {
    return [extents](size_t i) { return std::optional(extents[i]); };
  };
  const std::vector<int> part_of = SplitsOf(
      from.size(), to.size(), [&](size_t i, size_t j) { return from[i] == to[j]; }, of(from),
      of(to));
  std::vector<int64_t> out(to.size());
  int64_t inner = 1;
  for (size_t j = part_of.size(); j-- > 0;) {
    if (part_of[j] < 0) continue;
    if (j + 1 == part_of.size() || part_of[j + 1] != part_of[j]) inner = 1;
    out[j] = strides[static_cast<size_t>(part_of[j])] * inner;
    inner *= to[j];
  }
  return out;
}

class Finder {
 public:
  Finder(const Viewed& what, const std::vector<bool>& strided)
      : w_(what),
        strided_(strided),
        returned_(what.values.size()),
        replaced_(what.values.size()),
        refuser_(what.values.size(), kNobody) {
    out_.kinds.assign(w_.f.nodes.size(), ViewKind::kNone);
    for (size_t v = 0; v < w_.values.size(); ++v) out_.root.push_back(static_cast<ValueId>(v));
    for (const Result& r : w_.f.results) returned_[static_cast<size_t>(r.value)] = true;
    for (const int32_t p : w_.inout_of_result) {
      if (p >= 0) replaced_[static_cast<size_t>(p)] = true;
    }
    for (uint32_t n = static_cast<uint32_t>(w_.f.nodes.size()); n-- > 0;) {
      if (MoveAt(n) == Move::kReshape && returned_[ResultOf(n)])
        returned_[static_cast<size_t>(w_.f.nodes[n].operands[0])] = true;
    }
  }

  Views Find() {
    for (uint32_t n = static_cast<uint32_t>(w_.f.nodes.size()); n-- > 0;) FindOf(n);
    for (uint32_t n = 0; n < w_.f.nodes.size(); ++n) {
      if (MoveAt(n) == Move::kCat && !returned_[ResultOf(n)]) FindCat(n);
    }
    for (uint32_t n = 0; n < w_.f.nodes.size(); ++n) {
      if (MoveAt(n) == Move::kPermute && out_.kinds[n] == ViewKind::kNone &&
          !returned_[ResultOf(n)] && KeepsLastAxis(n) && MadeFor(w_.f.nodes[n].operands[0], n))
        out_.kinds[n] = ViewKind::kInto;
    }
    for (uint32_t n = static_cast<uint32_t>(w_.f.nodes.size()); n-- > 0;) {
      if (out_.kinds[n] != ViewKind::kInto) continue;
      for (const ValueId v : w_.f.nodes[n].operands)
        out_.root[static_cast<size_t>(v)] = out_.root[ResultOf(n)];
    }
    for (uint32_t n = 0; n < w_.f.nodes.size(); ++n) {
      if (out_.kinds[n] == ViewKind::kOf)
        out_.root[ResultOf(n)] = out_.root[static_cast<size_t>(w_.f.nodes[n].operands[0])];
    }
    return std::move(out_);
  }

 private:
  static constexpr int64_t kNobody = -1, kMany = -2;

  Move MoveAt(uint32_t n) const { return MoveOf(w_.f.nodes[n], *w_.typing.nodes[n].row); }
  size_t ResultOf(uint32_t n) const { return w_.values.first_result[n]; }
  const std::vector<Dim>& ShapeOf(size_t v) const { return w_.values.types[v]->shape; }
  std::optional<int64_t> Known(Dim d) const {
    return w_.dims.IsConstant(d) ? std::optional(w_.dims.ConstantValue(d)) : std::nullopt;
  }

  bool KeepsLastAxis(uint32_t n) const {
    const Ints& order = std::get<Ints>(w_.typing.nodes[n].attrs[0]);
    return !order.empty() && Axis(order.back(), order.size()) == order.size() - 1;
  }
  // Whether a reshape's result is its operand with axes split.
  bool Splits(size_t from, size_t to) const {
    const std::vector<Dim>&a = ShapeOf(from), &b = ShapeOf(to);
    if (b.empty()) return false;
    return !SplitsOf(
                a.size(), b.size(), [&](size_t i, size_t j) { return a[i] == b[j]; },
                [&](size_t i) { return Known(a[i]); }, [&](size_t j) { return Known(b[j]); })
                .empty();
  }
  // The first element of a slice whose elements are neighbours along its axis and known to be in
  // range; nothing for others.
  std::optional<int64_t> StartOf(uint32_t n) const {
    const Node& node = w_.f.nodes[n];
    const std::vector<AttrValue>& attrs = w_.typing.nodes[n].attrs;
    const std::vector<Dim>& shape = ShapeOf(static_cast<size_t>(node.operands[0]));
    const auto extent = Known(shape[Axis(std::get<int64_t>(attrs[0]), shape.size())]),
               length = Known(std::get<Dim>(attrs[1])), start = NumberOf(node.operands[1]);
    if (!extent || !length || !start || std::get<int64_t>(attrs[2]) != 1) return std::nullopt;
    const int64_t first = *start < 0 ? *start + *extent : *start;
    return first >= 0 && first <= *extent - *length ? std::optional(first) : std::nullopt;
  }
  std::optional<int64_t> NumberOf(ValueId v) const {
    const int32_t n = w_.producer[static_cast<size_t>(v)];
    if (n < 0 || w_.f.nodes[static_cast<size_t>(n)].op != "full") return std::nullopt;
    const NodeTyping& t = w_.typing.nodes[static_cast<size_t>(n)];
    const double value = std::get<double>(t.attrs[static_cast<size_t>(t.row->FindAttr("value"))]);
    return std::abs(value) <= static_cast<double>(kMaxExtent)
               ? std::optional(static_cast<int64_t>(value))
               : std::nullopt;
  }

  // Finds whether a node is a view of its operand. Notes nodes that read their operands only if
  // these are dense.
  void FindOf(uint32_t n) {
    const Node& node = w_.f.nodes[n];
    const Move move = MoveAt(n);
    bool takes = strided_[n];
    if (move != Move::kNone && move != Move::kCat) {
      const size_t from = static_cast<size_t>(node.operands[0]), to = ResultOf(n);
      const bool dense = w_.values.types[from]->encoding == Encoding::kDense,
                 all_take = refuser_[to] == kNobody && !returned_[to];
      const auto start = move == Move::kSlice ? StartOf(n) : std::nullopt;
      takes = dense && all_take && !replaced_[from] &&
              (move == Move::kReshape   ? Splits(from, to)
               : move == Move::kPermute ? KeepsLastAxis(n)
                                        : start.has_value());
      if (takes && start) out_.starts[n] = *start;
      if (!replaced_[from] && (takes || move == Move::kReshape)) out_.kinds[n] = ViewKind::kOf;
    }
    if (takes) return;  // a slice's start is one of its facts, not an operand
    for (const ValueId v : node.operands) {
      if (v == kAbsent) continue;
      int64_t& refuser = refuser_[static_cast<size_t>(v)];
      refuser = refuser == kNobody ? n : kMany;
    }
  }

  // Whether a strided kernel makes v, and n is the only node that needs it dense.
  bool MadeFor(ValueId v, uint32_t n) const {
    const auto at = static_cast<size_t>(v);
    return w_.producer[at] >= 0 && strided_[static_cast<size_t>(w_.producer[at])] &&
           refuser_[at] == n && !returned_[at];
  }
  // Finds a join all of whose parts come from strided kernels, through permutations and reshapes
  // that can be undone.
  void FindCat(uint32_t cat) {
    std::vector<uint32_t> between;
    for (const ValueId part : w_.f.nodes[cat].operands) {
      ValueId v = part;
      uint32_t reader = cat;
      while (!MadeFor(v, reader)) {
        const auto at = static_cast<size_t>(v);
        if (w_.producer[at] < 0 || refuser_[at] != reader || returned_[at]) return;
        reader = static_cast<uint32_t>(w_.producer[at]);
        const Move move = MoveAt(reader);
        const ValueId from =
            w_.f.nodes[reader].operands.empty() ? kAbsent : w_.f.nodes[reader].operands[0];
        if (!(move == Move::kPermute && KeepsLastAxis(reader)) &&
            !(move == Move::kReshape && !replaced_[static_cast<size_t>(from)] &&
              Splits(at, static_cast<size_t>(from))))
          return;
        between.push_back(reader);
        v = from;
      }
    }
    out_.kinds[cat] = ViewKind::kInto;
    for (const uint32_t n : between) out_.kinds[n] = ViewKind::kInto;
  }

  const Viewed& w_;
  const std::vector<bool>& strided_;
  std::vector<bool> returned_;    // by value: it, or a reshape of it, is a result of the function
  std::vector<bool> replaced_;    // by value: a parameter whose storage changes
  std::vector<int64_t> refuser_;  // by value: the node that reads it dense only
  Views out_;
};

}  // namespace

Views FindViews(const Viewed& what, const std::vector<bool>& strided) {
  return Finder(what, strided).Find();
}

ViewLayout LayoutOfView(const Views& views, const Node& node, const NodeTyping& typing, uint32_t n,
                        const ViewLayout& of, std::span<const int64_t> shape,
                        std::span<const int64_t> from) {
  ViewLayout out = of;
  switch (MoveOf(node, *typing.row)) {
    case Move::kReshape:
      out.strides = Split(from, of.strides, shape);
      break;
    case Move::kPermute: {
      const Ints& order = std::get<Ints>(typing.attrs[0]);
      for (size_t a = 0; a < order.size(); ++a)
        out.strides[a] = of.strides[Axis(order[a], order.size())];
      break;
    }
    case Move::kSlice:
      out.offset +=
          views.starts.at(n) * of.strides[Axis(std::get<int64_t>(typing.attrs[0]), from.size())];
      break;
    case Move::kCat:
    case Move::kNone:
      break;
  }
  return out;
}

ViewLayout LayoutOfPart(const Node& node, const NodeTyping& typing, const ViewLayout& in,
                        std::span<const int64_t> shape, std::span<const int64_t> part,
                        int64_t before) {
  ViewLayout out = in;
  switch (MoveOf(node, *typing.row)) {
    case Move::kReshape:
      out.strides = Split(shape, in.strides, part);
      break;
    case Move::kPermute: {
      const Ints& order = std::get<Ints>(typing.attrs[0]);
      for (size_t a = 0; a < order.size(); ++a)
        out.strides[Axis(order[a], order.size())] = in.strides[a];
      break;
    }
    case Move::kCat:
      out.offset += before * in.strides[*JoinedAxis(node, typing)];
      break;
    case Move::kSlice:
    case Move::kNone:
      break;
  }
  return out;
}

std::optional<size_t> JoinedAxis(const Node& node, const NodeTyping& typing) {
  if (MoveOf(node, *typing.row) != Move::kCat) return std::nullopt;
  return Axis(std::get<int64_t>(typing.attrs[0]), node.results[0].shape.size());
}

}  // namespace opwire::executor
