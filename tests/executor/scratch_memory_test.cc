// Scratch memory of runs makes room for what other runs need, and a run that is refused takes none.
#include <nlohmann/json.hpp>

#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

constexpr int64_t kMiB = 1 << 20, kMemory = 64 * kMiB;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
// Six matrices of 4 MiB at one time.
constexpr const char* kWide = R"(
program @wide(%x: f32[1024, 1024]) -> (y: f32[1024, 1024], sum: f32[]) {
  %0 = matmul(%x, %x)
  %1 = matmul(%0, %x)
  %2 = matmul(%1, %x)
  %3 = matmul(%2, %x)
  %4 = matmul(%3, %x)
  %5 = matmul(%4, %x)
  %6 = add(%0, %1)
  %7 = add(%6, %2)
  %8 = add(%7, %3)
  %9 = add(%8, %4)
  %10 = add(%9, %5)
  %11 = sum(%10) {dims = [0, 1]}
  return %10, %11
})";
constexpr const char* kTwice =
    "program @twice(%x: f32[?n]) -> (y: f32[?n]) { %0 = add(%x, %x) return %0 }";

class ScratchMemoryTest : public CoreTest {
 protected:
  ScratchMemoryTest() {
    UseHost(kMemory);
    Restart();
  }
  void MakeZeros(Client& c, uint64_t counter, std::vector<int64_t> shape) {
    int64_t bytes = 4;
    for (const int64_t extent : shape) bytes *= extent;
    const Answer made = Alloc(c, counter, DType::kF32, std::move(shape));
    ASSERT_TRUE(made.ok()) << made.status;
    const std::string zeros(static_cast<size_t>(bytes), '\0');
    ASSERT_TRUE(FillAndSeal(c, counter, made.tensor().ticket, zeros).ok());
  }
  int64_t Stat(const char* name) {
    return nlohmann::json::parse(Info("stats"))[name].get<int64_t>();
  }
  int64_t Held() { return Stat("memory_in_use"); }
};

TEST_F(ScratchMemoryTest, OfEarlierRunsMakesRoomForResults) {
  Client a = Hello(), b = Hello(), c = Hello();
  ASSERT_TRUE(Load(a, 1, kWide).ok());
  ASSERT_TRUE(Load(b, 1, kTwice).ok());
  MakeZeros(a, 1, {1024, 1024});
  const Answer wide = Ask(a, RunOf(1).Tensor(a, 1).None().Inline());
  ASSERT_TRUE(wide.ok()) << wide.status;
  EXPECT_GT(Held(), 24 * kMiB);
  // An operand of 8 MiB has room, and nearly nothing more.
  MakeZeros(c, 1, {(Stat("memory_limit") - Held() - 9 * kMiB) / 4});
  MakeZeros(b, 1, {2 * kMiB});
  const Answer run = Ask(b, RunOf(1).Tensor(b, 1).Keep(2));
  EXPECT_TRUE(run.ok()) << run.status;
}

TEST_F(ScratchMemoryTest, IsNotTakenByARunWhoseResultIsOverTheQuota) {
  Client c = Hello("", "uid:1", 6 * kMiB);
  ASSERT_TRUE(Load(c, 1, kWide).ok());
  MakeZeros(c, 1, {1024, 1024});
  const int64_t before = Held();
  const Answer run = Ask(c, RunOf(1).Tensor(c, 1).Keep(2).Inline());
  EXPECT_EQ(run.code(), kExhausted) << run.status;
  EXPECT_NE(MessageOf(run.status).find("over quota"), std::string::npos) << run.status;
  EXPECT_LT(Held(), before + kMiB);
}

}  // namespace
}  // namespace opwire::executor
