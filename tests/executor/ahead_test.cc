// Compiling ahead in the background, of short lists.
#include "executor/serve/ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "kernels/device/device.h"
#include "kernels/jit/sanitized.h"
#include "tests/assert_ok.h"
#include "tests/folder.h"
#include "tests/kernels/counting_toolchain.h"

namespace opwire::executor {
namespace {

using State = AheadBuild::State;
using nlohmann::json;

class AheadBuildTest : public testing::Test {
 protected:
  std::shared_ptr<gpu::Code> NewCode() {
    return std::make_shared<gpu::Code>(device_, std::make_unique<jit::CountingToolchain>(calls_),
                                       cache_.path());
  }
  // Elementwise, softmax, and steps of an optimiser: three units.
  StatusOr<std::vector<gpu::AheadUnit>> Units() {
    const gpu::AheadCall calls[] = {{"add", "f32[64], f32[64]", {}},
                                    {"softmax", "T[64, 128]", {{"dim", -1}}},
                                    {"scale", "f32[64], f32[]", {}}};
    return gpu::AheadUnits(device_, calls);
  }
  AheadBuild::Units List() {
    return [this] { return Units(); };
  }
  static bool Settles(const AheadBuild& build) {
    for (int i = 0; i < 3000 && !build.Settled(); ++i) usleep(10'000);
    return build.Settled();
  }

  jit::CountingToolchain::Calls calls_;
  const Folder cache_;
  const std::unique_ptr<Device> opened_ = OpenDevice("emu:0", {}).value();
  gpu::GpuDevice& device_ = static_cast<gpu::GpuDevice&>(*opened_);
};

TEST_F(AheadBuildTest, CompilesAtALowPriorityAndThenOnlyFinds) {
  for (const bool warm : {false, true}) {
    SCOPED_TRACE(warm);
    const auto code = NewCode();
    AheadBuild build(code, List());
    EXPECT_EQ(build.progress().state, State::kOff);
    EXPECT_TRUE(build.Settled());
    build.Start(2);
    ASSERT_TRUE(Settles(build));
    const json facts = json::parse(build.Facts());
    EXPECT_EQ(facts["state"], "ready") << facts;
    EXPECT_EQ(facts["kernels"], 4) << facts;
    EXPECT_EQ(facts["ready"], 4) << facts;
    EXPECT_EQ(facts["units"], 3) << facts;
    EXPECT_EQ(facts["cached_units"], warm ? 3 : 0) << facts;
    EXPECT_EQ(facts["reason"], "") << facts;
    EXPECT_GT(facts["seconds"].get<double>(), 0) << facts;
    EXPECT_EQ(calls_.compiled, 3);
    EXPECT_LE(calls_.most_running, 2);
    EXPECT_GE(calls_.priority, 10);
    ASSERT_OK_AND(const auto units, Units());
    if (!jit::kSanitized) ASSERT_OK(code->GetText(units[0][0])->Load().status());
    EXPECT_EQ(calls_.compiled, 3) << "the unit has it";
  }
}

TEST_F(AheadBuildTest, OneAtATime) {
  AheadBuild build(NewCode(), List());
  build.Start(0);
  ASSERT_TRUE(Settles(build));
  EXPECT_EQ(build.progress().state, State::kReady);
  EXPECT_EQ(calls_.most_running, 1);
}

TEST_F(AheadBuildTest, AUnitThatFailsIsAReasonAndTheOthersAreThere) {
  calls_.before = [](const jit::CompileRequest& request) -> Status {
    return request.name.find("softmax") != std::string::npos ? Internal("the compiler fell over")
                                                             : absl::OkStatus();
  };
  AheadBuild build(NewCode(), List());
  build.Start(2);
  ASSERT_TRUE(Settles(build));
  const AheadBuild::Progress p = build.progress();
  EXPECT_EQ(p.state, State::kIncomplete);
  EXPECT_EQ(p.ready, 2u);
  EXPECT_EQ(p.kernels, 4u);
  EXPECT_EQ(p.reason, "the compiler fell over");
}

TEST_F(AheadBuildTest, WithoutACompilerNothingIsTried) {
  calls_.unavailable = "no compiler here";
  AheadBuild build(NewCode(), List());
  build.Start(1);
  ASSERT_TRUE(Settles(build));
  const AheadBuild::Progress p = build.progress();
  EXPECT_EQ(p.state, State::kIncomplete);
  EXPECT_EQ(p.ready, 0u);
  EXPECT_NE(p.reason.find("no compiler here"), std::string::npos) << p.reason;
  EXPECT_EQ(calls_.compiled, 0);
}

TEST_F(AheadBuildTest, AListThatIsNoneIsAReason) {
  AheadBuild build(NewCode(),
                   []() -> StatusOr<std::vector<gpu::AheadUnit>> { return Internal("no list"); });
  build.Start(1);
  ASSERT_TRUE(Settles(build));
  EXPECT_EQ(build.progress().state, State::kIncomplete);
  EXPECT_EQ(build.progress().reason, "no list");
}

TEST_F(AheadBuildTest, WhereThereIsAReasonAgainstItNothingBegins) {
  AheadBuild build("by --ahead off");
  build.Start(1);
  EXPECT_TRUE(build.Settled());
  const json facts = json::parse(build.Facts());
  EXPECT_EQ(facts["state"], "off");
  EXPECT_EQ(facts["reason"], "by --ahead off");
}

TEST_F(AheadBuildTest, ItsEndBeginsNoMore) {
  std::atomic<bool> compiling{false}, go_on{false};
  calls_.before = [&](const jit::CompileRequest&) -> Status {
    compiling = true;
    while (!go_on) usleep(1000);
    return absl::OkStatus();
  };
  std::thread later;
  {
    AheadBuild build(NewCode(), List());
    build.Start(1);
    while (!compiling) usleep(1000);
    EXPECT_FALSE(build.Settled());
    EXPECT_EQ(build.progress().state, State::kCompiling);
    later = std::thread([&] {
      usleep(50'000);
      go_on = true;
    });
  }
  later.join();
  EXPECT_EQ(calls_.compiled, 1);
}

}  // namespace
}  // namespace opwire::executor
