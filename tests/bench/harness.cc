// Rows, processes, percentiles.
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/bench/bench.h"

namespace opwire::bench {

double RatioOf(const Row& r) { return r.baseline > 0 ? r.value / r.baseline : 0; }

bool Skipped(const Row& r) { return !Failed(r) && r.value == 0 && !r.note.empty(); }

bool Met(const Row& r) {
  if (Failed(r) || Skipped(r) || (r.target_is_ratio && r.baseline <= 0)) return false;
  const double v = r.target_is_ratio ? RatioOf(r) : r.value;
  return r.higher_is_better ? v >= r.target : v <= r.target;
}

Row FailedRow(std::string name, const Status& why) {
  return {.name = std::move(name), .failure = MessageOf(why)};
}

void Measure(const std::string& family, const std::vector<std::string>& names,
             std::vector<Row>& rows, const std::function<void()>& body) {
  const size_t first = rows.size();
  std::string why = "not measured: the benchmark left it out";
  bool threw = true;
  try {
    body();
    threw = false;
  } catch (const std::exception& e) {
    why = e.what();
  }
  if (names.empty() && threw) rows.push_back({.name = family, .failure = why});
  for (const std::string& name : names) {
    const auto appended =
        std::ranges::subrange(rows.begin() + static_cast<ptrdiff_t>(first), rows.end());
    if (std::ranges::find(appended, name, &Row::name) == appended.end())
      rows.push_back({.name = name, .failure = why});
  }
}

std::string OutputOf(const std::string& command) {
  std::string out;
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) throw RowError(fmt::format("cannot start: {}", command));
  char piece[4096];
  for (size_t n; (n = fread(piece, 1, sizeof piece, pipe)) > 0;) out.append(piece, n);
  if (const int status = pclose(pipe); status != 0) {
    throw RowError(WIFEXITED(status)
                       ? fmt::format("exit code {}: {}", WEXITSTATUS(status), command)
                       : fmt::format("ended by signal {}: {}", WTERMSIG(status), command));
  }
  return out;
}

double NumberFrom(const std::string& command) {
  double value = 0;
  if (const std::string text = OutputOf(command); sscanf(text.c_str(), "%lf", &value) != 1)
    throw RowError(fmt::format("printed no number: {}", command));
  return value;
}

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const size_t at =
      std::min(values.size() - 1, static_cast<size_t>(p * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

namespace {

// Whether there was something to check.
bool Check(const Timed& ours, const Timed& theirs) {
  std::vector<Array> results[2];
  for (const auto& [side, got] : {std::pair(&ours, &results[0]), std::pair(&theirs, &results[1])}) {
    if (!side->result) continue;
    *got = side->result();
    if (side->expected) MustAgree(*got, side->expected(), side->tolerance);
  }
  const bool alike = !results[0].empty() &&
                     std::ranges::equal(results[0], results[1], {}, &Array::shape, &Array::shape);
  if (alike) MustAgree(results[0], results[1], std::max(ours.tolerance, theirs.tolerance));
  return ours.expected || alike;
}

}  // namespace

Row Compare(const Setup& setup, std::string name, std::string unit, std::string baseline_name,
            const Timed& ours, const Timed& theirs) {
  std::vector<double> a, b;
  for (int i = 0; i < setup.rounds(); ++i) {
    a.push_back(ours.time());
    if (theirs.time) b.push_back(theirs.time());
  }
  Row row;
  row.name = std::move(name);
  row.unit = std::move(unit);
  row.baseline_name = std::move(baseline_name);
  row.value = Percentile(a, 0.5);
  row.baseline = Percentile(b, 0.5);
  if (setup.small) {
    DigestOfChecks().Take();
    row.checked = Check(ours, theirs);
    row.digest = DigestOfChecks().Take();
  }
  row.spread =
      (*std::max_element(a.begin(), a.end()) - *std::min_element(a.begin(), a.end())) / row.value;
  return row;
}

Child::Child(const std::vector<std::string>& argv) : pid_(fork()) {
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<char*> args;
  for (const std::string& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  execv(args[0], args.data());
  _exit(127);
}

Child::Child(const std::function<void()>& body) : pid_(fork()) {
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    body();
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench: {}\n", e.what());
    _exit(1);
  }
  _exit(0);
}

bool Child::Wait() {
  int status = 0;
  const bool ended = waitpid(pid_, &status, 0) == pid_;
  pid_ = 0;
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool Child::Running() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = 0;
  return pid_ > 0;
}

Child::~Child() {
  if (pid_ <= 0) return;
  kill(pid_, SIGTERM);
  for (int i = 0; i < 200; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    usleep(10'000);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

double Child::CpuSeconds() const {
  std::ifstream in(fmt::format("/proc/{}/stat", pid_));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skip;
  for (int i = 0; i < 11; ++i) fields >> skip;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void Must(const Status& status) {
  if (!status.ok()) throw RowError(MessageOf(status));
}

Status Attempt(const std::function<void()>& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const RowError& e) {
    return Internal("{}", e.what());
  }
}

StatusOr<Session> OpenWithin(const SessionOptions& options, double seconds) {
  const double deadline = Seconds() + seconds;
  ClientOptions alone;
  alone.embedded = false;  // what a row starts, it starts itself
  while (true) {
    OPWIRE_ASSIGN_OR_RETURN(Client client, Client::Connect(alone));
    auto session = client.Open(options);
    if (session.ok() || Seconds() > deadline) return session;
    usleep(2'000);
  }
}

Session OpenOn(const std::string& executor, bool ring) {
  SessionOptions options;
  options.device = executor;
  options.ring = ring;
  return Must(OpenWithin(options, 10));
}

double FutexWakeMicros(int times) {
  struct Shared {
    std::atomic<uint32_t> ping, pong;
  };
  auto* s = static_cast<Shared*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto wait = [](std::atomic<uint32_t>& word, uint32_t old) {
    while (word.load() == old) syscall(SYS_futex, &word, FUTEX_WAIT, old, nullptr, nullptr, 0);
  };
  const auto set = [](std::atomic<uint32_t>& word, uint32_t value) {
    word.store(value);
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  };
  std::vector<double> micros;
  {
    Child echo([&] {
      for (uint32_t i = 0;; ++i) {
        wait(s->ping, i);
        set(s->pong, i + 1);
      }
    });
    for (uint32_t i = 0; i < static_cast<uint32_t>(times); ++i) {
      usleep(1'000);
      const double begun = Seconds();
      set(s->ping, i + 1);
      wait(s->pong, i);
      micros.push_back((Seconds() - begun) * 1e6);
    }
  }
  munmap(s, 4096);
  return Percentile(micros, 0.5);
}

double ThreadScaling() {
  const auto work = [] {
    volatile double x = 1;
    for (int i = 0; i < 50'000'000; ++i) x = x * 1.0000001;
  };
  const double begun = Seconds();
  work();
  const double one = Seconds() - begun;
  std::thread other(work);
  work();
  other.join();
  return 2 * one / (Seconds() - begun - one);
}

}  // namespace opwire::bench
