// Programs of columns: their identity, and what is asked of their elements.
#include "kernels/fused/column_program.h"

#include <algorithm>

namespace opwire::fused {

std::string ColumnProgram::Identity() const {
  std::string out = scalar.Identity();
  const auto put = [&](auto number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  put(axes);
  put(shape_of);
  for (const std::optional<ReduceKind>& reduction : results)
    put(reduction ? static_cast<int>(*reduction) : -1);
  return out;
}

ScalarProgram ColumnProgram::Computed() const {
  ScalarProgram out;
  for (const Instruction& one : scalar.instructions()) {
    if (one.prim == Prim::kIn)
      out.AddInput(one.type);
    else if (one.prim == Prim::kAttr)
      out.AddArgument(one.type);
    else
      out.Append(one);
  }
  for (size_t o = 0; o < results.size(); ++o) {
    const int value = scalar.outputs()[o];
    const DType compute = ComputeType(scalar.OutputType(static_cast<int>(o)));
    const bool widens = results[o] && compute != scalar.OutputType(static_cast<int>(o));
    out.AddOutput(
        widens ? out.Append({.prim = Prim::kCast, .type = compute, .operands = {value, -1, -1}})
               : value);
  }
  return out;
}

const char* ColumnProgram::WhyNoExtremes(const opw_tensor& shape) const {
  const bool extremes = std::ranges::any_of(results, [](const auto& reduction) {
    return reduction == ReduceKind::kMax || reduction == ReduceKind::kMin;
  });
  const auto has_none = [&](bool reduced) {
    for (int a = 0; a < shape.rank; ++a) {
      if (ReducesAxis(a) == reduced && shape.shape[a] == 0) return true;
    }
    return false;
  };
  if (!extremes || !has_none(true) || has_none(false)) return nullptr;
  return "an extent of 0 has no largest or smallest element";
}

}  // namespace opwire::fused
