// A group of elementwise ops as one typed scalar program in SSA form: what is done to one element
// of each input. Fused kernels are compiled and interpreted from it.
//
//   ScalarProgram p;  // relu(x + y) of f16, and whether it is 0
//   const int x = p.AddInput(DType::kF16), y = p.AddInput(DType::kF16);
//   OPWIRE_ASSIGN_OR_RETURN(const int sum, p.Append(*Catalogue().Find("add"), {{x, y}}, {},
//       DType::kF16));
//   OPWIRE_ASSIGN_OR_RETURN(const int z, p.Append(*Catalogue().Find("relu"), {{sum}}, {},
//       DType::kF16));
//   p.AddOutput(z);
//
// Values follow ir/ops/expr.h. f16, bf16 and the 8-bit floats compute in f32: they are rounded
// where they are cast to, where they are stored, and where tests and casts look at them, not
// between ops. Inputs, selections between them and casts keep a NaN's bits; where arithmetic made a
// NaN, what is stored or cast is the one quiet NaN with no sign and no payload, so that bits are
// equal whatever made the code.
#ifndef OPWIRE_KERNELS_FUSED_SCALAR_PROGRAM_H_
#define OPWIRE_KERNELS_FUSED_SCALAR_PROGRAM_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "ir/ops/catalogue.h"
#include "ir/ops/expr.h"
#include "kernels/fused/limits.h"

namespace opwire::fused {

inline constexpr int kMaxInstructions = 1024;  // 64 ops of 16 primitives, constants and casts

struct Instruction {
  Prim prim = Prim::kIn;
  DType type = DType::kInvalid;        // of its value
  int32_t operands[3] = {-1, -1, -1};  // earlier instructions
  int32_t index = 0;                   // kIn: the input; kAttr: the argument
  uint64_t bits = 0;                   // kConst: the value in its computing type; bool: 0 or 1
  bool saturate = false;  // kCast to an 8-bit float: beyond its range, the largest finite value
};

class ScalarProgram {
 public:
  // One more input or argument; its value. An argument is a number that may differ between calls,
  // and never becomes source text: a call's attributes are the arguments in order, ints or floats,
  // converted to the computing type.
  int AddInput(DType type);
  int AddArgument(DType type);
  // A row's body applied to values; `attrs` are values in the order of the row's attributes, those
  // that the body does not read may be -1. INVALID_ARGUMENT where the row has no body, or the
  // operands are not what it takes.
  StatusOr<int> Append(const OpDef& row, std::span<const int> operands, std::span<const int> attrs,
                       DType result, bool saturate = false);
  // Whether a row is a test or a cast, which sees values as they are alone: rounded to their type.
  static bool LooksAt(const OpDef& row, DType result);
  // One instruction as it is; Check() judges it.
  int Append(const Instruction& instruction);
  // Another program's instructions, with these values for its inputs and arguments of this
  // program's own for its arguments; by instruction, its value here.
  std::vector<int> Append(const ScalarProgram& other, std::span<const int> inputs);
  void AddOutput(int value) { outputs_.push_back(value); }

  // INVALID_ARGUMENT or RESOURCE_EXHAUSTED unless it is well formed: operands before their use, of
  // types that the primitive takes, indices in range, at least one output, within the limits. All
  // that takes a program requires it to be well formed.
  Status Check() const;

  // Bytes that are equal for equal programs only.
  std::string Identity() const;

  const std::vector<DType>& inputs() const { return inputs_; }
  int arguments() const { return arguments_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<int>& outputs() const { return outputs_; }  // values
  DType OutputType(int i) const { return instructions_[outputs_[i]].type; }

 private:
  int Coerced(int value, DType type);
  int Rounded(int value);  // to its type
  Status CheckOne(int at) const;

  std::vector<DType> inputs_;
  int arguments_ = 0;
  std::vector<Instruction> instructions_;
  std::vector<int> outputs_;
};

// The type that a value computes in: f32 for the narrow floats, else its own.
DType ComputeType(DType type);
// The operand types that a primitive takes; kSelect: of what it selects.
DTypeSet TypesOf(Prim prim);
bool IsTest(Prim prim);  // its result is bool

// How each value is held, for what executes programs.
struct Held {
  DType as = DType::kInvalid;  // its elements' type: a narrow float as its own bits where it was
                               // moved or cast to, else as f32
  bool exact = true;           // no arithmetic can have made it a NaN
  bool used = false;           // an output depends on it
};
std::vector<Held> HowHeld(const ScalarProgram& program);

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_SCALAR_PROGRAM_H_
