// An order of things of which several are done at one time, such as nodes that become one.
//
//   // Three things, of which the last waits for the first.
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

// Those of one key, `most` at a time, where no path leads from one to another; an empty key: by
// itself. `edges`: something, and a later thing that must be done behind it. Each once, those that
// are done at one time in their order, and all as near to their order as that allows: several are
// done where the last of them was. In time linear in the edges but for sorting, so not every pair
// that might be done at one time is.
std::vector<std::vector<uint32_t>> JointOrder(std::span<const std::string> keys,
                                              std::vector<std::pair<uint32_t, uint32_t>> edges,
                                              size_t most = SIZE_MAX);

}  // namespace opwire

#endif  // OPWIRE_IR_PROGRAM_JOINT_ORDER_H_
