// Compiling a program's form, and its launch.
#include "kernels/ops/gpu/fused.h"

#include "kernels/fused/by_source.h"
#include "kernels/fused/gpu_source.h"

namespace opwire::gpu {
namespace {

// A row for calls of so many operands and results.
OpRow RowOf(const fused::ScalarProgram& program) {
  OpRow row;
  row.name = "fused";
  row.operands.resize(program.inputs().size());
  row.results.resize(program.outputs().size());
  return row;
}

class Group final : public Planner {
 public:
  Group(std::shared_ptr<Code> code, const fused::ScalarProgram& program) : Planner(code->device(), made_), code_(std::move(code)), made_(RowOf(program)), program_(program) {}

  const char* Supports(const opw_call*) const override { return nullptr; }
  Status MakePlan(const opw_call* c, Plan& plan) const override {
    std::vector<const opw_tensor*> tensors;
    std::vector<Source> sources;
    for (uint32_t i = 0; i < program_.inputs().size(); ++i) {
      tensors.push_back(&c->operands[i]);
      sources.push_back(Operand(i));
    }
    for (uint32_t i = 0; i < program_.outputs().size(); ++i) {
      tensors.push_back(&c->results[i]);
      sources.push_back(Result(i));
    }
    return PlanFused(*code_, made_.name, program_, tensors, sources, plan, {c->attrs, static_cast<size_t>(program_.arguments())});
  }

 private:
  const std::shared_ptr<Code> code_;
  const OpRow made_;
  const fused::ScalarProgram program_;
};

class GpuFuser final : public fused::Fuser {
 public:
  explicit GpuFuser(std::shared_ptr<Code> code) : code_(std::move(code)) {}

  std::shared_ptr<const opw_kernel> Get(const fused::ScalarProgram& program) override {
    const std::shared_ptr<Entry> entry = kernels_.Get(program.Identity(), [&] { return std::make_shared<Entry>(code_, program); });
    return {entry, &entry->kernel};
  }
  bool Settled() const override { return true; }

 private:
  struct Entry {
    Entry(const std::shared_ptr<Code>& code, const fused::ScalarProgram& program) : group(code, program), kernel(group.kernel(OPW_DETERMINISTIC | OPW_INPLACE)) {}
    const Group group;
    const opw_kernel kernel;
  };

  const std::shared_ptr<Code> code_;
  fused::BySource<Entry> kernels_;
};

}  // namespace

std::shared_ptr<fused::Fuser> MakeFuser(std::shared_ptr<Code> code) { return std::make_shared<GpuFuser>(std::move(code)); }

Status PlanFused(Code& code, const std::string& name, const fused::ScalarProgram& program, std::span<const opw_tensor* const> tensors,
                 std::span<const Source> sources, Plan& plan, std::span<const opw_attr> arguments) {
  const fused::GpuForm form = fused::FormOf(program, tensors);
  OPWIRE_ASSIGN_OR_RETURN(const Function f, code.GetText({name, "kernels/fused/primitives.cuh", fused::GpuSource(program, form)}));
  const std::vector<std::byte> params = fused::GpuParams(program, form, arguments);
  std::vector<Field> fields;
  const std::byte* at = params.data();
  for (const Source& s : sources) {
    fields.push_back({at, s});
    at += sizeof(void*);
  }
  fields.push_back({at, Reports()});
  plan.LaunchBytes(f, {.blocks = form.blocks(), .threads = fused::GpuForm::kThreads}, params.data(), params.size(), fields);
  return absl::OkStatus();
}

}  // namespace opwire::gpu
