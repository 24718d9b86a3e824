// opwire up: a registry and executors of this user's own, restarted when they die, stopped together.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "frontend/cli/cli.h"
#include "ir/wire/endpoint.h"
#include "ir/wire/signals.h"
#include "ir/wire/zmq_channel.h"

namespace opwire::cli {
namespace {

struct UpArgs {
  std::vector<std::string> devices;
  std::string data;
  bool detach = false;
};

struct Child {
  std::string program;
  std::vector<std::string> args;
  pid_t pid = -1;
  Nanos started = 0;
  Nanos backoff = 0;
  Nanos restart_at = 0;
};

// The programs lie beside this one, or in the build's folders beside it.
std::string Locate(const std::string& program) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& p : {here / program, here / ".." / "executor" / program, here / ".." / "registry" / program,
                                         here / ".." / ".." / "executor" / program, here / ".." / ".." / "registry" / program}) {
    if (std::filesystem::exists(p, error)) return p.lexically_normal().string();
  }
  return program;
}

void Start(Child& c, Nanos now) {
  c.started = now;
  c.pid = fork();
  if (c.pid != 0) return;
  // Ends with this process, however that ends.
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

// True once every executor answers.
bool Ready(const Common& common, size_t executors) {
  auto client = Connect(common);
  if (!client.ok()) return false;
  auto there = client->Executors();
  return there.ok() && there->size() >= executors;
}

Status Supervise(const Common& common, const UpArgs& args) {
  TerminationSignals signals;
  OPWIRE_ASSIGN_OR_RETURN(const std::string registry, DefaultRegistryEndpoint());
  OPWIRE_RETURN_IF_ERROR(ClearStaleSocket(registry));
  std::vector<Child> children;
  children.push_back({Locate("opwire-registry"), {"--log-level", "warning"}, -1, 0, 0, 0});
  for (const std::string& device : args.devices) {
    Child c{Locate("opwire-executor"), {"--device", device, "--log-level", "warning"}, -1, 0, 0, 0};
    if (!args.data.empty()) c.args.insert(c.args.end(), {"--data", args.data});
    children.push_back(std::move(c));
  }
  for (Child& c : children) Start(c, MonotonicNow());
  const Nanos begun = MonotonicNow();
  bool ready = false;
  const int fds[] = {signals.fd()};
  while (signals.Take() == 0) {
    const Nanos now = MonotonicNow();
    for (Child& c : children) {
      int status = 0;
      if (c.pid > 0 && waitpid(c.pid, &status, WNOHANG) == c.pid) {
        c.pid = -1;
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        // What cannot start will not start the next time either.
        if (WIFEXITED(status) && (code == 2 || code == 3 || code == 127)) {
          for (const Child& other : children) {
            if (other.pid > 0) kill(other.pid, SIGTERM);
          }
          return FailedPrecondition("{} ended with code {}; see its message above", c.program, code);
        }
        c.backoff = now - c.started > 60 * kSecond ? 0 : std::min(std::max<Nanos>(2 * c.backoff, 100 * kMillisecond), 32 * kSecond);
        c.restart_at = now + c.backoff;
        fmt::print(stderr, "opwire up: {} ended with code {}; it starts again in {}\n", c.program, code, HumanNanos(c.backoff));
      }
      if (c.pid < 0 && now >= c.restart_at) Start(c, now);
    }
    if (!ready && Ready(common, args.devices.size())) {
      ready = true;
      fmt::print("ready after {}: {} executor{} at {}\nnext: opwire devices\n", HumanNanos(MonotonicNow() - begun), args.devices.size(),
                 args.devices.size() == 1 ? "" : "s", registry);
      std::fflush(stdout);
    }
    PollReadable(fds, ready ? 200 * kMillisecond : 5 * kMillisecond);
  }
  // Executors first, so that they can say goodbye.
  for (size_t i = children.size(); i-- > 0;) {
    if (children[i].pid <= 0) continue;
    kill(children[i].pid, SIGTERM);
    int status;
    while (waitpid(children[i].pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  fmt::print("stopped\n");
  return absl::OkStatus();
}

Status Up(const Common& common, const UpArgs& args) {
  if (!args.detach) return Supervise(common, args);
  const pid_t pid = fork();
  if (pid < 0) return Unavailable("opwire up: it cannot fork");
  if (pid == 0) {
    setsid();
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    const Status status = Supervise(common, args);
    _exit(status.ok() ? 0 : 1);
  }
  const Nanos deadline = MonotonicNow() + 10 * kSecond;
  while (MonotonicNow() < deadline) {
    if (Ready(common, args.devices.size())) {
      fmt::print("up, as process {}; stop it with: kill {}\n", pid, pid);
      return absl::OkStatus();
    }
    int status;
    if (waitpid(pid, &status, WNOHANG) == pid) return FailedPrecondition("opwire up ended; run it without --detach to see why");
    PollReadable({}, 10 * kMillisecond);
  }
  return Unavailable("opwire up: no executor is ready after 10 s");
}

}  // namespace

void AddUp(CLI::App& app, Common& common) {
  CLI::App* command = app.add_subcommand("up", "Start a registry and executors of your own, until Ctrl-C\n\nExample:\n  opwire up\n  opwire up --device cpu --detach");
  auto args = std::make_shared<UpArgs>();
  command->add_option("--device", args->devices, "An executor for this device; may be given again")->default_val(std::vector<std::string>{"cpu"});
  command->add_option("--data", args->data, "Directory for save and load")->check(CLI::ExistingDirectory);
  command->add_flag("--detach", args->detach, "Return once they are ready");
  command->callback([&common, args] {
    const Status status = Up(common, *args);
    common.exit_code = status.ok() ? kDone : Report(common, status);
  });
}

}  // namespace opwire::cli
