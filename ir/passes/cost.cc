// What a run of a program takes, at given sizes.
#include <algorithm>
#include <limits>
#include <optional>

#include "ir/passes/live.h"
#include "ir/passes/pipeline.h"

namespace opwire {
namespace {

constexpr int64_t kUsualSize = 64;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

int64_t Saturated(__int128 n) { return n > kMost ? kMost : static_cast<int64_t>(n); }

// Costs of functions, each worked out once.
class Costs {
 public:
  struct Cost {
    __int128 nodes = 0, moved = 0, peak = 0;
  };
  Costs(const Module& module, const Typing& typing, const DimValues& sizes)
      : module_(module), typing_(typing), sizes_(sizes), known_(module.functions.size()) {}

  const Cost& Of(uint32_t function) {
    if (known_[function]) return *known_[function];
    const Function& f = module_.functions[function];
    const ValueTypes values(f);
    std::vector<const OpDef*> rows;
    for (const NodeTyping& typing : typing_.functions[function].nodes) rows.push_back(typing.row);
    const LiveValues live = LiveValuesOf(f, values, rows, sizes_);
    const std::vector<__int128> taken = LiveBytes(f, values, live);
    Cost cost{.nodes = static_cast<__int128>(f.nodes.size())};
    for (size_t n = 0; n < f.nodes.size(); ++n) {
      const Node& node = f.nodes[n];
      if (rows[n]->aliasing != Aliasing::kReshape && rows[n]->control == Control::kNone) {
        for (size_t r = 0; r < node.results.size(); ++r)
          cost.moved += live.bytes[values.first_result[n] + r];
        for (const ValueId v : node.operands)
          cost.moved += v == kAbsent ? 0 : live.bytes[static_cast<size_t>(v)];
      }
      __int128 inside = 0;
      for (const uint32_t callee : node.calls) {
        const Cost& called = Of(callee);
        cost.nodes += called.nodes;
        cost.moved += called.moved;
        inside = std::max(inside, called.peak);
      }
      cost.peak = std::max(cost.peak, taken[n] + inside);
    }
    return known_[function].emplace(cost);
  }

 private:
  const Module& module_;
  const Typing& typing_;
  const DimValues& sizes_;
  std::vector<std::optional<Cost>> known_;
};

}  // namespace

StatusOr<std::vector<int64_t>> SizesOf(const DimTable& dims,
                                       std::span<const std::pair<std::string, int64_t>> given) {
  std::vector<int64_t> out;
  for (size_t s = 0; s < dims.symbols().size(); ++s) {
    const DimSymbol& symbol = dims.symbols()[s];
    const auto named =
        std::ranges::find(given, symbol.name, &std::pair<std::string, int64_t>::first);
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

OpCost CostOf(const OpDef& row, const Node& node, const ValueTypes& values,
              const DimValues& sizes) {
  const auto shape_of = [&](const TensorType* type) {
    Shape shape;
    for (size_t a = 0; type != nullptr && a < type->shape.size(); ++a)
      shape.push_back(sizes.Get(type->shape[a]).value_or(0));
    return shape;
  };
  std::vector<Shape> operands, results;
  for (const TensorType* type : OperandTypes(node, values.types))
    operands.push_back(shape_of(type));
  for (const TensorType& type : node.results) results.push_back(shape_of(&type));
  return row.cost(
      {operands, results, node.results.empty() ? 0 : DTypeBytes(node.results[0].dtype)});
}

StatusOr<ProgramCost> CostOf(const Module& module, const Typing& typing,
                             const PipelineOptions& options) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> symbols, SizesOf(module.dims, options.sizes));
  const DimValues sizes(module.dims, symbols);
  const Costs::Cost cost = Costs(module, typing, sizes).Of(0);
  return ProgramCost{.nodes = Saturated(cost.nodes),
                     .bytes_moved = Saturated(cost.moved),
                     .peak_bytes = Saturated(cost.peak)};
}

}  // namespace opwire
