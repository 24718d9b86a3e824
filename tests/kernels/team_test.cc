// The host's runtime does not wait again and again for a thread that gets no turn.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "kernels/device/host_runtime.h"

namespace opwire {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(20);  // with other work on the machine

void ParallelFor(HostRuntime& runtime, int64_t n, const std::function<void(int64_t)>& body) {
  runtime.abi()->parallel_for(
      runtime.abi(), n, 1,
      [](void* context, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          (*static_cast<const std::function<void(int64_t)>*>(context))(i);
      },
      const_cast<std::function<void(int64_t)>*>(&body));
}

// Whether another thread has a range of the region in time. The first that the caller has waits so
// long for it.
bool OthersTakePart(HostRuntime& runtime, std::chrono::milliseconds time,
                    const std::function<void()>& of_others) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> others{false};
  std::atomic<int> done{0};
  ParallelFor(runtime, 64, [&](int64_t) {
    ++done;
    if (std::this_thread::get_id() != caller) {
      if (!others.exchange(true)) of_others();
      return;
    }
    for (const auto until = steady_clock::now() + time;
         !others && done == 1 && steady_clock::now() < until;)
      std::this_thread::yield();
  });
  EXPECT_EQ(done, 64);
  return others;
}

TEST(Team, IsLeftOutForAWhileWhereAThreadOfItIsLate) {
  HostRuntime runtime(2, {});
  if (!OthersTakePart(runtime, std::chrono::seconds(10), [] {}))
    GTEST_SKIP() << "regions have one thread in this build";
  // A time alone is short at first, and may be over before it is looked at.
  bool alone = false;
  for (const auto until = steady_clock::now() + kPatience; !alone && steady_clock::now() < until;) {
    OthersTakePart(runtime, std::chrono::seconds(10),
                   [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
    alone = !OthersTakePart(runtime, std::chrono::milliseconds(2), [] {});
  }
  EXPECT_TRUE(alone);
  // And comes back.
  bool back = false;
  for (const auto until = steady_clock::now() + kPatience; !back && steady_clock::now() < until;)
    back = OthersTakePart(runtime, std::chrono::milliseconds(1), [] {});
  EXPECT_TRUE(back);
}

TEST(Team, IsLeftOutForAWhileWhereItTakesTheCallersTurn) {
  HostRuntime runtime(2, {});
  if (!OthersTakePart(runtime, std::chrono::seconds(10), [] {}))
    GTEST_SKIP() << "regions have one thread in this build";
  const std::thread::id caller = std::this_thread::get_id();
  bool alone = false;
  for (const auto until = steady_clock::now() + kPatience; !alone && steady_clock::now() < until;) {
    ParallelFor(runtime, 64, [&](int64_t) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(std::this_thread::get_id() == caller ? 30 : 0));
    });
    alone = !OthersTakePart(runtime, std::chrono::milliseconds(2), [] {});
  }
  EXPECT_TRUE(alone);
}

TEST(Team, HasTheRestOfALongRegionAndWhatIsMeasured) {
  HostRuntime runtime(2, {});
  if (!OthersTakePart(runtime, std::chrono::seconds(10), [] {}))
    GTEST_SKIP() << "regions have one thread in this build";
  const auto be_alone = [&] {
    for (int i = 0; i < 50 && OthersTakePart(runtime, std::chrono::milliseconds(2), [] {}); ++i) {
      OthersTakePart(runtime, std::chrono::milliseconds(100),
                     [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
    }
  };
  be_alone();
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> of_others{0};
  ParallelFor(runtime, 64, [&](int64_t) {
    of_others += std::this_thread::get_id() != caller;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  EXPECT_GT(of_others, 0);
  be_alone();
  const HostRuntime::Together together;
  EXPECT_TRUE(OthersTakePart(runtime, std::chrono::seconds(10), [] {}));
}

TEST(Team, StaysWhereRangesTakeTheirTime) {
  HostRuntime first(2, {});
  if (!OthersTakePart(first, std::chrono::seconds(10), [] {}))
    GTEST_SKIP() << "regions have one thread in this build";
  // The others' ranges take twice what the caller's do. On a busy machine a thread may be late all
  // the same.
  const std::thread::id caller = std::this_thread::get_id();
  int together = 0;
  for (int i = 0; i < 10; ++i) {
    HostRuntime runtime(2, {});  // that has not met a busy machine
    ParallelFor(runtime, 2, [&](int64_t) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(std::this_thread::get_id() == caller ? 4 : 8));
    });
    together += OthersTakePart(runtime, std::chrono::milliseconds(100), [] {});
  }
  EXPECT_GE(together, 6);
}

}  // namespace
}  // namespace opwire
