// Ops of users on executors of GPUs: offered by their references, built for the device, edited,
// steered, and named when they fault. The GPUs are emulated; OPWIRE_TEST_DEVICE names another one.
#include <cstdlib>

#include "kernels/jit/sanitized.h"
#include "tests/jit/support.h"
#include "tests/system/user_ops.h"

namespace opwire::client {
namespace {

std::string DeviceOr(const char* emulated) {
  const char* const named = std::getenv("OPWIRE_TEST_DEVICE");
  return named ? named : emulated;
}

class GpuOpsTest : public UserOpsTest {
 protected:
  void SetUp() override {
    if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
    UserOpsTest::SetUp();
  }

  // user.NAME: `by` times the elements of x at the positions `at`. Its kernel has the body `body`.
  void WriteGpuOp(const std::string& name, const std::string& body) {
    const std::string folder = ops() + "/" + name;
    WriteFile(folder + "/reference.opw",
              "program @reference(%x: f32[?N], %at: i32[?B], %by: f64[]) -> (y: f32[?B]) {\n"
              "  %0 = gather(%x, %at) {dim = 0}\n  %1 = cast(%by) {dtype = f32}\n  %2 = mul(%0, "
              "%1)\n  return %2\n}\n");
    WriteFile(folder + "/own.cu", R"(#include <opwire/gpu.h>
using namespace opw;
__device__ void Pick(const float* x, const i32* at, float* y, i64 N, i64 B, double by, Reporter report) {
  for (i64 i = Index(); i < B; i += Stride()) {
    const i64 from = WrapIndex(LoadIndex(at + i), N);
    if (from < 0) ReportOutOfRange(report, 1, i);
    const float v = from < 0 ? 0.0f : x[from];
    y[i] = )" + body + R"(;
  }
}
)");
    WriteFile(folder + "/op.json",
              R"({"name": ")" + name +
                  R"(", "signature": "x: f32[N], at: i32[B] -> y: f32[B]", "indices": {"at": "N"},
  "attributes": {"by": {"type": "float", "default": 2, "doc": "The factor."}}, "reference": "reference.opw",
  "variants": {"own": {"backend": ["cuda", "hip"], "sources": ["own.cu"], "launch": {"function": "Pick", "blocks": "(B + 255) / 256"}}}})");
  }

  static std::string Pick(const std::string& name) {
    return "program @p(%x: f32[?n], %at: i32[?b]) -> (y: f32[?b]) { %0 = user." + name +
           "(%x, %at) {by = 3.0} return %0 }";
  }
  Result PickNow(const std::string& name, const std::vector<float>& x,
                 const std::vector<int32_t>& at) {
    Session session = Open();
    auto program = session.Load(Pick(name));
    if (!program.ok()) return {program.status(), {}, ""};
    RunOptions options;
    options.profile = true;
    options.wants = {Want::kInline};
    const Array values = Values(x);
    const Array positions = Array::Of<int32_t>(DType::kI32, {static_cast<int64_t>(at.size())}, at);
    auto result = program->Run({values, positions}, options);
    if (!result.ok()) return {result.status(), {}, ""};
    return {absl::OkStatus(), ToFloats(*result->outputs[0].array),
            result->profile.empty() ? "" : result->profile[0].label};
  }
  bool BecomesOwn(const std::string& name) {
    return Eventually([&] { return PickNow(name, {1, 2}, {0}).ran == "user." + name + "@own"; });
  }
};

TEST_F(GpuOpsTest, ReferenceAndOwnCodeAnswerAlike) {
  CountCompilations();
  WriteGpuOp("pick", "v * float(by)");
  StartRegistry();
  for (const std::string variant : {"reference", "own"}) {
    SCOPED_TRACE(variant);
    const bool forbid = variant == "reference";
    const pid_t executor = StartWithOps(
        "e1",
        forbid ? std::vector<std::string>{"--forbid", "user.pick@own"} : std::vector<std::string>{},
        DeviceOr("emu:0"));
    Result got;
    ASSERT_TRUE(Eventually([&] {
      return (got = PickNow("pick", {1, 2, 5}, {2, 0, -2, 1})).ran == "user.pick@" + variant;
    })) << got.status
        << ", ran " << got.ran;
    EXPECT_EQ(got.y, (Floats{15, 3, 6, 6}));
    for (int run = 0; run < 3; ++run) EXPECT_EQ(PickNow("pick", {7}, {0}).y, Floats{21});
    got = PickNow("pick", {1, 2, 5}, {0, 3, 1, -4});
    EXPECT_EQ(got.status.code(), absl::StatusCode::kOutOfRange) << got.status;
    EXPECT_NE(got.status.message().find(
                  "user.pick: operand at has a value outside its domain at position 1"),
              std::string::npos)
        << got.status;
    Signal(executor, SIGTERM);
    EXPECT_EQ(Wait(executor), 0);
  }
}

TEST_F(GpuOpsTest, EditsReachNewSessionsAndBrokenOnesNobody) {
  WriteGpuOp("pick", "v * float(by)");
  StartRegistry();
  StartWithOps("e1", {}, DeviceOr("emu:1"));
  ASSERT_TRUE(BecomesOwn("pick"));
  EXPECT_EQ(InReport("pick")["state"], "built");
  for (const auto& [body, says] : {std::pair<const char*, const char*>{"nothing", "own.cu"},
                                   {"v * float(by) + 1", "result y[0]: expected"},
                                   {"x[N + 64] * v", "is not the kernel's"}}) {
    SCOPED_TRACE(body);
    if (std::string_view(body).starts_with("x[") && !DeviceOr("emu").starts_with("emu"))
      continue;  // a GPU does not detect such reads
    WriteGpuOp("pick", body);
    EXPECT_TRUE(Eventually([&] {
      return Problem(ops() + "/pick").find(says) != std::string::npos;
    })) << Problem(ops() + "/pick");
    EXPECT_EQ(PickNow("pick", {1, 2, 5}, {2}).y, Floats{15});
  }
  WriteGpuOp("pick", "float(by) * v");
  EXPECT_TRUE(Eventually([&] { return Problem(ops() + "/pick").empty(); }));
  EXPECT_EQ(PickNow("pick", {1, 2, 5}, {2}).y, Floats{15});
}

// The device is lost with it. The next executor names the op, and after two deaths runs without it.
TEST_F(GpuOpsTest, AKernelThatFaultsIsNamedAndThenQuarantined) {
  WriteGpuOp("pick", "v == 666.0f ? *reinterpret_cast<float*>(8) : v * float(by)");
  StartRegistry();
  pid_t executor = StartWithOps("e1", {}, DeviceOr("emu:0"));
  ASSERT_TRUE(BecomesOwn("pick"));
  for (int death = 1; death <= 2; ++death) {
    SCOPED_TRACE(death);
    EXPECT_FALSE(PickNow("pick", {666}, {0}).status.ok());
    EXPECT_EQ(Wait(executor), 4);
    const std::string log = jit::Slurp(LogOf(executor));
    EXPECT_NE(log.find("the device failed"), std::string::npos) << log;
    EXPECT_NE(log.find("user.pick@own"), std::string::npos) << log;
    executor = StartWithOps("e1", {}, DeviceOr("emu:0"));
    ASSERT_OK_AND(const auto all, Connect().Executors());
    std::string died;
    for (const ExecutorFacts& e : all) {
      for (const auto& [key, value] : e.facts) died += key == "died" ? value : "";
    }
    EXPECT_NE(died.find("user.pick@own"), std::string::npos) << died;
    EXPECT_NE(died.find("for the device failed"), std::string::npos) << died;
    EXPECT_EQ(PickNow("pick", {1}, {0}).ran, death == 1 ? "user.pick@own" : "user.pick@reference");
  }
  EXPECT_EQ(PickNow("pick", {666}, {0}).y, Floats{1998});
}

}  // namespace
}  // namespace opwire::client
