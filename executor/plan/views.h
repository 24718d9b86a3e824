// Which nodes of a function move nothing: permutations, slices, joins and reshapes whose result
// lies in memory that is there anyway, where all that reads or makes it takes strides at no cost
// (OPW_STRIDED).
//
// Of a transformer's attention: queries, keys and values are slices of one product's result, by
// heads; what it gives is written in the order of the next product's operand, and gradients into
// the places of what joins them.
#ifndef OPWIRE_EXECUTOR_PLAN_VIEWS_H_
#define OPWIRE_EXECUTOR_PLAN_VIEWS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/program/module.h"
#include "ir/verify/verify.h"

namespace opwire {

enum class ViewKind : uint8_t {
  kNone,
  kOf,    // the result lies in the first operand's memory
  kInto,  // the operands lie in the result's memory: they are made there
};

struct Views {
  std::vector<ViewKind> kinds;  // by node
  std::vector<ValueId> root;    // by value: in whose memory it lies, dense; most in their own
  absl::flat_hash_map<uint32_t, int64_t>
      starts;  // by node that is a slice: its first element along its axis
};

// What is known of a function before sizes are bound.
struct Viewed {
  const Function& f;
  const ValueTypes& values;
  const FunctionTyping& typing;
  const DimTable& dims;
  std::span<const int32_t>
      inout_of_result;  // by result: the parameter whose storage it is to become, or -1
  std::span<const int32_t> producer;  // by value: the node that makes it; -1 for parameters
};
// `strided`: by node, whether the kernel that would run it takes and makes tensors whose last axis
// has stride 1, however the others lie. What lies in another's memory, or holds others', is never a
// result of the function, reshapes apart; and nothing lies in a parameter that is replaced, whose
// storage changes under it.
Views FindViews(const Viewed& what, const std::vector<bool>& strided);

// Where values lie in their roots once sizes are bound, in elements.
struct ViewLayout {
  std::vector<int64_t> strides;
  int64_t offset = 0;
};
// Of the result of a node that is a view of an operand: `of` is the operand's layout. `shape` and
// `from` are the extents of result and operand.
ViewLayout LayoutOfView(const Views& views, const Node& node, const NodeTyping& typing, uint32_t n,
                        const ViewLayout& of, std::span<const int64_t> shape,
                        std::span<const int64_t> from);
// Of an operand of a node whose operands lie in its result, whose layout is `in`; `before` elements
// along the axis that is joined lie in front of it.
ViewLayout LayoutOfPart(const Node& node, const NodeTyping& typing, const ViewLayout& in,
                        std::span<const int64_t> shape, std::span<const int64_t> part,
                        int64_t before);
// The axis that a join joins; nothing for other nodes.
std::optional<size_t> JoinedAxis(const Node& node, const NodeTyping& typing);

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_VIEWS_H_
