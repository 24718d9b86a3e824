// Finds the nodes of a function that move no data: permutations, slices, joins and reshapes. Their
// result shares existing memory, if all its producers and readers support strides at no cost
// (OPW_STRIDED).
//
// Examples are in a transformer's attention. Queries, keys and values are slices of one matmul's
// result, by heads. The attention writes its result in the order of the next matmul's operand.
// Gradients are written into the memory of the tensor that joins them.
#ifndef OPWIRE_EXECUTOR_PLAN_VIEWS_H_
#define OPWIRE_EXECUTOR_PLAN_VIEWS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/program/module.h"
#include "ir/verify/verify.h"

namespace opwire::executor {

enum class ViewKind : uint8_t {
  kNone,
  kOf,    // the result shares the first operand's memory
  kInto,  // the operands share the result's memory: their producers write there
};

struct Views {
  std::vector<ViewKind> kinds;  // by node
  std::vector<ValueId> root;    // by value: the dense value that owns its memory; usually itself
  absl::flat_hash_map<uint32_t, int64_t> starts;  // by slice node: its first element along its axis
};

// The facts about a function before sizes are bound.
struct Viewed {
  const Function& f;
  const ValueTypes& values;
  const FunctionTyping& typing;
  const DimTable& dims;
  std::span<const int32_t>
      inout_of_result;  // by result: the parameter whose storage it is to become, or -1
  std::span<const int32_t> producer;  // by value: the node that makes it; -1 for parameters
};
// `strided`: by node, whether its kernel reads and writes tensors with any strides, except
// that the last axis has stride 1: it is contiguous. A value that shares another's memory, or whose
// memory others share, is never a result of the function, except for reshapes. No value shares a
// replaced parameter's memory, because that storage changes.
Views FindViews(const Viewed& what, const std::vector<bool>& strided);

// The layouts of values in their roots' memory once sizes are bound, in elements.
struct ViewLayout {
  std::vector<int64_t> strides;
  int64_t offset = 0;
};
// Returns the layout of the result of a node that is a view of its operand. `of` is the operand's
// layout. `shape` and `from` are the extents of result and operand.
ViewLayout LayoutOfView(const Views& views, const Node& node, const NodeTyping& typing, uint32_t n,
                        const ViewLayout& of, std::span<const int64_t> shape,
                        std::span<const int64_t> from);
// Returns the layout of an operand of a join whose operands share its result's memory. `in` is the
// result's layout. `before` elements along the joined axis precede the operand.
ViewLayout LayoutOfPart(const Node& node, const NodeTyping& typing, const ViewLayout& in,
                        std::span<const int64_t> shape, std::span<const int64_t> part,
                        int64_t before);
// Returns the axis that a join joins; nothing for other nodes.
std::optional<size_t> JoinedAxis(const Node& node, const NodeTyping& typing);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_VIEWS_H_
