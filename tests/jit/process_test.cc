// Children: what they get, how they end, and that nothing of them stays.
#include "kernels/jit/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "kernels/jit/sanitized.h"
#include "tests/jit/support.h"

namespace opwire::jit {
namespace {

ProcessOptions Shell(const std::string& script) {
  ProcessOptions o;
  o.argv = {"/bin/sh", "-c", script};
  o.environment = {"PATH=/usr/bin:/bin"};
  o.seconds = 20;
  return o;
}

bool Alive(pid_t pid) {
  return kill(pid, 0) == 0 &&
         Slurp("/proc/" + std::to_string(pid) + "/stat").find(") Z") == std::string::npos;
}

bool DeadWithin(pid_t pid, int ms) {
  for (int i = 0; i < ms; i += 5) {
    if (!Alive(pid)) return true;
    usleep(5'000);
  }
  return false;
}

TEST(Process, GetsInputAndGivesOutputs) {
  ProcessOptions o = Shell("cat; echo oops >&2; exit 3");
  o.input = std::string(3 << 20, 'x');  // more than a pipe holds, both ways
  o.output_bytes = 16 << 20;
  ASSERT_OK_AND(const ProcessResult r, RunProcess(o));
  EXPECT_EQ(r.output.size(), o.input.size());
  EXPECT_EQ(r.errors, "oops\n");
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.Describe(), "exit code 3");
}

TEST(Process, ReadsNoInputAndIsNotWaitedFor) {
  ProcessOptions o = Shell("exec <&-; echo done");
  o.input = std::string(3 << 20, 'x');
  ASSERT_OK_AND(const ProcessResult r, RunProcess(o));
  EXPECT_EQ(r.output, "done\n");
}

TEST(Process, KeepsTheFirstAndTheLastOfAFlood) {
  ProcessOptions o = Shell("echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo last");
  o.output_bytes = 1000;
  ASSERT_OK_AND(const ProcessResult r, RunProcess(o));
  EXPECT_LT(r.output.size(), 1100u);
  EXPECT_TRUE(r.output.starts_with("first\n"));
  EXPECT_TRUE(r.output.ends_with("last\n"));
  EXPECT_NE(r.output.find("19999011 bytes left out"), std::string::npos)
      << r.output.substr(480, 80);
}

TEST(Process, NoProgram) {
  for (const char* program : {"/no/such/program", "/etc/passwd", "/tmp"}) {
    const auto r = RunProcess({.argv = {program}});
    EXPECT_TRUE(absl::IsNotFound(r.status())) << r.status();
    EXPECT_NE(r.status().ToString().find(program), std::string::npos);
  }
  ProcessOptions o = Shell("true");
  o.directory = "/no/such/directory";
  EXPECT_TRUE(absl::IsNotFound(RunProcess(o).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      RunProcess({.argv = {"/bin/echo", std::string("a\0b", 3)}}).status()));
}

TEST(Process, SignalsAreTold) {
  ASSERT_OK_AND(const ProcessResult r, RunProcess(Shell("kill -SEGV $$")));
  EXPECT_EQ(r.signal, SIGSEGV);
  EXPECT_EQ(r.Describe(), "signal 11 (Segmentation fault)");
}

TEST(Process, TimeLimitEndsTheWholeGroup) {
  Folder folder;
  ProcessOptions o = Shell("sleep 100 & echo $! > pid; trap '' TERM; wait");
  o.directory = folder.path();
  o.seconds = 0.3;
  ASSERT_OK_AND(const ProcessResult r, RunProcess(o));
  EXPECT_TRUE(r.timed_out);
  EXPECT_GE(r.seconds, 0.3);
  EXPECT_LT(r.seconds, 5);
  EXPECT_NE(r.Describe().find("no end within 0.3"), std::string::npos) << r.Describe();
  EXPECT_TRUE(DeadWithin(std::stoi(Slurp(folder / "pid")), 2000));
}

TEST(Process, LimitOfProcessorTimeNamesItsSignal) {
  ProcessOptions o = Shell("while :; do :; done");
  o.cpu_seconds = 1;
  ASSERT_OK_AND(const ProcessResult r, RunProcess(o));
  EXPECT_EQ(r.signal, SIGXCPU) << r.Describe();
}

// A machine under load gives a process little of the wall time.
TEST(Process, TimeThatIsSleptIsNoProcessorTime) {
  ProcessOptions o = Shell("sleep 1.5");
  o.cpu_seconds = 1;
  ASSERT_OK_AND(const ProcessResult r, RunProcess(o));
  EXPECT_TRUE(r.ok()) << r.Describe();
}

TEST(Process, WhatAChildLeavesRunningEndsWithIt) {
  ASSERT_OK_AND(const ProcessResult r, RunProcess(Shell("sleep 100 & echo $!")));
  EXPECT_TRUE(r.ok());
  EXPECT_LT(r.seconds, 5);
  EXPECT_TRUE(DeadWithin(std::stoi(r.output), 2000));
}

TEST(Process, DiesWithThisOne) {
  Folder folder;
  const pid_t owner = fork();
  if (owner == 0) {
    ProcessOptions o = Shell("sleep 100 & echo $! $$ > pids; wait");
    o.directory = folder.path();
    (void)RunProcess(o);
    _exit(0);
  }
  int child = 0, parent = 0;
  for (int i = 0;
       i < 1000 && std::sscanf(Slurp(folder / "pids").c_str(), "%d %d", &child, &parent) != 2; ++i)
    usleep(5'000);
  usleep(50'000);  // until the parent watches over them
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  ASSERT_GT(parent, 0);
  EXPECT_TRUE(DeadWithin(parent, 5000));
  EXPECT_TRUE(DeadWithin(child, 5000));
}

TEST(Process, GetsThreeDescriptorsAndOnlyTheNamedVariables) {
  const int leaked = open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  setenv("OPWIRE_TEST_LEAK", "1", 1);
  ASSERT_OK_AND(const ProcessResult r,
                RunProcess(Shell(
                    "ls /proc/$$/fd; env | grep -c LEAK; ulimit -c")));  // no pipe: the shell would
                                                                         // still have its ends
  close(leaked);
  EXPECT_EQ(r.output, "0\n1\n2\n0\n0\n");
}

TEST(Process, ThisOneKeepsNoDescriptors) {
  const auto count = [] { return NamesIn("/proc/self/fd").size(); };
  ASSERT_OK(RunProcess(Shell("true")).status());
  const size_t before = count();
  for (int i = 0; i < 20; ++i)
    (void)RunProcess(i % 2 ? Shell("true") : ProcessOptions{.argv = {"/no/such/program"}});
  EXPECT_EQ(count(), before);
}

TEST(Process, FilesAndMemoryAreLimited) {
  Folder folder;
  ProcessOptions o = Shell("head -c 1000000 /dev/zero > big");
  o.directory = folder.path();
  o.file_bytes = 4096;
  ASSERT_OK_AND(const ProcessResult r, RunProcess(o));
  EXPECT_FALSE(r.ok());
  EXPECT_LE(std::filesystem::file_size(folder / "big"), 4096u);
  if (kSanitized) GTEST_SKIP() << "no limit of addresses under a sanitizer";
  o = Shell("head -c 500000000 /dev/zero | tail -c 400000000 | wc -c");
  o.memory_bytes = 64 << 20;
  ASSERT_OK_AND(const ProcessResult m, RunProcess(o));
  EXPECT_EQ(m.output, "0\n");
}

TEST(Process, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        ProcessOptions o = Shell("cat; echo end");
        o.input = std::to_string(t * 100 + i);
        const auto r = RunProcess(o);
        good += r.ok() && r->output == o.input + "end\n";
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 80);
}

}  // namespace
}  // namespace opwire::jit
