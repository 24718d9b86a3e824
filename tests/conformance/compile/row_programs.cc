// Calls of row and column groups, of a joint step and of transposed tensors.
#include "tests/conformance/compile/row_programs.h"

#include <fmt/format.h>

#include <deque>
#include <vector>

#include "kernels/ops/gpu/fused.h"
#include "kernels/select/failure.h"
#include "tests/fused/row_examples.h"

namespace opwire::conformance {
namespace {

using Extents = std::vector<int64_t>;

// Shapes of each form. The last four are not whole vectors.
const Extents kShapes[] = {{4096, 64},   {4096, 512}, {4096, 2048}, {4096, 8192}, {4096, 32768},
                           {64, 131072}, {4096, 33},  {4097, 1001}, {4097, 5003}, {3, 131073}};

opw_tensor Dense(DType type, const Extents& shape, std::deque<Extents>& kept) {
  Extents strides(shape.size());
  int64_t elements = 1;
  for (size_t a = shape.size(); a-- > 0; elements *= shape[a]) strides[a] = elements;
  const Extents& own = kept.emplace_back(shape);
  const Extents& steps = kept.emplace_back(std::move(strides));
  return {nullptr,
          own.data(),
          steps.data(),
          elements,
          static_cast<uint8_t>(type),
          0,
          static_cast<uint8_t>(shape.size()),
          true};
}

// Columns of each form. The last two are not whole vectors.
const Extents kColumnShapes[] = {
    {4096, 4096}, {4, 1048576}, {1048576, 64}, {65536, 3}, {4097, 1001}};

// `whole_operands`: which operands have the whole shape, not the shape of one row.
Status PlanOne(const opw_kernel& kernel, const std::vector<bool>& whole_operands,
               const std::vector<Extents>& result_shapes, DType type, const Extents& shape) {
  std::deque<Extents> kept;
  std::vector<opw_tensor> operands;
  std::vector<uint32_t> starts = {0};
  for (const bool whole : whole_operands) {
    operands.push_back(Dense(type, whole ? shape : Extents{shape.back()}, kept));
    starts.push_back(static_cast<uint32_t>(operands.size()));
  }
  std::vector<opw_tensor> results;
  for (const Extents& own : result_shapes) results.push_back(Dense(type, own, kept));
  opw_attr argument{};
  argument.kind = OPW_ATTR_FLOAT;
  argument.value.f = 1e-5;
  opw_call call{};
  call.operands = operands.data();
  call.starts = starts.data();
  call.results = results.data();
  call.attrs = &argument;
  call.context = kernel.context;
  if (kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) return TakeFailure();
  kernel.release(call.state);
  return absl::OkStatus();
}

// A momentum step of many weights, vectors of one length and matrices of another, as one kernel for
// each form.
Status PlanJointStep(fused::Fuser& fuser, DType type) {
  constexpr int kMembers = 24;
  fused::ScalarProgram program;
  const int w = program.AddInput(type), g = program.AddInput(type), m = program.AddInput(type),
            momentum = program.AddArgument(type), lr = program.AddArgument(type);
  const auto append = [&](const char* row, int x, int y) {
    return program.Append(*Catalogue().Find(row), {{x, y}}, {}, type).value_or(-1);
  };
  const int next = append("add", append("mul", m, momentum), g);
  program.AddOutput(append("sub", w, append("mul", next, lr)));
  program.AddOutput(next);
  OPWIRE_RETURN_IF_ERROR(program.Check());
  std::deque<Extents> kept;
  std::vector<opw_tensor> operands, results;
  std::vector<uint32_t> starts = {0};
  for (int i = 0; i < kMembers; ++i) {
    const Extents shape = i % 2 == 0 ? Extents{768} : Extents{33};
    for (int k = 0; k < 3; ++k)
      operands.push_back(Dense(type, k == 1 && i % 3 == 0 ? Extents{} : shape, kept));
    for (int k = 0; k < 2; ++k) results.push_back(Dense(type, shape, kept));
  }
  for (uint32_t i = 1; i <= operands.size(); ++i) starts.push_back(i);
  opw_attr argument{};
  argument.kind = OPW_ATTR_FLOAT;
  argument.value.f = 0.5;
  const std::vector<opw_attr> arguments(2 * kMembers, argument);
  const std::shared_ptr<const opw_kernel> kernel = fuser.GetJoint(program, kMembers);
  opw_call call{};
  call.operands = operands.data();
  call.starts = starts.data();
  call.results = results.data();
  call.attrs = arguments.data();
  call.context = kernel->context;
  if (kernel->prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) return TakeFailure();
  kernel->release(call.state);
  return absl::OkStatus();
}

// relu(x) + z. The axes of x, or of the result, are stored in the other order.
Status PlanTurned(fused::Fuser& fuser, DType type, bool operand, const Extents& shape) {
  fused::ScalarProgram program;
  const int x = program.AddInput(type), z = program.AddInput(type);
  const int positive = program.Append(*Catalogue().Find("relu"), {{x}}, {}, type).value_or(-1);
  program.AddOutput(
      program.Append(*Catalogue().Find("add"), {{positive, z}}, {}, type).value_or(-1));
  OPWIRE_RETURN_IF_ERROR(program.Check());
  std::deque<Extents> kept;
  std::vector<opw_tensor> operands = {Dense(type, shape, kept), Dense(type, shape, kept)},
                          results = {Dense(type, shape, kept)};
  const Extents strides = {1, shape[0]};
  (operand ? operands[0] : results[0]).strides = strides.data();
  const uint32_t starts[] = {0, 1, 2};
  const std::shared_ptr<const opw_kernel> kernel = fuser.Get(program);
  opw_call call{};
  call.operands = operands.data();
  call.starts = starts;
  call.results = results.data();
  call.context = kernel->context;
  if (kernel->prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) return TakeFailure();
  kernel->release(call.state);
  return absl::OkStatus();
}

}  // namespace

Status PlanRowPrograms(const std::shared_ptr<gpu::Code>& code, DTypeSet types,
                       const std::function<void(std::string)>& name) {
  const std::shared_ptr<fused::Fuser> fuser = gpu::MakeFuser(code);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    if (!types.Has(type)) continue;
    name(fmt::format("a joint step {}", DTypeName(type)));
    OPWIRE_RETURN_IF_ERROR(PlanJointStep(*fuser, type));
    for (const bool operand : {true, false}) {
      name(fmt::format("a turned {} {}", operand ? "operand" : "result", DTypeName(type)));
      OPWIRE_RETURN_IF_ERROR(PlanTurned(*fuser, type, operand, {4096, 4096}));
    }
    for (const fused::RowExample& program : fused::RowExamples(type)) {
      const std::shared_ptr<const opw_kernel> kernel = fuser->GetRows(program.rows);
      if (!kernel) return Internal("{} of {} is no kernel", program.name, DTypeName(type));
      for (const Extents& shape : kShapes) {
        name(fmt::format("{} {}[{}, {}]", program.name, DTypeName(type), shape[0], shape[1]));
        OPWIRE_RETURN_IF_ERROR(PlanOne(
            *kernel, program.whole,
            {program.rows.result_places()[0] == fused::RowProgram::kElements ? shape
                                                                             : Extents{shape[0]}},
            type, shape));
      }
    }
    for (const fused::ColumnExample& program : fused::ColumnExamples(type)) {
      const std::shared_ptr<const opw_kernel> kernel = fuser->GetColumns(program.columns);
      if (!kernel) return Internal("{} of {} is no kernel", program.name, DTypeName(type));
      for (const Extents& shape : kColumnShapes) {
        name(fmt::format("{} {}[{}, {}]", program.name, DTypeName(type), shape[0], shape[1]));
        std::vector<Extents> results;
        for (const auto& reduction : program.columns.results)
          results.push_back(reduction ? Extents{shape[1]} : shape);
        OPWIRE_RETURN_IF_ERROR(PlanOne(*kernel, program.whole, results, type, shape));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace opwire::conformance
