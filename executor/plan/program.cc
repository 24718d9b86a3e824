// Verification of programs, and planning without sizes.
#include "executor/plan/program.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "executor/plan/instance.h"
#include "ir/wire/message.h"

namespace opwire::executor {

namespace {

// By node, facts about the kernel that would run it.
struct Runnable {
  std::vector<bool> fusable;  // a group's kernel may take its place
  std::vector<bool> strided;  // it reads and writes tensors with strides at no cost
};

// `inout_of_result`: by result, the parameter whose storage it is to become, or -1. A write of such
// a result overwrites the parameter's value.
FunctionPlan PlanFunction(const Function& f, const ValueTypes& values, const FunctionTyping& typing,
                          const DimTable& dims, std::vector<int32_t> inout_of_result,
                          const Runnable& runnable, fused::Fuser* fuser) {
  FunctionPlan plan;
  const size_t count = values.size();
  plan.inout_of_result = std::move(inout_of_result);
  plan.last_use.assign(count, 0);
  plan.producer.assign(count, -1);
  plan.result_of.assign(count, -1);
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    for (size_t r = 0; r < f.nodes[n].results.size(); ++r)
      plan.producer[values.first_result[n] + r] = static_cast<int32_t>(n);
  }
  plan.views =
      FindViews({f, values, typing, dims, plan.inout_of_result, plan.producer}, runnable.strided);
  const std::vector<ValueId>& root = plan.views.root;

  plan.schedule = MakeSchedule({f, values, typing, plan.views, plan.inout_of_result, dims},
                               runnable.fusable, fuser);
  const std::vector<Unit>& units = plan.schedule.units;
  for (uint32_t u = 0; u < units.size(); ++u) {
    const Unit& unit = units[u];
    for (const ValueId v : unit.group < 0
                               ? f.nodes[unit.node].operands
                               : plan.schedule.groups[static_cast<size_t>(unit.group)].inputs) {
      if (v != kAbsent) plan.last_use[root[v]] = u;
    }
  }
  for (const Result& r : f.results)
    plan.last_use[root[r.value]] = static_cast<uint32_t>(units.size());

  for (size_t i = 0; i < f.results.size(); ++i) {
    const ValueId whole = root[f.results[i].value];
    const int32_t inout = plan.inout_of_result[i];
    bool direct = plan.producer[whole] >= 0 && plan.result_of[whole] < 0;
    if (direct && inout >= 0) {
      // Written in place only after the last read of the old value. Whether its own node may read
      // it then depends on the kernel.
      direct = plan.last_use[root[inout]] <=
               plan.schedule.unit_of[static_cast<size_t>(plan.producer[whole])];
    }
    if (direct) plan.result_of[whole] = static_cast<int32_t>(i);
    plan.copied.push_back(!direct);
  }
  return plan;
}

}  // namespace

Program::Program() = default;
Program::~Program() = default;

int64_t Program::MemoryBytes() const {
  constexpr int64_t kNodeBytes = 1024;  // an estimate of a node's memory; its bytes may be few
  auto planned = static_cast<int64_t>(nodes);  // the nodes of an instance of its largest function
  for (const FunctionTyping& f : typing.functions) planned = std::max(planned, f.all_nodes);
  int64_t total = static_cast<int64_t>(bytes.size()) + planned * kNodeBytes;
  for (const std::string& blob : module.blobs) total += static_cast<int64_t>(blob.size());
  return total;
}

DType KeyDType(const OpDef& row, const Node& node, const std::vector<const TensorType*>& values) {
  if (row.variables.empty()) return DType::kInvalid;
  const std::string& variable = row.variables[0].name;
  // Operands of the op definition by segment: a list's elements share its type.
  size_t at = 0;
  for (size_t i = 0; i < row.operands.size(); ++i) {
    const size_t width = node.segments.empty() ? 1 : node.segments[i];
    if (row.operands[i].type == variable && width > 0 && node.operands[at] != kAbsent)
      return values[node.operands[at]]->dtype;
    at += width;
  }
  const std::vector<uint32_t> results = row.ResultStarts(row.OperandStarts(node.segments));
  for (size_t i = 0; i < row.results.size(); ++i) {
    if (row.results[i].type == variable && results[i] < results[i + 1])
      return node.results[results[i]].dtype;
  }
  return DType::kInvalid;
}

namespace {

// Checks that every node has a variant here. A group's kernel may take the place of our production
// variants.
StatusOr<Runnable> FindRunnable(const Program& program, size_t function) {
  const Function& f = program.module.functions[function];
  Runnable out{std::vector<bool>(f.nodes.size()), std::vector<bool>(f.nodes.size())};
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    const Node& node = f.nodes[n];
    const OpDef& row = *program.typing.functions[function].nodes[n].row;
    const auto check = [&]() -> Status {
      if (row.control != Control::kNone)
        return node.pin.empty()
                   ? absl::OkStatus()
                   : InvalidArgument("{}: it has no variants, got the pin {}", row.name, node.pin);
      OPWIRE_ASSIGN_OR_RETURN(
          const Variant* const first,
          program.kernels->variants.FirstRunnable(
              node.op, KeyDType(row, node, program.values[function].types), node.pin));
      out.strided[n] = (first->kernel.flags & OPW_STRIDED) != 0;
      out.fusable[n] =
          node.pin.empty() && first->tier == Tier::kProduction && first->source == "builtin";
      return absl::OkStatus();
    };
    if (Status status = check(); !status.ok())
      return WithSite(std::move(status), {f.name, static_cast<int32_t>(n), node.op, node.location});
  }
  return out;
}

}  // namespace

StatusOr<std::shared_ptr<Program>> PrepareProgram(std::string bytes,
                                                  std::shared_ptr<const KernelSet> kernels,
                                                  const ExecutorLimits& limits) {
  auto program = std::make_shared<Program>();
  program->kernels = std::move(kernels);
  const Bytes view{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  program->hash = HashProgram(view);
  OPWIRE_ASSIGN_OR_RETURN(program->module, Deserialise(view));
  program->bytes = std::move(bytes);
  Limits program_limits;
  // Limits constants that name the same part of the bytes repeatedly, which would expand the bytes.
  program_limits.blob_bytes = static_cast<int64_t>(program->bytes.size());
  program_limits.nodes = limits[LimitId::kNodes];
  program_limits.call_depth = limits[LimitId::kNesting];
  program_limits.rank = limits[LimitId::kRank];
  program_limits.attribute_bytes = limits[LimitId::kAttributeBytes];
  program_limits.params = limits[LimitId::kParameters];
  program_limits.results = limits[LimitId::kParameters];
  OPWIRE_ASSIGN_OR_RETURN(program->typing, VerifyModule(program->module, program_limits,
                                                        program->kernels->catalogue()));
  const size_t functions = program->module.functions.size();
  std::vector<Runnable> runnable;
  for (size_t i = 0; i < functions; ++i) {
    const Function& f = program->module.functions[i];
    program->values.emplace_back(f);
    program->nodes += f.nodes.size();
    OPWIRE_ASSIGN_OR_RETURN(runnable.emplace_back(), FindRunnable(*program, i));
  }
  const auto plan = [&](size_t i, std::vector<int32_t> inout_of_result) {
    return PlanFunction(program->module.functions[i], program->values[i],
                        program->typing.functions[i], program->module.dims,
                        std::move(inout_of_result), runnable[i], program->kernels->fuser.get());
  };
  for (size_t i = 0; i < functions; ++i) {
    const Function& f = program->module.functions[i];
    const FunctionTyping& typing = program->typing.functions[i];
    std::vector<int32_t> inout_of_result(f.results.size(), -1);
    for (size_t p = 0; p < f.params.size(); ++p) {
      if (typing.replaced_by[p] >= 0)
        inout_of_result[static_cast<size_t>(typing.replaced_by[p])] = static_cast<int32_t>(p);
    }
    program->plans.push_back(plan(i, std::move(inout_of_result)));
    for (size_t n = 0; n < f.nodes.size(); ++n) {
      const Control control = typing.nodes[n].row->control;
      for (size_t k = 0; k < f.nodes[n].calls.size(); ++k) {
        const uint32_t callee = f.nodes[n].calls[k];
        const bool body = control == Control::kRepeat || (control == Control::kWhile && k == 1);
        const Program::Call call = !body                         ? Program::Call::kOwn
                                   : control == Control::kRepeat ? Program::Call::kFromSecond
                                                                 : Program::Call::kFromFirst;
        if (program->called_plans.contains({callee, call})) continue;
        std::vector<int32_t> becomes(program->module.functions[callee].results.size(), -1);
        if (body)
          std::iota(becomes.begin(), becomes.end(), call == Program::Call::kFromSecond ? 1 : 0);
        program->called_plans.emplace(std::pair(callee, call), plan(callee, std::move(becomes)));
      }
    }
  }
  program->instances.resize(program->module.functions.size());
  return program;
}

}  // namespace opwire::executor
