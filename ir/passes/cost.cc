// What a run of a program takes, at given sizes.
#include <algorithm>
#include <limits>
#include <optional>

#include "ir/passes/pipeline.h"

namespace opwire {
namespace {

constexpr int64_t kUsualSize = 64;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

int64_t Saturated(__int128 n) { return n > kMost ? kMost : static_cast<int64_t>(n); }

// Bytes of a type at the sizes; 0 where they give none, as a run would refuse them.
int64_t BytesOf(const TensorType& type, const DimValues& sizes) {
  std::vector<int64_t> shape;
  for (Dim d : type.shape) shape.push_back(sizes.Get(d).value_or(0));
  return TensorBytes(type.dtype, type.encoding, shape).value_or(0);
}

// Costs of functions, each worked out once.
class Costs {
 public:
  struct Cost {
    __int128 nodes = 0, moved = 0, peak = 0;
  };
  Costs(const Module& module, const Typing& typing, const DimValues& sizes) : module_(module), typing_(typing), sizes_(sizes), known_(module.functions.size()) {}

  const Cost& Of(uint32_t function) {
    if (known_[function]) return *known_[function];
    const Function& f = module_.functions[function];
    const ValueTypes values(f);
    std::vector<int64_t> bytes(values.size());
    std::vector<ValueId> root(values.size());     // whose storage a value has
    std::vector<size_t> last(values.size(), 0);   // node that reads a root's storage
    std::vector<__int128> inside(f.nodes.size()); // the peak of what a node calls
    for (size_t v = 0; v < values.size(); ++v) {
      root[v] = static_cast<ValueId>(v);
      if (values.types[v] != nullptr) bytes[v] = BytesOf(*values.types[v], sizes_);
    }
    Cost cost{.nodes = static_cast<__int128>(f.nodes.size())};
    for (size_t n = 0; n < f.nodes.size(); ++n) {
      const Node& node = f.nodes[n];
      const size_t first = values.first_result[n];
      const OpRow& row = *typing_.functions[function].nodes[n].row;
      const bool view = row.aliasing == Aliasing::kReshape, moves = !view && row.control == Control::kNone;
      if (view) root[first] = root[static_cast<size_t>(node.operands[0])];
      if (!node.results.empty()) last[static_cast<size_t>(root[first])] = n;
      for (size_t r = 0; r < node.results.size(); ++r) cost.moved += moves ? bytes[first + r] : 0;
      for (ValueId v : node.operands) {
        if (v == kAbsent) continue;
        cost.moved += moves ? bytes[static_cast<size_t>(v)] : 0;
        last[static_cast<size_t>(root[static_cast<size_t>(v)])] = n;
      }
      for (const uint32_t callee : node.calls) {
        const Cost& called = Of(callee);
        cost.nodes += called.nodes;
        cost.moved += called.moved;
        inside[n] = std::max(inside[n], called.peak);
      }
    }
    std::vector<bool> counts(values.size(), true);
    std::fill_n(counts.begin(), f.params.size(), false);
    for (const Result& r : f.results) counts[static_cast<size_t>(root[static_cast<size_t>(r.value)])] = false;
    std::vector<__int128> change(f.nodes.size() + 1);
    for (size_t n = 0; n < f.nodes.size(); ++n) {
      for (size_t r = 0; r < f.nodes[n].results.size(); ++r) {
        const size_t v = values.first_result[n] + r;
        if (!counts[v] || root[v] != static_cast<ValueId>(v)) continue;
        change[n] += bytes[v];
        change[std::max(last[v], n) + 1] -= bytes[v];
      }
    }
    __int128 live = 0;
    for (size_t n = 0; n < f.nodes.size(); ++n) cost.peak = std::max(cost.peak, (live += change[n]) + inside[n]);
    return known_[function].emplace(cost);
  }

 private:
  const Module& module_;
  const Typing& typing_;
  const DimValues& sizes_;
  std::vector<std::optional<Cost>> known_;
};

}  // namespace

StatusOr<std::vector<int64_t>> SizesOf(const DimTable& dims, std::span<const std::pair<std::string, int64_t>> given) {
  std::vector<int64_t> out;
  for (size_t s = 0; s < dims.symbols().size(); ++s) {
    const DimSymbol& symbol = dims.symbols()[s];
    const auto named = std::ranges::find(given, symbol.name, &std::pair<std::string, int64_t>::first);
    if (named != given.end()) {
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

StatusOr<ProgramCost> CostOf(const Module& module, const Typing& typing, const PipelineOptions& options) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> symbols, SizesOf(module.dims, options.sizes));
  const DimValues sizes(module.dims, symbols);
  const Costs::Cost cost = Costs(module, typing, sizes).Of(0);
  return ProgramCost{.nodes = Saturated(cost.nodes), .bytes_moved = Saturated(cost.moved), .peak_bytes = Saturated(cost.peak)};
}

}  // namespace opwire
