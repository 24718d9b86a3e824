// opwire up: runs a registry and executors of this user, restarts them when they die, and stops
// them together.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "frontend/cli/cli.h"
#include "frontend/cli/facts.h"
#include "frontend/cpp/embedded.h"
#include "ir/base/owned_fd.h"
#include "ir/wire/endpoint.h"
#include "ir/wire/signals.h"
#include "ir/wire/zmq_channel.h"

namespace opwire::cli {
namespace {

constexpr Nanos kReadyWithin = 20 * kSecond;
constexpr off_t kMostLogBytes = 1 << 20;  // at its start

struct Child {
  std::string program;
  std::vector<std::string> args;
  pid_t pid = -1;
  Nanos started = 0;
  Nanos backoff = 0;
  Nanos restart_at = 0;
};

void Start(Child& c, Nanos now) {
  c.started = now;
  c.pid = fork();
  if (c.pid != 0) return;
  // Ends with this process, however this process ends.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<char*> argv;
  argv.push_back(c.program.data());
  for (std::string& a : c.args) argv.push_back(a.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

std::vector<ExecutorFacts> Registered(const std::string& registry) {
  if (!SomebodyListens(registry)) return {};
  auto client = Client::Connect({.registries = {registry}, .name = "opwire up", .patience_us = 0});
  if (!client.ok()) return {};
  auto there = client->Executors();
  return there.ok() ? *std::move(there) : std::vector<ExecutorFacts>();
}

// True once every executor is registered.
bool Ready(const std::string& registry, size_t executors) {
  return Registered(registry).size() >= executors;
}

// Checks once a second whether any executor has a session.
class IdleWatch {
 public:
  IdleWatch(const std::string& registry, int timeout_s)
      : registry_(registry), timeout_(timeout_s * kSecond) {}
  // Returns true if no executor had one for the whole time.
  bool Over(Nanos now) {
    if (timeout_ == 0 || now < next_look_) return false;
    next_look_ = now + kSecond;
    const std::vector<ExecutorFacts> executors = Registered(registry_);
    const bool used = std::any_of(executors.begin(), executors.end(),
                                  [](const ExecutorFacts& e) { return e.sessions > 0; });
    if (used || last_used_ == 0) last_used_ = now;
    return now - last_used_ >= timeout_;
  }

 private:
  const std::string registry_;
  const Nanos timeout_;
  Nanos last_used_ = 0;
  Nanos next_look_ = 0;
};

// Returns the address of the registry: --registry, else the user's default. OPWIRE_REGISTRY is not
// used, because it may name another user's.
StatusOr<std::string> Place(const Common& common) {
  if (common.registries.empty()) return DefaultRegistryEndpoint();
  if (common.registries.size() > 1 || !IsIpc(common.registries[0])) {
    return WithNext(
        Usage("opwire up: expected one --registry ipc://PATH"),
        "for tcp start the programs by hand: opwire-registry --help, opwire-executor --help");
  }
  OPWIRE_RETURN_IF_ERROR(CheckEndpoint(common.registries[0]));
  return common.registries[0];
}

std::vector<Child> Children(const UpArgs& args, const std::string& registry) {
  std::vector<Child> out;
  out.push_back(
      {Locate("opwire-registry"), {"--listen", registry, "--log-level", "warning"}, -1, 0, 0, 0});
  for (size_t i = 0; i < args.devices.size(); ++i) {
    // A name that is the same at every start: the record of kernels that crashed is kept under it.
    std::string name = fmt::format("{}-{}", args.devices[i], i);
    std::replace(name.begin(), name.end(), ':', '-');
    Child c{Locate("opwire-executor"),
            {"--device", args.devices[i], "--name", name, "--registry", registry, "--log-level",
             "warning"},
            -1,
            0,
            0,
            0};
    if (!args.data.empty()) c.args.insert(c.args.end(), {"--data", args.data});
    c.args.insert(c.args.end(), args.executor.begin(), args.executor.end());
    out.push_back(std::move(c));
  }
  return out;
}

// Executors first, so that they can send goodbye.
void StopAll(std::vector<Child>& children) {
  for (size_t i = children.size(); i-- > 0;) {
    if (children[i].pid <= 0) continue;
    kill(children[i].pid, SIGTERM);
    int status;
    while (waitpid(children[i].pid, &status, 0) < 0 && errno == EINTR) {
    }
    children[i].pid = -1;
  }
}

// Notes that a child ended. Returns an error if it would not start the next time either.
Status OnEnd(Child& c, int status, Nanos now) {
  c.pid = -1;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const std::string name = std::filesystem::path(c.program).filename();
  if (code == 127)
    return NotFound("opwire up: {} cannot be started; it belongs beside opwire", c.program);
  if (code == 2 || code == 3) {
    return WithNext(FailedPrecondition("opwire up: {} ended with code {}; its message stands above",
                                       name, code),
                    "name a device that it calls usable: --device");
  }
  c.backoff = now - c.started > 60 * kSecond
                  ? 0
                  : std::min(std::max<Nanos>(2 * c.backoff, 100 * kMillisecond), 32 * kSecond);
  c.restart_at = now + c.backoff;
  fmt::print(stderr, "opwire up: {} ended with code {}; it starts again in {}\n", name, code,
             HumanNanos(c.backoff));
  return absl::OkStatus();
}

void SayReady(const Common& common, const UpArgs& args, const std::string& registry, Nanos took,
              pid_t pid) {
  const size_t n = args.devices.size();
  if (common.json) {
    PrintJsonLine({{"ready_ns", took}, {"executors", n}, {"registry", registry}, {"pid", pid}});
  } else {
    fmt::print("ready after {}: {} executor{} at {}\n", HumanNanos(took), n, n == 1 ? "" : "s",
               registry);
    if (args.detach) fmt::print("stop with: kill {}\n", pid);
    fmt::print("next: opwire devices\n");
  }
  std::fflush(stdout);
}

Status Supervise(const Common& common, const UpArgs& args, const std::string& registry,
                 TerminationSignals& signals) {
  std::vector<Child> children = Children(args, registry);
  const Nanos begun = MonotonicNow();
  // The registry first: an executor that finds no registry tries again only a second later.
  Start(children[0], begun);
  while (!SomebodyListens(registry) && MonotonicNow() - begun < kSecond)
    PollReadable({}, kMillisecond);
  for (size_t i = 1; i < children.size(); ++i) Start(children[i], MonotonicNow());
  bool ready = false;
  const int fds[] = {signals.fd()};
  IdleWatch idle(registry, args.idle_timeout_s);
  while (signals.Take() == 0) {
    const Nanos now = MonotonicNow();
    if (ready && idle.Over(now)) break;
    for (Child& c : children) {
      int status = 0;
      if (c.pid > 0 && waitpid(c.pid, &status, WNOHANG) == c.pid) {
        if (Status end = OnEnd(c, status, now); !end.ok()) {
          StopAll(children);
          return end;
        }
      }
      if (c.pid < 0 && now >= c.restart_at) Start(c, now);
    }
    if (!ready && Ready(registry, args.devices.size())) {
      ready = true;
      if (!args.detach) SayReady(common, args, registry, MonotonicNow() - begun, getpid());
    }
    PollReadable(fds, ready ? 200 * kMillisecond : 5 * kMillisecond);
  }
  StopAll(children);
  (void)ClearStaleSocket(registry);
  if (!common.json && !args.detach) fmt::print("stopped\n");
  return absl::OkStatus();
}

// Returns the size of a log that is continued. A large log is renamed to the older one of two.
off_t KeptLog(const std::string& log) {
  struct stat st;
  if (lstat(log.c_str(), &st) != 0) return 0;
  if (st.st_size < kMostLogBytes) return st.st_size;
  return rename(log.c_str(), (log + ".1").c_str()) == 0 ? 0 : st.st_size;
}

// Runs the supervisor in the background, in a session of its own. Its output and its children's are
// appended to a file.
Status Detach(const Common& common, const UpArgs& args, const std::string& registry) {
  OPWIRE_ASSIGN_OR_RETURN(const std::string directory, RuntimeDirectory());
  const std::string log = directory + "/up.log";
  const off_t before = KeptLog(log);
  const Nanos begun = MonotonicNow();
  const pid_t pid = fork();
  if (pid < 0) return Unavailable("opwire up: it cannot fork");
  if (pid == 0) {
    setsid();
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int to = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    dup2(null, 0);
    dup2(to < 0 ? null : to, 1);
    dup2(to < 0 ? null : to, 2);
    TerminationSignals signals;
    const Status status = Supervise(common, args, registry, signals);
    _exit(Fail(common, status));
  }
  while (MonotonicNow() - begun < kReadyWithin) {
    if (Ready(registry, args.devices.size())) {
      SayReady(common, args, registry, MonotonicNow() - begun, pid);
      return absl::OkStatus();
    }
    int status;
    if (waitpid(pid, &status, WNOHANG) == pid) {
      std::ifstream said(log);
      said.seekg(before);
      std::string line;
      std::getline(said, line);
      return WithNext(FailedPrecondition("opwire up ended: {}", line), "what it said: " + log);
    }
    PollReadable({}, 10 * kMillisecond);
  }
  kill(pid, SIGTERM);
  return Unavailable("opwire up: no executor is ready after {}; {} says why",
                     HumanNanos(kReadyWithin), log);
}

// Prints the address of a registry that was running already.
void SayThere(const Common& common, const std::string& registry) {
  if (common.json)
    PrintJsonLine({{"registry", registry}});
  else
    fmt::print("runs already: {}\nnext: opwire devices\n", registry);
}

}  // namespace

Status Up(const Common& common, const UpArgs& given) {
  UpArgs args = given;
  if (args.devices.empty()) args.devices = {common.device.empty() ? "cpu" : common.device};
  std::error_code error;
  if (!args.data.empty() && !std::filesystem::is_directory(args.data, error))
    return Usage("--data {}: expected a directory that exists", args.data);
  OPWIRE_ASSIGN_OR_RETURN(const std::string registry, Place(common));
  const auto there = [&] { return SomebodyListens(registry) || ComesBack(registry); };
  if ((args.where || args.if_none) && there()) {
    SayThere(common, registry);
    return absl::OkStatus();
  }
  if (args.where)
    return WithNext(Unavailable("no registry: nothing listens at {}", IpcPath(registry)),
                    "start a registry and an executor: opwire up");
  if (Status status = ClearStaleSocket(registry); !status.ok())
    return WithNext(status, "a registry runs already: opwire devices");
  // Released when the supervisor ends, for any reason. While it is held, a registry that ended will
  // be restarted.
  const OwnedFd lock(
      open(SupervisorLock(registry).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0 || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (args.if_none && there()) {
      SayThere(common, registry);
      return absl::OkStatus();
    }
    return WithNext(AlreadyExists("opwire up: another one supervises {}", registry),
                    "see what it started: opwire devices");
  }
  if (args.detach) return Detach(common, args, registry);
  TerminationSignals signals;
  return Supervise(common, args, registry, signals);
}

}  // namespace opwire::cli
