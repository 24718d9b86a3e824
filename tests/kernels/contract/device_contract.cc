// The device contract, line by line.
#include "tests/kernels/contract/device_contract.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "tests/assert_ok.h"

namespace opwire {
namespace {

bool Eventually(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TEST_P(DeviceTest, MemoryIsCountedAlignedAndLimited) {
  void* const a = device_->Allocate(100, MemoryKind::kDevice).value();
  void* const b = device_->Allocate(8 << 20, MemoryKind::kPinnedHost).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  const int64_t pinned = on_host_ ? 8 << 20 : 0;  // else it is not memory of the device
  EXPECT_EQ(device_->memory_stats().in_use, 100 + pinned);
  device_->Free(b);
  EXPECT_EQ(device_->memory_stats().in_use, 100);
  EXPECT_EQ(device_->memory_stats().peak, 100 + pinned);
  device_->ResetPeak();
  EXPECT_EQ(device_->memory_stats().peak, 100);
  const auto beyond = device_->Allocate(device_->memory_stats().limit - 99, MemoryKind::kDevice);
  EXPECT_EQ(beyond.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->Allocate(-1, MemoryKind::kDevice).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(device_->Allocate(0, MemoryKind::kDevice).ok());
  EXPECT_EQ(device_->memory_stats().limit, device_->info().memory_bytes);
}

TEST_P(DeviceTest, ReservedMemoryGrowsInStepsAndKeepsItsContents) {
  constexpr int64_t kStep = int64_t{48} << 20, kReserved = 4 * kStep;
  char* const base = static_cast<char*>(device_->Reserve(kReserved).value());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 64, 0u);
  EXPECT_EQ(device_->memory_stats().in_use, 0) << "addresses are no memory";
  std::vector<int> from(1000), to(1000);
  // Writes the contents of `base`, step by step, at both ends of each.
  const auto write = [&](int64_t step) {
    std::iota(from.begin(), from.end(), static_cast<int>(step) * 1000);
    ASSERT_OK(device_->Copy(base + step * kStep, from.data(), 4000, 0));
    ASSERT_OK(device_->Copy(base + (step + 1) * kStep - 4000, from.data(), 4000, 0));
    ASSERT_OK(device_->Synchronize());
  };
  const auto expect = [&](int64_t step) {
    std::iota(from.begin(), from.end(), static_cast<int>(step) * 1000);
    for (char* const at : {base + step * kStep, base + (step + 1) * kStep - 4000}) {
      ASSERT_OK(device_->Copy(to.data(), at, 4000, 0));
      ASSERT_OK(device_->Synchronize());
      EXPECT_EQ(to, from) << "step " << step;
    }
  };
  for (int64_t step = 0; step < 4; ++step) {
    ASSERT_OK(device_->Resize(base, (step + 1) * kStep));
    EXPECT_GE(device_->memory_stats().in_use, (step + 1) * kStep);
    write(step);
    for (int64_t before = 0; before <= step; ++before) expect(before);
  }
  const int64_t all = device_->memory_stats().in_use;
  EXPECT_GE(device_->memory_stats().peak, all);
  ASSERT_OK(device_->Resize(base, kStep));
  EXPECT_LT(device_->memory_stats().in_use, all);
  expect(0);
  ASSERT_OK(device_->Resize(base, 2 * kStep));
  write(1);
  expect(0);
  ASSERT_OK(device_->Resize(base, 0));
  EXPECT_EQ(device_->memory_stats().in_use, 0);
  ASSERT_OK(device_->Resize(base, 1));
  device_->Unreserve(base);
  EXPECT_EQ(device_->memory_stats().in_use, 0);
}

TEST_P(DeviceTest, ReservedMemoryIsLimited) {
  EXPECT_EQ(device_->Reserve(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Reserve(-1).status().code(), absl::StatusCode::kInvalidArgument);
  // Addresses can be reserved for more bytes than the memory has, but not the memory itself.
  const int64_t limit = device_->memory_stats().limit;
  void* const large = device_->Reserve(limit + (int64_t{1} << 30)).value();
  ASSERT_OK(device_->Resize(large, 1000));
  const int64_t before = device_->memory_stats().in_use;
  EXPECT_EQ(device_->Resize(large, limit + (int64_t{1} << 20)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->memory_stats().in_use, before) << "a refusal leaves all as it was";
  EXPECT_EQ(device_->Resize(large, limit + (int64_t{2} << 30)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Resize(large, -1).code(), absl::StatusCode::kInvalidArgument);
  // Reserved and allocated memory share the limit.
  EXPECT_EQ(device_->Allocate(limit, MemoryKind::kDevice).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->Resize(device_.get(), 1).code(), absl::StatusCode::kInvalidArgument);
  device_->Unreserve(large);
  EXPECT_EQ(device_->Resize(large, 1).code(), absl::StatusCode::kInvalidArgument);
  device_->Unreserve(nullptr);
}

TEST_P(DeviceTest, CopiesMoveAndZero) {
  std::vector<int> from(100), to(100, 7);
  std::iota(from.begin(), from.end(), 0);
  void* const there = device_->Allocate(400, MemoryKind::kDevice).value();
  ASSERT_OK(device_->Copy(there, from.data(), 400, 0));
  ASSERT_OK(device_->Copy(to.data(), there, 400, 0));
  ASSERT_OK(device_->Synchronize());
  EXPECT_EQ(to, from);
  ASSERT_OK(device_->Zero(static_cast<int*>(there) + 1, 392, 0));
  ASSERT_OK(device_->Copy(to.data(), there, 400, 0));
  ASSERT_OK(device_->Synchronize());
  std::fill(from.begin() + 1, from.end() - 1, 0);
  EXPECT_EQ(to, from);
  ASSERT_OK(device_->Copy(to.data(), there, 0, 0));
  EXPECT_EQ(device_->Copy(to.data(), there, 4, 99).ok(), on_host_);  // streams of a host are names
}

TEST_P(DeviceTest, EventsAreDoneInOrder) {
  const StreamId stream = device_->CreateStream().value();
  const EventId event = device_->Record(stream).value();
  EXPECT_TRUE(on_host_ ? device_->Done(event) : Eventually([&] { return device_->Done(event); }));
  EXPECT_TRUE(device_->Done(event));
  EXPECT_FALSE(device_->Done(event + 1));
  EXPECT_TRUE(device_->Wait(stream, event).ok());
  EXPECT_FALSE(device_->Wait(stream + 1, event).ok());
}

TEST_P(DeviceTest, EventsThatNobodyAsksAboutAreDoneToo) {
  EventId last = 0;
  for (int i = 0; i < 1000; ++i) last = device_->Record(0).value();
  ASSERT_OK(device_->Synchronize());
  EXPECT_TRUE(Eventually([&] { return device_->Done(last); }));
  EXPECT_TRUE(Eventually([&] { return device_->Done(last - 999); }));
}

TEST_P(DeviceTest, OneStreamWaitsForAnother) {
  constexpr int64_t kInts = 4 << 20;
  std::vector<int> from(kInts), to(kInts);
  std::mt19937 random(1);
  std::generate(from.begin(), from.end(), random);
  void* const a = device_->Allocate(4 * kInts, MemoryKind::kDevice).value();
  void* const b = device_->Allocate(4 * kInts, MemoryKind::kDevice).value();
  const StreamId first = device_->CreateStream().value(), second = device_->CreateStream().value();
  for (int i = 0; i < 20; ++i) {
    from[0] = i;
    ASSERT_OK(device_->Zero(a, 4 * kInts, first));
    ASSERT_OK(device_->Copy(a, from.data(), 4 * kInts, first));
    const EventId copied = device_->Record(first).value();
    ASSERT_OK(device_->Wait(second, copied));
    ASSERT_OK(device_->Copy(b, a, 4 * kInts, second));
    ASSERT_OK(device_->Copy(to.data(), b, 4 * kInts, second));
    const EventId done = device_->Record(second).value();
    ASSERT_TRUE(Eventually([&] { return device_->Done(done); }));
    ASSERT_EQ(to, from);
    ASSERT_OK(device_->Wait(first, copied));  // done long ago
  }
}

TEST_P(DeviceTest, GraphsReplayWhatWasCaptured) {
  const StreamId stream = device_->CreateStream().value();
  if (on_host_) {
    EXPECT_EQ(device_->BeginCapture(stream).code(), absl::StatusCode::kUnimplemented);
    return;
  }
  std::vector<int> from(1000), to(1000, 7);
  std::iota(from.begin(), from.end(), 0);
  void* const a = device_->Allocate(4000, MemoryKind::kDevice).value();
  int* const pinned = static_cast<int*>(device_->Allocate(4000, MemoryKind::kPinnedHost).value());
  std::copy(from.begin(), from.end(), pinned);
  ASSERT_OK(device_->Zero(a, 4000, stream));
  ASSERT_OK(device_->Synchronize());
  ASSERT_OK(device_->BeginCapture(stream));
  ASSERT_OK(device_->Copy(a, pinned, 4000, stream));
  ASSERT_OK(device_->Zero(a, 4, stream));
  const GraphId graph = device_->EndCapture(stream).value();
  const auto read = [&] {
    EXPECT_TRUE(device_->Copy(to.data(), a, 4000, stream).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    return to;
  };
  EXPECT_EQ(read(), std::vector<int>(1000, 0)) << "what is captured does not run";
  for (int i = 1; i < 4; ++i) {
    for (int& v : from) v *= i;
    std::copy(from.begin(), from.end(), pinned);
    ASSERT_OK(device_->Replay(graph, stream));
    EXPECT_EQ(read(), from);
  }
  EXPECT_FALSE(device_->Replay(graph + 1, stream).ok());
  EXPECT_FALSE(device_->EndCapture(stream).ok());
}

TEST_P(DeviceTest, LoopsGoRoundByThemselves) {
  LoopCapture* const loops = device_->loops();
  if (!loops) return;
  // Each iteration writes its number to a place of its own choice, and to one that a flag chooses.
  struct Place {
    LoopState state;
    int64_t number, seen, then, otherwise;
    uint8_t flag, holds;
  };
  auto* const there =
      static_cast<Place*>(device_->Allocate(sizeof(Place), MemoryKind::kDevice).value());
  const auto run = [&](GraphId graph, const Place& before) {
    Place after;
    EXPECT_TRUE(device_->Copy(there, &before, sizeof before, 0).ok());
    EXPECT_TRUE(device_->Replay(graph, 0).ok());
    EXPECT_TRUE(device_->Copy(&after, there, sizeof after, 0).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    return after;
  };
  const auto capture = [&](const uint8_t* condition, bool otherwise) {
    EXPECT_TRUE(
        loops->BeginLoop({.state = &there->state, .number = &there->number, .condition = condition})
            .ok());
    EXPECT_TRUE(device_->Copy(&there->seen, &there->number, sizeof(int64_t), 0).ok());
    EXPECT_TRUE(loops->BeginBranch(&there->flag, otherwise).ok());
    EXPECT_TRUE(device_->Copy(&there->then, &there->number, sizeof(int64_t), 0).ok());
    if (otherwise) {
      EXPECT_TRUE(loops->Else().ok());
      EXPECT_TRUE(device_->Copy(&there->otherwise, &there->number, sizeof(int64_t), 0).ok());
    }
    EXPECT_TRUE(loops->EndBranch().ok());
    EXPECT_TRUE(device_->Copy(&there->flag, &there->number, 1, 0)
                    .ok());  // true starting with the second iteration
    return loops->EndLoop().value();
  };
  const GraphId counted = capture(nullptr, true);
  for (const int64_t last : {4, 50, 1000}) {
    const Place after = run(counted, {.state = {3, last, 0},
                                      .number = 3,
                                      .seen = -1,
                                      .then = -1,
                                      .otherwise = -1,
                                      .flag = 0,
                                      .holds = 0});
    EXPECT_EQ(after.state.done, last);
    EXPECT_EQ(after.state.holds, 1u);
    EXPECT_EQ(after.number, last);
    EXPECT_EQ(after.seen, last - 1);
    EXPECT_EQ(after.then, last == 4 ? -1 : last == 1000 ? 999 : 49);
    EXPECT_EQ(after.otherwise, last == 1000 ? 769 : 3)
        << "behind the iteration whose number has a lowest byte of 0";
  }
  const GraphId held = capture(&there->flag, false);
  const Place after = run(held, {.state = {200, 1000, 1},
                                 .number = 200,
                                 .seen = -1,
                                 .then = -1,
                                 .otherwise = -1,
                                 .flag = 1,
                                 .holds = 0});
  EXPECT_EQ(after.state.done, 257) << "the iteration numbered 256 left a false condition";
  EXPECT_EQ(after.state.holds, 0u);
  EXPECT_EQ(after.seen, 256);
  EXPECT_EQ(after.otherwise, -1);
  // An abandoned capture leaves the stream unchanged.
  ASSERT_OK(loops->BeginLoop({.state = &there->state, .number = nullptr, .condition = nullptr}));
  ASSERT_OK(loops->BeginBranch(&there->flag, false));
  loops->AbandonLoop();
  EXPECT_EQ(run(counted, {.state = {0, 2, 0}, .number = 0}).state.done, 2);
  if (device_->info().kind != "emu") {  // which does all work synchronously
    // A loop without an end, whose iterations take a while, ends when it is told to.
    const int64_t bytes = int64_t{64} << 20;
    char* const large =
        static_cast<char*>(device_->Allocate(2 * bytes, MemoryKind::kDevice).value());
    ASSERT_OK(loops->BeginLoop({.state = &there->state, .number = nullptr, .condition = nullptr}));
    ASSERT_OK(device_->Copy(large, large + bytes, bytes, 0));
    const GraphId endless = loops->EndLoop().value();
    const LoopState begin{0, INT64_MAX, 1};
    ASSERT_OK(device_->Copy(&there->state, &begin, sizeof begin, 0));
    ASSERT_OK(device_->Replay(endless, 0));
    const EventId done = device_->Record(0).value();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(device_->Done(done));
    ASSERT_OK(loops->EndEarly(there->state));
    EXPECT_TRUE(Eventually([&] { return device_->Done(done); }));
    device_->DestroyGraph(endless);
  }
  device_->DestroyGraph(counted);
  device_->DestroyGraph(held);
}

TEST_P(DeviceTest, ManyThreadsAtOnce) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const StreamId stream = device_->CreateStream().value();
      for (int i = 0; i < 50; ++i) {
        std::vector<int> from(257, t * 1000 + i), to(257);
        void* const there = device_->Allocate(257 * 4, MemoryKind::kDevice).value();
        wrong += !device_->Copy(there, from.data(), 257 * 4, stream).ok() ||
                 !device_->Copy(to.data(), there, 257 * 4, stream).ok();
        const EventId event = device_->Record(stream).value();
        wrong += !Eventually([&] { return device_->Done(event); }) || to != from;
        device_->Free(there);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(device_->memory_stats().in_use, 0);
}

TEST_P(DeviceTest, HostMemoryIsRegistered) {
  std::vector<char> memory(3 << 20);
  char* const pages =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
  ASSERT_OK(device_->RegisterHost(pages, 2 << 20));
  void* const there = device_->Allocate(2 << 20, MemoryKind::kDevice).value();
  std::fill(pages, pages + (2 << 20), 'x');
  ASSERT_OK(device_->Copy(there, pages, 2 << 20, 0));
  ASSERT_OK(device_->Copy(pages, there, 1 << 20, 0));
  ASSERT_OK(device_->Synchronize());
  EXPECT_EQ(pages[0], 'x');
  device_->UnregisterHost(pages);
  device_->PushRange("a range");
  device_->PopRange();
}

TEST_P(DeviceTest, ParallelForCoversTheRangeOnceWithFixedBoundaries) {
  opw_runtime* const r = device_->runtime();
  struct Seen {
    std::vector<std::atomic<int>> hits = std::vector<std::atomic<int>>(1000);
    std::atomic<bool> odd_boundary = false;
  } seen;
  r->parallel_for(
      r, 1000, 64,
      [](void* context, int64_t begin, int64_t end) {
        Seen& s = *static_cast<Seen*>(context);
        if (begin % 64 != 0 || (end - begin != 64 && end != 1000)) s.odd_boundary = true;
        for (int64_t i = begin; i < end; ++i) ++s.hits[i];
      },
      &seen);
  for (const auto& h : seen.hits) EXPECT_EQ(h, 1);
  EXPECT_FALSE(seen.odd_boundary);
}

TEST_P(DeviceTest, StopSkipsRangesNotBegun) {
  opw_runtime* const r = device_->runtime();
  struct Context {
    Device* device;
    std::atomic<int> ranges = 0;
  } context{device_.get()};
  r->parallel_for(
      r, 1000, 1,
      [](void* c, int64_t, int64_t) {
        static_cast<Context*>(c)->device->stop() = 1;
        ++static_cast<Context*>(c)->ranges;
      },
      &context);
  EXPECT_GE(context.ranges, 1);
  EXPECT_LE(context.ranges, r->threads);
  r->parallel_for(
      r, 1, 1, [](void*, int64_t, int64_t) { ADD_FAILURE() << "ran after a stop"; }, nullptr);
}

TEST_P(DeviceTest, FlagsKeepTheSmallestPosition) {
  opw_runtime* const r = device_->runtime();
  EXPECT_EQ(device_->TakeFlags().out_of_range_operand, -1);
  r->out_of_range(r, 2, 50);
  r->out_of_range(r, 1, 7);
  r->out_of_range(r, 2, 900);
  r->raise(r, OPW_FLAG_DIVIDE);
  const RunFlags flags = device_->TakeFlags();
  EXPECT_EQ(flags.out_of_range_operand, 1);
  EXPECT_EQ(flags.out_of_range_position, 7);
  EXPECT_EQ(flags.raised, static_cast<uint32_t>(OPW_FLAG_DIVIDE));
  const RunFlags after = device_->TakeFlags();
  EXPECT_EQ(after.raised, 0u);
  EXPECT_EQ(after.out_of_range_operand, -1);
}

TEST_P(DeviceTest, FlagsAreOfTheFirstStep) {
  opw_runtime* const r = device_->runtime();
  device_->NoteStep(70);
  r->out_of_range(r, 0, 1);
  device_->NoteStep(65535);
  r->out_of_range(r, 0, 0);
  device_->NoteStep(12);
  r->out_of_range(r, 3, 5000);
  r->out_of_range(r, 200, (int64_t{1} << 40) - 1);
  const RunFlags flags = device_->TakeFlags();
  EXPECT_EQ(flags.out_of_range_step, 12u);
  EXPECT_EQ(flags.out_of_range_operand, 3);
  EXPECT_EQ(flags.out_of_range_position, 5000);
  device_->NoteStep(65535);
  r->out_of_range(r, 200, (int64_t{1} << 40) - 1);
  const RunFlags last = device_->TakeFlags();
  EXPECT_EQ(last.out_of_range_step, 65535u);
  EXPECT_EQ(last.out_of_range_operand, 200);
  EXPECT_EQ(last.out_of_range_position, (int64_t{1} << 40) - 1);
}

}  // namespace opwire
