// Building: an op through an empty and through a filled cache, a unit of GPU kernels through the
// worker, and executors with many ops.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <utility>

#include "frontend/cpp/placement.h"
#include "kernels/embedded.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/library.h"
#include "kernels/jit/toolchain.h"
#include "tests/bench/bench.h"

extern char** environ;

namespace opwire::bench {
namespace {

constexpr int kGpuKernels = 50;

constexpr const char* kOp = R"(#include <math.h>
#include <opwire/abi.h>

static void Loop(void* context, int64_t begin, int64_t end) {
  const opw_call* c = (const opw_call*)context;
  const float* x = (const float*)c->operands[0].data;
  const float* bias = (const float*)c->operands[1].data;
  float* y = (float*)c->results[0].data;
  const int64_t columns = c->operands[1].elements;
  for (int64_t i = begin; i < end; ++i) {
    const float v = x[i] + bias[i % columns];
    y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
  }
}

static int Run(const opw_call* c) {
  c->runtime->parallel_for(c->runtime, c->results[0].elements, 16384, Loop, (void*)c);
  return OPW_OK;
}

OPW_KERNEL = {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, 0, 0, 0, Run, 0};
)";

// Returns the milliseconds from the start of a program without output to its end.
double RunBare(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const std::string& a : argv) pointers.push_back(const_cast<char*>(a.c_str()));
  pointers.push_back(nullptr);
  const double begun = Seconds();
  pid_t pid;
  int status = -1;
  if (posix_spawn(&pid, pointers[0], nullptr, nullptr, pointers.data(), environ) != 0 ||
      waitpid(pid, &status, 0) != pid || status != 0) {
    Must(Internal("{} does not run", argv[0]));
  }
  return (Seconds() - begun) * 1e3;
}

void Host(const Setup& setup, std::vector<Row>& rows) {
  const std::string folder = setup.directory + "/jit";
  std::filesystem::create_directories(folder + "/include/opwire");
  std::filesystem::create_directories(folder + "/op");
  std::ofstream(folder + "/include/opwire/abi.h") << AbiHeader();
  std::ofstream(folder + "/op/gelu_bias.cc") << kOp;
  const auto cxx = jit::HostCompiler({});
  if (!cxx->facts().available()) {
    for (const char* name : {"build_cold", "build_cached"})
      rows.push_back({.name = name, .note = cxx->facts().reason});
    return;
  }
  jit::CompileRequest request;
  request.name = "bench.gelu_bias";
  request.directory = folder + "/op";
  request.sources = {"gelu_bias.cc"};
  request.arch = jit::HostArch();
  int round = 0;
  const auto cold = [&] {
    const auto cache =
        Must(jit::BuildCache::Open({.directory = fmt::format("{}/cold{}", folder, round++)}));
    const double begun = Seconds();
    Must(cache->Get(*cxx, request).status());
    return (Seconds() - begun) * 1e3;
  };
  const auto bare = [&] {
    return RunBare({cxx->facts().path, "-std=c++20", "-O3", "-fPIC", "-shared",
                    "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno",
                    "-march=" + request.arch, "-I", folder + "/include", "-o", folder + "/bare.so",
                    request.directory + "/gelu_bias.cc"});
  };
  rows.push_back(Compare(setup, "build_cold", "ms", "the bare compiler command", cold, bare));
  rows.back().target = 1.2;
  const auto cached = [&] {
    // As in a process that has just begun: it remembers no objects.
    const auto cache = Must(jit::BuildCache::Open({.directory = folder + "/cold0"}));
    const double begun = Seconds();
    const auto entry = cache->Find(*cxx, request);
    if (!entry) Must(Internal("what was built is not found"));
    const auto library = Must(jit::Library::Open(entry->object));
    return (Seconds() - begun) * 1e3;
  };
  rows.push_back(Compare(setup, "build_cached", "ms", "", cached, nullptr));
  rows.back().target = 2;
  rows.back().target_is_ratio = false;
}

// Distinct kernels of a few lines each, as fused elementwise code is.
std::string GpuUnit() {
  std::string text = "#include <opwire/gpu.h>\nusing namespace opw;\n";
  for (int i = 0; i < kGpuKernels; ++i) {
    text += fmt::format(
        "OPW_GLOBAL(256) fused{0}(const float* x, const bf16* y, float* z, i64 n) {{\n"
        "  for (i64 i = Index(); i < n; i += Stride()) {{\n"
        "    const float a = x[i], b = ToFloat(y[i]);\n"
        "    z[i] = Fma(a, b, {0}.5f) * Tanh(b + {0}.0f) {1} Exp(a * {2}.25f);\n"
        "  }}\n}}\n",
        i, i % 2 ? "+" : "-", i % 7);
  }
  return text;
}

// NVRTC without our code around it. Runs in a process of its own; exits with 0 if it compiled.
[[noreturn]] void BareNvrtc(const std::string& library, const std::string& text,
                            const std::string& out) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto create =
      reinterpret_cast<int (*)(void**, const char*, const char*, int, const char* const*,
                               const char* const*)>(dlsym(handle, "nvrtcCreateProgram"));
  const auto compile = reinterpret_cast<int (*)(void*, int, const char* const*)>(
      dlsym(handle, "nvrtcCompileProgram"));
  const auto size = reinterpret_cast<int (*)(void*, size_t*)>(dlsym(handle, "nvrtcGetCUBINSize"));
  const auto code = reinterpret_cast<int (*)(void*, char*)>(dlsym(handle, "nvrtcGetCUBIN"));
  const std::string header(GpuHeader());
  const char* const contents[] = {header.c_str()};
  const char* const names[] = {"opwire/gpu.h"};
  const char* const flags[] = {"--gpu-architecture=sm_90a", "--std=c++17", "--fmad=false"};
  void* program = nullptr;
  size_t bytes = 0;
  if (create(&program, text.c_str(), "unit", 1, contents, names) != 0 ||
      compile(program, 3, flags) != 0 || size(program, &bytes) != 0)
    _exit(1);
  std::string cubin(bytes, '\0');
  if (code(program, cubin.data()) != 0) _exit(1);
  std::ofstream(out, std::ios::binary)
      .write(cubin.data(), static_cast<std::streamsize>(bytes))
      .flush();
  _exit(0);
}

void Gpu(const Setup& setup, std::vector<Row>& rows) {
  const auto nvrtc = jit::Nvrtc({.worker = setup.build + "/bin/opwire-executor"});
  if (!nvrtc->facts().available()) {
    rows.push_back({.name = "rtc_unit", .note = nvrtc->facts().reason});
    return;
  }
  const std::string folder = setup.directory + "/rtc";
  std::filesystem::create_directories(folder);
  jit::CompileRequest request;
  request.name = "bench.unit";
  request.text = GpuUnit();
  request.arch = "sm_90a";
  const auto ours = [&] {
    const double begun = Seconds();
    Must(nvrtc->Compile(request, folder).status());
    return (Seconds() - begun) * 1e3;
  };
  const auto bare = [&] {
    const double begun = Seconds();
    const pid_t pid = fork();
    if (pid == 0) BareNvrtc(nvrtc->facts().path, request.text, folder + "/bare");
    int status = -1;
    if (waitpid(pid, &status, 0) != pid || status != 0)
      Must(Internal("bare NVRTC does not compile the unit"));
    return (Seconds() - begun) * 1e3;
  };
  rows.push_back(Compare(setup, "rtc_unit", "ms", "bare NVRTC in a bare process", ours, bare));
  rows.back().target = 1.1;
}

// Folders of small distinct ops, x * x + k * x element by element.
std::string WriteOps(const Setup& setup, int count) {
  const std::string ops = setup.directory + "/ops";
  for (int i = 0; i < count; ++i) {
    const std::string folder = fmt::format("{}/op{:03}", ops, i);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/op.json") << fmt::format(
        R"({{"name": "op{}", "signature": "x: f32[N] -> y: f32[N]", "reference": "reference.opw", "variants": {{"own": {{"sources": ["own.cc"]}}}}}})",
        i);
    const int adds = 1 + i % 8;
    std::string reference =
        "program @reference(%x: f32[?N]) -> (y: f32[?N]) {\n  %0 = mul(%x, %x)\n";
    for (int k = 1; k <= adds; ++k) reference += fmt::format("  %{} = add(%{}, %x)\n", k, k - 1);
    std::ofstream(folder + "/reference.opw")
        << reference << fmt::format("  return %{}\n}}\n", adds);
    std::ofstream(folder + "/own.cc") << fmt::format(R"(// Op {}.
#include <opwire/abi.h>

static int Run(const opw_call* c) {{
  const float* x = (const float*)c->operands[0].data;
  float* y = (float*)c->results[0].data;
  for (int64_t i = 0; i < c->results[0].elements; ++i) y[i] = x[i] * x[i] + {}.0f * x[i];
  return OPW_OK;
}}

OPW_KERNEL = {{OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, 0, 0, 0, Run, 0}};
)",
                                                     i, adds);
  }
  return ops;
}

// An executor that offers the ops, or none without `ops`; each has a name of its own.
struct OpsExecutor {
  OpsExecutor(const Setup& setup, const std::string& ops, const std::string& cache)
      : name(fmt::format("ops{}", count++)), begun(Seconds()), child(Argv(setup, ops, cache)) {}
  std::vector<std::string> Argv(const Setup& setup, const std::string& ops,
                                const std::string& cache) const {
    std::vector<std::string> argv{setup.build + "/bin/opwire-executor", "--name", name,
                                  "--log-level", "error"};
    if (!ops.empty()) argv.insert(argv.end(), {"--ops", ops, "--cache", cache});
    return argv;
  }
  // Waits until the registry lists it with `own` ops that run by their own code. Returns the
  // seconds since its start.
  double Ready(int own) const {
    Client client = Must(Client::Connect());
    bool there = false;  // asks for ops only afterwards, because that answer is large
    while (true) {
      for (const ExecutorFacts& e : Must(client.Executors(/*with_ops=*/there))) {
        if (e.id != name) continue;
        if (!std::exchange(there, true) && own > 0) break;
        int have = 0;
        for (const OpFacts& op : e.ops)
          have += std::ranges::find(op.variants, "own") != op.variants.end();
        if (have >= own) return Seconds() - begun;
      }
      if (Seconds() - begun > 600) Must(DeadlineExceeded("{} of the ops are not built", name));
      usleep(Seconds() - begun > 1 ? 100'000 : 1'000);
    }
  }
  // Returns the seconds from its start to the first answer of an op: relu, or the first of
  // WriteOps.
  double FirstAnswer(const std::string& op) const {
    Session session = OpenOn(name, true);
    const Program program = Must(session.Load(fmt::format(
        "program @p(%x: f32[?n]) -> (y: f32[?n]) {{\n  %0 = {}(%x)\n  return %0\n}}\n", op)));
    const Array x = Array::Random(DType::kF32, {16}, 1);
    const std::vector<Array> y = Must(program.Call({x}));
    const double seconds = Seconds() - begun;
    Array expected = x;
    for (float& v : expected.values<float>()) v = op == "relu" ? std::max(v, 0.0f) : v * v + v;
    MustAgree(y, {expected}, 1e-6);
    return seconds;
  }

  static inline int count = 0;
  std::string name;
  double begun;
  Child child;
};

void ManyOps(const Setup& setup, std::vector<Row>& rows) {
  const auto cxx = jit::HostCompiler({});
  if (!cxx->facts().available()) {
    for (const char* name : {"ops_first_request", "ops_cold", "ops_warm"})
      rows.push_back({.name = name, .note = cxx->facts().reason});
    return;
  }
  const int count = setup.Scaled(200, 2);
  const std::string ops = WriteOps(setup, count), cache = setup.directory + "/ops-cache";
  int round = 0;
  const auto first = [&] {
    return OpsExecutor(setup, ops, fmt::format("{}/ops-empty{}", setup.directory, round++))
               .FirstAnswer("user.op0") *
           1e3;
  };
  rows.push_back(Compare(setup, "ops_first_request", "ms", "an executor without such ops", first,
                         [&] { return OpsExecutor(setup, "", "").FirstAnswer("relu") * 1e3; }));
  rows.back().checked = true;  // by FirstAnswer
  rows.back().target = 300;
  rows.back().target_is_ratio = false;

  // Measured once: it takes as long as seven rounds of all others.
  Row cold{.name = "ops_cold",
           .value = OpsExecutor(setup, ops, cache).Ready(count),
           .unit = "s",
           .baseline_name = "bare compiler commands, two at a time",
           .target = 60,
           .target_is_ratio = false};
  const double begun = Seconds();
  const auto half = [&](int from) {
    for (int i = from; i < count; i += 2) {
      RunBare({cxx->facts().path, "-std=c++20", "-O3", "-fPIC", "-shared",
               "-march=" + jit::HostArch(), "-I", setup.directory + "/jit/include", "-o",
               fmt::format("{}/bare{}.so", setup.directory, from),
               fmt::format("{}/op{:03}/own.cc", ops, i)});
    }
  };
  std::future<void> other = std::async(std::launch::async, half, 1);
  half(0);
  other.get();
  cold.baseline = Seconds() - begun;
  rows.push_back(std::move(cold));

  rows.push_back(Compare(
      setup, "ops_warm", "ms", "an executor without such ops",
      [&] { return OpsExecutor(setup, ops, cache).Ready(count) * 1e3; },
      [&] { return OpsExecutor(setup, "", "").Ready(0) * 1e3; }));
  rows.back().target = 100;
  rows.back().target_is_ratio = false;
}

}  // namespace

void JitRows(const Setup& setup, std::vector<Row>& rows) {
  Measure("jit", {"build_cold", "build_cached"}, rows, [&] { Host(setup, rows); });
  Measure("jit", {"ops_first_request", "ops_cold", "ops_warm"}, rows,
          [&] { ManyOps(setup, rows); });
  Measure("jit", {"rtc_unit"}, rows, [&] { Gpu(setup, rows); });
}

}  // namespace opwire::bench
