// opwire-executor: binds one accelerator and runs programs on it.
#include <sodium.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "executor/ops/command.h"
#include "executor/ops/trial.h"
#include "executor/ops/user_ops.h"
#include "executor/serve/ahead.h"
#include "executor/serve/device_thread.h"
#include "executor/serve/devices.h"
#include "executor/serve/host_thread.h"
#include "executor/serve/info.h"
#include "executor/serve/name_lock.h"
#include "executor/serve/ring_door.h"
#include "ir/base/cpu_quota.h"
#include "ir/base/json.h"
#include "ir/ops/names.h"
#include "ir/ops/parse_exit.h"
#include "ir/wire/accept.h"
#include "ir/wire/descriptors.h"
#include "ir/wire/endpoint.h"
#include "ir/wire/log.h"
#include "ir/wire/signals.h"
#include "kernels/fused/fuser.h"
#include "kernels/jit/worker.h"
#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/libraries.h"
#include "kernels/select/choices.h"

namespace opwire::executor {
namespace {

struct Flags {
  std::string device = "cpu", name, listen, authorized, cores, data, ahead, level = "info";
  std::vector<std::string> registries, labels;
  bool insecure = false, share = false, no_arena = false, no_ring = false, no_fusion = false;
  double drain_timeout = 10, kernel_timeout = 0;
  int64_t slice_us = 500;
  ExecutorLimits limits;
  UserOpsOptions ops;
};

enum : int { kCannotStart = 1, kUsage = 2, kDeviceRefused = 3 };
constexpr size_t kIdBytes = 128;

int Fail(int code, const Status& status) {
  fmt::print(stderr, "opwire-executor: {}\n", Printable(MessageOf(status)));
  return code;
}

// The largest meaningful value of a limit.
int64_t MostOf(const ExecutorLimit& row) {
  if (row.id == LimitId::kRank) return kMaxRank;
  if (row.name.ends_with("-seconds")) return int64_t{1} << 32;
  if (row.name.ends_with("-percent")) return 100;
  return int64_t{1} << 40;
}

void AddFlags(CLI::App& app, Flags& f) {
  app.add_option("--device", f.device,
                 "cpu, cuda:N, cuda:UUID, emu:N (GPU kernels on the CPU, for checks), or auto: the "
                 "first accelerator, else the cpu")
      ->capture_default_str();
  app.add_option("--registry", f.registries,
                 "A registry to register with; may be given again (default: OPWIRE_REGISTRY, else "
                 "the user's own)");
  app.add_option("--name", f.name, "This executor's id (default: the device and random letters)");
  app.add_option(
      "--listen", f.listen,
      "tcp://HOST:PORT for clients elsewhere (default: ipc in the user's runtime directory)");
  app.add_option(
      "--authorized", f.authorized,
      "Over tcp: a file of keys that may come, lines of KEY NAME use|execute|admin (opwire keys)");
  app.add_flag("--insecure", f.insecure, "Over tcp: without encryption, for everybody");
  app.add_flag("--share", f.share, "Serve other users too");
  app.add_option("--label", f.labels, "A label that clients may ask for; may be given again");
  app.add_option(
      "--cores", f.cores,
      "Cores that the device cpu binds, as 0-3,6 (default: all that this process may use)");
  app.add_option("--data", f.data, "Directory for save and load (default: none, both are refused)")
      ->check(CLI::ExistingDirectory);
  app.add_option("--ops", f.ops.directories,
                 "Folder of a user's op, or of such folders; may be given again (default: none)")
      ->check(CLI::ExistingDirectory);
  app.add_option("--prefer", f.ops.steering.prefer,
                 "A variant that comes first if it can run: OP@VARIANT, or VARIANT for all ops; "
                 "may be given again");
  app.add_option("--forbid", f.ops.steering.forbid,
                 "A variant that is never run, as --prefer; may be given again");
  app.add_flag("--deterministic", f.ops.steering.deterministic,
               "Only variants that give equal bits every time, in their fixed order");
  app.add_flag("--no-fusion", f.no_fusion, "Run every node by a kernel of its own");
  app.add_option("--cache", f.ops.cache.directory,
                 "Directory of what was built (default: OPWIRE_CACHE, else opwire in the user's "
                 "cache directory)");
  app.add_option("--ahead", f.ahead,
                 "In the background, compile the kernels that most programs use: on or off "
                 "(default: on for GPUs)")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--drain-timeout", f.drain_timeout,
                 "Seconds that running work may take after SIGTERM")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_option("--kernel-timeout", f.kernel_timeout,
                 "Seconds after which a kernel is a device fault; 0: never")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_option("--slice-us", f.slice_us, "Microseconds that one session runs while others wait")
      ->check(CLI::Range(10, 10000))
      ->capture_default_str();
  app.add_flag("--no-arena", f.no_arena, "Give every value memory of its own, for sanitizers");
  app.add_flag("--no-ring", f.no_ring, "Offer no shared-memory ring");
  app.add_option("--log-level", f.level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  for (const ExecutorLimit& row : kExecutorLimits) {
    app.add_option("--limit-" + std::string(row.name), f.limits[row.id],
                   "Limit: " + std::string(row.doc))
        ->check(CLI::Range(int64_t{row.id == LimitId::kPackedMemoryPercent ? 0 : 1}, MostOf(row)))
        ->capture_default_str()
        ->group("Limits");
  }
}

std::string RandomName(const std::string& device) {
  uint32_t r;
  randombytes_buf(&r, sizeof(r));
  std::string kind = device;
  for (char& c : kind) {
    if (c == ':') c = '-';
  }
  return fmt::format("{}-{:06x}", kind, r & 0xffffff);
}

fb::ExecutorInfoT InfoOf(const Flags& f, const CoreOptions& core, const Device& device,
                         const KernelSet& kernels, const std::string& control_endpoint) {
  const DeviceInfo& d = device.info();
  fb::ExecutorInfoT info;
  info.id = core.executor_id;
  info.incarnation = core.incarnation;
  info.control_endpoint = control_endpoint;
  info.device = SpecOf(d);
  info.device_name = d.name;
  info.arch = d.arch;
  info.memory_bytes = d.memory_bytes;
  info.compute_units = d.compute_units;
  info.labels = f.labels;
  for (const auto& [key, value] : d.facts) {
    auto fact = std::make_unique<fb::KeyValueT>();
    fact->key = key;
    fact->value = value;
    info.facts.push_back(std::move(fact));
  }
  info.ops = OpEntries(kernels);
  info.uid = getuid();
  info.insecure = f.insecure;
  return info;
}

// The conditions under which a measured cost is valid.
std::string ContextOf(const DeviceInfo& d) {
  std::string out = fmt::format("opwire {} on {} {}, {}, {} units", OPWIRE_VERSION, d.kind, d.name,
                                d.arch, d.compute_units);
  for (const auto& [name, value] : d.facts) out += fmt::format(", {} {}", name, value);
  return out;
}

// Holds a set of kernels until it has a receiver.
class Inbox {
 public:
  using Take = std::function<void(const std::shared_ptr<const KernelSet>&)>;
  void Deliver(std::shared_ptr<const KernelSet> set) {
    std::lock_guard lock(mutex_);
    if (take_)
      take_(set);
    else
      waiting_ = std::move(set);
  }
  void Open(Take take) {
    std::lock_guard lock(mutex_);
    take_ = std::move(take);
    if (take_ && waiting_) take_(std::exchange(waiting_, nullptr));
  }
  void Close() { Open(nullptr); }

 private:
  std::mutex mutex_;
  Take take_;
  std::shared_ptr<const KernelSet> waiting_;
};

// Why an executor of this device compiles nothing ahead, given the value of --ahead; null: it does
// compile.
const char* WhyNotAhead(const DeviceInfo& device, const std::string& given) {
  if (device.host_memory) return "this device's kernels are a part of the executor";
  if (given == "off") return "by --ahead off";
  if (given.empty() && device.kind == "emu")
    return "not without --ahead on: this device is for checks";
  return nullptr;
}

// A name is a part of paths in the runtime directory, for all addresses on which the executor
// listens.
Status CheckId(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return InvalidArgument("--name {}: expected no '/'", name);
  return CheckName("an executor", name, kIdBytes);
}

int Serve(const Flags& f, TerminationSignals& signals) {
  auto directory = RuntimeDirectory();
  if (!directory.ok()) return Fail(kCannotStart, directory.status());
  std::vector<std::string> registries = f.registries;
  if (const char* env = std::getenv("OPWIRE_REGISTRY"); registries.empty() && env && *env)
    registries.push_back(env);
  if (registries.empty()) registries.push_back("ipc://" + *directory + "/registry");
  for (const std::string& r : registries) {
    if (Status s = CheckEndpoint(r); !s.ok()) return Fail(kUsage, s);
  }
  const std::string name = f.name.empty() ? RandomName(f.device) : f.name;
  std::string control_at = fmt::format("ipc://{}/{}.ctl", *directory, name),
              run_at = fmt::format("ipc://{}/{}.run", *directory, name);
  if (Status s = CheckId(name); !s.ok()) return Fail(kUsage, s);
  const bool tcp = !f.listen.empty();
  if (tcp) {
    if (IsIpc(f.listen)) {
      return Fail(kUsage, InvalidArgument("--listen {}: expected tcp://HOST:PORT; over ipc "
                                          "executors always listen in the runtime directory, {}",
                                          f.listen, *directory));
    }
    if (Status s = CheckEndpoint(f.listen); !s.ok()) return Fail(kUsage, s);
    control_at = f.listen;
    run_at = f.listen.substr(0, f.listen.rfind(':')) + ":*";
  } else if (!CheckEndpoint(control_at).ok()) {
    return Fail(kUsage,
                InvalidArgument("--name {}: its socket {}/{}.ctl would have a longer path than the "
                                "system takes; take a shorter name, or set OPWIRE_RUNTIME_DIR to a "
                                "shorter directory",
                                name, *directory, name));
  }

  if (!f.cores.empty() && f.device != "cpu")
    return Fail(kUsage,
                InvalidArgument("--cores: expected the device cpu, whose threads it binds, got {}",
                                f.device));
  auto device = OpenDevice(f.device, {.cores = f.cores});
  if (!device.ok())
    return Fail(absl::IsInvalidArgument(device.status()) ? kUsage : kDeviceRefused,
                device.status());

  if (const DeviceInfo& info = (*device)->info(); !HasKernels(info.kind) && info.kind != "null") {
    return Fail(kDeviceRefused, Unimplemented("device '{}' ({}): this build has no kernels for it",
                                              f.device, info.name));
  }
  if (f.no_arena && !(*device)->info().host_memory) {
    return Fail(kUsage,
                InvalidArgument("--no-arena: expected a device whose memory is the host's, got {}",
                                f.device));
  }

  const auto lock = NameLock::Take(*directory, name);
  if (!lock.ok()) return Fail(kCannotStart, lock.status());
  // Run and control have contexts of their own, so that bulk never delays a run.
  ZmqContext run_context, control_context;
  auto control_guard = control_context.Guard(control_at, f.insecure, f.authorized),
       run_guard = run_context.Guard(run_at, f.insecure, f.authorized);
  if (!control_guard.ok()) return Fail(kUsage, control_guard.status());
  if (!run_guard.ok()) return Fail(kUsage, run_guard.status());
  const auto budget = BudgetDescriptors(RaiseDescriptorLimit(), f.limits[LimitId::kSessions]);
  if (!budget.ok()) return Fail(kCannotStart, budget.status());
  BoundAcceptedDescriptors(budget->accepted);
  control_guard->max_connections = run_guard->max_connections = budget->connections;
  run_guard->own_user_only = !f.share;  // control tells others the reason
  // An executor that was killed keeps its socket until the kernel has freed its memory.
  auto control = Router::Bind(control_context, control_at, *control_guard);
  for (int i = 0; i < 20 && absl::IsAlreadyExists(control.status()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    control = Router::Bind(control_context, control_at, *control_guard);
  }
  if (!control.ok()) return Fail(kCannotStart, control.status());
  auto run = Router::Bind(run_context, run_at, *run_guard);
  if (!run.ok()) return Fail(kCannotStart, run.status());

  CoreOptions core;
  core.executor_id = name;
  randombytes_buf(&core.incarnation, sizeof(core.incarnation));
  core.run_endpoint = (*run)->endpoint();
  core.limits = f.limits;
  core.share = f.share;
  core.no_arena = f.no_arena;
  core.data_directory = f.data;
  core.slice = f.slice_us * kMicrosecond;
  HostOptions host;
  if (!tcp && !f.no_ring) {
    core.ring_path = fmt::format("{}/{}.ring", *directory, name);
    auto listener = ListenForRings(core.ring_path);
    if (!listener.ok()) return Fail(kCannotStart, listener.status());
    host.ring_listener = *listener;
    host.max_rings = budget->rings;
  }
  Death death;
  auto crash =
      CrashRecord::Open(fmt::format("{}/{}.crash", *directory, name), core.incarnation, death);
  if (!crash.ok()) return Fail(kCannotStart, crash.status());
  (*crash)->CatchFaults();
  if (death.fault)
    Log(LogLevel::kWarning, "the previous incarnation died in a kernel",
        {{"kernel", death.ToString()}});
  else if (death.any())
    Log(LogLevel::kWarning, "the previous incarnation was killed from outside during a run",
        {{"program_step", death.where}});

  host.registries = registries;
  host.claim = (*lock)->claim();
  // Threads that start before the two threads that receive their sets, and end after them.
  UserOpsOptions ops_options = f.ops;
  if (death.fault) ops_options.died = death.kernel;
  ops_options.died_of_time = death.fault == SIGXCPU;
  ops_options.context = ContextOf((*device)->info());
  if (!(*device)->info().host_memory) ops_options.device = device->get();
  core.on_device_fault = [record = crash->get()](const Status& why) {
    record->NoteFault(kDeviceFaultSignal);
    Log(LogLevel::kError, "the device failed",
        {{"why", MessageOf(why)}, {"last", record->label()}});
    _exit(HostThread::kDeviceFault);
  };
  Inbox inbox;
  KernelOptions kernel_options{.cache = f.ops.cache.directory};
  auto* const gpu =
      (*device)->info().host_memory ? nullptr : static_cast<gpu::GpuDevice*>(device->get());
  // Times of an emulated device are meaningless for other devices.
  if (gpu && (*device)->info().kind != "emu" && !f.ops.steering.deterministic) {
    const auto cache = jit::BuildCache::Open(f.ops.cache);
    kernel_options.choices =
        Choices::Open(cache.ok() ? (*cache)->directory() : "", ContextOf((*device)->info()));
  }
  if (gpu) kernel_options.code = gpu::MakeCode(*gpu, kernel_options);
  const std::shared_ptr<fused::Fuser> fuser =
      f.no_fusion ? nullptr : BuildFuser(**device, kernel_options);
  auto user_ops =
      UserOps::Start(std::move(ops_options),
                     {.fuser = fuser, .variants = BuildVariantTable(**device, kernel_options)},
                     [&](auto set) { inbox.Deliver(std::move(set)); });
  if (!user_ops.ok()) return Fail(kUsage, user_ops.status());
  const char* const why_not = WhyNotAhead((*device)->info(), f.ahead);
  const auto ahead = why_not ? std::make_unique<AheadBuild>(why_not)
                             : std::make_unique<AheadBuild>(kernel_options.code,
                                                            [gpu, code = kernel_options.code] {
                                                              gpu::StartLibraries(*code);
                                                              return gpu::AheadUnits(*gpu);
                                                            });
  core.toolchains = [&] {
    nlohmann::json facts = ParseJson((*user_ops)->Facts());
    facts["ahead"] = ParseJson(ahead->Facts());
    return DumpJson(facts);
  };
  const std::shared_ptr<const KernelSet> kernels = (*user_ops)->current();

  host.info = InfoOf(f, core, **device, *kernels, (*control)->endpoint());
  if (death.any()) {
    auto fact = std::make_unique<fb::KeyValueT>();
    fact->key = "died";
    fact->value = death.ToString();
    host.info.facts.push_back(std::move(fact));
  }
  if (f.device == "auto") {
    auto fact = std::make_unique<fb::KeyValueT>();
    fact->key = "chosen";
    fact->value = WhyChosen(SpecOf((*device)->info()));
    host.info.facts.push_back(std::move(fact));
  }
  host.share = f.share;
  host.drain_timeout = static_cast<Nanos>(f.drain_timeout * kSecond);
  host.kernel_timeout = static_cast<Nanos>(f.kernel_timeout * kSecond);
  SetLogSource(name);
  Log(LogLevel::kInfo, "serving",
      {{"device", (*device)->info().kind},
       {"control", (*control)->endpoint()},
       {"run", core.run_endpoint}});

  HostThread host_thread(std::move(host), control_context, *std::move(control), crash->get());
  core.on_failed_run = [&](FailedRun failed) { host_thread.NoteFailedRun(std::move(failed)); };
  DeviceThread device_thread(
      core, *std::move(run), **device, kernels, crash->get(),
      [&](PeerId peer, std::string reply) { host_thread.SendControl(peer, std::move(reply)); });
  inbox.Open([&](const std::shared_ptr<const KernelSet>& set) {
    device_thread.Post([&, set] { device_thread.core().SetKernels(set); });
    host_thread.SetOps(set);
  });
  int code = 0;
  ahead->Start(UsableThreads() / 2);
  // The device was bound on this thread, so this remains the device thread.
  std::thread host_runner([&] { code = host_thread.Run(device_thread, signals.fd()); });
  device_thread.Run();
  host_runner.join();
  inbox.Close();
  Log(LogLevel::kInfo, "stopped", {{"code", std::to_string(code)}});
  const auto remove = [&](const char* suffix) {
    unlink(fmt::format("{}/{}.{}", *directory, name, suffix).c_str());
  };
  remove("crash");
  if (!tcp) {
    for (const char* suffix : {"ctl", "run", "ring"}) remove(suffix);
  }
  if (code == HostThread::kDrained) (*lock)->Remove();
  // Unfinished builds end with the process.
  if (!(*user_ops)->Settled() || !ahead->Settled() || (fuser && !fuser->Settled())) _exit(code);
  return code;
}

// `opwire-executor build`, `cache` and `devices`: these do not serve clients.
int CommandMain(int argc, char** argv) {
  CLI::App app(
      "Builds the ops of users, looks after what was built, and says which devices there are.",
      "opwire-executor");
  app.require_subcommand(1);
  BuildFlags build;
  CLI::App* builds = app.add_subcommand("build", "Build, check and measure the ops of folders");
  builds->add_option("directory", build.directories, "Folder of an op, or of such folders")
      ->required();
  builds->add_flag(
      "--all", build.all,
      "For older processors too; objects go into the folder, for machines without a compiler");
  builds->add_flag("--quick", build.quick, "Only a small case of each type, and no measurement");
  builds->add_option("--seed", build.seed, "Of the inputs")->capture_default_str();
  builds
      ->add_option("--device", build.device,
                   "Where kernels are checked and measured: cpu, cuda:0, emu:0; those for others "
                   "are compiled only")
      ->capture_default_str();
  builds->add_flag("--json", build.json, "Print JSON");
  builds->add_option("--cache", build.cache, "Directory of what was built");
  CacheFlags cache;
  CLI::App* caches = app.add_subcommand("cache", "What was built");
  caches->require_subcommand(1);
  CLI::App* show = caches->add_subcommand("list", "Every object, the latest used first");
  CLI::App* prune = caches->add_subcommand("prune", "Remove objects, the least lately used first");
  prune->add_option("--bytes", cache.bytes, "How much may stay")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  for (CLI::App* c : {show, prune}) {
    c->add_flag("--json", cache.json, "Print JSON");
    c->add_option("--cache", cache.directory, "Directory of what was built");
  }
  bool devices_json = false;
  CLI::App* devices =
      app.add_subcommand("devices", "What this machine has, and whether an executor can bind it");
  devices->add_flag("--json", devices_json, "Print JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return ExitOfParse(app, e, kUsage);
  }
  if (devices->parsed()) return ShowDevices(devices_json);
  if (builds->parsed()) return BuildOps(build);
  return prune->parsed() ? PruneCache(cache) : ShowCache(cache);
}

}  // namespace
}  // namespace opwire::executor

int main(int argc, char** argv) {
  using namespace opwire;
  using namespace opwire::executor;
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--jit-worker") return jit::WorkerMain(argc, argv);
  if (first == "--try-op") return TrialMain();
  if (first == "build" || first == "cache" || first == "devices") return CommandMain(argc, argv);
  TerminationSignals signals;
  CLI::App app(
      "Binds one accelerator and runs programs on it, for the frontends that ask.\n\nExample:\n  "
      "opwire-executor --device cpu\n  "
      "opwire-executor --device cpu --cores 0-3 --label fast --data ./tensors\n\nExit codes: 0 "
      "drained, 1 cannot start, 2 usage, 3 device refused, 4 "
      "device fault, 5 registry refused.",
      "opwire-executor");
  app.set_version_flag("--version", "opwire-executor " OPWIRE_VERSION);
  Flags flags;
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return ExitOfParse(app, e, kUsage);
  }
  if (sodium_init() < 0) return Fail(kCannotStart, Internal("libsodium does not start"));
  SetLogLevel(flags.level);
  return Serve(flags, signals);
}
