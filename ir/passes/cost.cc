// What a run of a program takes, at given sizes.
#include <algorithm>
#include <limits>

#include "ir/passes/pipeline.h"

namespace opwire {
namespace {

constexpr int64_t kUsualSize = 64;

StatusOr<std::vector<int64_t>> SizesOf(const DimTable& dims, const PipelineOptions& options) {
  std::vector<int64_t> out;
  for (size_t s = 0; s < dims.symbols().size(); ++s) {
    const DimSymbol& symbol = dims.symbols()[s];
    const auto named = std::ranges::find(options.sizes, symbol.name, &std::pair<std::string, int64_t>::first);
    if (named != options.sizes.end()) {
      OPWIRE_RETURN_IF_ERROR(dims.CheckSymbol(s, named->second));
      out.push_back(named->second);
    } else {
      const int64_t size = std::clamp(kUsualSize, symbol.lower, symbol.upper);
      const int64_t below = size / symbol.multiple * symbol.multiple;
      out.push_back(below >= symbol.lower ? below : below + symbol.multiple);
    }
  }
  return out;
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

int64_t Saturated(__int128 n) { return n > kMost ? kMost : static_cast<int64_t>(n); }

// Bytes of a type at the sizes; 0 where they give none, as a run would refuse them.
int64_t BytesOf(const TensorType& type, const DimValues& sizes) {
  std::vector<int64_t> shape;
  for (Dim d : type.shape) shape.push_back(sizes.Get(d).value_or(0));
  return TensorBytes(type.dtype, type.encoding, shape).value_or(0);
}

}  // namespace

StatusOr<ProgramCost> CostOf(const Module& module, const Typing& typing, const PipelineOptions& options) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> symbols, SizesOf(module.dims, options));
  const DimValues sizes(module.dims, symbols);
  const Function& f = module.functions[0];
  const ValueTypes values(f);
  std::vector<int64_t> bytes(values.size());
  std::vector<ValueId> root(values.size());     // whose storage a value has
  std::vector<size_t> last(values.size(), 0);   // node that reads a root's storage
  for (size_t v = 0; v < values.size(); ++v) {
    root[v] = static_cast<ValueId>(v);
    if (values.types[v] != nullptr) bytes[v] = BytesOf(*values.types[v], sizes);
  }
  ProgramCost cost{.nodes = static_cast<int64_t>(f.nodes.size())};
  __int128 moved = 0;
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    const Node& node = f.nodes[n];
    const size_t first = values.first_result[n];
    const bool view = typing.functions[0].nodes[n].row->aliasing == Aliasing::kReshape;
    if (view) root[first] = root[static_cast<size_t>(node.operands[0])];
    last[static_cast<size_t>(root[first])] = n;
    for (size_t r = 0; r < node.results.size(); ++r) moved += view ? 0 : bytes[first + r];
    for (ValueId v : node.operands) {
      if (v == kAbsent) continue;
      moved += view ? 0 : bytes[static_cast<size_t>(v)];
      last[static_cast<size_t>(root[static_cast<size_t>(v)])] = n;
    }
  }
  std::vector<bool> counts(values.size(), true);
  std::fill_n(counts.begin(), f.params.size(), false);
  for (const Result& r : f.results) counts[static_cast<size_t>(root[static_cast<size_t>(r.value)])] = false;
  cost.bytes_moved = Saturated(moved);
  std::vector<__int128> change(f.nodes.size() + 1);
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    for (size_t r = 0; r < f.nodes[n].results.size(); ++r) {
      const size_t v = values.first_result[n] + r;
      if (!counts[v] || root[v] != static_cast<ValueId>(v)) continue;
      change[n] += bytes[v];
      change[std::max(last[v], n) + 1] -= bytes[v];
    }
  }
  __int128 live = 0, peak = 0;
  for (__int128 c : change) peak = std::max(peak, live += c);
  cost.peak_bytes = Saturated(peak);
  return cost;
}

}  // namespace opwire
