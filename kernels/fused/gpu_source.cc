// Writes the loop around a program's body.
#include "kernels/fused/gpu_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/fused/gpu_body.h"
#include "kernels/ops/gpu/code.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::fused {
namespace {

using gpu::CodeName;

size_t TensorsOf(const ScalarProgram& p) { return p.inputs().size() + p.outputs().size(); }

// Whether it takes a few instructions and registers on f32.
bool IsShort(const Instruction& one) {
  constexpr Prim kThese[] = {Prim::kIn,  Prim::kConst, Prim::kAttr, Prim::kSelect, Prim::kAdd,
                             Prim::kSub, Prim::kMul,   Prim::kEq,   Prim::kNe,     Prim::kLt,
                             Prim::kLe,  Prim::kGt,    Prim::kGe,   Prim::kNot,    Prim::kNeg,
                             Prim::kAbs, Prim::kCast};
  return HasNear(one.prim, one.type) ||
         (DTypeBytes(one.type) <= 4 && std::ranges::find(kThese, one.prim) != std::end(kThese));
}

}  // namespace

GpuForm FormOf(const ScalarProgram& program, std::span<const opw_tensor* const> tensors) {
  GpuForm form;
  // The outputs' shape is walked.
  const size_t inputs = program.inputs().size();
  std::vector<const opw_tensor*> order = {tensors[inputs]};
  order.insert(order.end(), tensors.begin(), tensors.end());
  gpu::MergedAxes axes = gpu::Merge(order);
  axes.strides.erase(axes.strides.begin());
  form.elements = axes.elements;

  int64_t widest = 1;
  for (size_t t = 0; t < tensors.size(); ++t)
    widest = std::max(widest, DTypeBytes(TypeOfTensor(program, t)));
  const int items = static_cast<int>(16 / widest);
  const size_t last = static_cast<size_t>(axes.rank - 1);
  bool vectors = true;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const std::vector<int64_t>& s = axes.strides[t];
    const bool constant = t < inputs && std::ranges::all_of(s, [](int64_t x) { return x == 0; });
    form.access.push_back(constant       ? Access::kConstant
                          : s[last] == 1 ? Access::kVector
                                         : Access::kOne);
    vectors = vectors && (s[last] == 1 || (t < inputs && s[last] == 0));
  }
  // A step must not cross the end of a row, but that of all.
  vectors = vectors && (axes.rank == 1 || axes.extents[last] % items == 0);
  for (const std::vector<int64_t>& s : axes.strides) {
    for (size_t a = 0; a < last; ++a) vectors = vectors && (s[last] != 1 || s[a] % items == 0);
  }
  if (axes.rank == 1 && axes.extents[0] == 1) vectors = false;
  if (vectors) {
    form.items = items;
    axes.extents[last] = (axes.extents[last] + items - 1) / items;
    for (size_t t = 0; t < tensors.size(); ++t) axes.strides[t][last] *= items;
  } else {
    for (Access& a : form.access) {
      if (a == Access::kVector) a = Access::kOne;
    }
  }
  form.rank = gpu::RankClass(axes.rank);
  form.extents = std::move(axes.extents);
  form.strides = std::move(axes.strides);
  form.wide = form.steps() > INT32_MAX;
  // Enough bytes on their way at a time, and not too much code.
  const auto loads = std::ranges::count(std::span(form.access).first(inputs), Access::kVector);
  const size_t instructions = program.instructions().size();
  form.unroll = instructions > 24 ? 1 : loads <= 1 ? 4 : 2;
  // Several short functions: many threads hide their latency better than many loads each, and 32 or
  // 40 registers do.
  if (loads <= 2 && instructions > 4 && instructions <= 24 &&
      std::ranges::all_of(program.instructions(), IsShort)) {
    form.unroll = 2;
    form.resident = loads <= 1 ? 8 : 6;
  }
  return form;
}

std::vector<GpuForm> FormsBeside(const GpuForm& rule) {
  constexpr struct {
    int threads, unroll;
  } kOthers[] = {{256, 1}, {256, 2}, {256, 4}, {128, 2}, {128, 4}, {512, 1}, {512, 2}};
  std::vector<GpuForm> out;
  for (const auto [threads, unroll] : kOthers) {
    if (threads == rule.threads && unroll == rule.unroll && rule.resident == 0) continue;
    out.push_back(rule);
    out.back().threads = threads;
    out.back().unroll = unroll;
    out.back().resident = 0;
  }
  return out;
}

std::string GpuSource(const ScalarProgram& program, const GpuForm& form, int members) {
  const size_t inputs = program.inputs().size(), tensors = TensorsOf(program);
  const bool raises = Raises(program);
  const GpuBody body(program);
  std::string loads, arrays, fetch, fetch_some, fetch_all, compute, put, put_some, put_all,
      aligned = "true";
  for (size_t t = 0; t < tensors; ++t) {
    const std::string_view type = CodeName(TypeOfTensor(program, t));
    const bool input = t < inputs;
    const Access access = form.access[t];
    const bool rounds = !input && body.RoundsLate(t - inputs);
    loads += fmt::format("  {0}{1}* const p{2} = static_cast<{0}{1}*>(p.data[{2}]);\n",
                         input ? "const " : "", type, t);
    if (access == Access::kVector) aligned += fmt::format(" && Aligned<{}, kItems>(p{})", type, t);
    if (access == Access::kConstant) loads += fmt::format("  const {} c{} = *p{};\n", type, t, t);
    std::string argument = fmt::format("c{}", t);
    if (access != Access::kConstant && input) {
      const bool vector = access == Access::kVector;
      const std::string_view items = vector ? "kItems" : "1";
      arrays += fmt::format("  Vector<{}, {}> a{}[kUnroll];\n", type, items, t);
      fetch +=
          fmt::format("      a{0}[u] = LoadVector<{1}, {2}>(p{0} + at[{0}]);\n", t, type, items);
      if (vector)
        fetch_all +=
            fmt::format("      a{0}[u] = LoadVector<{1}, {2}>(p{0} + at);\n", t, type, items);
      fetch_some +=
          vector ? fmt::format("      a{0}[u] = LoadSome<{1}, kItems>(p{0} + at[{0}], left);\n", t,
                               type)
                 : fmt::format("      a{0}[u] = LoadVector<{1}, 1>(p{0} + at[{0}]);\n", t, type);
      argument = vector ? fmt::format("a{}[u].v[i]", t) : fmt::format("a{}[u].v[0]", t);
    }
    if (!input) {
      const std::string_view rounded = rounds ? "Rounded" : "",
                             store = rounds ? "StoreRounded" : "StoreVector";
      arrays += rounds ? fmt::format("  float b{}[kItems];\n", t)
                       : fmt::format("  Vector<{}, kItems> b{};\n", type, t);
      put += fmt::format("        {2}<{0}, kItems>(p{1} + at[{1}], b{1});\n", type, t, store);
      put_all += fmt::format("      {2}<{0}, kItems>(p{1} + at, b{1});\n", type, t, store);
      put_some += fmt::format("        StoreSome{2}<{0}, kItems>(p{1} + at[{1}], b{1}, left);\n",
                              type, t, rounded);
      argument = fmt::format(fmt::runtime(rounds ? "b{}[i]" : "b{}.v[i]"), t);
    }
    compute += fmt::format("{}{}", t ? ", " : "", argument);
  }
  if (program.arguments() > 0) compute += ", p.arguments";
  if (raises) compute += ", flags";
  // Of several members, the block's own is found among those that begin before it.
  const bool joint = members > 1;  // which takes some more registers
  const std::string_view block = joint ? "block" : "static_cast<i64>(blockIdx.x)";
  const std::string of_members = !joint ? ""
                                        : fmt::format(
                                              "constexpr int kMembers = {};\nstruct Members {{\n  "
                                              "Params of[kMembers];\n  int first[kMembers];\n}};\n",
                                              members);
  const std::string step_of =
      joint ? ""
            : "OPW_DEVICE i64 StepOf(int u) { return (static_cast<i64>(blockIdx.x) * kUnroll + u) "
              "* kThreads + threadIdx.x; }\n";
  const std::string_view find =
      !joint ? ""
             : "  int member = 0;\n"
               "  for (int half = kMembers / 2; half > 0; half /= 2) {\n"
               "    if (members.first[member + half] <= static_cast<int>(blockIdx.x)) member += "
               "half;\n"
               "  }\n"
               "  const Params& p = members.of[member];\n"
               "  const i64 block = static_cast<int>(blockIdx.x) - members.first[member];\n"
               "  const auto StepOf = [&](int u) { return (block * kUnroll + u) * kThreads + "
               "threadIdx.x; };\n";
  const std::string raise = raises ? "  Raise(p.reporter, flags);\n" : "";
  // Blocks whose steps are all whole and next to each other ask nothing for each.
  const bool in_a_row = form.rank == 1 && form.items > 1;
  const std::string all =
      !in_a_row ? ""
                : fmt::format(
                      "  constexpr i64 kStep = kThreads * kItems;\n"
                      "  if (aligned && ({block} + 1) * (kUnroll * kStep) <= p.elements) {{\n"
                      "#pragma unroll\n"
                      "    for (int u = 0; u < kUnroll; ++u) {{\n"
                      "      const i64 at = StepOf(0) * kItems + u * kStep;\n{fetch}"
                      "    }}\n"
                      "#pragma unroll\n"
                      "    for (int u = 0; u < kUnroll; ++u) {{\n"
                      "      const i64 at = StepOf(0) * kItems + u * kStep;\n"
                      "#pragma unroll\n"
                      "      for (int i = 0; i < kItems; ++i) Apply({compute});\n{put}"
                      "    }}\n{raise}"
                      "    return;\n"
                      "  }}\n",
                      fmt::arg("fetch", fetch_all), fmt::arg("compute", compute),
                      fmt::arg("put", put_all), fmt::arg("raise", raise), fmt::arg("block", block));
  const std::string offsets =
      form.rank == 1
          ? std::string(
                "    for (int t = 0; t < kTensors; ++t) at[t] = step * p.axes.strides[t][0];\n")
          : fmt::format("    OffsetsAt<{}>(p.axes, step, at);\n", form.wide);
  return fmt::format(
      "namespace opw::OPW_KERNEL {{\n"
      "constexpr int kTensors = {tensors}, kItems = {items}, kUnroll = {unroll}, kThreads = "
      "{threads};\n"
      "struct Params {{\n"
      "  void* data[kTensors];\n"
      "  Reporter reporter;\n"
      "  i64 elements, steps;\n"
      "  u64 arguments[{arguments}];\n"
      "  Axes<kTensors, {rank}> axes;\n"
      "}};\n"
      "{of_members}"
      "OPW_DEVICE void Apply({parameters}) {{\n{body}}}\n"
      "{step_of}"
      "OPW_DEVICE void At(const Params& p, i64 step, i64 (&at)[kTensors]) {{\n{offsets}}}\n"
      "}}\n"
      "extern \"C\" __global__ void __launch_bounds__({bounds}) OPW_KERNEL(OPW_PARAM "
      "opw::OPW_KERNEL::{takes}) {{\n"
      "  using namespace opw;\n"
      "  using namespace opw::OPW_KERNEL;\n"
      "  AwaitPrevious();\n"
      "{find}"
      "{loads}{arrays}"
      "  const bool aligned = {aligned};\n"
      "{flags}"
      "{all}"
      "#pragma unroll\n"
      "  for (int u = 0; u < kUnroll; ++u) {{\n"
      "    const i64 step = StepOf(u), left = p.elements - step * kItems;\n"
      "    if (step >= p.steps) continue;\n"
      "    i64 at[kTensors];\n"
      "    At(p, step, at);\n"
      "    if (aligned && left >= kItems) {{\n{fetch}    }} else {{\n{fetch_some}    }}\n"
      "  }}\n"
      "#pragma unroll\n"
      "  for (int u = 0; u < kUnroll; ++u) {{\n"
      "    const i64 step = StepOf(u), left = p.elements - step * kItems;\n"
      "    if (step >= p.steps) continue;\n"
      "    i64 at[kTensors];\n"
      "    At(p, step, at);\n"
      "#pragma unroll\n"
      "    for (int i = 0; i < kItems; ++i) Apply({compute});\n"
      "    if (aligned && left >= kItems) {{\n{put}    }} else {{\n{put_some}    }}\n"
      "  }}\n"
      "{raise}"
      "}}\n",
      fmt::arg("tensors", tensors), fmt::arg("items", form.items), fmt::arg("unroll", form.unroll),
      fmt::arg("threads", form.threads),
      fmt::arg("bounds", form.resident > 0 && !joint
                             ? fmt::format("{}, {}", form.threads, form.resident)
                             : fmt::format("{}", form.threads)),
      fmt::arg("arguments", std::max(1, program.arguments())), fmt::arg("rank", form.rank),
      fmt::arg("parameters", body.Parameters()), fmt::arg("body", body.Statements()),
      fmt::arg("offsets", offsets), fmt::arg("loads", loads), fmt::arg("arrays", arrays),
      fmt::arg("aligned", aligned), fmt::arg("fetch", fetch), fmt::arg("fetch_some", fetch_some),
      fmt::arg("compute", compute), fmt::arg("put", put), fmt::arg("put_some", put_some),
      fmt::arg("flags", raises ? "  u32 flags = 0;\n" : ""), fmt::arg("raise", raise),
      fmt::arg("all", all), fmt::arg("of_members", of_members), fmt::arg("step_of", step_of),
      fmt::arg("find", find), fmt::arg("takes", joint ? "Members members" : "Params p"));
}

std::vector<std::byte> GpuParams(const ScalarProgram& program, const GpuForm& form,
                                 std::span<const opw_attr> arguments) {
  ParamBytes out(TensorsOf(program));
  out.Put(form.elements);
  out.Put(form.steps());
  for (const uint64_t bits : ArgumentBits(program, arguments)) out.Put(bits);
  out.PutAxes(form.rank, form.extents, form.strides);
  return out.Take();
}

}  // namespace opwire::fused
