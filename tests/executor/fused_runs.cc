// Runs and comparisons of groups with reductions.
#include "tests/executor/fused_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "ir/base/element.h"
#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"

namespace opwire::executor {

std::vector<std::string> Fused(const std::string& text) {
  return WithoutVariants(StepsOf(text, {}, /*fuses=*/true));
}

void FusedRunsTest::Start(bool fuses) {
  if (fuses && !built_) built_ = BuildFuser(*device_, {.worker = OPWIRE_EXECUTOR});
  fuser_ = fuses ? built_ : nullptr;
  Restart();
  c_ = Hello();
}

std::vector<std::string> FusedRunsTest::Run(const Module& m, uint64_t seed, bool fuses,
                                            const FillParam& fill) {
  Start(fuses);
  return Outcome(c_, m, seed, fill);
}

void FillSmall(const Param& p, std::string& bytes, std::mt19937_64& random) {
  const int64_t size = DTypeBytes(p.type.dtype);
  const bool floats = (kFloats | kFloat8s).Has(p.type.dtype);
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(size)) {
    const double value =
        floats ? static_cast<double>(static_cast<int64_t>(random() % 4001) - 2000) / 1000
               : static_cast<double>(random() % (p.type.dtype == DType::kBool ? 2 : 7));
    const uint64_t bits = ElementBits(p.type.dtype, value);
    std::memcpy(bytes.data() + at, &bits, static_cast<size_t>(size));
  }
}

std::vector<double> ValuesOf(DType type, const std::string& bytes) {
  std::vector<double> out;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(DTypeBytes(type)))
    out.push_back(ElementValue(type, bytes.data() + at));
  return out;
}

double Difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    const double d =
        a[i] == b[i] ? 0
                     : std::fabs(a[i] - b[i]) / std::max({1.0, std::fabs(a[i]), std::fabs(b[i])});
    most = std::max(most, std::isnan(d) ? INFINITY : d);
  }
  return most;
}

double Tolerance(DType type) {
  return type == DType::kF64    ? 1e-12
         : type == DType::kF32  ? 2e-5
         : type == DType::kF16  ? 4e-3
         : type == DType::kBF16 ? 3e-2
                                : 0;
}

double TrafficOf(const Program& program, const Instance& instance) {
  constexpr int64_t kCached = 4 << 20;
  const opw_call& call = instance.steps()[0].call;
  double least = 0,
         moved = 2 * static_cast<double>(std::max<int64_t>(0, call.workspace_bytes - kCached));
  const auto bytes = [](const opw_tensor& t) {
    return static_cast<double>(t.elements * DTypeBytes(static_cast<DType>(t.dtype)));
  };
  const FusedGroup& group = program.plans[0].schedule.groups[0];
  std::set<ValueId> read;
  for (size_t k = 0; k < group.inputs.size(); ++k) {
    moved += bytes(call.operands[k]);
    if (read.insert(group.inputs[k]).second) least += bytes(call.operands[k]);
  }
  for (size_t k = 0; k < program.module.functions[0].results.size(); ++k)
    moved += bytes(call.results[k]), least += bytes(call.results[k]);
  return moved / least;
}

void FusedRunsTest::ExpectOneKernelEach(const std::function<std::string(std::mt19937_64&)>& text,
                                        const FillParam& fill) {
  const uint64_t programs = ProgramCount(device_->info().host_memory ? 500 : 30);
  double most = 0, worst = 0;
  uint64_t in_parts = 0;
  for (uint64_t i = 0; i < programs; ++i) {
    const uint64_t seed = Seed() + i;
    std::mt19937_64 random(seed);
    const std::string written = text(random);
    SCOPED_TRACE(testing::Message() << "seed " << seed << "\n" << written);
    ASSERT_OK_AND(const Module m, Parse(written, "t"));
    Start(true);
    const auto set = std::make_shared<KernelSet>(KernelSet{.fuser = built_, .variants = variants_});
    ASSERT_OK_AND(const std::shared_ptr<Program> program,
                  PrepareProgram(Serialise(m), set, ExecutorLimits()));
    ASSERT_OK_AND(const std::unique_ptr<Instance> instance,
                  Instance::Build(*program, 0, {}, {.runtime = device_->runtime()}));
    ASSERT_EQ(instance->steps().size(), 1u);
    in_parts += instance->steps()[0].call.workspace_bytes > 0;
    most = std::max(most, TrafficOf(*program, *instance));

    const auto fused = Outcome(c_, m, seed, fill), alone = Run(m, seed, false, fill);
    ASSERT_TRUE(fused[0] == "OK" && alone[0] == "OK") << fused[0] << alone[0];
    for (size_t r = 1; r < alone.size(); ++r) {
      const DType type = m.functions[0].params[0].type.dtype;
      const double d = Difference(ValuesOf(type, fused[r]), ValuesOf(type, alone[r]));
      worst = std::max(worst, d / std::max(Tolerance(type), 1e-300));
      ASSERT_LE(d, 4 * Tolerance(type)) << "result " << r - 1;
    }
  }
  EXPECT_LE(most, 1.1);
  fmt::print(
      "{} graphs, each one kernel, {} of them in parts; {:.3f} of the least traffic at the most; "
      "differences up to {:.2f} of the bound\n",
      programs, in_parts, most, worst);
}

}  // namespace opwire::executor
