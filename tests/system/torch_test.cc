// Programs pinned to libtorch's variants on a real executor, with its module and without.
#include <cmath>
#include <cstdlib>

#include "tests/system/processes.h"

namespace opwire::client {
namespace {

constexpr const char* kPinned =
    "program @p(%x: f32[?n, ?m]) -> (y: f32[?n, ?m]) { %0 = softmax@torch(%x) {dim = -1} return %0 "
    "}";
constexpr const char* kLargest =
    "program @l(%x: f32[?n, ?m]) -> (y: f32[?n]) { %0 = amax@torch(%x) {dims = [1]} return %0 }";

class TorchTest : public SystemTest {
 protected:
  ~TorchTest() override { unsetenv("OPWIRE_TORCH"); }
  void StartHouse(const std::string& module) {
    setenv("OPWIRE_TORCH", module.c_str(), 1);
    StartRegistry();
    StartExecutor("e1");
  }
};

#define SKIP_WITHOUT_MODULE()                        \
  if (std::string_view(OPWIRE_TORCH_MODULE).empty()) \
  GTEST_SKIP() << "opwire_torch.so was not built: cmake found no torch (OPWIRE_TORCH_DIR)"

TEST_F(TorchTest, APinIsRunByIt) {
  SKIP_WITHOUT_MODULE();
  StartHouse(OPWIRE_TORCH_MODULE);
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Program pinned, session.Load(kPinned));
  const Array x = Array::Random(DType::kF32, {5, 7}, 3);
  RunOptions options;
  options.profile = true;
  options.wants = {Want::kInline};
  ASSERT_OK_AND(const RunResult r, pinned.Run({x}, options));
  ASSERT_EQ(r.profile.size(), 1u);
  EXPECT_EQ(r.profile[0].label, "softmax@torch");
  const Floats y = ToFloats(*r.outputs[0].array);
  for (size_t row = 0; row < 5; ++row) {
    const auto in = x.values<float>().subspan(row * 7, 7);
    double sum = 0;
    for (float v : in) sum += std::exp(static_cast<double>(v));
    for (size_t i = 0; i < 7; ++i)
      EXPECT_NEAR(y[row * 7 + i], std::exp(static_cast<double>(in[i])) / sum, 1e-6);
  }
}

TEST_F(TorchTest, WhatItThrowsNamesTheNodeAndTheSessionGoesOn) {
  SKIP_WITHOUT_MODULE();
  StartHouse(OPWIRE_TORCH_MODULE);
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Program largest, session.Load(kLargest));
  const Status wrong = largest.Call({Array(DType::kF32, {3, 0})}).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kOutOfRange) << wrong;
  EXPECT_NE(MessageOf(wrong).find("amax@torch failed: libtorch: amax()"), std::string::npos)
      << wrong;
  EXPECT_EQ(SiteOf(wrong).program, "l");
  EXPECT_EQ(SiteOf(wrong).node, 0);
  ASSERT_OK_AND(
      const auto y,
      largest.Call({Array::Of<float>(DType::kF32, {2, 2}, std::vector<float>{1, 5, 7, 2})}));
  EXPECT_EQ(ToFloats(y.at(0)), (Floats{5, 7}));
}

TEST_F(TorchTest, WithoutTheModuleAPinSaysWhy) {
  StartHouse(directory_);
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  const Status refused = session.Load(kPinned).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  for (const char* part :
       {"softmax@torch cannot run", "opwire_torch.so (OPWIRE_TORCH may name its file or folder)",
        "these can: "}) {
    EXPECT_NE(refused.ToString().find(part), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace opwire::client
