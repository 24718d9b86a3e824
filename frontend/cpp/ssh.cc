// The ssh process, its output, and the sockets that it forwards.
#include "frontend/cpp/ssh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "frontend/cpp/embedded.h"
#include "ir/base/json.h"
#include "ir/wire/clock.h"
#include "ir/wire/endpoint.h"

namespace opwire::client {
namespace {

constexpr Nanos kConnectWithin = 60 * kSecond;  // including the start of an executor there
constexpr Nanos kForwardWithin = 5 * kSecond;
constexpr int kLook = 50;  // milliseconds between checks for other events
constexpr size_t kMostSaid = 4096;

// Waits for a child for at most `within`. Returns true if it has ended, or is not this process's
// child.
bool Ended(pid_t pid, Nanos within, int& status) {
  for (const Nanos until = MonotonicNow() + within;;) {
    const pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid || (got < 0 && errno != EINTR)) return true;
    if (MonotonicNow() >= until) return false;
    usleep(2'000);
  }
}

}  // namespace

Status CheckSsh(std::string_view address) {
  const std::string_view host = address.substr(std::min<size_t>(6, address.size()));
  const bool odd =
      std::ranges::any_of(host, [](unsigned char c) { return c <= 0x20 || c == 0x7f || c == '/'; });
  if (IsSsh(address) && !host.empty() && !odd && host[0] != '-' && host[0] != '@' &&
      host.back() != '@')
    return absl::OkStatus();
  return InvalidArgument("address '{}': expected ssh://[USER@]HOST[:PORT]", address);
}

SshHost::~SshHost() { End(); }

void SshHost::End() {
  in_ = OwnedFd();
  if (ssh_ > 0 && owner_ == getpid()) {
    int status = 0;
    kill(ssh_, SIGTERM);
    if (!Ended(ssh_, kSecond, status)) {
      kill(ssh_, SIGKILL);
      Ended(ssh_, kSecond, status);
    }
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  ssh_ = -1;
  directory_.clear();
  forwarded_.clear();
}

void SshHost::Disconnect() {
  const std::lock_guard lock(mutex_);
  End();
}

bool SshHost::Alive() {
  int status;
  return ssh_ > 0 && owner_ == getpid() && waitpid(ssh_, &status, WNOHANG) == 0;
}

std::string SshHost::Said() const {
  std::ifstream file(directory_ + "/said");
  std::string said(kMostSaid, '\0');
  file.read(said.data(), static_cast<std::streamsize>(said.size()));
  said.resize(static_cast<size_t>(file.gcount()));
  while (!said.empty() && (said.back() == '\n' || said.back() == '\r')) said.pop_back();
  return said;
}

Status SshHost::Failed() const {
  const std::string said = Said();
  return Unavailable("{}: {}", address_, said.empty() ? "ssh ended and said nothing" : said);
}

// In a session of its own, so that Ctrl-C at a terminal does not end it. This process handles
// Ctrl-C.
StatusOr<pid_t> SshHost::Spawn(const std::vector<std::string>& words, int in, int out) const {
  std::vector<std::string> all = {"ssh",
                                  "-S",
                                  directory_ + "/ctl",
                                  "-T",
                                  "-o",
                                  "BatchMode=yes",
                                  "-o",
                                  "StreamLocalBindMask=0177",
                                  "-o",
                                  "ConnectTimeout=10",
                                  "-o",
                                  "ServerAliveInterval=15"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& w : all) argv.push_back(w.data());
  argv.push_back(nullptr);
  const std::string said = directory_ + "/said";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_addopen(&actions, 2, said.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int failed = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed) return Unavailable("{}: ssh cannot be started: {}", address_, std::strerror(failed));
  return pid;
}

StatusOr<std::string> SshHost::FirstLine(int from) {
  std::string line;
  const Nanos until = MonotonicNow() + kConnectWithin;
  while (line.size() < kMostSaid) {
    if (options_.interrupted && options_.interrupted())
      return Cancelled("interrupted while {} was waited for", address_);
    if (MonotonicNow() >= until)
      return Unavailable("{}: no answer after {} s{}{}", address_, kConnectWithin / kSecond,
                         Said().empty() ? "" : ": ", Said());
    pollfd look{from, POLLIN, 0};
    if (poll(&look, 1, kLook) <= 0) continue;
    char c;
    const ssize_t n = read(from, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      int status = 0;
      Ended(ssh_, kSecond, status);
      return Failed();
    }
    if (c == '\n') return line;
    line += c;
  }
  return Unavailable("{}: expected a line of JSON from opwire up, got {}", address_,
                     line.substr(0, 80));
}

Status SshHost::Connect() {
  End();
  OPWIRE_ASSIGN_OR_RETURN(const std::string runtime, RuntimeDirectory());
  std::string directory = runtime + "/ssh-XXXXXX";
  if (!mkdtemp(directory.data()))
    return Unavailable("{}: {}: {}", address_, directory, std::strerror(errno));
  directory_ = directory;
  owner_ = getpid();
  const Status status = Open();
  if (status.ok()) return status;
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  End();
  return status;
}

Status SshHost::Open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Unavailable("no pipe: {}", std::strerror(errno));
  OwnedFd in(ends[0]);
  in_ = OwnedFd(ends[1]);
  if (pipe2(ends, O_CLOEXEC) != 0) return Unavailable("no pipe: {}", std::strerror(errno));
  OwnedFd from(ends[0]), out(ends[1]);
  // The command after && lasts until this process closes the pipe, and so does the connection.
  const std::string command = fmt::format(
      "opwire up --json {} && exec cat >/dev/null",
      options_.start
          ? fmt::format("--detach --if-none --device auto --idle-timeout {}", kEmbeddedIdleSeconds)
          : "--where");
  OPWIRE_ASSIGN_OR_RETURN(ssh_, Spawn({"-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-o",
                                       "ClearAllForwardings=yes", "--", address_, command},
                                      in.get(), out.get()));
  in = OwnedFd();
  out = OwnedFd();
  OPWIRE_ASSIGN_OR_RETURN(const std::string line, FirstLine(from.get()));
  const nlohmann::json facts = ParseJson(line);
  const auto text = [&](const char* key) {
    return facts.is_object() && facts.contains(key) && facts[key].is_string()
               ? facts[key].get<std::string>()
               : std::string();
  };
  registry_ = text("registry");
  if (!IsIpc(registry_)) {
    // An error of `opwire up` is on its error stream, and ends the command.
    return Unavailable("{}: expected what opwire up says, got '{}'{}{}", address_,
                       line.substr(0, 200), Said().empty() ? "" : "; ", Said());
  }
  if (options_.notice && facts.contains("ready_ns")) {
    options_.notice(fmt::format(
        "nothing ran on {}: started an executor; it leaves after {} s without a session", name(),
        kEmbeddedIdleSeconds));
  }
  return absl::OkStatus();
}

StatusOr<std::string> SshHost::Forward(const std::string& endpoint) {
  if (const auto known = forwarded_.find(endpoint); known != forwarded_.end()) return known->second;
  const std::string local = fmt::format("{}/{}", directory_, forwarded_.size());
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const OwnedFd held(null);
  OPWIRE_ASSIGN_OR_RETURN(
      const pid_t pid,
      Spawn({"-O", "forward", "-L", local + ":" + IpcPath(endpoint), "--", address_}, null, null));
  int status = 0;
  if (!Ended(pid, kForwardWithin, status)) {
    kill(pid, SIGKILL);
    Ended(pid, kSecond, status);
  }
  if (access(local.c_str(), F_OK) != 0) return Failed();
  return forwarded_[endpoint] = "ipc://" + local;
}

StatusOr<std::string> SshHost::Registry() {
  const std::lock_guard lock(mutex_);
  if (!Alive()) OPWIRE_RETURN_IF_ERROR(Connect());
  return Forward(registry_);
}

StatusOr<std::string> SshHost::Reach(const std::string& endpoint) {
  if (!IsIpc(endpoint)) return endpoint;
  const std::lock_guard lock(mutex_);
  if (!Alive()) OPWIRE_RETURN_IF_ERROR(Connect());
  return Forward(endpoint);
}

}  // namespace opwire::client
