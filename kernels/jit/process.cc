// Children are made by vfork, so that the size of the parent costs nothing. They form a process
// group. It is killed when its first process ends, when time is up, and by the operating system's
// kernel when this process dies.
#include "kernels/jit/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <optional>

#include "ir/base/owned_fd.h"
#include "kernels/jit/sanitized.h"

namespace opwire::jit {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLongest = 1e6;  // seconds
constexpr rlim_t kCpuGraceSeconds = 2;

// Steps that may fail between the creation of the child and the start of its program.
enum class Stage : int { kGroup, kLeash, kDirectory, kLimits, kDescriptors, kProgram };
constexpr const char* kStages[] = {"setpgid", "fcntl", "chdir", "setrlimit", "dup2", "execve"};

struct Failure {
  Stage stage;
  int error;
};

// All that the child needs, made before it exists. After a fork of a process with several threads
// it may only call functions that are safe then.
struct Launch {
  char* const* argv;
  char* const* environment;
  const char* directory;
  int input, output, errors, report, leash;
  rlim_t memory_bytes, file_bytes, cpu_seconds;
  pid_t parent;
};

// `grace` is added to the hard limit. At the hard limit of processor time the signal is SIGKILL. At
// the soft limit it is SIGXCPU, which tells the reason.
bool Limit(int what, rlim_t most, rlim_t grace = 0) {
  if (most == RLIM_INFINITY) return true;
  rlimit limit;
  if (getrlimit(static_cast<__rlimit_resource>(what), &limit) != 0) return false;
  limit.rlim_max = std::min(limit.rlim_max, most + grace);
  limit.rlim_cur = std::min(limit.rlim_max, most);
  return setrlimit(static_cast<__rlimit_resource>(what), &limit) == 0;
}

[[noreturn]] void Fail(const Launch& launch, Stage stage) {
  const Failure failure{stage, errno};
  // If the parent has ended, the report has no reader; this is not an error.
  [[maybe_unused]] const ssize_t written = write(launch.report, &failure, sizeof(failure));
  _exit(127);
}

// Makes the kernel kill this process's group when the other end of the leash is closed.
bool Bind(int leash) {
  return fcntl(leash, F_SETOWN, -getpid()) == 0 && fcntl(leash, F_SETSIG, SIGKILL) == 0 &&
         fcntl(leash, F_SETFL, fcntl(leash, F_GETFL) | O_ASYNC) == 0;
}

[[noreturn]] void Become(const Launch& launch) {
  if (setpgid(0, 0) != 0) Fail(launch, Stage::kGroup);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launch.parent) _exit(127);
  if (!Bind(launch.leash)) Fail(launch, Stage::kLeash);
  if (*launch.directory && chdir(launch.directory) != 0) Fail(launch, Stage::kDirectory);
  if (!Limit(RLIMIT_CORE, 0) || !Limit(RLIMIT_AS, launch.memory_bytes) ||
      !Limit(RLIMIT_FSIZE, launch.file_bytes) ||
      !Limit(RLIMIT_CPU, launch.cpu_seconds, kCpuGraceSeconds)) {
    Fail(launch, Stage::kLimits);
  }
  if (dup2(launch.input, 0) < 0 || dup2(launch.output, 1) < 0 || dup2(launch.errors, 2) < 0 ||
      syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */) != 0) {
    Fail(launch, Stage::kDescriptors);
  }
  for (int s = 1; s < NSIG; ++s)
    std::signal(s, SIG_DFL);  // children would inherit that the parent ignores a signal
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(launch.argv[0], launch.argv, launch.environment);
  Fail(launch, Stage::kProgram);
}

// The child runs on this frame's stack until it executes its program.
[[gnu::noinline]] pid_t Spawn(const Launch& launch) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all,
                  &before);  // a handler must not run in the child, on the parent's memory
  const pid_t child = vfork();
  if (child == 0) Become(launch);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return child;
}

// Keeps the first half and the last half of the text.
class Kept {
 public:
  explicit Kept(int64_t bytes) : half_(std::max<size_t>(static_cast<size_t>(bytes) / 2, 1)) {}

  void Add(std::string_view text) {
    const size_t first = std::min(text.size(), half_ - head_.size());
    head_.append(text.substr(0, first));
    tail_.append(text.substr(first));
    if (tail_.size() > 2 * half_) Trim();
  }

  std::string Take() {
    if (tail_.size() > half_) Trim();
    if (dropped_ == 0) return std::move(head_) + tail_;
    return fmt::format("{}\n... {} bytes left out ...\n{}", head_, dropped_, tail_);
  }

 private:
  void Trim() {
    const size_t excess = tail_.size() - half_;
    tail_.erase(0, excess);
    dropped_ += excess;
  }

  const size_t half_;
  std::string head_, tail_;
  size_t dropped_ = 0;
};

// Reads the available bytes. False at the end of the file.
bool Drain(int fd, Kept& kept) {
  char buffer[16384];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n > 0) {
      kept.Add({buffer, static_cast<size_t>(n)});
    } else if (n == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
}

// Writes as much as the pipe accepts. False if nothing is left to write, or there is no reader.
bool Feed(int fd, std::string_view& rest) {
  while (!rest.empty()) {
    const ssize_t n = send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return false;
}

// Never 0, 1 or 2, which are the child's standard descriptors.
OwnedFd AboveStandard(int fd) {
  OwnedFd owned(fd);
  return fd >= 0 && fd < 3 ? OwnedFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)) : std::move(owned);
}

struct Pair {
  OwnedFd ours, theirs;
};

StatusOr<Pair> Ends(int result, const int (&fd)[2]) {
  if (result != 0)
    return ResourceExhausted("a process needs more descriptors: {}", std::strerror(errno));
  return Pair{AboveStandard(fd[0]), AboveStandard(fd[1])};
}

// For reading in this process.
StatusOr<Pair> MakePipe() {
  int fd[2];
  const int result = pipe2(fd, O_CLOEXEC);
  return Ends(result, fd);
}

// For the child's input: a socket, whose writer gets no SIGPIPE.
StatusOr<Pair> MakeSocket() {
  int fd[2];
  const int result = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd);
  return Ends(result, fd);
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// The leash of a child's group. When this process ends for any reason, the write end closes. The
// read end's owner, the group, then gets a signal that kills it. The child binds itself before it
// executes its program, which may start children at once. A process closes its files from the
// highest descriptor down, so the read end must be the lower one.
StatusOr<Pair> MakeLeash() {
  OPWIRE_ASSIGN_OR_RETURN(Pair leash, MakePipe());
  if (leash.ours.get() > leash.theirs.get()) {
    leash.theirs = OwnedFd(fcntl(leash.theirs.get(), F_DUPFD_CLOEXEC, leash.ours.get() + 1));
    if (leash.theirs.get() < 0)
      return ResourceExhausted("a process needs more descriptors: {}", std::strerror(errno));
  }
  return leash;
}

// Owns a child until it has been waited for.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid), fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  ~Child() {
    if (!waited_) Wait();
  }
  Child(const Child&) = delete;

  int fd() const { return fd_.get(); }
  void Kill() const {
    kill(-pid_, SIGKILL);
  }  // it has not been waited for, so the number still belongs to its group
  int Wait() {
    Kill();
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    waited_ = true;
    return status;
  }

 private:
  const pid_t pid_;
  const OwnedFd fd_;  // readable once it has ended
  bool waited_ = false;
};

struct Pipes {
  OwnedFd input, output, errors;  // our ends; the input's is closed when all is written
};

// Feeds and drains until the child ends or time is up. Returns whether time is up.
bool Attend(const Child& child, Pipes& pipes, const ProcessOptions& options,
            Clock::time_point deadline, Kept& output, Kept& errors) {
  std::string_view rest = options.input;
  bool reading[2] = {true, true};
  if (!Feed(pipes.input.get(), rest)) pipes.input = {};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return true;
    pollfd polled[] = {{child.fd(), POLLIN, 0},
                       {reading[0] ? pipes.output.get() : -1, POLLIN, 0},
                       {reading[1] ? pipes.errors.get() : -1, POLLIN, 0},
                       {pipes.input.get(), POLLOUT, 0}};
    if (poll(polled, 4, static_cast<int>(std::min<int64_t>(left, 1 << 30))) < 0) continue;
    if (polled[1].revents) reading[0] = Drain(pipes.output.get(), output);
    if (polled[2].revents) reading[1] = Drain(pipes.errors.get(), errors);
    if (polled[3].revents && !Feed(pipes.input.get(), rest)) pipes.input = {};
    if (polled[0].revents) return false;
  }
}

StatusOr<std::vector<char*>> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings) {
    if (s.find('\0') != std::string::npos)
      return InvalidArgument("an argument of a process has a NUL in it: \"{}\"", s.c_str());
    out.push_back(const_cast<char*>(s.c_str()));
  }
  out.push_back(nullptr);
  return out;
}

Status WhyNotStarted(const ProcessOptions& options, const Failure& failure) {
  const char* why = std::strerror(failure.error);
  if (failure.stage == Stage::kProgram)
    return NotFound("{}: cannot be run: {}", options.argv[0], why);
  if (failure.stage == Stage::kDirectory)
    return NotFound("{}: cannot be run in {}: {}", options.argv[0], options.directory, why);
  return ResourceExhausted("{}: cannot be run: {}: {}", options.argv[0],
                           kStages[static_cast<int>(failure.stage)], why);
}

// The child's report; nullopt if it has executed its program.
std::optional<Failure> FailureOf(int report) {
  Failure failure;
  ssize_t n;
  while ((n = read(report, &failure, sizeof(failure))) < 0 && errno == EINTR) {
  }
  return n == sizeof(failure) ? std::optional(failure) : std::nullopt;
}

rlim_t LimitOr(int64_t bytes) { return bytes > 0 ? static_cast<rlim_t>(bytes) : RLIM_INFINITY; }

}  // namespace

std::string ProcessResult::Describe() const {
  if (timed_out) return fmt::format("no end within {:.3g} s", seconds);
  if (signal != 0) return fmt::format("signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", exit_code);
}

StatusOr<ProcessResult> RunProcess(const ProcessOptions& options) {
  if (options.argv.empty()) return InvalidArgument("a process needs a program");
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<char*> argv, Pointers(options.argv));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<char*> environment, Pointers(options.environment));
  OPWIRE_ASSIGN_OR_RETURN(Pair input, MakeSocket());
  OPWIRE_ASSIGN_OR_RETURN(Pair output, MakePipe());
  OPWIRE_ASSIGN_OR_RETURN(Pair errors, MakePipe());
  OPWIRE_ASSIGN_OR_RETURN(Pair report, MakePipe());
  OPWIRE_ASSIGN_OR_RETURN(const Pair leash, MakeLeash());

  const auto begun = Clock::now();
  const auto deadline =
      begun + std::chrono::duration_cast<Clock::duration>(
                  std::chrono::duration<double>(std::min(options.seconds, kLongest)));
  // A process that outlives this one nevertheless is ended by its own limit; a compiler may use
  // some threads.
  const auto cpu_seconds = static_cast<rlim_t>(
      options.cpu_seconds > 0 ? std::ceil(std::min(options.cpu_seconds, kLongest))
                              : std::ceil(std::min(options.seconds, kLongest)) * 4);
  const pid_t pid =
      Spawn({argv.data(), environment.data(), options.directory.c_str(), input.theirs.get(),
             output.theirs.get(), errors.theirs.get(), report.theirs.get(), leash.ours.get(),
             kSanitized ? RLIM_INFINITY : LimitOr(options.memory_bytes),
             LimitOr(options.file_bytes), cpu_seconds, getpid()});
  if (pid < 0)
    return ResourceExhausted("{}: no process can be made: {}", options.argv[0],
                             std::strerror(errno));
  Child child(pid);
  for (Pair* pair : {&input, &output, &errors, &report}) pair->theirs = {};
  if (const auto failure = FailureOf(report.ours.get())) return WhyNotStarted(options, *failure);
  if (child.fd() < 0)
    return ResourceExhausted("{}: cannot be watched: {}", options.argv[0], std::strerror(errno));

  Pipes pipes{std::move(input.ours), std::move(output.ours), std::move(errors.ours)};
  for (const OwnedFd* fd : {&pipes.input, &pipes.output, &pipes.errors}) SetNonBlocking(fd->get());
  Kept kept_output(options.output_bytes), kept_errors(options.output_bytes);
  ProcessResult result;
  result.timed_out = Attend(child, pipes, options, deadline, kept_output, kept_errors);
  const int status = child.Wait();
  Drain(pipes.output.get(), kept_output);
  Drain(pipes.errors.get(), kept_errors);
  if (!result.timed_out && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (!result.timed_out && WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.output = kept_output.Take();
  result.errors = kept_errors.Take();
  result.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  return result;
}

}  // namespace opwire::jit
