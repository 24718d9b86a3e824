// A program as a kernel: the definition of a user's op. It runs until the op's own code is built,
// and is the reference for tests of that code.
//
// The program takes the op's operands by name and order, then the attributes that it needs. An int
// is a dimension parameter, a float or bool a 0-d tensor of f64 or bool. Leading extents ('...' of
// the signature) are one extent. It may name the op's type variables.
//
//   program @reference(%x: T[?M, ?N], %bias: T[?N]) -> (y: T[?M, ?N]) {
//     %0 = add(%x, %bias)
//     %1 = gelu(%0)
//     return %1
//   }
#ifndef OPWIRE_EXECUTOR_PLAN_REFERENCE_H_
#define OPWIRE_EXECUTOR_PLAN_REFERENCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/plan/program.h"
#include "ir/ops/extents.h"
#include "ir/ops/type_binding.h"
#include "kernels/abi.h"
#include "kernels/device/device.h"

namespace opwire::executor {

class ReferenceProgram {
 public:
  // Makes it for every combination of types. kNow: INVALID_ARGUMENT with the first error if the
  // text supports no combination. kAsked: plans for a combination when a call has it. The kernel's
  // `supports` refuses unsupported combinations. With `wide`, variables of floating types only are
  // f64 instead.
  enum class When : uint8_t { kNow, kAsked };
  // `device`: the owner of the set's kernels, if its memory is not the host's; it outlives this.
  static StatusOr<std::shared_ptr<const ReferenceProgram>> Make(
      const OpDeclaration& declaration, const OpDef& row, std::string text, std::string filename,
      std::shared_ptr<const KernelSet> builtin, When when = When::kNow, bool wide = false,
      Device* device = nullptr);

  // The kernel's context is this object, which outlives every call. One thread at a time.
  opw_kernel kernel() const;

 private:
  struct Form {
    TypeBinding declared;  // of the op definition's variables
    TypeBinding types;     // of the text's variables: wider, perhaps
    bool planned = false;
    std::shared_ptr<const Program> program;  // null: `error` has the reason
    std::string error;
  };
  struct State;
  struct Param {
    int operand = -1;  // or an attribute
    int attr = -1;
  };

  Status Plan(Form& form) const;
  StatusOr<std::shared_ptr<Program>> Parsed(const Form& form) const;
  Status CheckTypes(const Form& form, const Function& f) const;
  StatusOr<std::vector<Param>> MatchParams(const Function& f) const;
  const Form* FormOf(const opw_call* call) const;
  // Returns the values of the program's symbols. INVALID_ARGUMENT if the call's extents contradict
  // each other.
  StatusOr<std::vector<int64_t>> SymbolsOf(const Program& program, const opw_call* call) const;
  Shape FlatShape(const opw_tensor& t, int operand) const;

  static const char* Supports(const opw_call* call);
  static int Prepare(const opw_call* call, void** state, int64_t* workspace_bytes);
  static void Release(void* state);
  static int RunCall(const opw_call* call);

  OpDef row_;
  std::string text_, filename_;
  std::shared_ptr<const KernelSet> builtin_;
  Device* device_ = nullptr;
  std::vector<OperandPattern> patterns_;
  int index_operand_ = -1;             // for which operand a value out of its domain is reported
  mutable std::vector<Param> params_;  // known when the first form is planned
  mutable std::vector<Form> forms_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_REFERENCE_H_
