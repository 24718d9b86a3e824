// Starting, watching and ending processes.
#include "tests/system/processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace opwire::client {

SystemOptions system_options;

SystemTest::SystemTest() {
  char path[] = "/tmp/opwire-system-XXXXXX";
  directory_ = mkdtemp(path);
  setenv("OPWIRE_RUNTIME_DIR", directory_.c_str(), 1);
  setenv("OPWIRE_CACHE", (directory_ + "/cache").c_str(), 1);
  unsetenv("OPWIRE_REGISTRY");
  setenv("OPWIRE_KEY", (directory_ + "/key").c_str(), 1);  // not there until a test makes it
}

SystemTest::~SystemTest() {
  for (auto& [pid, status] : children_) {
    if (status >= 0) continue;
    kill(pid, SIGKILL);
    kill(pid, SIGCONT);
    waitpid(pid, nullptr, 0);
  }
  if (HasFailure()) {
    for (auto& [pid, status] : children_) {
      std::ifstream log(LogOf(pid));
      std::cerr << "---- process " << pid << "\n" << log.rdbuf() << "\n";
    }
  }
  std::filesystem::remove_all(directory_);
}

pid_t SystemTest::Start(std::vector<std::string> argv) {
  std::vector<char*> pointers;
  for (std::string& a : argv) pointers.push_back(a.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // whatever becomes of the test
    if (getppid() != parent) _exit(127);
    const int log = open(LogOf(getpid()).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(log, 1);
    dup2(log, 2);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  children_[pid] = -1;
  return pid;
}

pid_t SystemTest::StartRegistry() {
  const pid_t pid = Start({OPWIRE_REGISTRY_PROGRAM, "--beat-ms", "100"});
  EXPECT_TRUE(Eventually([&] {
    auto client = Client::Connect();
    return client.ok() && client->Executors().ok();
  }));
  return pid;
}

pid_t SystemTest::StartExecutor(const std::string& name, std::vector<std::string> flags,
                                const std::string& device) {
  const auto before = Registered();
  const auto old = before.find(name);
  std::vector<std::string> argv = {OPWIRE_EXECUTOR, "--device", device, "--name", name};
  argv.insert(argv.end(), flags.begin(), flags.end());
  const pid_t pid = Start(argv);
  EXPECT_TRUE(Eventually([&] {
    const auto now = Registered();
    const auto it = now.find(name);
    return it != now.end() && (old == before.end() || it->second != old->second);
  })) << name
      << " did not register";
  return pid;
}

pid_t SystemTest::StartClient(const std::string& what) {
  const pid_t pid = Start({"/proc/self/exe", "--client=" + what});
  EXPECT_TRUE(Eventually([&] {
    std::ifstream log(LogOf(pid));
    const std::string said{std::istreambuf_iterator<char>(log), {}};
    return said.find("ready") != std::string::npos;
  })) << "the client is not ready";
  return pid;
}

void SystemTest::Signal(pid_t pid, int signal) {
  ASSERT_TRUE(children_.contains(pid));
  kill(pid, signal);
}

int SystemTest::Wait(pid_t pid) {
  int& known = children_.at(pid);
  Eventually(
      [&] {
        int status;
        if (known < 0 && waitpid(pid, &status, WNOHANG) == pid)
          known = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return known >= 0;
      },
      30 * kSecond);
  return known;
}

bool SystemTest::Alive(pid_t pid) {
  int& known = children_.at(pid);
  int status;
  if (known < 0 && waitpid(pid, &status, WNOHANG) == pid)
    known = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return known < 0;
}

double SystemTest::ProcessorSeconds(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skip;
  double user = 0, system = 0;
  for (int i = 0; i < 11; ++i) fields >> skip;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

Client SystemTest::Connect(const std::string& name) {
  ClientOptions options;
  options.name = name;
  auto client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

std::map<std::string, uint64_t> SystemTest::Registered() {
  std::map<std::string, uint64_t> out;
  auto client = Client::Connect();
  if (!client.ok()) return out;
  auto all = client->Executors();
  if (!all.ok()) return out;
  for (const ExecutorFacts& e : *all) out[e.id] = e.incarnation;
  return out;
}

SystemTest::Spoken SystemTest::SayHello(const std::string& endpoint, fb::HelloT hello) {
  auto dealer = Dealer::Connect(context_, endpoint);
  hello.major = kProtocolMajor;
  if (hello.session.empty()) hello.session = "hostile";
  ClientChannel::Message m;
  EXPECT_TRUE((*dealer)->Send(AsBytes(EncodeRequest(1, std::move(hello)))).ok());
  auto came = (*dealer)->Receive(m, 10 * kSecond);
  AlignedBytes memory;
  auto reply =
      came.ok() && *came ? DecodeReply(AsBytes(m.head), memory) : Unavailable("no answer to Hello");
  EXPECT_TRUE(reply.ok()) << reply.status();
  if (!reply.ok() || !(*reply)->body_as_HelloReply()) {
    ADD_FAILURE() << "no session";
    return {};
  }
  fb::HelloReplyT body;
  (*reply)->body_as_HelloReply()->UnPackTo(&body);
  return {body.token, body.attachment, body.run_endpoint, body.ring_path};
}

std::string SystemTest::AttachBytes(const Spoken& s) {
  fb::AttachT attach;
  attach.token = s.token;
  attach.attachment = s.attachment;
  return EncodeRequest(0, std::move(attach));
}

bool SystemTest::Eventually(const std::function<bool()>& condition, Nanos within) {
  const Nanos end = MonotonicNow() + within;
  while (true) {
    if (condition()) return true;
    if (MonotonicNow() > end) return false;
    PollReadable({}, 10 * kMillisecond);
  }
}

}  // namespace opwire::client
