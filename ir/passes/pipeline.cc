// The table of passes and the code that runs it.
#include "ir/passes/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "ir/ops/names.h"
#include "ir/text/text.h"

namespace opwire {
namespace {

constexpr PassRow kPasses[] = {
    // clang-format off
    {"canonicalise", "Equal computations get one form: operands of commutative ops in a fixed order, no attribute at its default, constants of one value without a shape if the other operand has the shape.", Canonicalise},
    {"constant-fold", "Nodes whose operands are known become constants, computed as the reference kernels do.",
     FoldConstants, "fold"},
    {"inline", "An `if` with a known condition, and a `repeat` of at most one iteration, become the nodes of the function that they call.", InlineCalls},
    {"simplify", "Nodes are replaced by cheaper ones or removed: the rules of rules.h.", Simplify},
    {"shapes", "Chains of `reshape`, `permute`, `expand` and `cast` become one, and those that change nothing are removed. Without `--exact`, `matmul` also absorbs transposes.", SimplifyShapes},
    {"matmul", "A `matmul` absorbs the bias and the activation after it, and becomes `linear`; not with `--exact`.", FuseMatmulEpilogues, "products"},
    {"norms", "Norms absorb the sum before them, which later nodes may also read; not with `--exact`.", JoinNorms},
    {"losses", "A loss and its gradient with respect to the same logits become one op, which reads them once; not with `--exact`.", JoinLosses},
    {"split-reductions", "A reduction of several axes becomes one of the last axis and one of the others, if the nodes before it can be one kernel with the first; not with `--exact`.", SplitReductions, "folds"},
    {"share", "Of equal nodes with the same operands only the first stays.", ShareEqualNodes},
    {"join", "Equal optimiser steps over lists of tensors, one after the other, become one over all of them.", JoinLists},
    {"dead", "Removes nodes whose results are not read.", RemoveDeadNodes},
    // clang-format on
};

int64_t NowNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Replaces former names by the present ones.
Status ResolveNames(PipelineOptions& options) {
  std::vector<std::string_view> names;
  for (const PassRow& p : kPasses) names.push_back(p.name);
  for (const OwnPass& p : options.own) names.push_back(p.name);
  const auto resolve = [&](std::string& name) -> Status {
    if (std::ranges::find(names, name) != names.end()) return absl::OkStatus();
    const auto former = std::ranges::find(kPasses, name, &PassRow::former_name);
    if (former != std::end(kPasses) && !name.empty()) {
      name = former->name;
      return absl::OkStatus();
    }
    return InvalidArgument("no pass '{}'{}; there are {}", Clip(name),
                           DidYouMean(NearestNames(name, names)), fmt::join(names, ", "));
  };
  for (std::string& name : options.skip) OPWIRE_RETURN_IF_ERROR(resolve(name));
  if (options.after.empty()) return absl::OkStatus();
  OPWIRE_RETURN_IF_ERROR(resolve(options.after));
  if (std::ranges::find(options.skip, options.after) != options.skip.end())
    return InvalidArgument("pass {} is to be the last and is to be skipped", Clip(options.after));
  return absl::OkStatus();
}

// Parameters and results of the entry, which a user's pass must not change.
std::string InterfaceOf(const Module& m) {
  const Function& f = m.functions[0];
  const ValueTypes values(f);
  std::string out;
  for (const DimSymbol& s : m.dims.symbols())
    out += fmt::format("?{} in [{}, {}] multiple {}, ", s.name, s.lower, s.upper, s.multiple);
  for (const Param& p : f.params) {
    out += fmt::format(
        "{}%{}: {}, ",
        p.mode == ParamMode::kInout ? "inout "
        : p.mode == ParamMode::kDim ? "dim "
                                    : "",
        p.name, p.mode == ParamMode::kDim ? m.dims.ToString(p.dim) : ToString(p.type, m.dims));
  }
  for (const Result& r : f.results)
    out += fmt::format("-> {}: {}, ", r.name,
                       ToString(*values.types[static_cast<size_t>(r.value)], m.dims));
  return out;
}

StatusOr<Module> RunOwn(const OwnPass& pass, const Module& module, const PipelineOptions& options) {
  const auto named = [&](const Status& s) {
    return Status(s.code(), fmt::format("pass {}: {}", Clip(pass.name, 256), MessageOf(s)));
  };
  const auto text = pass.run(Print(module, options.ops));
  if (!text.ok()) return named(text.status());
  auto out = Parse(*text, "its output", {.ops = options.ops});
  if (!out.ok()) return named(out.status());
  if (const auto typing = VerifyModule(*out, options.limits, options.ops); !typing.ok())
    return named(typing.status());
  if (const std::string was = InterfaceOf(module), is = InterfaceOf(*out); was != is) {
    return named(
        InvalidArgument("expected the same symbols, parameters and results: {}got {}", was, is));
  }
  return out;
}

// Facts about the module in its present state.
struct State {
  Typing typing;
  ProgramCost cost;
};

}  // namespace

bool HasCountsInValues(const Module& m) {
  return std::ranges::any_of(m.dims.nodes(),
                             [](const DimNode& n) { return n.kind == DimKind::kFromValue; });
}

std::span<const PassRow> PassTable() { return kPasses; }

StatusOr<PipelineReport> RunPasses(Module& module, const PipelineOptions& given) {
  PipelineOptions options = given;
  OPWIRE_RETURN_IF_ERROR(ResolveNames(options));
  PipelineReport report;
  const auto look = [&]() -> StatusOr<State> {
    const int64_t begin = NowNanos();
    OPWIRE_ASSIGN_OR_RETURN(Typing typing, VerifyModule(module, options.limits, options.ops));
    report.verify_nanos += NowNanos() - begin;
    OPWIRE_ASSIGN_OR_RETURN(const ProgramCost cost, CostOf(module, typing, options));
    return State{std::move(typing), cost};
  };
  OPWIRE_ASSIGN_OR_RETURN(State state, look());
  for (int round = 1; round <= kMostRounds; ++round) {
    const size_t runs = report.runs.size();
    int64_t changes = 0;
    for (size_t p = 0; p < std::size(kPasses) + options.own.size(); ++p) {
      const OwnPass* const own =
          p < std::size(kPasses) ? nullptr : &options.own[p - std::size(kPasses)];
      const std::string name(own != nullptr ? own->name : kPasses[p].name);
      if (std::ranges::find(options.skip, name) != options.skip.end() ||
          (own == nullptr && HasCountsInValues(module)))
        continue;
      PassReport run{.pass = name,
                     .round = round,
                     .changes = 0,
                     .nanos = 0,
                     .before = state.cost,
                     .after = {}};
      const int64_t begin = NowNanos();
      if (own != nullptr) {
        OPWIRE_ASSIGN_OR_RETURN(Module out, RunOwn(*own, module, options));
        run.changes = !Equal(module, out);
        if (run.changes > 0) module = std::move(out);
      } else {
        PassContext context{.module = module,
                            .typing = state.typing,
                            .ops = options.ops,
                            .limits = options.limits,
                            .accuracy = options.accuracy};
        kPasses[p].run(context);
        run.changes = context.changes;
      }
      run.nanos = NowNanos() - begin;
      if (run.changes > 0) {
        auto next = look();
        if (!next.ok())
          return Internal("pass {} left a program that does not verify: {}", name,
                          MessageOf(next.status()));
        state = *std::move(next);
      }
      run.after = state.cost;
      changes += run.changes;
      report.runs.push_back(std::move(run));
      if (name == options.after) return report;
    }
    if (changes > 0) continue;
    if (round > 1) report.runs.resize(runs);
    return report;
  }
  report.done = false;
  return report;
}

}  // namespace opwire
