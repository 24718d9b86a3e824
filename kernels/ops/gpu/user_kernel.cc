// Grids by the manifest's formulas, parameters by position.
#include "kernels/ops/gpu/user_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>

#include "ir/ops/extents.h"
#include "ir/ops/type_binding.h"
#include "kernels/jit/files.h"
#include "kernels/jit/gpu_unit.h"
#include "kernels/ops/call.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/select/key_types.h"

namespace opwire::gpu {
namespace {

constexpr int64_t kMostOfAxis[] = {INT32_MAX, 65535, 65535};

class LoadedKernel final : public Planner, public UserKernel {
 public:
  LoadedKernel(std::shared_ptr<const jit::OpManifest> op, const jit::OpVariantSpec& variant,
               GpuDevice& device)
      : Planner(device, op->row), manifest_(std::move(op)), op_(*manifest_), variant_(variant) {}
  ~LoadedKernel() override {
    if (module_) device_.UnloadModule(module_);
  }

  Status Load(const std::string& object) {
    OPWIRE_ASSIGN_OR_RETURN(bindings_, TypeBindings(op_.row));
    OPWIRE_ASSIGN_OR_RETURN(fields_, jit::GpuFieldsOf(op_, variant_));
    OPWIRE_ASSIGN_OR_RETURN(const std::string image, jit::ReadFile(object));
    OPWIRE_ASSIGN_OR_RETURN(module_, device_.LoadModule(image));
    for (size_t b = 0; b < bindings_.size(); ++b) {
      for (size_t l = 0; l < variant_.launches.size(); ++l) {
        OPWIRE_ASSIGN_OR_RETURN(const Function f,
                                device_.FindFunction(module_, jit::GpuKernelName(b, l).c_str()));
        kernels_.emplace_back(device_, f);
      }
    }
    return absl::OkStatus();
  }

  opw_kernel kernel() const override {
    return Planner::kernel(OPW_CONTIGUOUS |
                           (variant_.deterministic ? uint32_t{OPW_DETERMINISTIC} : 0u));
  }

  const char* Supports(const opw_call* c) const override {
    return BindingOf(c) < bindings_.size() ? nullptr : "it has no such types";
  }

  Status MakePlan(const opw_call* c, Plan& plan) const override {
    OPWIRE_ASSIGN_OR_RETURN(const auto values, ValuesOf(c));
    const auto value = [&](const std::string& formula, std::string_view what,
                           int64_t most) -> StatusOr<int64_t> {
      auto v = Evaluate(formula, values);
      if (!v.ok())
        return FailedPrecondition("{}@{}: {}: {}", op_.name(), variant_.name, what,
                                  MessageOf(v.status()));
      if (*v > most)
        return FailedPrecondition("{}@{}: {}: expected at most {}, got {} of '{}'", op_.name(),
                                  variant_.name, what, most, *v, formula);
      return v;
    };
    OPWIRE_ASSIGN_OR_RETURN(const int64_t workspace,
                            value(variant_.workspace, "workspace", INT64_MAX));
    const int64_t workspace_at = plan.TakeWorkspace(workspace);
    std::vector<uint64_t> params;
    std::vector<std::pair<size_t, Source>> sources;  // by place in `params`
    for (const jit::GpuField& f : fields_) {
      const auto index = static_cast<uint32_t>(f.index);
      const size_t at = params.size();
      params.push_back(0);
      switch (f.kind) {
        case jit::GpuField::kOperand:
          sources.emplace_back(at, Operand(c->starts[index]));
          break;
        case jit::GpuField::kResult:
          sources.emplace_back(at, Result(index));
          break;
        case jit::GpuField::kWorkspace:
          sources.emplace_back(at, Workspace(workspace_at));
          break;
        case jit::GpuField::kExtent:
          params[at] = static_cast<uint64_t>(values.at(f.name));
          break;
        case jit::GpuField::kAttr:
          params[at] = c->attrs[index].kind == OPW_ATTR_FLOAT
                           ? std::bit_cast<uint64_t>(c->attrs[index].value.f)
                           : static_cast<uint64_t>(c->attrs[index].value.i);
          break;
        case jit::GpuField::kReporter:
          static_assert(sizeof(opw::Reporter) == 16);
          params.push_back(0);
          sources.emplace_back(at, Reports());
          break;
      }
    }
    std::vector<Field> fields;
    for (const auto& [at, source] : sources) fields.push_back({&params[at], source});
    const size_t binding = BindingOf(c);
    for (size_t l = 0; l < variant_.launches.size(); ++l) {
      const jit::LaunchSpec& launch = variant_.launches[l];
      int64_t blocks[3];
      for (int a = 0; a < 3; ++a) {
        OPWIRE_ASSIGN_OR_RETURN(blocks[a], value(launch.blocks[a], "blocks", kMostOfAxis[a]));
      }
      OPWIRE_ASSIGN_OR_RETURN(const int64_t shared,
                              value(launch.shared, "shared memory", device_.shared_bytes()));
      if (blocks[0] == 0 || blocks[1] == 0 || blocks[2] == 0) continue;
      const Grid grid{.blocks = blocks[0],
                      .threads = launch.threads,
                      .shared = static_cast<int>(shared),
                      .blocks_y = blocks[1],
                      .blocks_z = blocks[2]};
      plan.LaunchBytes(&kernels_[binding * variant_.launches.size() + l], grid, params.data(),
                       params.size() * sizeof params[0], fields);
    }
    return absl::OkStatus();
  }

 private:
  // bindings_.size(): none is of the call's types.
  size_t BindingOf(const opw_call* c) const {
    const auto it = std::ranges::find_if(
        bindings_, [&](const TypeBinding& types) { return HasTypes(c, op_.row, types); });
    return static_cast<size_t>(it - bindings_.begin());
  }

  // The values of the names in formulas.
  StatusOr<std::map<std::string, int64_t>> ValuesOf(const opw_call* c) const {
    std::vector<Shape> shapes;
    for (size_t i = 0; i < op_.row.operands.size(); ++i) {
      const opw_tensor& t = ops::Operand(c, static_cast<int>(i));
      shapes.emplace_back(t.shape, t.shape + t.rank);
    }
    OPWIRE_ASSIGN_OR_RETURN(auto values, ExtentsOf(op_.declaration, shapes));
    if (const auto leading = values.extract("..."); leading)
      values.emplace(jit::kLeadingExtent, leading.mapped());
    for (size_t i = 0; i < op_.row.attrs.size(); ++i) {
      if (op_.row.attrs[i].kind == AttrKind::kInt)
        values.emplace(op_.row.attrs[i].name, c->attrs[i].value.i);
    }
    return values;
  }

  const std::shared_ptr<const jit::OpManifest> manifest_;
  const jit::OpManifest& op_;
  const jit::OpVariantSpec variant_;
  std::vector<TypeBinding> bindings_;
  std::vector<jit::GpuField> fields_;
  Module module_ = nullptr;
  mutable std::deque<Kernel> kernels_;  // by binding, then launch
};

}  // namespace

StatusOr<std::shared_ptr<const UserKernel>> UserKernel::Load(const jit::OpManifest& op,
                                                             const jit::OpVariantSpec& variant,
                                                             const std::string& object,
                                                             Device& device) {
  auto kernel = std::make_shared<LoadedKernel>(std::make_shared<const jit::OpManifest>(op), variant,
                                               static_cast<GpuDevice&>(device));
  OPWIRE_RETURN_IF_ERROR(kernel->Load(object));
  return std::shared_ptr<const UserKernel>(std::move(kernel));
}

}  // namespace opwire::gpu
