// Plans of a device with graphs: which steps are replayed, and which are called for each run.
#include "executor/plan/instance.h"
#include "kernels/jit/sanitized.h"
#include "tests/executor/fixture.h"

namespace opwire {
namespace {

int replayable = 0, called = 0;

int RunReplayable(const opw_call*) { return ++replayable, OPW_OK; }
int RunCalled(const opw_call*) { return ++called, OPW_OK; }

class GraphsTest : public CoreTest {
 protected:
  // relu may be part of a graph, neg as `flags` say; neither does anything.
  void Start(uint32_t flags) {
    core_.reset();
    auto device = OpenDevice("emu:0", {});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    variants_ = VariantTable();
    const auto add = [&](const char* op, uint32_t own_flags, int (*run)(const opw_call*)) {
      const opw_kernel kernel = {OPW_ABI_VERSION, OPW_CONTIGUOUS | own_flags, nullptr, nullptr, nullptr, run, nullptr};
      variants_.Add({op, "own", Tier::kProduction, 0, kFloats, "", "builtin", kernel});
    };
    add("relu", 0, RunReplayable);
    add("neg", flags, RunCalled);
    Restart();
    replayable = called = 0;
  }
  void RunFourTimes() {
    Client c = Hello();
    const Answer loaded = Load(c, 1, "program @p(%x: f32[4]) -> (y: f32[4]) { %0 = relu(%x) %1 = neg(%0) %2 = relu(%1) %3 = relu(%2) return %3 }");
    ASSERT_TRUE(loaded.ok()) << loaded.status;
    ASSERT_TRUE(Put(c, 1, {1, 2, 3, 4}).ok());
    for (int i = 0; i < 4; ++i) {
      const Answer a = Ask(c, RunOf(1).Tensor(c, 1).None());
      ASSERT_TRUE(a.ok()) << a.status;
    }
  }
};

TEST_F(GraphsTest, StepsAreCalledOnceAndOnceToBeCaptured) {
  if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
  Start(0);
  RunFourTimes();
  EXPECT_EQ(replayable, 2 * 3);
  EXPECT_EQ(called, 2);
}

TEST_F(GraphsTest, AStepThatCannotBeCapturedIsCalledAndThoseAroundItAreReplayed) {
  if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
  Start(OPW_NO_GRAPH);
  RunFourTimes();
  EXPECT_EQ(replayable, 2 * 3);
  EXPECT_EQ(called, 4);
}

}  // namespace
}  // namespace opwire
