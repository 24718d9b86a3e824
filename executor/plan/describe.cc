// Describes the memory that steps write. It binds the instance to fake addresses that encode their
// places.
#include "executor/plan/describe.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ir/base/json.h"
#include "ir/passes/pipeline.h"
#include "kernels/select/choices.h"

namespace opwire::executor {
namespace {

using nlohmann::json;

// Fake addresses: scratch memory begins at 2^60, parameter i at 2^61 + i 2^44, result i at 2^62 + i
// 2^44.
constexpr int kScratchBit = 60, kParamBit = 61, kResultBit = 62, kSlotBits = 44;

void* Address(int bit, size_t slot) {
  return reinterpret_cast<void*>((uint64_t{1} << bit) + (uint64_t{slot} << kSlotBits));
}

json PlaceOf(const Function& f, const void* data, int64_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(data);
  const size_t slot = (address & ((uint64_t{1} << kScratchBit) - 1)) >> kSlotBits;
  const auto at = static_cast<int64_t>(address & ((uint64_t{1} << kSlotBits) - 1));
  std::string to = "memory of its own";  // --no-arena
  if (address >> kResultBit & 1)
    to = "result " + f.results[slot].name;
  else if (address >> kParamBit & 1)
    to = "inout " + f.params[slot].name;
  else if (address >> kScratchBit & 1)
    to = "scratch";
  return {{"to", to}, {"at", to == "memory of its own" ? 0 : at}, {"bytes", bytes}};
}

const char* NameOf(const Step& step) {
  switch (step.kind) {
    case StepKind::kEnter:
      return "enter";
    case StepKind::kIteration:
      return step.control().max_trips < 0 ? "an iteration, or on at" : "an iteration";
    case StepKind::kNext:
      return "again at";
    case StepKind::kBranch:
      return "true, or on at";
    case StepKind::kJump:
      return "on at";
    case StepKind::kEmit:
      return "emit";
    case StepKind::kCall:
      break;
  }
  return "call";
}

int64_t StoredBytesOf(const opw_tensor& t) {
  // A copy's elements are bytes.
  return t.dtype == 0 ? t.elements
                      : TensorBytes(static_cast<DType>(t.dtype), static_cast<Encoding>(t.encoding),
                                    {t.shape, t.rank})
                            .value_or(0);
}

// The time of the chosen variant when it was measured against others, in nanoseconds; 0: it was not
// measured.
double MeasuredOf(const Instance& instance, const Step& step, const Node& node, uint32_t function,
                  const std::string& label) {
  const Program& program = instance.program();
  if (!program.kernels->choices || step.kind != StepKind::kCall) return 0;
  const OpDef& row = *program.typing.functions[function].nodes[step.node()].row;
  const std::string of_class = fmt::format(
      "{} {} {} of", node.op, DTypeName(KeyDType(row, node, program.values[function].types)),
      ClassOf(step.call, row));
  const std::string_view variant = std::string_view(label).substr(label.find('@') + 1);
  for (const auto& [key, choice] : program.kernels->choices->Of(of_class)) {
    for (const auto& [name, ns] : choice.order) {
      if (name == variant) return ns;
    }
  }
  return 0;
}

}  // namespace

std::string Describe(Instance& instance) {
  const Program& program = instance.program();
  const Module& m = program.module;
  const Function& run = m.functions[instance.function()];
  instance.BindScratch(static_cast<uint8_t*>(Address(kScratchBit, 0)));
  for (size_t i = 0; i < run.params.size(); ++i)
    instance.BindParam(static_cast<int>(i), Address(kParamBit, i));
  for (size_t r = 0; r < run.results.size(); ++r) {
    if (instance.InoutOf(static_cast<int>(r)) < 0)
      instance.BindResult(static_cast<int>(r), Address(kResultBit, r));
  }
  const DimValues sizes(m.dims, instance.symbols());
  const auto cost_of = [&](uint32_t function, uint32_t n) {
    return CostOf(*program.typing.functions[function].nodes[n].row, m.functions[function].nodes[n],
                  program.values[function], sizes);
  };
  std::string steps;
  for (uint32_t i = 0; i < instance.steps().size(); ++i) {
    const Step& step = instance.steps()[i];
    const uint32_t number = instance.FunctionOf(step);
    const Function& f = m.functions[number];
    json s = {{"function", f.name},
              {"node", -1},
              {"value", ""},
              {"op", "copy"},
              {"label", LabelOf(step, program.kernels->variants)},
              {"graph", static_cast<bool>(step.captures)}};
    size_t results = 1;
    if (step.node() < f.nodes.size()) {
      const Node& node = f.nodes[step.node()];
      s["node"] = step.node();
      if (!node.results.empty())
        s["value"] =
            ValueName(f, static_cast<ValueId>(program.values[number].first_result[step.node()]));
      s["op"] = node.op;
      results = node.results.size();
      const OpCost cost = step.kind == StepKind::kCall ? cost_of(number, step.node()) : OpCost{};
      s["flops"] = cost.flops;
      s["moved"] = cost.bytes;
      const double ns =
          instance.GroupAt(i) ? 0 : MeasuredOf(instance, step, node, number, s["label"]);
      if (ns > 0) s["measured_ns"] = ns;
      const auto alone = step.kind == StepKind::kCall
                             ? program.plans[number].schedule.WhyAlone(step.node())
                             : std::span<const std::string>();
      if (!alone.empty() && !instance.GroupAt(i)) s["alone"] = alone;
    } else {
      s["flops"] = 0;
      s["moved"] = 2 * StoredBytesOf(step.call.results[0]);
    }
    if (const FusedGroup* const group = instance.GroupAt(i)) {
      json ops = json::array();
      const size_t of_one = group->members > 1 ? group->first_nodes : group->nodes.size();
      for (const uint32_t n : std::span(group->nodes).first(of_one)) ops.push_back(f.nodes[n].op);
      s["group"] = {{"nodes", group->nodes},
                    {"ops", std::move(ops)},
                    {"ends", group->ends},
                    {"members", group->members}};
      s["op"] = "fused";
      std::string values;
      for (const ValueId v : group->outputs)
        values += (values.empty() ? "" : ", ") + ValueName(f, v);
      s["value"] = values;
      results = group->outputs.size();
      double flops = 0;
      for (const uint32_t n : group->nodes) flops += cost_of(number, n).flops;
      int64_t moved = 0;
      for (size_t o = 0; o < group->inputs.size(); ++o)
        moved += group->ChangesOperand(o) ? 0 : StoredBytesOf(step.call.operands[o]);
      for (size_t r = 0; r < results; ++r)
        moved += group->ChangesResult(r) ? 0 : StoredBytesOf(step.call.results[r]);
      s["flops"] = flops;
      s["moved"] = moved;
    }
    json writes = json::array();
    if (step.kind == StepKind::kCall) {
      for (size_t r = 0; r < results; ++r)
        writes.push_back(
            PlaceOf(run, step.call.results[r].data, StoredBytesOf(step.call.results[r])));
    } else {
      s["label"] = NameOf(step);
      const bool goes = step.kind == StepKind::kNext || step.kind == StepKind::kBranch ||
                        step.kind == StepKind::kJump ||
                        (step.kind == StepKind::kIteration && step.control().max_trips < 0);
      s["goes_to"] = goes ? static_cast<int64_t>(step.control().target) : -1;
    }
    s["writes"] = std::move(writes);
    const std::string text = DumpJson(s);
    if (steps.size() + text.size() >= kMostInfoBytes) break;
    if (!steps.empty()) steps += ',';
    steps += text;
  }
  return fmt::format(
      R"({{"function":{},"scratch_bytes":{},"scratch_bound":{},"loops":{},"count":{},"steps":[{}]}})",
      DumpJson(run.name), instance.scratch_bytes(), instance.scratch_bound(), instance.loops(),
      instance.steps().size(), steps);
}

}  // namespace opwire::executor
