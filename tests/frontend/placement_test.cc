// Which executor is chosen, and the reason given for each.
#include "frontend/cpp/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/text/text.h"
#include "tests/seed.h"

namespace opwire::client {
namespace {

ExecutorFacts Executor(const std::string& id, const std::string& device = "cpu") {
  ExecutorFacts e;
  e.id = id;
  e.device = device;
  e.free_memory = 1000;
  e.ops = {{"add", 1, {DType::kF32}, {"reference"}},
           {"relu", 1, {DType::kF32}, {"reference", "avx2"}}};
  return e;
}

std::string Best(const std::vector<ExecutorFacts>& all, const SessionOptions& options = {}) {
  const auto placed = Place(all, options);
  EXPECT_EQ(placed.size(), all.size()) << "each is named, with its reason";
  for (const PlacementCandidate& c : placed) EXPECT_NE(c.reason, "") << c.executor->id;
  return placed.empty() || !placed[0].fits ? "" : placed[0].executor->id;
}

TEST(Placement, FiltersByDeviceLabelAndMemory) {
  std::vector<ExecutorFacts> all = {Executor("a"), Executor("b", "cuda:0"),
                                    Executor("c", "cuda:1")};
  all[2].labels = {"big"};
  all[2].free_memory = 5000;
  SessionOptions o;
  o.device = "cpu";
  EXPECT_EQ(Best(all, o), "a");
  o.device = "cuda:1";
  EXPECT_EQ(Best(all, o), "c");
  o.device = "b";
  EXPECT_EQ(Best(all, o), "b");
  o.device = "hip";
  EXPECT_EQ(Best(all, o), "");
  o = {};
  o.label = "big";
  EXPECT_EQ(Best(all, o), "c");
  o = {};
  o.memory_bytes = 1001;
  EXPECT_EQ(Best(all, o), "c");
  o.memory_bytes = 6000;
  EXPECT_EQ(Best(all, o), "");
  EXPECT_EQ(Best({}, {}), "");
}

TEST(Placement, DevicesForChecksComeLast) {
  std::vector<ExecutorFacts> all = {Executor("emulated", "emu:0"), Executor("cpu")};
  EXPECT_EQ(Best(all), "cpu");
  all[1].busy_ms = 5;
  EXPECT_EQ(Best(all), "cpu");
  SessionOptions o;
  o.device = "emu";
  EXPECT_EQ(Best(all, o), "emulated");
}

TEST(Placement, PrefersIdleThenAcceleratorsThenTheShortestQueue) {
  std::vector<ExecutorFacts> all = {Executor("cpu"), Executor("gpu", "cuda:0")};
  EXPECT_EQ(Best(all), "gpu");
  all[1].busy_ms = 5;
  EXPECT_EQ(Best(all), "cpu");
  all[0].queued = 1;
  EXPECT_EQ(Best(all), "gpu");
  all = {Executor("x"), Executor("y")};
  all[0].queued = all[1].queued = 1;
  all[0].queued_ns = 10;
  EXPECT_EQ(Best(all), "y");
  all[0].queued_ns = 0;
  all[1].queued = 2;
  EXPECT_EQ(Best(all), "x");
  all[1].queued = 1;
  all[0].sessions = 3;
  EXPECT_EQ(Best(all), "y");
}

TEST(Placement, ProgramsGoWhereTheyRun) {
  auto module =
      Parse("program @f(%x: f32[2]) -> (y: f32[2]) { %0 = relu@avx2(%x) return %0 }", "f.opw");
  ASSERT_TRUE(module.ok()) << module.status();
  SessionOptions o;
  o.program = &*module;
  std::vector<ExecutorFacts> all = {Executor("a"), Executor("b")};
  all[0].ops.pop_back();
  EXPECT_EQ(Best(all, o), "b");
  EXPECT_NE(Place(all, o)[1].reason.find("relu"), std::string::npos);
  all[1].ops[1].variants = {"reference"};
  EXPECT_EQ(Best(all, o), "") << "the pinned variant is missing";
  all[1].ops[1].variants = {"avx2"};
  all[1].ops[1].version = 0;
  EXPECT_EQ(Best(all, o), "") << "its version is older";
}

// The order of the list never matters to who is best among unequal ones, and what does not fit
// comes last.
TEST(Placement, RandomFacts) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  for (int round = 0; round < 500; ++round) {
    std::vector<ExecutorFacts> all;
    for (int i = 0; i < 6; ++i) {
      ExecutorFacts e = Executor("e" + std::to_string(i), random() % 2 ? "cpu" : "cuda:0");
      e.free_memory = static_cast<int64_t>(random() % 2000) * 10 + i;
      e.queued = static_cast<uint32_t>(random() % 2);
      e.sessions = static_cast<uint32_t>(random() % 3);
      all.push_back(std::move(e));
    }
    SessionOptions o;
    o.memory_bytes = 5000;
    const std::string best = Best(all, o);
    const auto placed = Place(all, o);
    EXPECT_TRUE(std::is_partitioned(placed.begin(), placed.end(),
                                    [](const PlacementCandidate& c) { return c.fits; }));
    std::shuffle(all.begin(), all.end(), random);
    ASSERT_EQ(Best(all, o), best);
  }
}

}  // namespace
}  // namespace opwire::client
