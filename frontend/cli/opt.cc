// opwire opt: prints a program after the passes, including the user's own ones.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "frontend/cli/cli.h"
#include "frontend/cli/facts.h"
#include "frontend/cli/held_signals.h"
#include "ir/base/owned_fd.h"
#include "ir/passes/gradient.h"
#include "ir/passes/pipeline.h"
#include "ir/passes/recompute.h"
#include "ir/text/text.h"
#include "ir/verify/verify.h"
#include "ir/wire/clock.h"

extern char** environ;

namespace opwire::cli {
namespace {

constexpr Nanos kPassMayTake = 60 * kSecond;
constexpr int64_t kMostOutput = int64_t{64} << 20;

// Runs the program with the text as its standard input, and returns its output. ABORTED if it fails
// or does not end. Its error output is the user's. Processes that it started end with it.
StatusOr<std::string> RunProgram(const std::string& path, const std::string& text) {
  const OwnedFd in(memfd_create("input", MFD_CLOEXEC)), out(memfd_create("output", MFD_CLOEXEC));
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(in.get(), text.data() + at, text.size() - at);
    if (n <= 0)
      return Internal("the program's text cannot be handed over: {}", std::strerror(errno));
    at += static_cast<size_t>(n);
  }
  lseek(in.get(), 0, SEEK_SET);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  // A process group of its own, so that all of it can be ended. A terminal's Ctrl-C then reaches
  // only this process.
  const HeldSignals signals;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &signals.before());
  std::string name = path;
  char* argv[] = {name.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path.c_str(), &actions, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Aborted("it does not start: {}", std::strerror(error));
  const OwnedFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  pollfd ends{handle.get(), POLLIN, 0};
  const auto written_bytes = [&] {
    struct stat now;
    return fstat(out.get(), &now) == 0 ? static_cast<int64_t>(now.st_size) : 0;
  };
  const Nanos end = MonotonicNow() + kPassMayTake;
  bool ended = false;
  while (!ended && !signals.Came() && MonotonicNow() < end && written_bytes() <= kMostOutput)
    ended = poll(&ends, 1, 20) == 1;
  kill(-pid, SIGKILL);  // the process was not waited for, so the number is still its group's
  int status = 0;
  waitpid(pid, &status, 0);
  if (!ended && signals.Came()) return Cancelled("stopped by a signal");
  if (const int64_t size = written_bytes(); size > kMostOutput)
    return Aborted("expected at most {} bytes of output, it wrote {}", kMostOutput, size);
  if (!ended) return Aborted("it did not end within {} s", kPassMayTake / kSecond);
  if (WIFSIGNALED(status)) return Aborted("it was ended by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return Aborted("it ended with exit code {}", WEXITSTATUS(status));
  std::string written(static_cast<size_t>(written_bytes()), '\0');
  size_t have = 0;
  for (ssize_t n = 1; have < written.size() && n > 0;
       have += static_cast<size_t>(std::max<ssize_t>(n, 0))) {
    n = pread(out.get(), written.data() + have, written.size() - have, static_cast<off_t>(have));
  }
  written.resize(have);
  return written;
}

json ToJson(const ProgramCost& cost) {
  return {
      {"nodes", cost.nodes}, {"bytes_moved", cost.bytes_moved}, {"peak_bytes", cost.peak_bytes}};
}

std::string Change(const std::string& before, const std::string& after) {
  return before == after ? after : fmt::format("{} -> {}", before, after);
}

void PrintStats(const Common& common, const PipelineReport& report, const RecomputeReport& again) {
  if (common.json) {
    json runs = json::array();
    for (const PassReport& r : report.runs) {
      runs.push_back({{"pass", r.pass},
                      {"round", r.round},
                      {"changes", r.changes},
                      {"ns", r.nanos},
                      {"before", ToJson(r.before)},
                      {"after", ToJson(r.after)}});
    }
    PrintJson({{"runs", runs},
               {"verify_ns", report.verify_nanos},
               {"done", report.done},
               {"recomputed",
                {{"nodes", again.nodes},
                 {"peak_bytes_before", again.before_bytes},
                 {"peak_bytes_after", again.after_bytes}}}});
    return;
  }
  Table table({"ROUND", "PASS", "CHANGES", "NODES", "BYTES MOVED", "PEAK", "TIME"});
  int64_t all = 0;
  for (const PassReport& r : report.runs) {
    table.Add({std::to_string(r.round), r.pass, std::to_string(r.changes),
               Change(std::to_string(r.before.nodes), std::to_string(r.after.nodes)),
               Change(HumanBytes(r.before.bytes_moved), HumanBytes(r.after.bytes_moved)),
               Change(HumanBytes(r.before.peak_bytes), HumanBytes(r.after.peak_bytes)),
               HumanNanos(r.nanos)});
    all += r.nanos;
  }
  fmt::print("{}passes {}, verification {}{}\n", table.ToString(), HumanNanos(all),
             HumanNanos(report.verify_nanos),
             report.done ? "" : fmt::format("; not done after {} rounds", kMostRounds));
  if (again.nodes > 0)
    fmt::print("{} nodes are computed again: peak {} -> {}\n", again.nodes,
               HumanBytes(again.before_bytes), HumanBytes(again.after_bytes));
}

}  // namespace

Status Opt(const Common& common, const OptArgs& args) {
  OPWIRE_ASSIGN_OR_RETURN(ProgramFile file, ReadProgram(common, args.file));
  OPWIRE_RETURN_IF_ERROR(VerifyModule(file.module, {}, *file.ops)
                             .status());  // errors of the file are not errors of the command line
  PipelineOptions options{
      .ops = *file.ops, .skip = args.skip, .after = args.after, .accuracy = args.passes.accuracy()};
  OPWIRE_ASSIGN_OR_RETURN(options.sizes, NamedSizes(file.module.dims, args.dims));
  for (const std::string& program : args.with) {
    std::error_code error;
    const std::string path = std::filesystem::absolute(program, error).string();
    if (access(path.c_str(), X_OK) != 0)
      return Usage("--with {}: expected a program that can be run: {}", program,
                   std::strerror(errno));
    options.own.push_back(
        {program, [path](const std::string& text) { return RunProgram(path, text); }});
  }
  if (!args.grad.empty()) {
    auto with = Gradient(std::move(file.module), args.grad, {.loss = args.loss, .ops = *file.ops});
    if (!with.ok())
      return with.status().code() == absl::StatusCode::kInvalidArgument ? AsUsage(with.status())
                                                                        : with.status();
    file.module = *std::move(with);
  } else if (!args.loss.empty()) {
    return Usage("--loss {}: expected --grad beside it", args.loss);
  }
  const auto report = RunPasses(file.module, options);
  if (!report.ok())
    return report.status().code() == absl::StatusCode::kInvalidArgument ? AsUsage(report.status())
                                                                        : report.status();
  RecomputeReport again;
  if (!args.memory.empty()) {
    if (!args.after.empty())
      return Usage("--memory: expected it without --after, as it follows the last pass");
    OPWIRE_ASSIGN_OR_RETURN(const int64_t most, BytesOf(args.memory));
    OPWIRE_ASSIGN_OR_RETURN(
        again,
        Recompute(file.module, {.memory_bytes = most, .sizes = options.sizes, .ops = *file.ops}));
    OPWIRE_RETURN_IF_ERROR(RunPasses(file.module, options).status());
  }
  if (args.stats)
    PrintStats(common, *report, again);
  else if (common.json)
    PrintJson({{"program", Print(file.module, *file.ops)}});
  else
    fmt::print("{}", Print(file.module, *file.ops));
  return absl::OkStatus();
}

}  // namespace opwire::cli
