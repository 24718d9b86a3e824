// Packed weights, which exist in addition to their tensors: when they are created, their contents,
// and when they are freed.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

constexpr int64_t kRows = 48, kColumns = 256,
                  kBytes = kRows * kColumns / 32 * 20;  // of q4_1; packed weights have the same
                                                        // size

constexpr const char* kProduct =
    R"(program @f(%x: f32[2, 256], %w: i8:q4_1[48, 256]) -> (y: f32[2, 48]) {
  %0 = quantized_linear(%x, %w)
  return %0
})";

class PackingTest : public CoreTest {
 protected:
  void SetUp() override { StartWith(int64_t{1} << 30); }
  void StartWith(int64_t memory) {
    UseHost(memory);
    bool packs = false;
    for (const Variant& v : variants_.Of("quantized_linear"))
      packs |= v.packing && v.unavailable.empty();
    if (!packs) GTEST_SKIP() << "no kernel of this processor packs";
    Restart();
  }
  Answer PutWeights(Client& c, uint64_t counter, char seed, int64_t rows = kRows) {
    fb::PutT put;
    put.id = IdPtr(c, counter);
    put.type = std::make_unique<fb::TensorTypeT>();
    put.type->dtype = static_cast<uint8_t>(DType::kI8);
    put.type->encoding = static_cast<uint8_t>(Encoding::kQ4_1);
    put.type->shape = {rows, kColumns};
    if (rows > kRows) {  // more than a message carries, so all zeros
      EXPECT_TRUE(Ask(c, std::move(put)).ok());
      fb::SealT seal;
      seal.id = IdPtr(c, counter);
      return Ask(c, std::move(seal));
    }
    put.bytes_follow = true;
    std::string bytes(kBytes, '\0');
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>((i * 7 + static_cast<size_t>(seed)) % 60);  // moderate as f16
    return Ask(c, std::move(put), bytes);
  }
  int64_t Packed() { return nlohmann::json::parse(Info("stats"))["memory_packed"].get<int64_t>(); }
  int64_t Held() { return nlohmann::json::parse(Info("stats"))["memory_in_use"].get<int64_t>(); }
  // x is the same in all runs.
  std::vector<float> Run(Client& c, uint32_t slot, uint64_t weights) {
    std::vector<float> x(2 * kColumns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8;
    const Answer a = Ask(c, RunOf(slot).Array(x, {2, kColumns}).Tensor(c, weights).Inline());
    EXPECT_TRUE(a.ok()) << a.status;
    return a.ok() ? a.Floats(0) : std::vector<float>();
  }
};

TEST_F(PackingTest, FromTheSecondRunOnUntilTheTensorEnds) {
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1, kProduct).ok());
  ASSERT_TRUE(PutWeights(c, 1, 1).ok());
  const std::vector<float> y = Run(c, 1, 1);
  EXPECT_EQ(Packed(), 0);
  const int64_t held = Held();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Run(c, 1, 1), y);
    EXPECT_EQ(Packed(), kBytes);
  }
  EXPECT_GE(Held(), held + kBytes);
  EXPECT_TRUE(Free(c, {1}).ok());
  EXPECT_EQ(Packed(), 0);
  EXPECT_LT(Held(), held);
}

TEST_F(PackingTest, AtOnceInALoop) {
  Client c = Hello();
  ASSERT_TRUE(
      Load(c, 1,
           R"(program @f(%x: f32[2, 256], %w: i8:q4_1[48, 256], %n: i64[]) -> (y: f32[2, 48]) {
  %s = full() {shape = [2, 48], value = 0.0}
  %0 = repeat(%n, [%s], [%x, %w]) calls(@step)
  return %0
}
function @step(%i: i64[], %s: f32[2, 48], %x: f32[2, 256], %w: i8:q4_1[48, 256]) -> (s: f32[2, 48]) {
  %0 = quantized_linear(%x, %w)
  %1 = add(%s, %0)
  return %1
})")
          .ok());
  ASSERT_TRUE(Load(c, 2, kProduct).ok());
  ASSERT_TRUE(PutWeights(c, 1, 1).ok());
  const int64_t three = 3;
  RunOf run(1);
  std::vector<float> x(2 * kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8;
  run.Array(x, {2, kColumns})
      .Tensor(c, 1)
      .Bind(1, static_cast<uint8_t>(DType::kI64), 0, 0, static_cast<uint64_t>(three), 0)
      .Inline();
  const Answer a = Ask(c, run);
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(Packed(), kBytes);
  const std::vector<float> y = Run(c, 2, 1), sums = a.Floats(0);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(sums[i], y[i] + y[i] + y[i]) << i;
}

TEST_F(PackingTest, NotOfWhatWasWrittenSince) {
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1, kProduct).ok());
  ASSERT_TRUE(
      Load(
          c, 2,
          R"(program @replace(inout %w: i8:q4_1[48, 256], %v: i8:q4_1[48, 256], %which: bool[]) -> (w: i8:q4_1[48, 256]) {
  %0 = if(%which, [%v]) calls(@itself, @itself) -> (i8:q4_1[48, 256])
  return %0
}
function @itself(%v: i8:q4_1[48, 256]) -> (v: i8:q4_1[48, 256]) { return %v })")
          .ok());
  ASSERT_TRUE(PutWeights(c, 1, 1).ok());
  ASSERT_TRUE(PutWeights(c, 2, 5).ok());
  const std::vector<float> y = Run(c, 1, 1), other = Run(c, 1, 2);
  EXPECT_NE(y, other);
  EXPECT_EQ(Run(c, 1, 1), y);
  EXPECT_EQ(Packed(), kBytes);
  const Answer replaced = Ask(c, RunOf(2)
                                     .Tensor(c, 1)
                                     .Tensor(c, 2)
                                     .Bind(1, static_cast<uint8_t>(DType::kBool), 0, 0, 1, 0)
                                     .None());
  ASSERT_TRUE(replaced.ok()) << replaced.status;
  EXPECT_EQ(Packed(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Run(c, 1, 1), other);
  EXPECT_EQ(Packed(), kBytes);
}

TEST_F(PackingTest, SharedWithThoseThatItWasGrantedTo) {
  Client a = Hello("a"), b = Hello("b");
  for (Client* c : {&a, &b}) ASSERT_TRUE(Load(*c, 1, kProduct).ok());
  ASSERT_TRUE(PutWeights(a, 1, 1).ok());
  fb::GrantT grant;
  grant.id = IdPtr(a, 1);
  grant.session = "b";
  const Answer granted = Ask(a, std::move(grant));
  ASSERT_TRUE(granted.ok()) << granted.status;
  fb::TakeT take;
  take.id = IdPtr(b, 1);
  const std::vector<uint8_t> capability = granted.reply.body.AsGrantReply()->capability;
  take.capability = capability;
  ASSERT_TRUE(Ask(b, std::move(take)).ok());
  const std::vector<float> y = Run(a, 1, 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Run(b, 1, 1), y);
    EXPECT_EQ(Run(a, 1, 1), y);
  }
  EXPECT_EQ(Packed(), kBytes);
  EXPECT_TRUE(Free(a, {1}).ok());
  EXPECT_EQ(Run(b, 1, 1), y);
  EXPECT_EQ(Packed(), kBytes) << "the other session's tensor holds the block";
  EXPECT_TRUE(Free(b, {1}).ok());
  fb::RevokeT revoke;
  revoke.capability = capability;
  EXPECT_TRUE(Ask(a, std::move(revoke)).ok());
  EXPECT_EQ(Packed(), 0);
}

// Tensors have priority.
TEST_F(PackingTest, GoesWhereMemoryIsAskedFor) {
  StartWith(int64_t{8} << 20);
  Client c = Hello(), other = Hello();
  ASSERT_TRUE(Load(c, 1, kProduct).ok());
  ASSERT_TRUE(PutWeights(c, 1, 1).ok());
  const std::vector<float> y = Run(c, 1, 1);
  EXPECT_EQ(Run(c, 1, 1), y);
  EXPECT_EQ(Packed(), kBytes);
  constexpr uint64_t kLast = 1000;
  ASSERT_TRUE(Alloc(c, kLast, DType::kU8, {10'000}).ok());
  uint64_t counter = 2;
  for (int64_t piece = int64_t{4} << 20; piece >= 64; piece /= 2) {
    for (Client* of : {&c, &other}) {
      while (Alloc(*of, counter, DType::kU8, {piece}).ok()) ++counter;
    }
  }
  EXPECT_EQ(Packed(), 0);
  EXPECT_TRUE(Free(c, {kLast}).ok());
  EXPECT_EQ(Run(c, 1, 1), y) << "as it lies";
  EXPECT_EQ(Packed(), 0) << "there is no room";
}

// Weights that no run reaches are not packed.
TEST_F(PackingTest, NotForABranchThatIsNotTaken) {
  Client c = Hello();
  ASSERT_TRUE(
      Load(
          c, 1,
          R"(program @f(%x: f32[2, 256], %v: i8:q4_1[48, 256], %w: i8:q4_1[48, 256], %which: bool[]) -> (y: f32[2, 48]) {
  %0 = if(%which, [%x, %v, %w]) calls(@first, @second) -> (f32[2, 48])
  return %0
}
function @first(%x: f32[2, 256], %v: i8:q4_1[48, 256], %w: i8:q4_1[48, 256]) -> (y: f32[2, 48]) {
  %0 = quantized_linear(%x, %v)
  return %0
}
function @second(%x: f32[2, 256], %v: i8:q4_1[48, 256], %w: i8:q4_1[48, 256]) -> (y: f32[2, 48]) {
  %0 = quantized_linear(%x, %w)
  return %0
})")
          .ok());
  for (uint64_t i : {1, 2}) ASSERT_TRUE(PutWeights(c, i, static_cast<char>(i)).ok());
  const auto run = [&](uint64_t which) {
    const Answer a = Ask(c, RunOf(1)
                                .Array(std::vector<float>(2 * kColumns, 1), {2, kColumns})
                                .Tensor(c, 1)
                                .Tensor(c, 2)
                                .Bind(1, static_cast<uint8_t>(DType::kBool), 0, 0, which, 0)
                                .Inline());
    EXPECT_TRUE(a.ok()) << a.status;
  };
  for (int i = 0; i < 3; ++i) run(1);
  EXPECT_EQ(Packed(), kBytes);
  run(0);
  EXPECT_EQ(Packed(), 2 * kBytes);
}

TEST_F(PackingTest, NothingIsDoneOfXWithoutRows) {
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1,
                   "program @f(%x: f32[?m, 4096], %w: i8:q8_0[16, 4096]) -> (y: f32[?m, 16]) { %0 "
                   "= quantized_linear(%x, %w) return %0 }")
                  .ok());
  fb::PutT put;
  put.id = IdPtr(c, 1);
  put.type = std::make_unique<fb::TensorTypeT>();
  put.type->dtype = static_cast<uint8_t>(DType::kI8);
  put.type->encoding = static_cast<uint8_t>(Encoding::kQ8_0);
  put.type->shape = {16, 4096};
  put.bytes_follow = true;
  ASSERT_TRUE(Ask(c, std::move(put), std::string(16 * 4096 / 32 * 34, 'a')).ok());
  for (int i = 0; i < 3; ++i) {
    const Answer a = Ask(c, RunOf(1).Array({}, {0, 4096}).Tensor(c, 1).Inline());
    ASSERT_TRUE(a.ok()) << a.status;
    EXPECT_TRUE(a.Floats(0).empty());
  }
}

// After packed weights are freed, the next run does not pack them again. Otherwise the run after it
// would free them again.
TEST_F(PackingTest, ComesBackOnlyAfterManyRuns) {
  StartWith(int64_t{8} << 20);
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1, kProduct).ok());
  ASSERT_TRUE(PutWeights(c, 1, 1).ok());
  const std::vector<float> y = Run(c, 1, 1);
  EXPECT_EQ(Run(c, 1, 1), y);
  EXPECT_EQ(Packed(), kBytes);
  std::vector<uint64_t> taken;
  Client other = Hello();
  for (Client* of : {&c, &other}) {
    for (uint64_t i = 10; Alloc(*of, i, DType::kU8, {1 << 18}).ok(); ++i) taken.push_back(i);
  }
  EXPECT_EQ(Packed(), kBytes) << "it would have been given up in vain";
  for (Client* of : {&c, &other}) {
    for (uint64_t i = 100; Packed() > 0 && Alloc(*of, i, DType::kU8, {1 << 10}).ok(); ++i)
      taken.push_back(i);
  }
  ASSERT_EQ(Packed(), 0);
  for (Client* of : {&c, &other}) Free(*of, taken);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Run(c, 1, 1), y);
  EXPECT_EQ(Packed(), 0);
  EXPECT_EQ(Run(c, 1, 1), y);
  EXPECT_EQ(Packed(), kBytes);
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

// Also if other blocks follow.
TEST_F(PackingTest, GivesItsPagesBack) {
  Client c = Hello();
  constexpr int64_t kLarge = 400'000, kLargeBytes = kLarge * kColumns / 32 * 20;  // 64 MB
  ASSERT_TRUE(Load(c, 1, kProduct).ok());
  ASSERT_TRUE(Load(c, 2,
                   fmt::format("program @f(%x: f32[2, 256], %w: i8:q4_1[{0}, 256]) -> (y: f32[]) "
                               "{{ %0 = quantized_linear(%x, %w) %1 = sum(%0) return %1 }}",
                               kLarge))
                  .ok());
  ASSERT_TRUE(PutWeights(c, 1, 1, kLarge).ok());
  ASSERT_TRUE(PutWeights(c, 2, 2).ok());
  const auto large = [&] {
    return Ask(
        c,
        RunOf(2).Array(std::vector<float>(2 * kColumns, 1), {2, kColumns}).Tensor(c, 1).Inline());
  };
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(large().ok());
  for (int i = 0; i < 2; ++i) Run(c, 1, 2);
  ASSERT_EQ(Packed(), kLargeBytes + kBytes);
  const int64_t before = ResidentBytes();
  ASSERT_TRUE(Free(c, {1}).ok());
  EXPECT_EQ(Packed(), kBytes);
  EXPECT_LT(ResidentBytes(), before - kLargeBytes * 3 / 4);
}

// Slices end between pieces. Finished pieces of a copy are kept, however the run ends. Otherwise a
// run with a deadline would begin again each time.
TEST_F(PackingTest, GoesOnInSlicesAndWhereOthersStopped) {
  options_.slice = kMicrosecond;
  Restart();
  Client c = Hello();
  constexpr int64_t kLarge = 80'000;  // 12.8 MB: some pieces at a time
  ASSERT_TRUE(Load(c, 1,
                   fmt::format("program @f(%x: f32[2, 256], %w: i8:q4_1[{0}, 256]) -> (y: f32[]) "
                               "{{ %0 = quantized_linear(%x, %w) %1 = sum(%0) return %1 }}",
                               kLarge))
                  .ok());
  for (uint64_t i : {1, 2}) ASSERT_TRUE(PutWeights(c, i, 1, kLarge).ok());
  const auto run = [&](uint64_t weights) {
    return RunOf(1)
        .Array(std::vector<float>(2 * kColumns, 1), {2, kColumns})
        .Tensor(c, weights)
        .Inline();
  };
  const auto slices = [&](uint64_t weights) {
    const uint64_t sent = Send(c, run(weights));
    int n = 0;
    while (WorkOnce()) ++n;
    const Answer a = Take(c.peer, sent);
    EXPECT_TRUE(a.ok()) << a.status;
    return std::pair(n, a.Floats(0));
  };
  const auto [unpacked, y] = slices(1);
  EXPECT_EQ(slices(2).second, y);
  const auto [whole, packed_y] = slices(1);
  EXPECT_GE(whole, unpacked + 3);
  EXPECT_EQ(packed_y, y);
  const uint64_t cancelled = Send(c, run(2));
  for (const int64_t before = Packed(); Packed() == before;) ASSERT_TRUE(WorkOnce());
  ASSERT_TRUE(WorkOnce());
  Cancel(c, cancelled);
  WorkAll();
  EXPECT_EQ(Take(c.peer, cancelled).code(), absl::StatusCode::kCancelled);
  const auto [rest, rest_y] = slices(2);
  EXPECT_EQ(rest, whole - 2);
  EXPECT_EQ(rest_y, y);
}

// Scratch memory that no run holds is also freed when memory is needed.
TEST_F(PackingTest, IdleScratchMemoryGoesWhereMemoryIsAskedFor) {
  StartWith(int64_t{64} << 20);
  Client c = Hello(), other = Hello();
  ASSERT_TRUE(Load(c, 1,
                   "program @f(%x: f32[]) -> (y: f32[]) { %0 = expand(%x) {shape = [4194304]} %1 = "
                   "cumsum(%0) {dim = 0} %2 = sum(%1) return %2 }")
                  .ok());
  ASSERT_TRUE(Ask(c, RunOf(1).Scalar(1).Inline()).ok());
  const int64_t held = Held();
  ASSERT_GE(held, int64_t{16} << 20);
  uint64_t counter = 1;
  int64_t taken = 0;
  for (Client* of : {&c, &other}) {
    while (Alloc(*of, counter, DType::kU8, {int64_t{1} << 20}).ok())
      ++counter, taken += int64_t{1} << 20;
  }
  EXPECT_GE(taken, int64_t{48} << 20) << "of 51 MB that the executor may hold";
  EXPECT_TRUE(Free(c, {1, 2, 3, 4}).ok());
}

}  // namespace
}  // namespace opwire::executor
