// A group of elementwise ops that ends in reductions along axes in front of the last: the gradient
// of a bias through relu, written as plain ops.
//
//   ColumnProgram p{.axes = 0b1};  // the sum over rows of where(y > 0, g, 0), and that itself
//   const int y = p.scalar.AddInput(DType::kF32), g = p.scalar.AddInput(DType::kF32);
//   ...
//   p.scalar.AddOutput(d), p.results.push_back(ReduceKind::kSum);
//   p.scalar.AddOutput(d), p.results.push_back(std::nullopt);
//
// Nothing reads what the reductions give, so that there is one phase: each element is computed,
// stored where it is a result, and reduced. f16, bf16 and the 8-bit floats compute and are reduced
// in f32, rounded where they are cast to and where they are stored.
#ifndef OPWIRE_KERNELS_FUSED_COLUMN_PROGRAM_H_
#define OPWIRE_KERNELS_FUSED_COLUMN_PROGRAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/abi.h"
#include "kernels/fused/row_program.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

struct ColumnProgram {
  ScalarProgram scalar;  // of one element; its inputs broadcast to the shape
  std::vector<std::optional<ReduceKind>>
      results;  // by output: how it is reduced to a tensor of the columns, which are the other axes
                // in their order; none: it is stored as it is
  uint32_t axes =
      1;  // of the shape, a bit each: those that are reduced; one at least, and not the last
  int shape_of = 0;  // the operand (or, from their number on, the result) of the whole shape

  bool ReducesAxis(int axis) const { return (axes >> axis & 1) != 0; }
  // Bytes that are equal for equal programs only.
  std::string Identity() const;
  // The scalar program, of which each output that is reduced is of the type that its reduction
  // computes in.
  ScalarProgram Computed() const;
  // Why columns of a call with this shape have no largest or smallest elements, in static memory;
  // null: they have, or nobody asks, or there are no columns.
  const char* WhyNoExtremes(const opw_tensor& shape) const;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_COLUMN_PROGRAM_H_
