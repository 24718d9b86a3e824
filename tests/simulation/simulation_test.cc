// Whole systems under seeded faults. Every request ends once, with the right answer or an allowed
// error. No request is executed twice. The registry's view converges. The same seed gives the same
// trace.
#include <gtest/gtest.h>
#include <sodium.h>

#include <cstdlib>
#include <string_view>

#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "tests/simulation/client.h"
#include "tests/simulation/nodes.h"

namespace opwire::sim {
namespace {

int seeds = 200;
uint64_t first_seed = 1;

// The clock of the core, which has no object to ask.
Clock* the_clock = nullptr;
Nanos TheTime() { return the_clock->now(); }

std::string Program(std::string_view text) {
  auto module = Parse(text, "simulation.opw");
  EXPECT_TRUE(module.ok()) << module.status();
  return Serialise(*module);
}

struct Outcome {
  uint64_t hash = 0;
  uint64_t delivered = 0;
  int succeeded = 0, failed = 0, sessions = 0;
  std::vector<std::string> complaints;
};

class SimulationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_GE(sodium_init(), 0);
    auto device = OpenDevice("cpu", {});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = device->release();
    variants_ = new VariantTable(BuildVariantTable(*device_));
  }

  // Simulates faults for a minute of simulated time, then none; the system must come to rest.
  static Outcome Simulate(uint64_t seed, bool faults) {
    Outcome out;
    std::mt19937_64 random(seed);
    Clock clock;
    the_clock = &clock;
    Network network(clock, random());
    RegistryNode registry(clock, network);
    std::vector<std::unique_ptr<ExecutorNode>> executors;
    for (NodeId n = 1; n <= 3; ++n)
      executors.push_back(
          std::make_unique<ExecutorNode>(clock, network, n, seed, *device_, *variants_, &TheTime));
    const std::vector<std::string> programs = {
        Program("program @inc(inout %w: f32[1]) -> (w: f32[1]) { %0 = constant() {type = f32[1], "
                "value = #0} %1 = add(%w, %0) return %1 } "
                "blob 0 = \"0000803f\""),
        Program("program @double(%x: f32[]) -> (y: f32[]) { %0 = add(%x, %x) return %0 }")};
    std::vector<std::unique_ptr<ClientNode>> clients;
    for (NodeId n = 4; n <= 8; ++n)
      clients.push_back(std::make_unique<ClientNode>(clock, network, n, random(), 100, programs));

    const Nanos begun = clock.now(), calm = begun + (faults ? 60 * kSecond : 0),
                end = calm + 120 * kSecond;
    std::function<void()> tick = [&] {
      registry.Tick();
      for (auto& e : executors) e->Tick();
      clock.After(10 * kMillisecond, tick);
    };
    tick();
    std::function<void()> fault = [&] {
      if (clock.now() >= calm) return network.Heal();
      const Nanos down =
          100 * kMillisecond + static_cast<Nanos>(random() % static_cast<uint64_t>(8 * kSecond));
      switch (random() % 8) {
        case 0: {
          ExecutorNode& e = *executors[random() % executors.size()];
          if (!e.core()) break;
          e.Stop();
          clock.After(std::min(down, calm - clock.now()), [&e] { e.Start(); });
          break;
        }
        case 1:
          if (!registry.state()) break;
          registry.Stop();
          clock.After(std::min(down, calm - clock.now()), [&registry] { registry.Start(); });
          break;
        case 2:
          network.Cut(static_cast<NodeId>(random() % 9), static_cast<NodeId>(random() % 9),
                      clock.now() + down);
          break;
        default:
          network.BreakOne();
      }
      clock.After(static_cast<Nanos>(random() % static_cast<uint64_t>(2 * kSecond)), fault);
    };
    if (faults)
      fault();
    else
      network.Heal();

    const auto at_rest = [&] {
      return std::all_of(clients.begin(), clients.end(), [](const auto& c) { return c->done(); });
    };
    while (!(at_rest() && clock.now() > calm + 10 * kSecond) && clock.Step(end)) {
    }
    for (const auto& c : clients) {
      if (!c->done()) out.complaints.push_back("not at rest: " + c->Describe());
      out.complaints.insert(out.complaints.end(), c->complaints().begin(), c->complaints().end());
      out.succeeded += c->succeeded();
      out.failed += c->failed();
      out.sessions += c->sessions();
    }
    // The registry knows exactly the existing executors.
    AlignedBytes memory;
    const auto replies = registry.state()->OnMessage(clock.now(), UINT64_MAX,
                                                     AsBytes(EncodeRequest(1, fb::QueryT())));
    auto reply = DecodeReply(AsBytes(replies.at(0).bytes), memory);
    std::map<std::string, uint64_t> known, there;
    for (const fb::ExecutorInfo* e : *(*reply)->body_as_QueryReply()->executors())
      known[e->id()->str()] = e->incarnation();
    for (const auto& e : executors) there[e->id()] = e->incarnation();
    if (known != there)
      out.complaints.push_back(
          fmt::format("the registry knows {} executors, not those that are there", known.size()));
    // Unused sessions are freed: at most one per client is left.
    int64_t left = 0;
    for (const auto& e : executors) left += e->core()->load().sessions.load();
    if (left > 5) out.complaints.push_back(fmt::format("{} sessions are left of 5 clients", left));
    out.hash = network.hash();
    out.delivered = network.delivered();
    return out;
  }

  static Device* device_;
  static VariantTable* variants_;
};
Device* SimulationTest::device_ = nullptr;
VariantTable* SimulationTest::variants_ = nullptr;

void ExpectQuiet(const Outcome& o) {
  for (const std::string& c : o.complaints) ADD_FAILURE() << c;
}

TEST_F(SimulationTest, WithoutFaultsEverythingSucceedsOnce) {
  const Outcome o = Simulate(7, false);
  ExpectQuiet(o);
  EXPECT_EQ(o.sessions, 5);
  EXPECT_GT(o.succeeded, 5 * 80);
}

TEST_F(SimulationTest, SeededFaults) {
  uint64_t delivered = 0;
  int succeeded = 0, failed = 0, sessions = 0;
  for (int i = 0; i < seeds; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    SCOPED_TRACE(testing::Message() << "repeat with --seed=" << seed);
    const Outcome o = Simulate(seed, true);
    ExpectQuiet(o);
    delivered += o.delivered;
    succeeded += o.succeeded;
    failed += o.failed;
    sessions += o.sessions;
    if (HasFailure()) return;
  }
  std::printf(
      "%d seeds: %llu messages, %d sessions, %d requests answered, %d ended with an allowed "
      "error\n",
      seeds, static_cast<unsigned long long>(delivered), sessions, succeeded, failed);
  // The faults have their intended effects.
  EXPECT_GT(sessions, seeds * 6);
  EXPECT_GT(failed, seeds);
  EXPECT_GT(succeeded, failed);
}

TEST_F(SimulationTest, TheSameSeedGivesTheSameTrace) {
  for (uint64_t seed : {first_seed, first_seed + 1, first_seed + 2}) {
    const Outcome a = Simulate(seed, true), b = Simulate(seed, true);
    EXPECT_EQ(a.hash, b.hash) << "seed " << seed;
    EXPECT_EQ(a.delivered, b.delivered) << "seed " << seed;
  }
  EXPECT_NE(Simulate(first_seed, true).hash, Simulate(first_seed + 1, true).hash);
}

}  // namespace
}  // namespace opwire::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--seeds=")) opwire::sim::seeds = std::atoi(argv[i] + 8);
    if (arg.starts_with("--seed=")) {
      opwire::sim::first_seed = std::strtoull(argv[i] + 7, nullptr, 10);
      opwire::sim::seeds = 1;
    }
  }
  return RUN_ALL_TESTS();
}
