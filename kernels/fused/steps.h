// What the interpreter runs: a list of loops over slots. A slot is an input, a constant, an
// argument, or a block of elements.
#ifndef OPWIRE_KERNELS_FUSED_STEPS_H_
#define OPWIRE_KERNELS_FUSED_STEPS_H_

#include <cstdint>
#include <vector>

#include "ir/ops/expr.h"
#include "kernels/fused/scalar_program.h"
#include "kernels/ops/elementwise/cpu_loops.h"
#include "kernels/select/isa.h"

namespace opwire::fused {

struct Slot {
  enum Kind : uint8_t { kInput, kConstant, kArgument, kBlock, kOutput } kind = kBlock;
  int32_t index = -1;
};

// As ops::elementwise::ElementwiseLoop, with the step that it is called for.
struct Step;
using StepFunction = uint32_t (*)(const Step&, void* result, const void* const* operands, int64_t n,
                                  unsigned repeated);

struct Step {
  StepFunction run = nullptr;
  ops::elementwise::ElementwiseLoop loop = nullptr;  // of this processor; null: `run` needs none
  Prim prim = Prim::kIn;
  bool saturate = false;
  bool swap = false;    // the loop wants its two operands the other way round
  DType types[2] = {};  // a cast's
  int operands = 0;
  Slot from[3];
  Slot to;
};

struct ArgumentUse {
  int32_t index;
  DType type;  // that it is converted to
};

struct Steps {
  std::vector<Step> steps;
  std::vector<uint64_t> constants;
  std::vector<ArgumentUse> arguments;
  int blocks = 0;  // that are in use at one time
};

// REQUIRES: program.Check().ok().
Steps MakeSteps(const ScalarProgram& program, const Isa& isa);

// One loop: an instruction by its computing type, a conversion, or the canonical NaN for any NaN.
Step OpStep(Prim prim, DType compute, const Isa& isa);
Step CastStep(DType from, DType to, bool saturate, const Isa& isa);
Step CanonicalStep(DType compute);

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_STEPS_H_
