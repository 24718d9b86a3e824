// Starting and ending processes.
#include "tests/cli/house.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace opwire {

House::House() {
  std::string pattern = std::filesystem::temp_directory_path() / "opwire-cli-XXXXXX";
  root_ = mkdtemp(pattern.data());
  runtime_ = root_ + "/run";
  work_ = root_ + "/work";
  mkdir(runtime_.c_str(), 0700);
  mkdir(work_.c_str(), 0700);
}

House::~House() {
  for (pid_t pid : children_) kill(-pid, SIGKILL);
  for (pid_t pid : children_) waitpid(pid, nullptr, 0);
  std::filesystem::remove_all(root_);
}

std::vector<pid_t> House::ChildrenOf(pid_t parent, const std::string& program) {
  std::vector<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    // "PID (NAME) STATE PARENT ..."; the kernel cuts names to 15 characters.
    std::ifstream in(entry.path() / "stat");
    std::string stat;
    std::getline(in, stat);
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (close == std::string::npos ||
        stat.substr(open + 1, close - open - 1) != program.substr(0, 15))
      continue;
    if (stat[close + 2] != 'Z' && std::atoi(stat.c_str() + close + 4) == parent)
      out.push_back(std::atoi(stat.c_str()));
  }
  return out;
}

std::string House::OutputOf(pid_t pid) const { return fmt::format("{}/{}.log", root_, pid); }

pid_t House::Start(const std::string& command) {
  const pid_t pid = fork();
  if (pid != 0) {
    setpgid(pid, pid);
    children_.push_back(pid);
    return pid;
  }
  setpgid(0, 0);
  const int out = open(OutputOf(getpid()).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(open("/dev/null", O_RDONLY), 0);
  dup2(out, 1);
  dup2(out, 2);
  setenv("OPWIRE_RUNTIME_DIR", runtime_.c_str(), 1);
  setenv("OPWIRE_CACHE", (root_ + "/cache").c_str(), 1);
  unsetenv("OPWIRE_REGISTRY");
  setenv("OPWIRE_KEY", (root_ + "/key").c_str(), 1);
  for (const char* gpus : {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) setenv(gpus, "", 1);
  setenv("PATH", fmt::format("{}:{}", OPWIRE_PATH, std::getenv("PATH")).c_str(), 1);
  if (chdir(work_.c_str()) != 0) _exit(126);
  execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
  _exit(126);
}

House::Result House::Wait(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  std::erase(children_, pid);
  std::ifstream in(OutputOf(pid));
  return {{std::istreambuf_iterator<char>(in), {}},
          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

House::Result House::Run(const std::string& command) { return Wait(Start(command)); }

void House::Signal(pid_t pid, int signal) {
  kill(-pid, signal);
  if (signal == SIGKILL) Wait(pid);
}

bool House::Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

pid_t House::StartRegistry() {
  const pid_t pid = Start("exec opwire-registry --beat-ms 100 --log-level warning");
  Eventually([&] { return Run("opwire devices").output.find("no registry") == std::string::npos; });
  return pid;
}

pid_t House::StartExecutor(const std::string& flags) {
  const pid_t pid =
      Start("exec opwire-executor --device cpu --name cpu-0 --log-level warning " + flags);
  Eventually([&] { return Run("opwire devices --on cpu-0").code == 0; });
  return pid;
}

void House::Write(const std::string& file, const std::string& text) {
  std::ofstream(work_ + "/" + file) << text;
}

}  // namespace opwire
