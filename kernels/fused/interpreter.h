// Runs scalar programs at once, without a compiler: a block of elements at a time, one loop an
// instruction, by the loops that the ops' own variants have for this processor
// (kernels/ops/elementwise/cpu_loops.h). Bits are those of the compiled code (source.h) on the same
// processor. Without AVX2 it computes one element after the other, as the reference kernels do.
//
//   const Interpreter interpreter(program);
//   // operands are the inputs, results the outputs, attributes the arguments
//   opw_kernel k = interpreter.kernel();
#ifndef OPWIRE_KERNELS_FUSED_INTERPRETER_H_
#define OPWIRE_KERNELS_FUSED_INTERPRETER_H_

#include <cstdint>
#include <memory>

#include "kernels/abi.h"
#include "kernels/fused/rows.h"
#include "kernels/fused/scalar_program.h"
#include "kernels/select/isa.h"

namespace opwire::fused {

class Interpreter {
 public:
  // REQUIRES: program.Check().ok(). The program is not needed afterwards.
  explicit Interpreter(const ScalarProgram& program, const Isa& isa = Isa::Detect());
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Its context is this, which must outlive its runs. All results have one shape, which the
  // operands broadcast to; any may share storage with an operand of equal type and shape.
  opw_kernel kernel() const;
  // What runs over one stretch of elements, with this context.
  RowFunction function() const;
  const void* context() const { return code_.get(); }

  struct Code;

 private:
  std::unique_ptr<const Code> code_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_INTERPRETER_H_
