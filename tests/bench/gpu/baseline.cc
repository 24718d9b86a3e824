// The child process that measures PyTorch. It gets and sends lines of JSON: one request, one
// answer.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

constexpr double kStartSeconds = 120;  // importing PyTorch

}  // namespace

Baseline::Baseline(const Gpu& gpu) : gpu_(gpu) {
  const GpuOptions& o = gpu.options();
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    why_ = "no pipes";
    return;
  }
  signal(SIGPIPE, SIG_IGN);  // if the child has ended, the write returns an error
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execlp(o.python.c_str(), o.python.c_str(), o.baseline.c_str(), o.device.c_str(),
           static_cast<char*>(nullptr));
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  const StatusOr<std::string> hello = Ask("", kStartSeconds);
  const nlohmann::json answer =
      hello.ok() ? nlohmann::json::parse(*hello, nullptr, false) : nlohmann::json();
  if (answer.is_object() && answer.contains("ready")) {
    version_ = answer.value("ready", "");
    return;
  }
  why_ = !hello.ok()          ? MessageOf(hello.status())
         : answer.is_object() ? answer.value("error", "no reason given")
                              : "answered " + *hello;
  End();
}

Baseline::~Baseline() { End(); }

void Baseline::End() {
  if (pid_ <= 0) return;
  close(to_);  // the child and its processes end when its input is closed
  close(from_);
  for (int i = 0; i < 300 && pid_ > 0; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_)
      pid_ = -1;
    else
      usleep(10'000);
  }
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

// An empty line is not a request: the child sends the first message.
StatusOr<std::string> Baseline::Ask(const std::string& line, double seconds) {
  if (!line.empty() &&
      write(to_, (line + "\n").data(), line.size() + 1) != static_cast<ssize_t>(line.size() + 1)) {
    return Unavailable("{} {} is gone", gpu_.options().python, gpu_.options().baseline);
  }
  const double deadline = Seconds() + seconds;
  while (true) {
    if (const size_t end = rest_.find('\n'); end != rest_.npos) {
      std::string answer = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return answer;
    }
    pollfd p{from_, POLLIN, 0};
    const double left = deadline - Seconds();
    const int ready = left > 0 ? poll(&p, 1, static_cast<int>(1e3 * left) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return DeadlineExceeded("no answer in {} s", seconds);
    char text[4096];
    const ssize_t n = read(from_, text, sizeof text);
    if (n <= 0) return Unavailable("{} {} ended", gpu_.options().python, gpu_.options().baseline);
    rest_.append(text, static_cast<size_t>(n));
  }
}

Side Baseline::For(const Request& request) {
  const GpuOptions& o = gpu_.options();
  const int sets = gpu_.SetsOf(request.bytes);
  const nlohmann::json asked = {{"row", request.row},
                                {"op", request.op},
                                {"type", DTypeName(request.dtype)},
                                {"shape", request.shape},
                                {"precision", request.precision},
                                {"compiled", request.compiled},
                                {"sets", sets},
                                {"launches", (o.launches() + sets - 1) / sets * sets},
                                {"seconds", o.round_seconds()}};
  return {
      "PyTorch",
      [this, line = asked.dump(), row = request.row,
       patience = request.patience]() -> StatusOr<double> {
        if (!there()) return Unavailable("{}", why_);
        const StatusOr<std::string> text = Ask(line, patience);
        if (!text.ok()) {
          why_ = MessageOf(text.status());
          End();  // a late answer would be taken for another row's
          return text.status();
        }
        const nlohmann::json answer = nlohmann::json::parse(*text, nullptr, false);
        if (!answer.is_object() || !answer.contains("seconds") || !answer["seconds"].is_number()) {
          return Internal("{}", answer.is_object() ? answer.value("error", "no seconds")
                                                   : "it answered " + *text);
        }
        names_[row] = answer.value("by", "PyTorch");
        peaks_[row] = answer.value("peak_bytes", 0.0);
        return answer["seconds"].get<double>();
      }};
}

double Baseline::PeakOf(const std::string& row) const {
  const auto it = peaks_.find(row);
  return it == peaks_.end() ? 0 : it->second;
}

std::string Baseline::NameOf(const std::string& row) const {
  const auto it = names_.find(row);
  return it == names_.end() ? "PyTorch" : it->second;
}

}  // namespace opwire::bench
