// Which values of a function are needed when, and what they take between its nodes, in the order
// that these stand in. Internal to ir/passes.
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

// By value. Views take nothing: they have the storage of their root.
struct LiveValues {
  std::vector<int64_t> bytes;  // 0 where the sizes give none, as a run would refuse them
  std::vector<ValueId> root;
  std::vector<bool> counts;  // it is in memory between nodes: no parameter, result or view
  std::vector<size_t> last;  // of a root: the last node that reads it or a view of it
};
// `rows`: by node.
LiveValues LiveValuesOf(const Function& f, const ValueTypes& values,
                        std::span<const OpRow* const> rows, const DimValues& sizes);

// By node, the bytes that are needed while it runs, what it calls apart.
std::vector<__int128> LiveBytes(const Function& f, const ValueTypes& values,
                                const LiveValues& live);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_LIVE_H_
