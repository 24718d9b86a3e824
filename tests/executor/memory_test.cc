// The allocator of a segment, the store above it, and the planner of scratch memory, each against a
// plain model.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>
#include <random>

#include "executor/plan/scratch.h"
#include "executor/run/scratch_arena.h"
#include "executor/store/store.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

// Live ranges; no two may overlap.
class Ranges {
 public:
  ::testing::AssertionResult Add(int64_t offset, int64_t bytes) {
    const auto next = live_.lower_bound(offset);
    if (next != live_.end() && next->first < offset + bytes)
      return ::testing::AssertionFailure() << "overlaps the range at " << next->first;
    if (next != live_.begin() && std::prev(next)->first + std::prev(next)->second > offset) {
      return ::testing::AssertionFailure() << "overlaps the range at " << std::prev(next)->first;
    }
    live_[offset] = bytes;
    return ::testing::AssertionSuccess();
  }
  void Remove(int64_t offset) { live_.erase(offset); }

 private:
  std::map<int64_t, int64_t> live_;
};

int64_t RandomSize(std::mt19937_64& random, int most_bits) {
  return static_cast<int64_t>(random() %
                              (uint64_t{1} << (1 + random() % static_cast<uint64_t>(most_bits))));
}

TEST(Segment, RoundingWastesAtMostAnEighth) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 100'000; ++i) {
    const int64_t bytes = RandomSize(random, 40), rounded = Blocks::Rounded(bytes);
    ASSERT_GE(rounded, bytes);
    ASSERT_EQ(rounded % 64, 0);
    ASSERT_EQ(Blocks::Rounded(rounded), rounded) << bytes;
    ASSERT_LE(rounded - bytes, std::max<int64_t>(4096, bytes / 8)) << bytes;
  }
}

TEST(Segment, RandomUseNeverOverlaps) {
  std::mt19937_64 random(Seed());
  OPWIRE_TRACE_SEED();
  auto segment = Segment::Create(8 << 20);
  ASSERT_TRUE(segment.ok()) << segment.status();
  Ranges ranges;
  std::vector<std::pair<int64_t, int64_t>> live;
  int refused = 0;
  for (int i = 0; i < 60'000; ++i) {
    if (random() % 100 < 52 || live.empty()) {
      const int64_t bytes = RandomSize(random, 19);
      auto offset = (*segment)->Allocate(bytes);
      if (!offset.ok()) {
        ASSERT_EQ(offset.status().code(), absl::StatusCode::kResourceExhausted);
        ++refused;
        continue;
      }
      ASSERT_EQ(*offset % 64, 0);
      ASSERT_GE(*offset, 0);
      ASSERT_LE(*offset + Blocks::Rounded(bytes), (*segment)->capacity());
      ASSERT_TRUE(ranges.Add(*offset, Blocks::Rounded(bytes)))
          << "step " << i << ": " << bytes << " bytes at " << *offset;
      // The memory exists.
      (*segment)->base()[*offset] = 1;
      live.push_back({*offset, bytes});
    } else {
      const size_t at = random() % live.size();
      ranges.Remove(live[at].first);
      (*segment)->Free(live[at].first, live[at].second);
      live[at] = live.back();
      live.pop_back();
    }
    if (random() % 1000 == 0) (*segment)->Trim();
  }
  EXPECT_GT(refused, 0) << "the segment never was full";
  for (const auto& [offset, bytes] : live) (*segment)->Free(offset, bytes);
  // All of it is free again, as one block.
  EXPECT_TRUE((*segment)->Allocate(7 << 20).ok());
}

TEST(Segment, FreedBlocksAreReusedAndCoalesced) {
  auto segment = *Segment::Create(1 << 20);
  const int64_t first = *segment->Allocate(1000);
  segment->Free(first, 1000);
  EXPECT_EQ(*segment->Allocate(1000), first);
  segment->Free(first, 1000);
  // Small blocks fill it. After they are freed, one large block takes their place.
  std::vector<int64_t> small;
  while (true) {
    auto offset = segment->Allocate(4096);
    if (!offset.ok()) break;
    small.push_back(*offset);
  }
  EXPECT_GE(small.size(), 255u);
  EXPECT_FALSE(segment->Allocate(8192).ok());
  for (int64_t offset : small) segment->Free(offset, 4096);
  EXPECT_TRUE(segment->Allocate((1 << 20) - 8192).ok());
  EXPECT_FALSE(segment->Allocate(1 << 21).ok());
  EXPECT_FALSE(segment->Allocate(INT64_MAX / 2).ok());
}

TEST(Segment, TrimKeepsWhatIsLiveAndZeroesWhatIsNot) {
  auto segment = *Segment::Create(1 << 20);
  const int64_t a = *segment->Allocate(64 << 10), b = *segment->Allocate(64 << 10);
  std::memset(segment->base() + a, 7, 64 << 10);
  std::memset(segment->base() + b, 9, 64 << 10);
  segment->Free(a, 64 << 10);
  segment->Trim();
  EXPECT_EQ(segment->base()[b], 9);
  EXPECT_EQ(segment->base()[b + (64 << 10) - 1], 9);
  EXPECT_EQ(segment->base()[a], 0);
}

TEST(Store, QuotaAndBudgetHoldExactly) {
  const auto device = *OpenDevice("null", {});
  MemoryBudget budget{1 << 20, 0, 0};
  auto a = *Store::Create(512 << 10, 100, *device, &budget, &budget),
       b = *Store::Create(1 << 20, 100, *device, &budget, &budget);
  auto first = a->Allocate(512 << 10);
  ASSERT_TRUE(first.ok()) << first.status();
  const Status over = a->Allocate(1).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(MessageOf(over).find("quota"), std::string::npos) << over;
  auto second = b->Allocate(512 << 10);
  ASSERT_TRUE(second.ok()) << second.status();
  const Status memory = b->Allocate(1).status();
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(MessageOf(memory).find("out of memory"), std::string::npos) << memory;
  EXPECT_EQ(budget.in_use, 1 << 20);
  *first = BufferRef();
  EXPECT_EQ(a->in_use(), 0);
  EXPECT_TRUE(b->Allocate(1).ok());
  *second = BufferRef();
  EXPECT_EQ(budget.in_use, 0);
  EXPECT_EQ(budget.peak, 1 << 20);
}

TEST(Store, StatesAndKeys) {
  const auto device = *OpenDevice("null", {});
  MemoryBudget budget{1 << 20, 0, 0};
  auto store = *Store::Create(1 << 20, 2, *device, &budget, &budget);
  EXPECT_EQ(store->Find({1, 1}).status().code(), absl::StatusCode::kNotFound);
  const auto make = [&](TensorState state, Status error = absl::OkStatus()) {
    Tensor t;
    t.dtype = DType::kU8;
    t.state = state;
    t.error = std::move(error);
    t.buffer = *store->Allocate(100);
    return t;
  };
  EXPECT_EQ(store->Put({0, 1}, make(TensorState::kReady)).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(store->Put({1, 1}, make(TensorState::kReady)).ok());
  ASSERT_TRUE(store->Put({2, 1}, make(TensorState::kWritable)).ok());
  EXPECT_TRUE(store->Find({1, 1}).ok());
  EXPECT_EQ(store->Find({2, 1}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store->Put({1, 2}, make(TensorState::kReady)).status().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(store->Put({2, 1}, make(TensorState::kPoisoned, DataLoss("by run 3"))).ok())
      << "replacing takes no more room";
  EXPECT_EQ(store->Find({2, 1}).status(), DataLoss("by run 3"));
  ASSERT_TRUE(store->Put({2, 1}, make(TensorState::kFailed, OutOfRange("x"))).ok());
  EXPECT_EQ(store->Find({2, 1}).status(), OutOfRange("x"));
  (*store->Find({1, 1}))->pinned_by_run = true;
  EXPECT_FALSE(store->Erase({1, 1}));
  EXPECT_EQ(store->Put({1, 1}, make(TensorState::kReady)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  (*store->Find({1, 1}))->pinned_by_run = false;
  EXPECT_TRUE(store->Erase({1, 1}));
  EXPECT_FALSE(store->Erase({1, 1}));
  EXPECT_TRUE(store->Erase({2, 1}));
  EXPECT_EQ(store->count(), 0);
  EXPECT_EQ(budget.in_use, 0);
}

// Records takes and gives of values, and which values live at the same time.
struct Lives {
  struct Value {
    int64_t place, bytes;
    int begin, end;
  };
  ScratchPlanner planner;
  std::vector<Value> values;
  int now = 0;

  size_t Take(int64_t bytes) {
    const auto place = planner.Take(bytes);
    EXPECT_TRUE(place);
    values.push_back({*place, bytes, now++, INT_MAX});
    return values.size() - 1;
  }
  void Give(size_t value) {
    planner.Give(values[value].place);
    values[value].end = now++;
  }
  void ExpectApart() {
    planner.Place();
    std::vector<std::pair<int, std::pair<bool, size_t>>> events;
    for (size_t i = 0; i < values.size(); ++i) {
      events.push_back({values[i].begin, {true, i}});
      if (values[i].end != INT_MAX) events.push_back({values[i].end, {false, i}});
    }
    std::sort(events.begin(), events.end());
    Ranges ranges;
    for (const auto& [when, what] : events) {
      const Value& v = values[what.second];
      const int64_t offset = planner.OffsetOf(v.place);
      if (!what.first) {
        ranges.Remove(offset);
        continue;
      }
      ASSERT_EQ(offset % 64, 0);
      ASSERT_LE(offset + v.bytes, planner.peak());
      ASSERT_TRUE(ranges.Add(offset, std::max<int64_t>(v.bytes, 1))) << "value " << what.second;
    }
    EXPECT_GE(planner.peak(), planner.bound());
  }
};

TEST(Scratch, LiveValuesNeverOverlap) {
  std::mt19937_64 random(Seed());
  OPWIRE_TRACE_SEED();
  for (int round = 0; round < 60; ++round) {
    Lives lives;
    const int64_t scale = round % 2 == 0 ? 1 : 5000;  // so that both orders are tried
    std::vector<size_t> live;
    for (int i = 0; i < 1000; ++i) {
      if (random() % 100 < 52 || live.empty()) {
        live.push_back(lives.Take(scale * RandomSize(random, 16)));
      } else {
        const size_t at = random() % live.size();
        lives.Give(live[at]);
        live[at] = live.back();
        live.pop_back();
      }
    }
    lives.ExpectApart();
    EXPECT_LE(lives.planner.peak(), 2 * lives.planner.bound()) << "it does not reuse";
  }
}

// The memory of training: activations of layers of several widths, kept until the backward pass,
// and values of the backward pass.
TEST(Scratch, TrainingTakesNearlyTheBound) {
  std::mt19937_64 random(Seed());
  OPWIRE_TRACE_SEED();
  for (int round = 0; round < 40; ++round) {
    Lives lives;
    std::vector<std::vector<size_t>> kept;
    const int64_t unit = 100'000 + static_cast<int64_t>(random() % 100'000);
    for (int layer = 0; layer < 24; ++layer) {
      std::vector<size_t>& mine = kept.emplace_back();
      for (const int64_t width : {1, 3, 1, 4, 4, 1}) {
        const size_t temporary = lives.Take(unit * width / 2);
        mine.push_back(lives.Take(unit * width));
        lives.Give(temporary);
      }
    }
    size_t gradient = lives.Take(unit);
    while (!kept.empty()) {
      for (; !kept.back().empty(); kept.back().pop_back()) {
        const size_t value = kept.back().back();
        const size_t next = lives.Take(lives.values[value].bytes), workspace = lives.Take(unit / 3);
        lives.Give(workspace);
        lives.Give(gradient);
        lives.Give(value);
        gradient = next;
      }
      kept.pop_back();
    }
    lives.ExpectApart();
    EXPECT_LE(static_cast<double>(lives.planner.peak()),
              1.05 * static_cast<double>(lives.planner.bound()));
  }
}

// Values of many sizes that come and go in random order, 25 at one time.
TEST(Scratch, UnlikeValuesTakeNearlyTheBound) {
  std::mt19937_64 random(Seed());
  OPWIRE_TRACE_SEED();
  constexpr int kRounds = 40;
  double sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    Lives lives;
    std::vector<size_t> live;
    while (lives.values.size() < 150) {
      if (live.size() < 3 || (random() % 100 < 52 && live.size() < 25)) {
        live.push_back(lives.Take(static_cast<int64_t>(1 + random() % 64) << 18));
      } else {
        const size_t at = random() % live.size();
        lives.Give(live[at]);
        live[at] = live.back();
        live.pop_back();
      }
    }
    lives.ExpectApart();
    sum += static_cast<double>(lives.planner.peak()) / static_cast<double>(lives.planner.bound());
  }
  EXPECT_LE(sum / kRounds, 1.035);
}

TEST(Scratch, OverflowIsRefused) {
  ScratchPlanner planner;
  EXPECT_FALSE(planner.Take(INT64_MAX));
  ASSERT_TRUE(planner.Take(INT64_MAX - 200));
  EXPECT_FALSE(planner.Take(INT64_MAX - 200));
}

TEST(ScratchArenas, CountInTheBudgetAndGoBack) {
  MemoryBudget budget{1 << 20, 0, 0};
  const auto device = *OpenDevice("null", {});
  ScratchArenas arenas(*device, 1 << 20, &budget);
  std::vector<ScratchArena*> held;
  for (int i = 0; i < ScratchArenas::kMaxArenas; ++i) {
    auto arena = arenas.Acquire(4096);
    ASSERT_TRUE(arena.ok() && *arena);
    (*arena)->base[4095] = 1;
    held.push_back(*arena);
  }
  EXPECT_EQ(budget.in_use, ScratchArenas::kMaxArenas * 4096);
  auto none = arenas.Acquire(1);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  arenas.Release(held[3]);
  EXPECT_EQ(arenas.Acquire(2 << 20).status().code(), absl::StatusCode::kResourceExhausted);
  auto again = arenas.Acquire(8192);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, held[3]);
  for (ScratchArena* arena : held) arenas.Release(arena);
  arenas.Trim();
  EXPECT_EQ(budget.in_use, 0);
}

}  // namespace
}  // namespace opwire::executor
