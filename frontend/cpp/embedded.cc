// Starting the supervisor.
#include "frontend/cpp/embedded.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "ir/base/owned_fd.h"
#include "ir/wire/endpoint.h"

namespace opwire::client {
namespace {

std::string ProgramPath() {
  if (const char* named = std::getenv("OPWIRE_PROGRAM"); named && *named) return named;
  std::error_code error;
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "opwire";
  return std::filesystem::is_regular_file(beside, error) ? beside.string() : "opwire";
}

std::string DeviceFor(std::string_view asked) {
  const std::string_view kind = asked.substr(0, asked.find(':'));
  for (std::string_view known : {"cpu", "cuda", "hip", "emu", "null"}) {
    if (kind == known) return std::string(asked);
  }
  return "auto";
}

// Runs it to its end; both of its streams.
StatusOr<std::string> RunToEnd(std::vector<std::string> words, int& code) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Unavailable("no pipe: {}", std::strerror(errno));
  OwnedFd from(ends[0]), to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, to.get(), 2);
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int failed = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return Unavailable("{} cannot be started: {}", words[0], std::strerror(failed));
  to = OwnedFd();
  std::string said;
  char buffer[512];
  ssize_t n;
  while ((n = read(from.get(), buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR)) {
    if (n > 0 && said.size() < 4096) said.append(buffer, static_cast<size_t>(n));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return said;  // this process does not keep its children's ends
  }
  code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return said;
}

}  // namespace

std::string SupervisorLock(const std::string& registry) { return IpcPath(registry) + ".up"; }

bool ComesBack(const std::string& registry) {
  const OwnedFd supervisor(open(SupervisorLock(registry).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (supervisor.get() < 0) return false;
  for (int i = 0; i < 200 && flock(supervisor.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
    if (SomebodyListens(registry)) return true;
    usleep(25'000);
  }
  return SomebodyListens(registry);
}

StatusOr<bool> StartEmbedded(const std::string& registry, std::string_view device) {
  OPWIRE_ASSIGN_OR_RETURN(const std::string directory, RuntimeDirectory());
  const OwnedFd lock(open((directory + "/embedded.lock").c_str(),
                          O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  while (lock.get() >= 0 && flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  if (SomebodyListens(registry)) return false;
  if (ComesBack(registry)) return false;
  int code = 0;
  auto said = RunToEnd({ProgramPath(), "up", "--registry", registry, "--detach", "--device",
                        DeviceFor(device), "--idle-timeout", std::to_string(kEmbeddedIdleSeconds)},
                       code);
  if (!said.ok()) return said.status();
  if (code == 0) return true;
  while (!said->empty() && said->back() == '\n') said->pop_back();
  return Unavailable("no registry runs here, and starting one failed: {}", *said);
}

}  // namespace opwire::client
