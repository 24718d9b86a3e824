// opwire_bench: runs the benchmarks and writes their table and bench.json. `make bench` calls it.
//
//   opwire_bench --build build --out build/bench.json [--scale small|full] [--only FAMILY]
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "tests/bench/bench.h"

namespace {

int Usage() {
  fmt::print(stderr,
             "opwire_bench [--build FOLDER] [--out FILE] [--scale small|full] [--only "
             "wire|compute|training|python|system|jit]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace opwire;
  using namespace opwire::bench;
  std::string build = "build", out, only, scale = "full";
  for (int i = 1; i < argc; i += 2) {
    std::string* const to = !std::strcmp(argv[i], "--build")   ? &build
                            : !std::strcmp(argv[i], "--out")   ? &out
                            : !std::strcmp(argv[i], "--only")  ? &only
                            : !std::strcmp(argv[i], "--scale") ? &scale
                                                               : nullptr;
    if (!to || i + 1 == argc) return Usage();
    *to = argv[i + 1];
  }
  constexpr std::string_view kGroups[] = {"",       "wire",   "compute", "training",
                                          "python", "system", "jit"};
  if (std::ranges::find(kGroups, only) == std::end(kGroups)) return Usage();
  if (scale != "small" && scale != "full") return Usage();
  build = std::filesystem::absolute(build);  // programs are started in folders of their own
  char directory[] = "/tmp/opwire-bench-XXXXXX";
  if (!mkdtemp(directory)) return 1;
  setenv("OPWIRE_RUNTIME_DIR", directory, 1);
  setenv("OPWIRE_CACHE", (std::string(directory) + "/cache").c_str(), 1);
  const Setup setup{build, directory, scale == "small"};
  std::vector<Row> rows;
  const auto selected = [&](std::string_view family) { return only.empty() || only == family; };
  Facts facts;
  if (!setup.small) {
    const double wake = FutexWakeMicros(), scaling = ThreadScaling();
    fmt::print(
        "a futex wakes another process in {:.1f} us a round trip; two threads do {:.2f} times the "
        "work of one\n",
        wake, scaling);
    if (scaling < 1.8)
      fmt::print("below 1.8: figures of kernels on this machine are to be discarded now\n");
    facts = {{"futex_round_trip_us", wake}, {"thread_scaling", scaling}};
  }
  {
    Child registry({build + "/bin/opwire-registry", "--log-level", "error"});
    Child executor({build + "/bin/opwire-executor", "--name", "bench",
                    "--limit-sessions-per-principal", "128", "--log-level", "error"});
    const auto lost = [&](const char* program, Child& child) {
      if (!child.Running()) rows.push_back({.name = program, .failure = "the process ended"});
    };
    if (selected("wire")) {
      Child tcp({build + "/bin/opwire-executor", "--name", "bench-tcp", "--listen",
                 "tcp://127.0.0.1:47112", "--insecure", "--log-level", "error"});
      Measure("wire", {}, rows, [&] { WireRows(setup, rows); });
      lost("opwire-executor for tcp", tcp);
    }
    if (selected("system")) {
      Measure("system", {"idle_executor", "idle_registry"}, rows, [&] {
        OpenOn("bench", true);
        const useconds_t pause = setup.Scaled(1'500'000, 50'000),
                         watched = setup.Scaled(1'000'000, 100'000);
        usleep(pause);
        for (const auto& [name, child] :
             {std::pair<const char*, const Child*>{"idle_executor", &executor},
              {"idle_registry", &registry}}) {
          rows.push_back(Compare(
              setup, name, "% of a core", "",
              [&, child = child] {
                const double before = child->CpuSeconds();
                usleep(watched);
                return 1e8 * (child->CpuSeconds() - before) / watched;
              },
              nullptr));
          rows.back().target = 1;
          rows.back().target_is_ratio = false;
        }
      });
      Measure("system", {}, rows, [&] { SystemRows(setup, rows); });
    }
    if (selected("compute")) Measure("compute", {}, rows, [&] { ComputeRows(setup, rows); });
    if (selected("training")) Measure("training", {}, rows, [&] { TrainingRows(setup, rows); });
    if (selected("python")) Measure("python", {}, rows, [&] { PythonRows(setup, rows); });
    if (selected("jit")) Measure("jit", {}, rows, [&] { JitRows(setup, rows); });
    lost("opwire-executor", executor);
    lost("opwire-registry", registry);
  }
  std::filesystem::remove_all(directory);
  if (setup.small) CheckDigests("opwire_bench", OPWIRE_SOURCE "/tests/bench/digests.json", rows);
  return Report(std::move(rows), out, facts, setup.small);
}
