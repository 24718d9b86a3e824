// Plans of a device with graphs: which steps are replayed, and which are called for each run.
#include <cmath>
#include <utility>

#include "executor/plan/instance.h"
#include "kernels/jit/sanitized.h"
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

int replayable = 0, called = 0;

int RunReplayable(const opw_call*) { return ++replayable, OPW_OK; }
int RunCalled(const opw_call*) { return ++called, OPW_OK; }

class GraphsTest : public CoreTest {
 protected:
  // relu may be part of a graph, and neg as `flags` say. Neither has an effect.
  void Start(uint32_t flags) {
    core_.reset();
    auto device = OpenDevice("emu:0", {});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    variants_ = VariantTable();
    const auto add = [&](const char* op, uint32_t own_flags, int (*run)(const opw_call*)) {
      const opw_kernel kernel = {
          OPW_ABI_VERSION, OPW_CONTIGUOUS | own_flags, nullptr, nullptr, nullptr, run, nullptr};
      variants_.Add({op, "own", Tier::kProduction, 0, kFloats, "", "builtin", kernel});
    };
    add("relu", 0, RunReplayable);
    add("neg", flags, RunCalled);
    Restart();
    replayable = called = 0;
  }
  void RunFourTimes() {
    Client c = Hello();
    const Answer loaded = Load(c, 1,
                               "program @p(%x: f32[4]) -> (y: f32[4]) { %0 = relu(%x) %1 = neg(%0) "
                               "%2 = relu(%1) %3 = relu(%2) return %3 }");
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

int (*doubles)(const opw_call*) = nullptr;
int RunDoubles(const opw_call* c) { return ++called, doubles(c); }

// Counts calls of add in a program whose loop doubles a value in each iteration.
class LoopGraphsTest : public CoreTest {
 protected:
  void Start() {
    core_.reset();
    auto device = OpenDevice("emu:0", {});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    variants_ = BuildVariantTable(*device_, {.worker = OPWIRE_EXECUTOR});
    Variant counting = variants_.Of("add")[0];
    doubles = std::exchange(counting.kernel.run, RunDoubles);
    counting.name = "counting";
    variants_.Add(counting);
    Restart();
    called = 0;
  }
  // `most`: calls in three runs. Their iterations may run on the host or the device, depending on
  // timing.
  void Expect(const std::string& text, int64_t iterations, int most) {
    if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
    Start();
    Client c = Hello();
    const Answer loaded = Load(c, 1, text);
    ASSERT_TRUE(loaded.ok()) << loaded.status;
    for (int round = 0; round < 3; ++round) {
      const Answer a = Ask(c, RunOf(1).Scalar(static_cast<float>(iterations)).Array({1}).Inline());
      ASSERT_TRUE(a.ok()) << a.status;
      EXPECT_EQ(a.Floats(0)[0], std::ldexp(1.0f, static_cast<int>(iterations)));
    }
    EXPECT_LE(called, most);
  }
};

TEST_F(LoopGraphsTest, AWhileIsMadeByTheDevice) {
  Expect(R"(
program @p(%n: f32[], %x: f32[1]) -> (y: f32[1]) {
  %0 = full() {value = 0.0, dtype = f32, shape = []}
  %y, %t = while([%x, %0], [%n]) calls(@below, @twice) {max_trips = 1000}
  return %y
}
function @below(%y: f32[1], %t: f32[], %n: f32[]) -> (again: bool[]) {
  %0 = lt(%t, %n)
  return %0
}
function @twice(inout %y: f32[1], %t: f32[], %n: f32[]) -> (y: f32[1], t: f32[]) {
  %0 = add@counting(%y, %y)
  %one = full() {value = 1.0, dtype = f32, shape = []}
  %1 = neg(%one)
  %2 = sub(%t, %1)
  return %0, %2
})",
         100, 3);
}

TEST_F(LoopGraphsTest, ARepeatWithABranchIsMadeByTheDevice) {
  // Of two iterations one halves, and one doubles three times. Each doubling is called alone, in a
  // graph of its own, and in the graph of the loop.
  Expect(R"(
program @p(%n: f32[], %x: f32[1]) -> (y: f32[1]) {
  %0 = cast(%n) {dtype = i64}
  %1 = repeat(%0, [%x], []) calls(@step)
  return %1
}
function @step(%iteration: i64[], %y: f32[1]) -> (y: f32[1]) {
  %0 = full() {value = 1, dtype = i64, shape = []}
  %1 = bitwise_and(%iteration, %0)
  %2 = full() {value = 0, dtype = i64, shape = []}
  %odd = ne(%1, %2)
  %r = if(%odd, [%y]) calls(@twice, @half) -> (f32[1])
  return %r
}
function @twice(%y: f32[1]) -> (y: f32[1]) {
  %0 = add@counting(%y, %y)
  %1 = add@counting(%0, %0)
  %2 = add@counting(%1, %1)
  return %2
}
function @half(%y: f32[1]) -> (y: f32[1]) {
  %0 = full() {value = 0.5, dtype = f32, shape = []}
  %1 = mul(%y, %0)
  return %1
})",
         100, 9);
}

// An `if` with another one in one of its branches.
constexpr const char* kChoice = R"(
program @p(%n: f32[], %x: f32[1]) -> (y: f32[1]) {
  %0 = full() {value = 0.0, dtype = f32, shape = []}
  %1 = gt(%n, %0)
  %2 = if(%1, [%x, %n]) calls(@up, @down) -> (f32[1])
  %3 = neg(%2)
  return %3
}
function @up(%x: f32[1], %n: f32[]) -> (y: f32[1]) {
  %0 = add@counting(%x, %x)
  %two = full() {value = 2.0, dtype = f32, shape = []}
  %1 = gt(%n, %two)
  %2 = if(%1, [%0]) calls(@same, @half) -> (f32[1])
  return %2
}
function @down(%x: f32[1], %n: f32[]) -> (y: f32[1]) {
  %0 = neg(%x)
  return %0
}
function @same(%x: f32[1]) -> (y: f32[1]) {
  %0 = neg(%x)
  return %0
}
function @half(%x: f32[1]) -> (y: f32[1]) {
  %h = full() {value = 0.5, dtype = f32, shape = []}
  %0 = mul(%x, %h)
  return %0
})";

TEST_F(LoopGraphsTest, AnIfIsDecidedByTheDevice) {
  if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
  Start();
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1, kChoice).ok());
  for (int round = 0; round < 6; ++round) {
    for (const auto& [n, expected] :
         {std::pair(3.0f, 10.0f), std::pair(1.0f, -5.0f), std::pair(-1.0f, 5.0f)}) {
      const Answer a = Ask(c, RunOf(1).Scalar(n).Array({5}).Inline());
      ASSERT_TRUE(a.ok()) << a.status;
      EXPECT_EQ(a.Floats(0)[0], expected) << "n = " << n << ", round " << round;
    }
  }
  EXPECT_EQ(called, 4) << "by itself in two runs, in a graph of its own, and in one that decides";
}

TEST_F(LoopGraphsTest, AnIfThatAlwaysGoesOneWayIsDecidedThereToo) {
  if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
  Start();
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1, kChoice).ok());
  for (int run = 0; run < 10; ++run) {
    const float n = run < 8 ? 3.0f : -1.0f;
    const Answer a = Ask(c, RunOf(1).Scalar(n).Array({5}).Inline());
    ASSERT_TRUE(a.ok()) << a.status;
    EXPECT_EQ(a.Floats(0)[0], run < 8 ? 10.0f : 5.0f) << run;
  }
  EXPECT_EQ(called, 4);
}

}  // namespace
}  // namespace opwire::executor
