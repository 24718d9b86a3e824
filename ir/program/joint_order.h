// An order of items in which several may be processed together, such as nodes that become one.
//
//   // Three items. The last one depends on the first.
//   JointOrder({"a", "a", "a"}, {{0, 2}});   // {{0, 1}, {2}}
#ifndef OPWIRE_IR_PROGRAM_JOINT_ORDER_H_
#define OPWIRE_IR_PROGRAM_JOINT_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace opwire {

// Forms groups of items with one key, at most `most` in each, if no path leads from one to another.
// An item with an empty key is in no group with others. `edges`: an item, and a later item that
// must come after it. Returns each item once. The items of a group are in their original order. The
// groups are as close to the original order as possible: the last item of a group has its original
// place. The time is linear in the edges, except for sorting. So not every possible pair is
// grouped.
std::vector<std::vector<uint32_t>> JointOrder(std::span<const std::string> keys,
                                              std::vector<std::pair<uint32_t, uint32_t>> edges,
                                              size_t most = SIZE_MAX);

}  // namespace opwire

#endif  // OPWIRE_IR_PROGRAM_JOINT_ORDER_H_
