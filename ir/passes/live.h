// The lifetimes of a function's values, and their bytes between its nodes, in the order of the
// nodes. Internal to ir/passes.
#ifndef OPWIRE_IR_PASSES_LIVE_H_
#define OPWIRE_IR_PASSES_LIVE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/base/dim.h"
#include "ir/ops/catalogue.h"
#include "ir/program/module.h"

namespace opwire {

// By value. Views take no memory: they share the storage of their root.
struct LiveValues {
  std::vector<int64_t> bytes;  // 0 if the sizes are invalid: a run would refuse them
  std::vector<ValueId> root;
  std::vector<bool> counts;  // it is in memory between nodes: not a parameter, result or view
  std::vector<size_t> last;  // of a root: the last node that reads it or a view of it
};
// `rows`: by node.
LiveValues LiveValuesOf(const Function& f, const ValueTypes& values,
                        std::span<const OpDef* const> rows, const DimValues& sizes);

// By node, the live bytes while it runs, without those of called functions.
std::vector<__int128> LiveBytes(const Function& f, const ValueTypes& values,
                                const LiveValues& live);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_LIVE_H_
