// A program of rows as scalar programs that run one after the other, with reductions between them:
// what is done to each element before the first reduction, what becomes of what it gave, what is
// done to each element with that, and so on.
//
//   OPWIRE_ASSIGN_OR_RETURN(const RowPhases phases, SplitRows(program));
//
// What a later phase needs of an earlier one's elements is computed again where that takes a few
// instructions, and kept where it takes more. Tensors of elements are written by the last phase, so
// that they may lie where operands do that end there.
#ifndef OPWIRE_KERNELS_FUSED_ROW_PHASES_H_
#define OPWIRE_KERNELS_FUSED_ROW_PHASES_H_

#include <cstdint>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "kernels/fused/row_program.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

// What a phase reads or writes.
struct RowSlot {
  enum Kind : uint8_t {
    kTensor,  // an operand, or from their number on a result
    kKept,    // elements that are kept
    kValue    // one of the row
  } kind;
  int32_t index;
};

struct RowPhase {
  int program = -1;  // of RowPhases::programs; none: operands are reduced as they are
  bool of_row;       // it runs over one element of each row
  std::vector<RowSlot> in, out;
};

struct RowReduction {
  ReduceKind kind;
  RowSlot from;  // an operand, where the reduction computes in its type, or elements that are kept
  int32_t value;
};

struct RowPhases {
  // The phase, then the reductions of what it keeps.
  struct Step {
    RowPhase phase;
    std::vector<RowReduction> reductions;
  };
  struct Kept {
    DType type;
    bool to_reduce_only;  // nobody reads it but the reductions behind the phase that writes it
  };

  std::vector<ScalarProgram> programs;
  std::vector<std::vector<bool>>
      narrow;  // by program and instruction: what it computes in f32 becomes a narrow float
  std::vector<Step> steps;
  std::vector<Kept> kept;
  std::vector<DType> values;
};

// INVALID_ARGUMENT where the program is malformed; RESOURCE_EXHAUSTED where it, or a phase, is too
// large for a kernel. Unless it `keeps`, everything is computed again, and what is kept is for
// reductions only.
StatusOr<RowPhases> SplitRows(const RowProgram& program, bool keeps = true);

// What computing it takes, in cheap instructions.
int CostOf(Prim prim);

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_ROW_PHASES_H_
