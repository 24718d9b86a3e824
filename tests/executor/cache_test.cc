// A cache of keys or values that is updated in place.
#include <cstring>
#include <limits>

#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;

class CacheTest : public CoreTest {
 protected:
  CacheTest() : c_(Hello()) {}
  Answer Append(int64_t first, int64_t second) {
    const int64_t at[] = {first, second};
    std::string bytes(sizeof at, '\0');
    std::memcpy(bytes.data(), at, sizeof at);
    EXPECT_TRUE(PutTyped(c_, 3, DType::kI64, {2}, bytes).ok());
    return Ask(c_, RunOf(1).Tensor(c_, 1).Tensor(c_, 2).Tensor(c_, 3).None());
  }
  Client c_;
};

TEST_F(CacheTest, NewRowsGoToPositionsThatLieInATensor) {
  ASSERT_TRUE(
      Load(
          c_, 1,
          R"(program @append(inout %cache: f32[2, 1, 3, 2], %new: f32[2, 1, 1, 2], %at: i64[2]) -> (cache: f32[2, 1, 3, 2]) {
    %0 = kv_append(%cache, %new, %at)
    return %0
  })")
          .ok());
  ASSERT_TRUE(Put(c_, 1, Floats(12, 0), {2, 1, 3, 2}).ok());
  ASSERT_TRUE(Put(c_, 2, {1, 2, 3, 4}, {2, 1, 1, 2}).ok());
  const int64_t before = Get(c_, 1).tensor().info->offset;
  const Answer a = Append(0, 2);
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4}));
  ASSERT_TRUE(Append(1, -2).ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1, 2, 1, 2, 0, 0, 0, 0, 3, 4, 3, 4}));
  EXPECT_EQ(Get(c_, 1).tensor().info->offset, before) << "no copy of the cache";
  const Answer bad = Append(1, 3);
  EXPECT_FALSE(bad.ok());
  EXPECT_NE(bad.status.ToString().find("position"), std::string::npos) << bad.status;
}

// A step of a decoder: the new key and value go to the positions that the lengths name. The query
// attends to all positions up to its own.
TEST_F(CacheTest, AQueryMeetsThePositionsThatAreThere) {
  ASSERT_TRUE(
      Load(
          c_, 1,
          R"(program @step(inout %k: f32[2, 1, 3, 1], inout %v: f32[2, 1, 3, 2], %q: f32[2, 1, 1, 1], %new_k: f32[2, 1, 1, 1], %new_v: f32[2, 1, 1, 2], %at: i64[2],
                                         %n: i64[2]) -> (k: f32[2, 1, 3, 1], v: f32[2, 1, 3, 2], y: f32[2, 1, 1, 2]) {
    %0 = kv_append(%k, %new_k, %at)
    %1 = kv_append(%v, %new_v, %at)
    %2, %3 = kv_attention(%q, %0, %1, %n)
    return %0, %1, %2
  })")
          .ok());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(Put(c_, 1, {0, nan, nan, 0, 0, nan}, {2, 1, 3, 1}).ok());
  ASSERT_TRUE(Put(c_, 2, {2, 4, nan, nan, nan, nan, 1, 2, 3, 4, nan, nan}, {2, 1, 3, 2}).ok());
  ASSERT_TRUE(Put(c_, 3, {1, 1}, {2, 1, 1, 1}).ok());
  ASSERT_TRUE(Put(c_, 4, {0, 0}, {2, 1, 1, 1}).ok());
  ASSERT_TRUE(Put(c_, 5, {6, 8, 5, 6}, {2, 1, 1, 2}).ok());
  const auto put = [&](uint64_t id, int64_t first, int64_t second) {
    const int64_t numbers[] = {first, second};
    return PutTyped(c_, id, DType::kI64, {2},
                    std::string(reinterpret_cast<const char*>(numbers), sizeof numbers))
        .ok();
  };
  ASSERT_TRUE(put(6, 1, 2) && put(7, 2, 3));
  const Answer a = Ask(c_, RunOf(1)
                               .Tensor(c_, 1)
                               .Tensor(c_, 2)
                               .Tensor(c_, 3)
                               .Tensor(c_, 4)
                               .Tensor(c_, 5)
                               .Tensor(c_, 6)
                               .Tensor(c_, 7)
                               .None()
                               .None()
                               .Inline());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.Floats(2), (Floats{4, 6, 3, 4}));  // means, because all keys are equal
}

}  // namespace
}  // namespace opwire::executor
