// Training GPT-2 as one request, and how long its program takes to compile.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "examples/03_gpt2/state.h"
#include "tests/bench/gpu/executors.h"

namespace opwire::bench {
using namespace examples;
namespace {

constexpr int64_t kSteps = 10;  // of a round
constexpr std::string_view kStep = "train_gpt2_call", kMemory = "train_gpt2_memory_call",
                           kCompile = "compile_gpt2_call", kCold = "compile_gpt2_cold_call";

// A session that trains on random tokens.
struct Trainer {
  static StatusOr<Trainer> Open(const std::string& executor, const Gpt2Config& config) {
    OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(executor));
    return On(std::move(session), config);
  }
  static StatusOr<Trainer> On(Session session, const Gpt2Config& config) {
    Trainer t;
    t.session = std::move(session);
    const int64_t tokens = config.batch * config.positions + 1;
    Array text(DType::kI32, {tokens}), rates(DType::kF32, {1 << 20});
    std::mt19937_64 random(7);
    for (int32_t& v : text.values<int32_t>())
      v = static_cast<int32_t>(random() % static_cast<uint64_t>(config.vocabulary));
    for (float& r : rates.values<float>()) r = 1e-4f;
    OPWIRE_ASSIGN_OR_RETURN(t.state, PutGpt2State(t.session, config));
    OPWIRE_ASSIGN_OR_RETURN(t.text, t.session.Put(text.view()));
    OPWIRE_ASSIGN_OR_RETURN(t.rates, t.session.Put(rates.view()));
    return t;
  }
  // Seconds a step.
  StatusOr<double> Steps(int64_t count) {
    std::vector<Arg> args = {count};
    args.insert(args.end(), state.begin(), state.end());
    args.insert(args.end(), {text, rates, done, int64_t{1}});
    const double begun = Seconds();
    losses.clear();
    const auto keep = [this](std::string_view, const Array& loss) { losses.push_back(loss); };
    OPWIRE_RETURN_IF_ERROR(program.Run(args, {.on_emit = keep}).status());
    done += count;
    return (Seconds() - begun) / static_cast<double>(count);
  }

  Session session;
  Program program;
  std::vector<Tensor> state;
  Tensor text, rates;
  int64_t done = 0;
  std::vector<Array> losses;  // of the last Steps
};

// Compares the losses of the first steps with those of the reference kernels.
Status CheckLosses(const Setup& setup, const std::string& executor, const Gpt2Config& config,
                   const Module& module) {
  constexpr int64_t kChecked = 8;
  constexpr double kOfLoss = 2e-2;  // in bf16
  const auto losses = [&](Session session, bool passes) -> StatusOr<std::vector<Array>> {
    OPWIRE_ASSIGN_OR_RETURN(Trainer t, Trainer::On(std::move(session), config));
    LoadOptions options;
    if (!passes) options.passes = std::nullopt;
    OPWIRE_ASSIGN_OR_RETURN(t.program, t.session.Load(module, options));
    OPWIRE_RETURN_IF_ERROR(t.Steps(kChecked).status());
    return t.losses;
  };
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(executor));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<Array> got, losses(std::move(session), true));
  return Attempt([&] {
    ReferenceExecutor reference(setup);
    const std::vector<Array> want = Must(losses(reference.Open(), false));
    MustAgree(got, want, kOfLoss);
    MustFall(got);
  });
}

// From the program's bytes to the end of its first step, less a step, by an executor with this
// cache of builds.
StatusOr<double> CompileOnce(Gpu& gpu, const Setup& setup, const Gpt2Config& config,
                             const Module& module, const std::string& cache) {
  static int count = 0;
  const std::string name = fmt::format("compile{}", count++);
  const Environment environment("OPWIRE_CACHE", cache);
  Child executor(ExecutorCommand(gpu, setup, name, "on"));
  OPWIRE_ASSIGN_OR_RETURN(Trainer t, Trainer::Open(name, config));
  const double begun = Seconds();
  OPWIRE_ASSIGN_OR_RETURN(t.program, t.session.Load(module));
  OPWIRE_RETURN_IF_ERROR(t.Steps(1).status());
  const double first = Seconds() - begun;
  OPWIRE_RETURN_IF_ERROR(t.Steps(3).status());
  OPWIRE_ASSIGN_OR_RETURN(const double step, t.Steps(gpu.options().small ? 1 : kSteps));
  return first - step;
}

Status Measure(Gpu& gpu, const Setup& setup, Baseline& baseline, const Gpt2Config& config,
               const Module& module, std::vector<Row>& rows) {
  const std::string executor = "train-gpu";
  Child child(ExecutorCommand(gpu, setup, executor, "off"));
  OPWIRE_ASSIGN_OR_RETURN(Trainer t, Trainer::Open(executor, config));
  OPWIRE_ASSIGN_OR_RETURN(t.program, t.session.Load(module));
  OPWIRE_RETURN_IF_ERROR(t.Steps(3).status());
  std::vector<Side> sides = {{"one request",
                              [&] { return t.Steps(gpu.options().small ? 1 : kSteps); },
                              [&] { return CheckLosses(setup, executor, config, module); }}};
  const bool compares = baseline.there() && !gpu.options().small;
  if (compares) {
    sides.push_back(baseline.For({.row = std::string(kStep),
                                  .op = "gpt2_step",
                                  .dtype = DType::kBF16,
                                  .shape = {config.batch, config.positions, config.layers,
                                            config.heads, config.width, config.vocabulary},
                                  .patience = 500}));
    (void)sides.back().measure();  // which compiles; what fails, fails again in its turn
  }
  std::vector<Series> series = TakeTurns(gpu, sides);
  if (compares) series.back().name = baseline.NameOf(std::string(kStep));
  rows.push_back(RateRow(std::string(kStep), "tokens/s",
                         static_cast<double>(config.batch * config.positions), series[0],
                         compares ? &series[1] : nullptr, compares ? 1.05 : 0));

  OPWIRE_ASSIGN_OR_RETURN(const std::string report, t.session.Info("report"));
  Row memory{
      .name = std::string(kMemory),
      .value = nlohmann::json::parse(report).at("memory").at("peak").get<double>() / (1 << 30),
      .unit = "GiB",
      .target = 9.4,
      .target_is_ratio = false};
  memory.baseline = baseline.PeakOf(std::string(kStep)) / (1 << 30);
  if (memory.baseline > 0) memory.baseline_name = series.back().name;
  rows.push_back(memory);
  return absl::OkStatus();
}

}  // namespace

void TrainingRows(Gpu& gpu, const Setup& setup, Baseline& baseline, std::vector<Row>& rows) {
  const bool trains = gpu.Selected(kStep) || gpu.Selected(kMemory),
             compiles = gpu.Selected(kCompile) || gpu.Selected(kCold);
  if (!trains && !compiles) return;
  Gpt2Config config{.masters = false};
  if (gpu.options().small)
    config = {.layers = 1,
              .heads = 2,
              .width = 16,
              .positions = 8,
              .vocabulary = 64,
              .batch = 2,
              .masters = false};
  const StatusOr<Module> module = Gpt2Training(config);
  if (!module.ok()) return rows.push_back(FailedRow(std::string(kStep), module.status()));
  Child registry({setup.build + "/bin/opwire-registry", "--log-level", "error"});
  if (trains) {
    gpu.Begin(kStep);
    if (const Status s = Measure(gpu, setup, baseline, config, *module, rows); !s.ok())
      rows.push_back(FailedRow(std::string(kStep), s));
  }
  if (!compiles) return;
  gpu.Begin(kCompile);
  const auto warm = [&] {
    return CompileOnce(gpu, setup, config, *module, setup.directory + "/warm-gpt2");
  };
  const auto cold = [&]() -> StatusOr<double> {
    const std::string cache = setup.directory + "/cold-gpt2";
    std::filesystem::remove_all(cache);
    return CompileOnce(gpu, setup, config, *module, cache);
  };
  if (const auto first = warm(); !first.ok())
    return rows.push_back(FailedRow(std::string(kCompile), first.status()));
  // Each starts an executor and fills its memory: two rounds tell enough.
  const int rounds = gpu.options().small ? 1 : 2;
  std::vector<double> warms, colds;
  for (int i = 0; i < rounds; ++i) {
    const auto w = warm(), c = cold();
    if (!w.ok() || !c.ok())
      return rows.push_back(FailedRow(std::string(kCompile), w.ok() ? c.status() : w.status()));
    warms.push_back(*w), colds.push_back(*c);
  }
  rows.push_back({.name = std::string(kCompile),
                  .value = Percentile(warms, 0.5),
                  .unit = "s",
                  .target = 0.2,
                  .target_is_ratio = false});
  rows.push_back({.name = std::string(kCold),
                  .value = Percentile(colds, 0.5),
                  .unit = "s",
                  .target = 10,
                  .target_is_ratio = false});
}

}  // namespace opwire::bench
