// opwire_bench: runs the benchmarks and writes their table and bench.json. `make bench` calls it.
//
//   opwire_bench --build build --out build/bench.json [--only
//   wire|compute|training|python|system|jit]
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "tests/bench/bench.h"

namespace {

int Usage() {
  fmt::print(stderr,
             "opwire_bench [--build FOLDER] [--out FILE] [--only "
             "wire|compute|training|python|system|jit]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace opwire;
  using namespace opwire::bench;
  std::string build = "build", out, only;
  for (int i = 1; i < argc; i += 2) {
    std::string* const to = !std::strcmp(argv[i], "--build")  ? &build
                            : !std::strcmp(argv[i], "--out")  ? &out
                            : !std::strcmp(argv[i], "--only") ? &only
                                                              : nullptr;
    if (!to || i + 1 == argc) return Usage();
    *to = argv[i + 1];
  }
  constexpr std::string_view kGroups[] = {"",       "wire",   "compute", "training",
                                          "python", "system", "jit"};
  if (std::ranges::find(kGroups, only) == std::end(kGroups)) return Usage();
  build = std::filesystem::absolute(build);  // programs are started in folders of their own
  char directory[] = "/tmp/opwire-bench-XXXXXX";
  if (!mkdtemp(directory)) return 1;
  setenv("OPWIRE_RUNTIME_DIR", directory, 1);
  setenv("OPWIRE_CACHE", (std::string(directory) + "/cache").c_str(), 1);
  const Setup setup{build, directory};
  std::vector<Row> rows;
  const double wake = FutexWakeMicros(), scaling = ThreadScaling();
  fmt::print(
      "a futex wakes another process in {:.1f} us a round trip; two threads do {:.2f} times the "
      "work of one\n",
      wake, scaling);
  if (scaling < 1.8)
    fmt::print("below 1.8: figures of kernels on this machine are to be discarded now\n");
  {
    Child registry({build + "/bin/opwire-registry", "--log-level", "error"});
    Child executor({build + "/bin/opwire-executor", "--name", "bench",
                    "--limit-sessions-per-principal", "128", "--log-level", "error"});
    {
      Child tcp({build + "/bin/opwire-executor", "--name", "bench-tcp", "--listen",
                 "tcp://127.0.0.1:47112", "--insecure", "--log-level", "error"});
      if (only.empty() || only == "wire") WireRows(setup, rows);
    }
    if (only.empty() || only == "system") {
      OpenOn("bench", true);
      usleep(1'500'000);
      for (const auto& [name, child] :
           {std::pair<const char*, const Child*>{"idle_executor", &executor},
            {"idle_registry", &registry}}) {
        rows.push_back(Compare(
            name, "% of a core", "",
            [child = child] {
              const double before = child->CpuSeconds();
              usleep(1'000'000);
              return 100 * (child->CpuSeconds() - before);
            },
            nullptr));
        rows.back().target = 1;
        rows.back().target_is_ratio = false;
      }
      SystemRows(setup, rows);
    }
    if (only.empty() || only == "compute") ComputeRows(setup, rows);
    if (only.empty() || only == "training") TrainingRows(rows);
    if (only.empty() || only == "python") PythonRows(setup, rows);
    if (only.empty() || only == "jit") JitRows(setup, rows);
  }
  std::filesystem::remove_all(directory);

  Report(rows, out, {{"futex_round_trip_us", wake}, {"thread_scaling", scaling}});
  return 0;
}
