// Elementwise ops on GPUs: the body's expression of each as a kernel, one for each layout of the
// operands.
#include <vector>

#include "ir/ops/catalogue.h"
#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/fused.h"

namespace opwire::gpu::elementwise {
namespace {

StatusOr<fused::ScalarProgram> ProgramOf(const Call& call) {
  fused::ScalarProgram program;
  std::vector<int> operands;
  for (size_t i = 0; i < call.row.operands.size(); ++i)
    operands.push_back(program.AddInput(ops::TypeOf(call.operand(static_cast<int>(i)))));
  const int saturate = call.row.FindAttr("saturate");
  const std::vector<int> unread(call.row.attrs.size(), -1);
  OPWIRE_ASSIGN_OR_RETURN(const int value,
                          program.Append(call.row, operands, unread, ops::TypeOf(call.result()),
                                         saturate >= 0 && call.attr(saturate).value.i != 0));
  program.AddOutput(value);
  OPWIRE_RETURN_IF_ERROR(program.Check());
  return program;
}

Status PlanElementwise(const Call& call, Plan& plan) {
  OPWIRE_ASSIGN_OR_RETURN(const fused::ScalarProgram program, ProgramOf(call));
  std::vector<const opw_tensor*> tensors;
  std::vector<Source> sources;
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    tensors.push_back(&call.operand(static_cast<int>(i)));
    sources.push_back(Operand(call.c->starts[i]));
  }
  tensors.push_back(&call.result());
  sources.push_back(Result(0));
  return PlanFused(call.code, call.row.name, program, tensors, sources, plan);
}

}  // namespace

void AddElementwiseGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  for (const OpDef& row : Catalogue().rows()) {
    if (row.body.Empty()) continue;
    AddGpu(table, code, row.name,
           {.flags = OPW_DETERMINISTIC | OPW_INPLACE, .plan = PlanElementwise});
  }
}

}  // namespace opwire::gpu::elementwise
