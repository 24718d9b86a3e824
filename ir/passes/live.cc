// Lifetimes, from first to last reader.
#include "ir/passes/live.h"

#include <algorithm>

#include "ir/base/type.h"

namespace opwire {
namespace {

int64_t BytesOf(const TensorType& type, const DimValues& sizes) {
  std::vector<int64_t> shape;
  for (const Dim d : type.shape) shape.push_back(sizes.Get(d).value_or(0));
  return TensorBytes(type.dtype, type.encoding, shape).value_or(0);
}

}  // namespace

LiveValues LiveValuesOf(const Function& f, const ValueTypes& values,
                        std::span<const OpDef* const> rows, const DimValues& sizes) {
  LiveValues live{.bytes = std::vector<int64_t>(values.size()),
                  .root = {},
                  .counts = std::vector<bool>(values.size(), true),
                  .last = std::vector<size_t>(values.size())};
  for (size_t v = 0; v < values.size(); ++v) {
    live.root.push_back(static_cast<ValueId>(v));
    if (values.types[v] != nullptr) live.bytes[v] = BytesOf(*values.types[v], sizes);
  }
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    const Node& node = f.nodes[n];
    const size_t first = values.first_result[n];
    if (rows[n]->aliasing == Aliasing::kReshape) {
      live.root[first] = live.root[static_cast<size_t>(node.operands[0])];
      live.counts[first] = false;
    }
    for (size_t r = 0; r < node.results.size(); ++r)
      live.last[static_cast<size_t>(live.root[first + r])] = n;
    for (const ValueId v : node.operands) {
      if (v != kAbsent) live.last[static_cast<size_t>(live.root[static_cast<size_t>(v)])] = n;
    }
  }
  std::fill_n(live.counts.begin(), f.params.size(), false);
  for (const Result& r : f.results)
    live.counts[static_cast<size_t>(live.root[static_cast<size_t>(r.value)])] = false;
  return live;
}

std::vector<__int128> LiveBytes(const Function& f, const ValueTypes& values,
                                const LiveValues& live) {
  std::vector<__int128> taken(f.nodes.size() + 1);
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    for (size_t r = 0; r < f.nodes[n].results.size(); ++r) {
      const size_t v = values.first_result[n] + r;
      if (!live.counts[v]) continue;
      taken[n] += live.bytes[v];
      taken[live.last[v] + 1] -= live.bytes[v];
    }
  }
  for (size_t n = 1; n < taken.size(); ++n) taken[n] += taken[n - 1];
  taken.pop_back();
  return taken;
}

}  // namespace opwire
