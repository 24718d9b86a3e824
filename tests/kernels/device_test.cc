// The device contract on the cpu and the null device.
#include "kernels/device/device.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/device/host_facts.h"
#include "kernels/select/variant.h"

namespace opwire {
namespace {

class DeviceTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Device> device_ = OpenDevice(GetParam(), {}).value();
};
INSTANTIATE_TEST_SUITE_P(Backends, DeviceTest, testing::Values("cpu", "null"), [](const auto& info) { return info.param; });

TEST_P(DeviceTest, MemoryIsCountedAlignedAndLimited) {
  void* const a = device_->Allocate(100, MemoryKind::kDevice).value();
  void* const b = device_->Allocate(8 << 20, MemoryKind::kPinnedHost).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(device_->memory_stats().in_use, 100 + (8 << 20));
  device_->Free(b);
  EXPECT_EQ(device_->memory_stats().in_use, 100);
  EXPECT_EQ(device_->memory_stats().peak, 100 + (8 << 20));
  device_->ResetPeak();
  EXPECT_EQ(device_->memory_stats().peak, 100);
  const auto beyond = device_->Allocate(device_->memory_stats().limit - 99, MemoryKind::kDevice);
  EXPECT_EQ(beyond.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->Allocate(-1, MemoryKind::kDevice).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(device_->Allocate(0, MemoryKind::kDevice).ok());
  EXPECT_EQ(device_->memory_stats().limit, device_->info().memory_bytes);
}

TEST_P(DeviceTest, CopiesMoveAndZero) {
  std::vector<int> from(100), to(100, 7);
  std::iota(from.begin(), from.end(), 0);
  ASSERT_TRUE(device_->Copy(to.data(), from.data(), 400, 0).ok());
  EXPECT_EQ(to, from);
  ASSERT_TRUE(device_->Zero(to.data(), 400, 0).ok());
  EXPECT_EQ(to, std::vector<int>(100, 0));
}

TEST_P(DeviceTest, StreamsAndEventsAreNames) {
  const StreamId stream = device_->CreateStream().value();
  const EventId event = device_->Record(stream).value();
  EXPECT_TRUE(device_->Done(event));
  EXPECT_FALSE(device_->Done(event + 1));
  EXPECT_TRUE(device_->Wait(stream, event).ok());
  EXPECT_FALSE(device_->Wait(stream + 1, event).ok());
  EXPECT_EQ(device_->BeginCapture(stream).code(), absl::StatusCode::kUnimplemented);
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

TEST(OpenDevice, RefusesWithReasons) {
  const auto unknown = OpenDevice("warp:9", {});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(MessageOf(unknown.status()).find("cpu: usable"), std::string::npos) << unknown.status();
  EXPECT_EQ(OpenDevice("cpu", {.cores = "0-"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenDevice("cpu", {.cores = "1023"}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(OpenDevice, NullRunsNoKernel) { EXPECT_TRUE(BuildVariantTable(**OpenDevice("null", {})).variants().empty()); }

TEST(ParseCores, ReadsListsAndRanges) {
  const std::vector<int> allowed = {0, 1, 2, 3, 6};
  EXPECT_EQ(*ParseCores("0-2,6", allowed), (std::vector<int>{0, 1, 2, 6}));
  EXPECT_EQ(*ParseCores("3,3", allowed), std::vector<int>{3});
  for (const char* bad : {"", "a", "1-", "2-1", "1,", "-1", "1;2", "99999"}) {
    EXPECT_EQ(ParseCores(bad, allowed).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(ParseCores("5", allowed).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace opwire
