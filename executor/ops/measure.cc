// Medians of repeated calls, on inputs that no cache holds.
#include "executor/ops/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace opwire::ops {
namespace {

constexpr int64_t kBenchElements = int64_t{1} << 22;

// Seconds.
template <typename F>
double Median(const F& f) {
  std::vector<double> seconds;
  double total = 0;
  f();
  while (seconds.size() < 5 || (total < 0.1 && seconds.size() < 200)) {
    const auto begun = std::chrono::steady_clock::now();
    f();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    total += seconds.back();
  }
  std::ranges::nth_element(seconds, seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2));
  return seconds[seconds.size() / 2];
}

}  // namespace

StatusOr<std::optional<Measurement>> Measure(OpUnderTrial& trial, const TypeBinding& types, std::mt19937_64& random, FaultReporter& faults) {
  const jit::OpManifest& op = trial.op();
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExtentNames(op.declaration));
  jit::OpCase c = op.bench;
  if (c.extents.empty() && c.leading.empty()) {
    const auto each = static_cast<int64_t>(std::pow(static_cast<double>(kBenchElements), 1.0 / static_cast<double>(std::max<size_t>(names.size(), 1))));
    for (const std::string& name : names) {
      if (name == "...") c.leading = {each};
      else c.extents[name] = each;
    }
  }
  if (c.attrs.empty()) {
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<jit::OpCase> cases, CasesOf(op, /*thorough=*/false));
    c.attrs = cases.back().attrs;
  }
  OPWIRE_ASSIGN_OR_RETURN(std::optional<BoundOp> own, trial.Bind(types, c, trial.variant().name, faults));
  OPWIRE_ASSIGN_OR_RETURN(std::optional<BoundOp> reference, trial.Bind(types, c, "reference", faults));
  if (!own) return std::optional<Measurement>();
  Measurement m{.what = own->what};
  std::vector<std::vector<uint8_t>> inputs, outputs;
  for (size_t i = 0; i < own->shapes.size(); ++i) {
    inputs.push_back(trial.RandomInput(*own, i, Values::kOrdinary, random));
    m.bytes += static_cast<int64_t>(inputs.back().size());
  }
  const auto run = [&](BoundOp& b) {
    std::vector<uint64_t> scratch(static_cast<size_t>(b.instance->scratch_bytes()) / 8 + 16);
    b.instance->BindScratch(reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64));
    for (size_t i = 0; i < inputs.size(); ++i) b.instance->BindParam(static_cast<int>(i), inputs[i].data());
    for (size_t r = 0; r < outputs.size(); ++r) b.instance->BindResult(static_cast<int>(r), outputs[r].data());
    return Median([&] { (void)b.step().run(&b.step().call); });
  };
  for (size_t r = 0; r < op.row.results.size(); ++r) {
    const opw_tensor& t = own->step().call.results[r];
    outputs.emplace_back(static_cast<size_t>(t.elements * DTypeBytes(static_cast<DType>(t.dtype))));
    m.bytes += static_cast<int64_t>(outputs.back().size());
  }
  FaultReporter::Watched watched(faults, fmt::format("{}, {}: while it was measured", trial.Label(), m.what), {});
  m.seconds = run(*own);
  if (reference) m.reference_seconds = run(*reference);
  std::vector<uint8_t> from(static_cast<size_t>(m.bytes / 2), 1), to(from.size());
  struct Copy {
    uint8_t* to;
    const uint8_t* from;
  } copy{to.data(), from.data()};
  opw_runtime* const runtime = trial.device().runtime();
  m.copy_seconds = Median([&] {
    runtime->parallel_for(runtime, static_cast<int64_t>(from.size()), 1 << 18, [](void* context, int64_t begin, int64_t end) {
      const Copy& c = *static_cast<Copy*>(context);
      std::memcpy(c.to + begin, c.from + begin, static_cast<size_t>(end - begin));
    }, &copy);
  });
  return std::optional(std::move(m));
}

}  // namespace opwire::ops
