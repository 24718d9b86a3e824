// Compiling ahead in an executor of its own process: it is visible, does not delay other work, and
// ends with the executor.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "kernels/jit/sanitized.h"
#include "tests/system/processes.h"

namespace opwire::client {
namespace {

using nlohmann::json;

class AheadTest : public SystemTest {
 protected:
  void SetUp() override {
    if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
    StartRegistry();
  }
  void TearDown() override { unsetenv("OPWIRE_CXX"); }

  // Gives executors a compiler that takes half a minute for compilations at a low priority.
  void SlowDown() const {
    const std::string path = directory_ + "/slow-cxx";
    std::ofstream(path) << "#!/bin/sh\nif [ \"$1\" = -v ]; then exec g++ -v; fi\nif [ \"$(nice)\" "
                           "-ge 10 ]; then sleep 30; fi\nexec g++ \"$@\"\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    setenv("OPWIRE_CXX", path.c_str(), 1);
  }

  Session OpenOn(const std::string& name) {
    SessionOptions options;
    options.device = name;
    StatusOr<Session> session = Connect().Open(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : Session();
  }
  static json FactsOf(Session& session) {
    const auto facts = session.Info("toolchains");
    return facts.ok() ? json::parse(*facts).value("ahead", json())
                      : json(facts.status().ToString());
  }

  // Returns the number of processes that compile into this test's cache, where their temporary
  // files are.
  int Compilers() const {
    int found = 0;
    std::error_code ignored;
    for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
      std::ifstream in(process.path() / "environ", std::ios::binary);
      const std::string environment((std::istreambuf_iterator<char>(in)), {});
      found += environment.find("TMPDIR=" + directory_ + "/cache/") != std::string::npos;
    }
    return found;
  }
};

TEST_F(AheadTest, RunsAreServedMeanwhileAndItEndsWithTheExecutor) {
  SlowDown();
  const pid_t executor = StartExecutor("e1", {"--ahead", "on"}, "emu:0");
  Session session = OpenOn("e1");
  ASSERT_TRUE(Eventually([&] { return Compilers() > 0; }));
  const json facts = FactsOf(session);
  EXPECT_EQ(facts["state"], "compiling") << facts;
  EXPECT_GT(facts["kernels"].get<int>(), 100) << facts;
  EXPECT_EQ(facts["ready"], 0) << facts;
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(const auto y, twice.Call({Values({1, 2, 3})}));
  EXPECT_EQ(ToFloats(y.at(0)), (Floats{2, 4, 6}));
  EXPECT_EQ(FactsOf(session)["state"], "compiling");
  ASSERT_OK(session.Close());
  EXPECT_GT(Compilers(), 0);
  const Nanos begun = MonotonicNow();
  Signal(executor, SIGTERM);
  EXPECT_EQ(Wait(executor), 0);
  EXPECT_LT(MonotonicNow() - begun, kSecond);
  EXPECT_TRUE(Eventually([&] { return Compilers() == 0; }, kSecond))
      << Compilers() << " compilers are left";
}

TEST_F(AheadTest, ItsCompilersDieWithAnExecutorThatIsKilled) {
  SlowDown();
  const pid_t executor = StartExecutor("e1", {"--ahead", "on"}, "emu:1");
  ASSERT_TRUE(Eventually([&] { return Compilers() > 0; }));
  Kill(executor);
  EXPECT_TRUE(Eventually([&] { return Compilers() == 0; }, kSecond))
      << Compilers() << " compilers are left";
}

TEST_F(AheadTest, WithoutACompilerItSaysSoAndServes) {
  setenv("OPWIRE_CXX", "/nowhere/cxx", 1);
  const pid_t executor = StartExecutor("e1", {"--ahead", "on"}, "emu:0");
  Session session = OpenOn("e1");
  json facts;
  ASSERT_TRUE(Eventually([&] { return (facts = FactsOf(session))["state"] != "compiling"; }));
  EXPECT_EQ(facts["state"], "incomplete") << facts;
  EXPECT_EQ(facts["ready"], 0) << facts;
  EXPECT_NE(facts["reason"].get<std::string>().find("/nowhere/cxx"), std::string::npos) << facts;
  ASSERT_OK_AND(const Tensor kept, session.Put(Values({1, 2}).view()));
  ASSERT_OK(session.Fetch(kept).status());
  Signal(executor, SIGTERM);
  EXPECT_EQ(Wait(executor), 0);
}

TEST_F(AheadTest, IsOffWhereNothingIsToBeCompiled) {
  const std::tuple<const char*, const char*, std::vector<std::string>, const char*> executors[] = {
      {"cpu", "e1", {"--ahead", "on"}, "a part of the executor"},
      {"emu:0", "e2", {"--ahead", "off"}, "by --ahead off"},
      {"emu:0", "e3", {}, "for checks"}};
  for (const auto& [device, name, flags, reason] : executors) {
    StartExecutor(name, flags, device);
    Session session = OpenOn(name);
    const json facts = FactsOf(session);
    EXPECT_EQ(facts["state"], "off") << facts;
    EXPECT_NE(facts["reason"].get<std::string>().find(reason), std::string::npos) << facts;
  }
  EXPECT_EQ(Compilers(), 0);
}

}  // namespace
}  // namespace opwire::client
