// Compiles every GPU kernel of the catalogue for architectures of GPUs that this machine need not
// have. Reports the resources of each kernel: registers, spills, shared memory.
//
//   gpu_compile --out kernels.json --table registers.txt sm_80=f32,bf16,i32,bool sm_90a gfx90a
//
// With --cache DIRECTORY the resources of compiled units are kept there (kernels/jit/cache.h) and
// found by the next run. All checks are the same for units that were found.
//
// Fails if a kernel does not compile, or spills more than kMostSpilled and is not in kAllowed. Also
// fails if it takes more registers than the table has for the same argument. --update replaces the
// entries of these arguments. --update with --only raises them.
//   gpu_compile --ahead sm_90a
//
// compiles the kernels that executors compile ahead (kernels/ops/gpu/ahead.h) instead, in their
// units, and reports the resources of each unit.
#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "kernels/jit/cache.h"
#include "kernels/jit/toolchain.h"
#include "kernels/jit/worker.h"
#include "kernels/ops/gpu/ahead.h"
#include "tests/conformance/compile/plans.h"
#include "tests/conformance/compile/registers.h"
#include "tests/conformance/compile/resource_compiler.h"
#include "tests/conformance/compile/resources.h"
#include "tests/folder.h"

namespace opwire::conformance {
namespace {

constexpr size_t kKernelsPerUnit = 40;
constexpr size_t kFailuresShown = 5;
constexpr int kJobs = 2;
constexpr int kMostSpilled = 64;  // bytes per thread
// A compilation's limit is one of processor time, which other work on the machine does not change.
// The limit of wall time is for a compiler that waits for ever.
constexpr double kCpuSeconds = 600, kWallSeconds = 3600;

// Kernels that may spill more on any architecture, each with its reason.
struct Allowed {
  std::string_view kernel;  // a prefix of its name
  int bytes;
  std::string_view reason;
};
constexpr std::string_view kOuterLoops =
    "sizes and addresses of the loops around the products, on sm_80: 2 blocks a multiprocessor";
constexpr Allowed kAllowed[] = {
    {"kernels/ops/attention/gpu.cuh attention::Forward<", 128, kOuterLoops},
};

// Returns null if kMostSpilled applies.
const Allowed* AllowanceOf(std::string_view kernel) {
  const auto it = std::ranges::find_if(
      kAllowed, [&](const Allowed& a) { return kernel.starts_with(a.kernel); });
  return it == std::end(kAllowed) ? nullptr : it;
}

// Returns the folder of the prelude: "softmax", "fused".
std::string FamilyOf(const gpu::KernelText& kernel) {
  return std::filesystem::path(kernel.prelude).parent_path().filename();
}

struct Compiled {
  const gpu::KernelText* kernel;
  Resources takes;
};

// All kernels of one architecture.
class Architecture {
 public:
  Architecture(std::string arch, jit::Toolchain& toolchain, jit::BuildCache& cache,
               std::vector<gpu::KernelText> kernels)
      : arch_(std::move(arch)), toolchain_(toolchain), cache_(cache), kernels_(std::move(kernels)) {
    std::ranges::stable_sort(kernels_, {}, &gpu::KernelText::prelude);
    for (size_t begin = 0; begin < kernels_.size();) {
      size_t end = begin;
      while (end < kernels_.size() && end - begin < kKernelsPerUnit &&
             kernels_[end].prelude == kernels_[begin].prelude)
        ++end;
      units_.push_back(std::span(kernels_).subspan(begin, end - begin));
      begin = end;
    }
  }

  void CompileAll() {
    const auto begun = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < kJobs; ++i) {
      threads.emplace_back([this] {
        for (size_t u; (u = next_++) < units_.size();) CompileUnit(units_[u]);
      });
    }
    for (std::thread& t : threads) t.join();
    std::ranges::sort(compiled_, {}, [](const Compiled& c) { return c.kernel; });
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  }

  // Prints the resources by family, then the errors. Returns whether there is no error.
  bool Print() const {
    struct Family {
      int kernels = 0, most_registers = 0, spilling = 0;
    };
    std::map<std::string, Family> families;
    for (const Compiled& c : compiled_) {
      Family& f = families[FamilyOf(*c.kernel)];
      ++f.kernels;
      f.most_registers = std::max(f.most_registers, c.takes.registers);
      f.spilling += c.takes.spilled() > 0;
    }
    fmt::print(
        "{} by {}: {} kernels in {} units: {} found in the cache and {} compiled, {:.0f} s\n  "
        "{:12} {:>8} {:>15} {:>9}\n",
        arch_, toolchain_.facts().version, kernels_.size(), units_.size(), units_found_.load(),
        units_.size() - units_found_, seconds_, "family", "kernels", "most registers", "spilling");
    for (const auto& [name, f] : families)
      fmt::print("  {:12} {:8} {:15} {:9}\n", name, f.kernels, f.most_registers, f.spilling);
    bool well = failures_.empty();
    for (const Compiled& c : compiled_) {
      if (c.takes.spilled() == 0) continue;
      const Allowed* const allowed = AllowanceOf(c.kernel->name);
      const bool much = c.takes.spilled() > (allowed ? allowed->bytes : kMostSpilled);
      fmt::print("  {}: {} bytes with {} registers: {}{}\n", much ? "SPILLS TOO MUCH" : "spills",
                 c.takes.spilled(), c.takes.registers, c.kernel->name,
                 allowed ? fmt::format(" (allowed: {})", allowed->reason) : "");
      well = well && !much;
    }
    for (const std::string& failure :
         std::span(failures_).first(std::min(failures_.size(), kFailuresShown)))
      fmt::print("  FAILED: {}\n", failure);
    if (failures_.size() > kFailuresShown)
      fmt::print("  FAILED: {} more\n", failures_.size() - kFailuresShown);
    std::fflush(stdout);
    return well;
  }

  void NoteRegisters(std::string_view request, RegisterTable& table) const {
    for (const Compiled& c : compiled_)
      table.Note(request, FunctionOf(c.kernel->name), c.takes.registers);
  }

  nlohmann::json Json() const {
    nlohmann::json kernels = nlohmann::json::array();
    for (const Compiled& c : compiled_) {
      kernels.push_back({{"family", FamilyOf(*c.kernel)},
                         {"name", c.kernel->name},
                         {"registers", c.takes.registers},
                         {"spill_stores", c.takes.spill_stores},
                         {"spill_loads", c.takes.spill_loads},
                         {"stack", c.takes.stack},
                         {"shared", c.takes.shared}});
    }
    return {{"arch", arch_},
            {"model", ModelOf(arch_).name},
            {"toolchain", toolchain_.facts().version},
            {"seconds", seconds_},
            {"kernels", std::move(kernels)}};
  }

 private:
  struct UnitResources {
    ResourcesByKernel kernels;
    bool found = false;  // in the cache
  };

  StatusOr<UnitResources> Compile(std::span<const gpu::KernelText> unit) {
    jit::CompileRequest request;
    request.name = unit.size() == 1 ? unit[0].name
                                    : fmt::format("{} kernels of {}", unit.size(), unit[0].prelude);
    request.text = gpu::UnitOf(unit);
    request.arch = arch_;
    if (toolchain_.backend() == "cuda") request.flags = {kPtxasFlag};
    OPWIRE_ASSIGN_OR_RETURN(const jit::CacheEntry entry, cache_.Get(toolchain_, request));
    OPWIRE_ASSIGN_OR_RETURN(ResourcesByKernel kernels, ReadResources(entry.object));
    return UnitResources{std::move(kernels), !entry.built};
  }

  void CompileUnit(std::span<const gpu::KernelText> unit) {
    const StatusOr<UnitResources> resources = Compile(unit);
    if (!resources.ok()) return Blame(unit, resources.status());
    units_found_ += resources->found;
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < unit.size(); ++i) {
      const auto it = resources->kernels.find(fmt::format("k{}", i));
      if (it != resources->kernels.end() && it->second.registers > 0)
        compiled_.push_back({&unit[i], it->second});
      else
        failures_.push_back(
            fmt::format("{}: the compiler does not tell what it takes", unit[i].name));
    }
  }

  // Compiles each kernel alone, to find the first one that fails.
  void Blame(std::span<const gpu::KernelText> unit, const Status& status) {
    std::string failure;
    for (size_t i = 0; i < unit.size() && failure.empty(); ++i) {
      if (const Status alone = Compile(unit.subspan(i, 1)).status(); !alone.ok()) {
        failure = fmt::format("{}\n(one of {} kernels of a unit; those behind it were not tried)",
                              MessageOf(alone), unit.size());
      }
    }
    std::lock_guard lock(mutex_);
    failures_.push_back(failure.empty() ? MessageOf(status) : failure);
  }

  const std::string arch_;
  jit::Toolchain& toolchain_;
  jit::BuildCache& cache_;
  std::vector<gpu::KernelText> kernels_;
  std::vector<std::span<const gpu::KernelText>> units_;
  std::atomic<size_t> next_{0}, units_found_{0};
  double seconds_ = 0;
  std::mutex mutex_;  // guards the following members
  std::vector<Compiled> compiled_;
  std::vector<std::string> failures_;
};

// Parses "f32,bf16"; empty: all types. Returns nothing if a name is not a type.
std::optional<DTypeSet> TypesOf(std::string_view names) {
  DTypeSet types;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    int t = 1;
    while (t < kDTypeCount && DTypeName(static_cast<DType>(t)) != name) ++t;
    if (t == kDTypeCount) return std::nullopt;
    types = types | DTypeSet({static_cast<DType>(t)});
  }
  return types.Empty() ? kAll : types;
}

std::unique_ptr<jit::Toolchain> ToolchainFor(std::string_view arch) {
  const jit::ToolchainOptions options{
      .seconds = kWallSeconds, .cpu_seconds = kCpuSeconds, .memory_bytes = int64_t{8} << 30};
  return arch.starts_with("gfx") ? jit::Hiprtc(options) : jit::Nvrtc(options);
}

// Compiles the units of the list by kJobs processes at a time, and prints the seconds of each unit.
Status CompileAhead(const std::string& arch) {
  const std::unique_ptr<jit::Toolchain> toolchain = ToolchainFor(arch);
  if (!toolchain->facts().available())
    return FailedPrecondition("{}: {}", arch, toolchain->facts().reason);
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::GpuDevice> device, DeviceFor(arch));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<gpu::AheadUnit> units, gpu::AheadUnits(*device));
  std::vector<StatusOr<jit::CompiledObject>> objects(units.size(), Internal("not compiled"));
  const Folder folder;
  const auto begun = std::chrono::steady_clock::now();
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kJobs; ++i) {
    threads.emplace_back([&] {
      for (size_t u; (u = next++) < units.size();) {
        const std::string directory = fmt::format("{}/{}", folder.path(), u);
        std::filesystem::create_directory(directory);
        objects[u] = toolchain->Compile(
            {.name = units[u][0].prelude, .text = gpu::UnitOf(units[u]), .arch = arch}, directory);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  size_t kernels = 0;
  double longest = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    OPWIRE_RETURN_IF_ERROR(objects[u].status());
    fmt::print("  {:3} kernels of {:40} {:6.2f} s\n", units[u].size(), units[u][0].prelude,
               objects[u]->seconds);
    kernels += units[u].size();
    longest = std::max(longest, objects[u]->seconds);
  }
  fmt::print(
      "{} by {}: {} kernels in {} units, {:.1f} s by {} processes, the longest unit {:.2f} s\n",
      arch, toolchain->facts().version, kernels, units.size(), seconds, kJobs, longest);
  return absl::OkStatus();
}

// Compiles the kernels of one argument whose names contain `only`. Returns whether all is well. If
// it cannot compile them, `reason` says why.
bool Run(std::string_view argument, std::string_view only, jit::BuildCache& cache,
         nlohmann::json& out, RegisterTable& registers, std::string& reason) {
  const std::string arch(argument.substr(0, argument.find('=')));
  const std::optional<DTypeSet> types =
      TypesOf(argument.substr(std::min(argument.size(), arch.size() + 1)));
  if (!types) {
    reason = fmt::format("{}: expected names of element types behind the architecture", argument);
    return false;
  }
  const std::unique_ptr<jit::Toolchain> toolchain = ResourceCompiler(ToolchainFor(arch));
  if (!toolchain->facts().available()) {
    reason = fmt::format("{}: {}", arch, toolchain->facts().reason);
    return false;
  }
  StatusOr<std::vector<gpu::KernelText>> kernels = KernelsOf(arch, *types);
  if (!kernels.ok()) {
    reason = fmt::format("{}: {}", arch, MessageOf(kernels.status()));
    return false;
  }
  std::erase_if(*kernels,
                [&](const gpu::KernelText& k) { return k.name.find(only) == k.name.npos; });
  if (kernels->empty()) {
    reason = fmt::format("{}: no kernel's name contains '{}'", arch, only);
    return false;
  }
  Architecture architecture(arch, *toolchain, cache, *std::move(kernels));
  architecture.CompileAll();
  out.push_back(architecture.Json());
  architecture.NoteRegisters(argument, registers);
  return architecture.Print();
}

// Compares with the table, or updates it: replaces the entries of a request if `all` of its kernels
// were measured. Returns whether all is well.
bool CheckRegisters(const RegisterTable& measured, bool all, const std::string& file, bool update) {
  StatusOr<RegisterTable> table = RegisterTable::Read(file);
  if (update && absl::IsNotFound(table.status())) table = RegisterTable();
  if (table.ok() && update) {
    all ? table->Replace(measured) : table->Merge(measured);
    table = table->Write(file).ok()
                ? table
                : StatusOr<RegisterTable>(Internal("{} cannot be written", file));
  }
  if (!table.ok()) {
    fmt::print(stderr, "{}\n", MessageOf(table.status()));
    return false;
  }
  const std::vector<std::string> above = table->Above(measured);
  for (const std::string& one : above) fmt::print("  MORE REGISTERS: {}\n", one);
  if (!above.empty()) fmt::print("Where that is meant, write it down with --update.\n");
  return above.empty();
}

int Main(std::span<char*> arguments) {
  std::string file, table, only, directory;
  bool update = false;
  const auto option = [&](std::string_view name, std::string& value) {
    if (arguments.size() < 2 || arguments[0] != name) return false;
    value = arguments[1];
    arguments = arguments.subspan(2);
    return true;
  };
  if (arguments.size() > 1 && std::string_view(arguments[0]) == "--ahead") {
    if (sodium_init() < 0) return 2;
    for (const char* arch : arguments.subspan(1)) {
      const Status s = CompileAhead(arch);
      if (s.ok()) continue;
      fmt::print(stderr, "{}\n", MessageOf(s));
      return 1;
    }
    return 0;
  }
  const auto flag = [&](std::string_view name, bool& value) {
    if (arguments.empty() || arguments[0] != name) return false;
    arguments = arguments.subspan(1);
    return value = true;
  };
  while (option("--out", file) || option("--only", only) || option("--table", table) ||
         option("--cache", directory) || flag("--update", update)) {
  }
  if (arguments.empty() || (update && table.empty()) || sodium_init() < 0) {
    fmt::print(stderr,
               "gpu_compile [--out FILE] [--only PART-OF-A-NAME] [--table FILE] "
               "[--cache DIRECTORY] [--update] "
               "ARCH[=TYPE,...]...\ngpu_compile --ahead ARCH...\n");
    return 2;
  }
  const Folder folder;
  const StatusOr<std::unique_ptr<jit::BuildCache>> cache = jit::BuildCache::Open(
      {.directory = directory.empty() ? folder.path() : directory, .wait_seconds = kWallSeconds});
  if (!cache.ok()) {
    fmt::print(stderr, "{}\n", MessageOf(cache.status()));
    return 2;
  }
  bool well = true;
  nlohmann::json out = nlohmann::json::array();
  RegisterTable registers;
  for (const char* argument : arguments) {
    std::string reason;
    well = Run(argument, only, **cache, out, registers, reason) && well;
    if (reason.empty()) continue;
    fmt::print(stderr, "{}\n", reason);
    return 2;
  }
  if (!(*cache)->warning().empty()) fmt::print(stderr, "{}\n", (*cache)->warning());
  if (!table.empty()) well = CheckRegisters(registers, only.empty(), table, update) && well;
  if (!file.empty() && !(std::ofstream(file) << out.dump(1) << '\n')) {
    fmt::print(stderr, "{} cannot be written\n", file);
    return 2;
  }
  return well ? 0 : 1;
}

}  // namespace
}  // namespace opwire::conformance

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--jit-worker")
    return opwire::jit::WorkerMain(argc, argv);
  return opwire::conformance::Main({argv + 1, static_cast<size_t>(argc - 1)});
}
