// opwire_bench_gpu: runs the GPU benchmarks and writes their table and bench-gpu.json. `make
// bench-gpu` calls it.
//
//   opwire_bench_gpu --build build --out build/bench-gpu.json [--only PREFIX,PREFIX] [--rounds N]
//   [--device cuda:0] [--scale small|full]
//                    [--python PYTHON] [--baseline SCRIPT]
//
// In addition, `--bare DEVICE` binds the device and ends, and `--jit-worker` is the process that
// compiles for GPUs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>

#include "kernels/jit/worker.h"
#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

constexpr const char* kUsage =
    "opwire_bench_gpu [--build FOLDER] [--out FILE] [--only PREFIX,PREFIX] [--rounds N] [--device "
    "DEVICE] [--scale small|full] [--python PYTHON] "
    "[--baseline SCRIPT]\n";

std::vector<std::string> Listed(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    out.emplace_back(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.size(), out.back().size() + 1));
  }
  return out;
}

int Bare(const std::string& spec) {
  const auto device = OpenDevice(spec, {});
  return device.ok() && (*device)->Synchronize().ok() ? 0 : 1;
}

int Run(std::map<std::string, std::string>& flags) {
  GpuOptions options;
  options.device = flags["--device"];
  const std::string& scale = flags["--scale"];
  if (scale != "small" && scale != "full") return fmt::print(stderr, "{}", kUsage), 2;
  options.small = scale == "small";
  const std::string& rounds = flags["--rounds"];
  if (rounds.empty())
    options.rounds = options.small ? 1 : kRounds;
  else
    options.rounds = std::max(1, std::atoi(rounds.c_str()));
  options.only = Listed(flags["--only"]);
  options.python = flags["--python"];
  options.baseline = flags["--baseline"];
  auto gpu = Gpu::Open(options);
  if (!gpu.ok()) {
    fmt::print(stderr, "bench-gpu: no GPU to measure on: {}\n", MessageOf(gpu.status()));
    return 1;
  }
  const DeviceInfo& info = (*gpu)->device().info();
  fmt::print("{}, {} multiprocessors, {} MiB of L2\n", info.name, info.compute_units,
             (*gpu)->l2_bytes() >> 20);
  Baseline baseline(**gpu);
  if (baseline.there())
    fmt::print("against {}\n", baseline.version());
  else
    fmt::print("without PyTorch, against ceilings only: {}\n", baseline.why());
  const std::string pytorch = baseline.there() ? baseline.version() : "none: " + baseline.why();

  char directory[] = "/tmp/opwire-bench-XXXXXX";
  if (!mkdtemp(directory)) return 1;
  setenv("OPWIRE_RUNTIME_DIR", directory, 1);
  // Programs are started in folders of their own.
  const Setup setup{std::filesystem::absolute(flags["--build"]), directory};
  const Facts facts = {{"device", info.name}, {"pytorch", pytorch}};
  std::vector<Row> rows;
  const bool compared = baseline.there();
  const std::pair<const char*, std::function<void()>> topics[] = {
      {"memory", [&] { MemoryRows(**gpu, baseline, rows); }},
      {"backward", [&] { BackwardRows(**gpu, baseline, rows); }},
      {"matmul", [&] { MatmulRows(**gpu, baseline, rows); }},
      {"linear", [&] { LinearRows(**gpu, baseline, rows); }},
      {"written", [&] { WrittenRows(**gpu, baseline, rows); }},
      {"attention", [&] { AttentionRows(**gpu, baseline, rows); }},
      {"convolution", [&] { ConvolutionRows(**gpu, baseline, rows); }},
      {"calls", [&] { CallRows(**gpu, setup, rows); }},
      {"training", [&] { TrainingRows(**gpu, setup, baseline, rows); }},
      {"decode", [&] { DecodeRows(**gpu, setup, baseline, rows); }}};
  for (const auto& [topic, measure] : topics) {
    Measure(topic, {}, rows, measure);
    Write(rows, flags["--out"], facts);  // kept in case a later topic ends the program
  }
  if (compared && !baseline.there())  // the rows after that have no ratio
    rows.push_back({.name = "PyTorch", .failure = baseline.why()});
  std::filesystem::remove_all(directory);
  if (options.small)
    CheckDigests("opwire_bench_gpu", OPWIRE_SOURCE "/tests/bench/digests.json", rows);
  return Report(std::move(rows), flags["--out"], facts, options.small);
}

}  // namespace
}  // namespace opwire::bench

int main(int argc, char** argv) {
  using namespace opwire::bench;
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--jit-worker") return opwire::jit::WorkerMain(argc, argv);
  if (first == "--bare" && argc == 3) return Bare(argv[2]);
  const GpuOptions defaults;
  std::map<std::string, std::string> flags = {{"--build", "build"},
                                              {"--out", ""},
                                              {"--only", ""},
                                              {"--rounds", ""},
                                              {"--device", defaults.device},
                                              {"--scale", "full"},
                                              {"--python", defaults.python},
                                              {"--baseline", defaults.baseline}};
  for (int i = 1; i < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    if (flag == flags.end() || i + 1 == argc) return fmt::print(stderr, "{}", kUsage), 2;
    flag->second = argv[i + 1];
  }
  return Run(flags);
}
