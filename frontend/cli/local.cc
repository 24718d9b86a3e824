// Commands that run the executor program, because it has compilers, kernels and drivers: opwire
// build, cache and devices --here. Also new-op, which writes a folder for build.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "frontend/cli/cli.h"
#include "frontend/cli/facts.h"
#include "ir/ops/declaration.h"
#include "ir/ops/names.h"

namespace opwire::cli {
namespace {

constexpr std::string_view kManifest = R"({
  // Programs call it user.NAME.
  "name": "NAME",
  "doc": "x + bias.",
  // Equal names are equal extents; '...' stands for any leading ones: "x: T[..., N]".
  "signature": "x: T[M, N], bias: T[N] -> y: T[M, N]",
  "types": {"T": ["f32", "f64"]},
  // What the op means, as a program: it answers until the sources are built, and judges what they compute.
  "reference": "reference.opw",
  "variants": {
    "simd": {"backend": "cpu", "sources": ["NAME.cc"]}
  },
  // Sizes to try beside those that `opwire build` makes up, and those to measure with.
  "tests": [{"M": 3, "N": 17}],
  "bench": {"M": 2048, "N": 2048}
}
)";

constexpr std::string_view kReference =
    R"(program @reference(%x: T[?M, ?N], %bias: T[?N]) -> (y: T[?M, ?N]) {
  %0 = add(%x, %bias)
  return %0
}
)";

constexpr std::string_view kSource = R"(// user.NAME on a CPU.
#include <opwire/abi.h>

namespace {

template <typename T>
struct Rows {
  const T *x, *bias;
  T* y;
  int64_t n;

  // Rows begin to end.
  static void Compute(void* context, int64_t begin, int64_t end) {
    const Rows& r = *static_cast<const Rows*>(context);
    for (int64_t m = begin; m < end; ++m) {
      const T* x = r.x + m * r.n;
      T* y = r.y + m * r.n;
      for (int64_t i = 0; i < r.n; ++i) y[i] = x[i] + r.bias[i];
    }
  }
};

template <typename T>
int Run(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  Rows<T> rows{static_cast<const T*>(c->operands[0].data), static_cast<const T*>(c->operands[1].data), static_cast<T*>(y.data), y.shape[1]};
  const int64_t grain = y.shape[1] > 0 ? 16384 / y.shape[1] + 1 : 1;
  c->runtime->parallel_for(c->runtime, y.shape[0], grain, Rows<T>::Compute, &rows);
  return OPW_OK;
}

int RunAny(const opw_call* c) { return c->results[0].dtype == OPW_F32 ? Run<float>(c) : Run<double>(c); }

}  // namespace

// Dense operands only; equal bits every time.
OPW_KERNEL = {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, 0, 0, 0, RunAny, 0};
)";

std::string WithName(std::string_view text, const std::string& name) {
  std::string out(text);
  for (size_t at = 0; (at = out.find("NAME", at)) != out.npos; at += name.size())
    out.replace(at, 4, name);
  return out;
}

// Runs the executor program in the current directory. Its output and exit code are those of this
// command.
Status RunExecutor(std::vector<std::string> args) {
  std::string program = Locate("opwire-executor");
  std::vector<char*> argv{program.data()};
  for (std::string& a : args) argv.push_back(a.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return ResourceExhausted("no process can be made: {}", std::strerror(errno));
  if (pid == 0) {
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return WithNext(NotFound("{} cannot be run", program),
                    "install it beside opwire, or put it on the PATH");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
    return WithNext(Usage("{} took none of it", args[0]), "see what it said above");
  return WithNext(Internal("opwire {}: something failed", args[0]), "see what it said above");
}

}  // namespace

Status NewOp(const Common& common, const NewOpArgs& args) {
  const OpDeclaration probe{.name = std::string(kUserPrefix) + args.name,
                            .signature = "x: f32[N] -> y: f32[N]"};
  if (const auto row = RowOf(probe); !row.ok())
    return WithNext(AsUsage(row.status()), "opwire new-op gelu_bias");
  const std::filesystem::path folder =
      std::filesystem::path(args.directory.empty() ? "." : args.directory) / args.name;
  std::error_code error;
  if (std::filesystem::exists(folder, error)) return Usage("{} is there already", folder.string());
  std::filesystem::create_directories(folder, error);
  if (error) return Usage("{}: {}", folder.string(), error.message());
  // Other users must not change code that an executor runs.
  std::filesystem::permissions(
      folder, std::filesystem::perms::group_write | std::filesystem::perms::others_write,
      std::filesystem::perm_options::remove, error);
  const std::pair<std::string, std::string_view> files[] = {
      {"op.json", kManifest}, {"reference.opw", kReference}, {args.name + ".cc", kSource}};
  for (const auto& [name, text] : files) {
    std::ofstream file(folder / name);
    file << WithName(text, args.name);
    file.close();
    if (!file) return DataLoss("{} cannot be written", (folder / name).string());
    std::filesystem::permissions(
        folder / name, std::filesystem::perms::group_write | std::filesystem::perms::others_write,
        std::filesystem::perm_options::remove, error);
  }
  if (common.json) {
    PrintJsonLine({{"op", "user." + args.name}, {"folder", folder.string()}});
    return absl::OkStatus();
  }
  fmt::print(
      "{}: op.json says what user.{} takes and gives, reference.opw what it means, {}.cc computes "
      "it\n  build and check it: opwire build {}\n"
      "  offer it:           opwire-executor --device cpu --ops {}\n",
      folder.string(), args.name, args.name, folder.string(), folder.string());
  return absl::OkStatus();
}

Status Build(const Common& common, const BuildArgs& args) {
  std::vector<std::string> argv{"build"};
  if (args.all) argv.push_back("--all");
  if (args.quick) argv.push_back("--quick");
  if (args.seed != 1) argv.push_back(fmt::format("--seed={}", args.seed));
  if (!common.device.empty()) argv.push_back(fmt::format("--device={}", common.device));
  if (common.json) argv.push_back("--json");
  argv.push_back("--");
  argv.insert(argv.end(), args.directories.begin(), args.directories.end());
  return RunExecutor(std::move(argv));
}

Status Cache(const Common& common, const CacheArgs& args) {
  std::vector<std::string> argv{"cache", args.prune ? "prune" : "list"};
  if (args.prune) argv.push_back(fmt::format("--bytes={}", args.bytes));
  if (common.json) argv.push_back("--json");
  return RunExecutor(std::move(argv));
}

Status DevicesHere(const Common& common) {
  std::vector<std::string> argv{"devices"};
  if (common.json) argv.push_back("--json");
  return RunExecutor(std::move(argv));
}

}  // namespace opwire::cli
