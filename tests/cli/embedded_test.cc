// If no executor runs and no registry was named, a client's first session starts executors of the
// user. They end when idle.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/cli/house.h"

namespace opwire {
namespace {

constexpr const char* kRun = "opwire run double.opw --in x=random:7 --dim n=4";
constexpr const char* kStarted = "nothing ran here: started auto-0 (cpu";

class Embedded : public ::testing::Test {
 protected:
  Embedded() {
    house_.Write(
        "double.opw",
        "program @double(%x: f32[?n]) -> (y: f32[?n]) {\n  %0 = add(%x, %x)\n  return %0\n}\n");
  }
  // No process owns the supervisor: the test finds it by the runtime directory in its environment.
  ~Embedded() override {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream in(entry.path() / "environ", std::ios::binary);
      const std::string environment(std::istreambuf_iterator<char>(in), {});
      if (environment.find("OPWIRE_RUNTIME_DIR=" + house_.runtime()) == std::string::npos) continue;
      kill(std::atoi(entry.path().filename().c_str()), SIGKILL);
    }
  }
  static bool Says(const House::Result& r, const char* what) {
    return r.output.find(what) != std::string::npos;
  }
  House house_;
};

TEST_F(Embedded, TheFirstRunStartsThemAndTheNextFindsThem) {
  const House::Result first = house_.Run(kRun);
  EXPECT_EQ(first.code, 0) << first.output;
  EXPECT_TRUE(Says(first, kStarted)) << first.output;
  const House::Result next = house_.Run(kRun);
  EXPECT_EQ(next.code, 0) << next.output;
  EXPECT_FALSE(Says(next, "started")) << next.output;
  EXPECT_TRUE(Says(house_.Run("opwire devices"), "auto-0"));
}

TEST_F(Embedded, OneOfManyStartsThem) {
  std::vector<pid_t> runs;
  for (int i = 0; i < 6; ++i) runs.push_back(house_.Start(kRun));
  int started = 0;
  for (pid_t pid : runs) {
    const House::Result r = house_.Wait(pid);
    EXPECT_EQ(r.code, 0) << r.output;
    started += Says(r, kStarted);
  }
  EXPECT_EQ(started, 1);
}

TEST_F(Embedded, ANamedRegistryIsNeverReplaced) {
  for (const std::string how : {"OPWIRE_REGISTRY=ipc://$PWD/elsewhere ", ""}) {
    const House::Result r =
        house_.Run(how + kRun + (how.empty() ? " --registry ipc://$PWD/elsewhere" : ""));
    EXPECT_EQ(r.code, 3) << r.output;
    EXPECT_FALSE(Says(r, "started")) << r.output;
  }
}

TEST_F(Embedded, SaysWhyNoneCanBeStarted) {
  const House::Result gone = house_.Run(std::string("OPWIRE_PROGRAM=/nowhere/opwire ") + kRun);
  EXPECT_EQ(gone.code, 3);
  EXPECT_TRUE(Says(gone, "/nowhere/opwire cannot be started: No such file")) << gone.output;
  const House::Result refused = house_.Run(std::string(kRun) + " --on cuda:7");
  EXPECT_EQ(refused.code, 3);
  EXPECT_TRUE(Says(refused, "device 'cuda:7' cannot be bound")) << refused.output;
}

TEST_F(Embedded, TheyLeaveWhenIdle) {
  const pid_t up = house_.Start("exec opwire up --idle-timeout 2");
  ASSERT_TRUE(House::Eventually([&] { return house_.Run("opwire devices --on cpu-0").code == 0; }));
  const House::Result r = house_.Wait(up);
  EXPECT_EQ(r.code, 0) << r.output;
  EXPECT_TRUE(Says(r, "stopped")) << r.output;
}

}  // namespace
}  // namespace opwire
