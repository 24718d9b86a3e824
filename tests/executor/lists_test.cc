// Ops whose results are lists: parameters that are updated in place, and parameters that cannot be.
#include <fmt/format.h>

#include <algorithm>

#include "executor/plan/instance.h"
#include "ir/text/text.h"
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;

constexpr const char* kTrain =
    R"(program @train(inout %a: f32[2], inout %b: f32[?n], inout %va: f32[2], inout %vb: f32[?n], %ga: f32[2], %gb: f32[?n], %lr: f32[], %step: i64[])
    -> (a: f32[2], b: f32[?n], va: f32[2], vb: f32[?n]) {
  %0, %1, %2, %3 = sgd([%a, %b], [%ga, %gb], [%va, %vb], %lr, %step) {momentum = 0.5}
  return %0, %1, %2, %3
})";
// Two parameters of equal types take each other's new values.
constexpr const char* kSwap =
    R"(program @swap(inout %a: f32[2], inout %b: f32[2], %g: f32[2], %lr: f32[], %step: i64[]) -> (a: f32[2], b: f32[2]) {
  %0, %1 = sgd([%a, %b], [%g, %g], [], %lr, %step)
  return %1, %0
})";
// A parameter that the op reads as two operands, and a parameter that it reads as a whole.
constexpr const char* kTwice =
    R"(program @twice(inout %a: f32[2], %b: f32[2], %lr: f32[], %step: i64[]) -> (a: f32[2], b: f32[2]) {
  %0, %1 = sgd([%a, %b], [%b, %a], [], %lr, %step)
  return %0, %1
})";
constexpr const char* kRate =
    R"(program @rate(inout %lr: f32[], %b: f32[], %g: f32[], %step: i64[]) -> (lr: f32[], b: f32[]) {
  %0, %1 = sgd([%lr, %b], [%g, %g], [], %lr, %step)
  return %0, %1
})";

class ListsTest : public CoreTest {
 protected:
  ListsTest() : c_(Hello()) {}
  void MustLoad(const std::string& text) {
    const Answer a = Load(c_, 1, text);
    ASSERT_TRUE(a.ok()) << a.status;
  }
  Client c_;
};

TEST(Lists, AStepOverParametersIsOneStepOfThePlan) {
  EXPECT_EQ(StepsOf(kTrain, {5}).size(), 1u) << "no copy";
  const auto copies = [](const char* text) {
    const std::vector<std::string> labels = StepsOf(text);
    return std::count(labels.begin(), labels.end(), "copy@result");
  };
  EXPECT_EQ(copies(kSwap), 2) << "the other place's storage may be read after it is written";
  EXPECT_EQ(copies(kTwice), 1);
  EXPECT_EQ(copies(kRate), 1) << "every place reads the rate";
}

TEST_F(ListsTest, ParametersAreUpdatedWhereTheyAre) {
  MustLoad(kTrain);
  ASSERT_TRUE(Put(c_, 1, {1, 2}).ok());
  ASSERT_TRUE(Put(c_, 2, {3, 4, 5}).ok());
  ASSERT_TRUE(Put(c_, 3, {0, 0}).ok());
  ASSERT_TRUE(Put(c_, 4, {0, 0, 0}).ok());
  const int64_t before = Get(c_, 2).tensor().info->offset;
  for (const int64_t step : {1, 2}) {
    const Answer a = Ask(
        c_, RunOf(1)
                .Tensor(c_, 1)
                .Tensor(c_, 2)
                .Tensor(c_, 3)
                .Tensor(c_, 4)
                .Array({1, 1})
                .Array({2, 2, 2})
                .Scalar(0.5)
                .Bind(1, static_cast<uint8_t>(DType::kI64), 0, 0, static_cast<uint64_t>(step), 0)
                .None()
                .None()
                .None()
                .None());
    ASSERT_TRUE(a.ok()) << a.status;
  }
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1 - 0.5 - 0.75, 2 - 0.5 - 0.75}));
  EXPECT_EQ(Get(c_, 2).BulkFloats(), (Floats{3 - 1 - 1.5, 4 - 1 - 1.5, 5 - 1 - 1.5}));
  EXPECT_EQ(Get(c_, 4).BulkFloats(), (Floats{3, 3, 3}));
  EXPECT_EQ(Get(c_, 2).tensor().info->offset, before);
}

TEST_F(ListsTest, ParametersThatChangePlaces) {
  MustLoad(kSwap);
  ASSERT_TRUE(Put(c_, 1, {1, 2}).ok());
  ASSERT_TRUE(Put(c_, 2, {3, 4}).ok());
  ASSERT_TRUE(Ask(c_, RunOf(1)
                          .Tensor(c_, 1)
                          .Tensor(c_, 2)
                          .Array({1, 1})
                          .Scalar(1)
                          .Bind(1, static_cast<uint8_t>(DType::kI64), 0, 0, 1, 0)
                          .None()
                          .None())
                  .ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{2, 3}));
  EXPECT_EQ(Get(c_, 2).BulkFloats(), (Floats{0, 1}));
}

}  // namespace
}  // namespace opwire::executor
