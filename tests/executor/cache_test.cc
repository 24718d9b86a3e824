// A cache of keys or values that is updated where it is.
#include <cstring>

#include "tests/executor/fixture.h"

namespace opwire {
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
  ASSERT_TRUE(Load(c_, 1, R"(program @append(inout %cache: f32[2, 1, 3, 2], %new: f32[2, 1, 1, 2], %at: i64[2]) -> (cache: f32[2, 1, 3, 2]) {
    %0 = kv_append(%cache, %new, %at)
    return %0
  })").ok());
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

}  // namespace
}  // namespace opwire
