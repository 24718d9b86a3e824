// Permutations among elementwise nodes: which are part of a group, the bytes that it then moves,
// and that the results are those of the nodes run alone.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "executor/plan/orders.h"
#include "executor/plan/program.h"
#include "ir/base/dtype.h"
#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/executor/fused_runs.h"

namespace opwire::executor {
namespace {

using Labels = std::vector<std::string>;

// ---- Orders of axes
// -------------------------------------------------------------------------------------------------

TEST(AxisOrders, FollowPermutationsBothWays) {
  AxisOrders orders(std::vector<size_t>{3, 3, 3, 3});
  orders.Unite(1, 2);
  EXPECT_EQ(orders.Join(0, 1, {1, 2, 0}), AxisOrders::kJoined);
  EXPECT_EQ(orders.Join(2, 3, {2, 0, 1}), AxisOrders::kJoined) << "back again";
  EXPECT_TRUE(orders.AreJoined(0, 3));
  EXPECT_EQ(orders.Of(3), orders.Of(0));
  EXPECT_EQ(orders.Of(2), orders.Of(1));
  const AxisOrder a = orders.Of(0), b = orders.Of(1);
  for (size_t axis = 0; axis < 3; ++axis) EXPECT_EQ(b[axis], a[(axis + 1) % 3]);
  EXPECT_EQ(orders.Join(0, 2, {}), AxisOrders::kOtherwise);
}

TEST(AxisOrders, KeepReductionsAndThirdAxesApart) {
  AxisOrders orders(std::vector<size_t>{3, 3, 3, 3, 3});
  orders.SetReduces(4);
  orders.Unite(3, 4);
  EXPECT_EQ(orders.Join(0, 3, {0, 2, 1}), AxisOrders::kReductions);
  EXPECT_EQ(orders.Join(0, 1, {0, 2, 1}), AxisOrders::kJoined);
  EXPECT_EQ(orders.Join(1, 2, {2, 1, 0}), AxisOrders::kThirdAxis);
  EXPECT_FALSE(orders.AreJoined(1, 2));
}

// ---- Groups
// -------------------------------------------------------------------------------------------------

TEST(PermutedSchedule, AnOperandIsReadInAnotherOrder) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[5, 4], %z: f32[4, 5]) -> (y: f32[4, 5]) {
  %0 = permute(%x) {dims = [1, 0]}
  %1 = relu(%0)
  %2 = add(%1, %z)
  return %2
})"),
            Labels{"fused(permute, relu, add)"});
}

TEST(PermutedSchedule, AResultIsWrittenInAnotherOrder) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[5, 4], %b: f32[4]) -> (y: f32[4, 5], s: f32[5, 4]) {
  %0 = add(%x, %b)
  %1 = exp(%0)
  %2 = permute(%1) {dims = [1, 0]}
  return %2, %1
})"),
            Labels{"fused(add, exp, permute)"});
}

TEST(PermutedSchedule, NodesOfBothSidesAreOneKernel) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[2, 5, 4], %z: f32[4, 2, 5], %b: f32[5]) -> (y: f32[4, 2, 5]) {
  %0 = exp(%x)
  %1 = permute(%0) {dims = [2, 0, 1]}
  %2 = add(%1, %b)
  %3 = mul(%2, %z)
  return %3
})"),
            Labels{"fused(exp, permute, add, mul)"});
}

TEST(PermutedSchedule, APermutationByItselfIsNoGroup) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[5, 4], %w: f32[5, 5]) -> (y: f32[4, 5], z: f32[5, 4]) {
  %0 = permute(%x) {dims = [1, 0]}
  %1 = matmul(%0, %w)
  %2 = matmul(%w, %x)
  return %1, %2
})")
                .size(),
            3u);
}

TEST(PermutedSchedule, OneGroupReadsItAndOthersReadWhatThatWrites) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[5, 4], %w: f32[5, 5]) -> (y: f32[4, 5], z: f32[4, 5]) {
  %0 = permute(%x) {dims = [1, 0]}
  %1 = relu(%0)
  %2 = matmul(%1, %w)
  %3 = sub(%2, %0)
  %4 = neg(%3)
  return %1, %4
})"),
            (Labels{"fused(permute, relu)", "matmul", "fused(sub, neg)"}));
}

TEST(PermutedSchedule, WhatOnlyALaterGroupReadsIsReadThere) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[5, 4], %u: f32[4, 5], %w: f32[5, 5]) -> (y: f32[4, 5]) {
  %0 = permute(%x) {dims = [1, 0]}
  %1 = matmul(%u, %w)
  %2 = sub(%1, %0)
  return %2
})"),
            (Labels{"matmul", "fused(permute, sub)"}));
}

TEST(PermutedSchedule, AValueIsOfOneOrderInAGroup) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[4, 4]) -> (y: f32[4, 4]) {
  %0 = exp(%x)
  %1 = permute(%0) {dims = [1, 0]}
  %2 = add(%0, %1)
  return %2
})"),
            (Labels{"fused(exp, permute)", "add"}));
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[4, 4]) -> (y: f32[4, 4]) {
  %0 = permute(%x) {dims = [1, 0]}
  %1 = add(%x, %0)
  return %1
})"),
            Labels{"fused(permute, add)"})
      << "an operand is read twice";
}

TEST(PermutedSchedule, ReductionsAndThirdAxesStayApart) {
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[5, 4]) -> (y: f32[4]) {
  %0 = permute(%x) {dims = [1, 0]}
  %1 = exp(%0)
  %2 = sum(%1) {dims = [1]}
  return %2
})"),
            (Labels{"permute", "fused(exp, sum)"}));
  EXPECT_EQ(Fused(R"(
program @f(%x: f32[2, 3, 4], %y: f32[3, 4, 2], %z: f32[4, 2, 3]) -> (y: f32[2, 3, 4]) {
  %0 = permute(%y) {dims = [2, 0, 1]}
  %1 = permute(%z) {dims = [1, 2, 0]}
  %2 = add(%x, %0)
  %3 = add(%2, %1)
  return %3
})"),
            (Labels{"permute", "fused(permute, add)", "add"}));
}

TEST(PermutedSchedule, AValueThatIsReplacedIsReadBefore) {
  EXPECT_EQ(Fused(R"(
program @step(inout %w: f32[4, 4], %g: f32[4, 4]) -> (w: f32[4, 4]) {
  %0 = permute(%w) {dims = [1, 0]}
  %1 = sub(%0, %g)
  %2 = add(%w, %1)
  return %2
})"),
            (Labels{"fused(permute, sub)", "add"}));
}

TEST(PermutedSchedule, ReasonsNameWhatIsApart) {
  const auto ends = [](const std::string& text, size_t group) {
    return ScheduleOf(text).groups[group].ends;
  };
  EXPECT_EQ(ends(R"(
program @f(%x: f32[5, 4]) -> (y: f32[4]) {
  %0 = permute(%x) {dims = [1, 0]}
  %1 = exp(%0)
  %2 = sum(%1) {dims = [1]}
  return %2
})",
                 0),
            (Labels{"%2 is a result",
                    "%0 comes from permute, which cannot be in a group with reductions"}));
  EXPECT_EQ(ends(R"(
program @f(%x: f32[2, 3, 4], %y: f32[3, 4, 2], %z: f32[4, 2, 3]) -> (y: f32[2, 3, 4]) {
  %0 = permute(%y) {dims = [2, 0, 1]}
  %1 = permute(%z) {dims = [1, 2, 0]}
  %2 = add(%x, %0)
  %3 = add(%2, %1)
  %4 = neg(%3)
  return %4
})",
                 1),
            (Labels{"%4 is a result", "%2 comes from add, for which others wait",
                    "%1 comes from permute, which is along a third axis"}));
  EXPECT_EQ(ends(R"(
program @f(%x: f32[4, 4]) -> (y: f32[4, 4]) {
  %0 = exp(%x)
  %1 = permute(%0) {dims = [1, 0]}
  %2 = add(%0, %1)
  return %2
})",
                 0),
            (Labels{"%0 goes to add, which also waits for others",
                    "%1 goes to add, which has another order of axes"}));
}

// ---- Results
// -------------------------------------------------------------------------------------------------

class PermutedFusionTest : public FusedRunsTest {};

TEST_F(PermutedFusionTest, AWeightInItsOrderIsReplacedInItsPlace) {
  const auto expect_equal = [&](const std::string& text) {
    ASSERT_OK_AND(const Module m, Parse(text, "t"));
    EXPECT_EQ(Run(m, Seed(), true, FillSmall), Run(m, Seed(), false, FillSmall)) << text;
  };
  expect_equal(R"(
program @step(inout %w: f32[70, 33], %g: f32[33, 70]) -> (w: f32[70, 33]) {
  %0 = permute(%g) {dims = [1, 0]}
  %1 = sub(%w, %0)
  return %1
})");
  expect_equal(R"(
program @step(inout %w: f32[70, 70], %g: f32[70, 70]) -> (w: f32[70, 70]) {
  %0 = permute(%w) {dims = [1, 0]}
  %1 = sub(%0, %g)
  return %1
})");
  expect_equal(R"(
program @step(inout %w: f32[70, 70], %g: f32[70, 70]) -> (w: f32[70, 70]) {
  %0 = permute(%w) {dims = [1, 0]}
  %1 = sub(%0, %g)
  %2 = add(%w, %1)
  return %2
})");
  expect_equal(R"(
program @f(%x: f32[5, 0], %y: f32[0, 5]) -> (y: f32[0, 5]) {
  %0 = permute(%x) {dims = [1, 0]}
  %1 = sub(%0, %y)
  return %1
})");
}

// Returns a chain of elementwise nodes over tensors with permuted axes, where one of two axes is
// the last.
std::string PermutedChain(std::mt19937_64& random) {
  static constexpr DType kTypes[] = {DType::kF64,    DType::kF32,    DType::kF16, DType::kBF16,
                                     DType::kF8E4M3, DType::kF8E5M2, DType::kI64, DType::kI32,
                                     DType::kI16,    DType::kI8,     DType::kU64, DType::kU32,
                                     DType::kU16,    DType::kU8,     DType::kBool};
  static constexpr int64_t kExtents[] = {1, 2, 3, 7, 16, 33, 64, 65, 130};
  const DType type = kTypes[random() % std::size(kTypes)];
  const bool is_signed = (kFloats | kSigned).Has(type);
  const auto join = [&](const std::string& x, const std::string& y) {
    if (kFloat8s.Has(type))
      return fmt::format("where(%c, {}, {})", x, y);  // they are computed in another type
    if (type == DType::kBool)
      return fmt::format("{}({}, {})", random() % 2 ? "bitwise_or" : "bitwise_xor", x, y);
    return fmt::format("{}({}, {})", random() % 2 ? "maximum" : "minimum", x, y);
  };
  const size_t rank = 2 + random() % 3;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (size_t a = 0; a < rank; ++a) {
    shape.push_back(elements > 500 ? 2 : kExtents[random() % std::size(kExtents)]);
    elements *= shape.back();
  }
  const auto first = static_cast<uint8_t>(random() % rank),
             second = static_cast<uint8_t>(random() % rank);
  const auto any_order = [&] {
    AxisOrder order(rank);
    std::iota(order.begin(), order.end(), uint8_t{0});
    std::ranges::shuffle(order, random);
    std::swap(*std::ranges::find(order, random() % 2 ? first : second), order.back());
    return order;
  };
  const auto type_of = [&](const AxisOrder& order) {
    std::string extents;
    for (const uint8_t a : order)
      extents += fmt::format("{}{}", extents.empty() ? "" : ", ", shape[a]);
    return fmt::format("{}[{}]", DTypeName(type), extents);
  };
  std::string params, body;
  int values = 0;
  const auto append = [&](const std::string& call) {
    body += fmt::format("  %{} = {}\n", values, call);
    return fmt::format("%{}", values++);
  };
  const auto in_order = [&](const std::string& value, const AxisOrder& from, const AxisOrder& to) {
    if (from == to) return value;
    std::string dims;
    for (const uint8_t a : to)
      dims +=
          fmt::format("{}{}", dims.empty() ? "" : ", ", std::ranges::find(from, a) - from.begin());
    return append(fmt::format("permute({}) {{dims = [{}]}}", value, dims));
  };
  AxisOrder order = any_order();
  params = fmt::format("%p0: {}", type_of(order));
  std::string value = "%p0";
  const int operands = 2 + static_cast<int>(random() % 5);
  for (int i = 1; i < operands; ++i) {
    const AxisOrder own = any_order(), both = random() % 2 ? order : any_order();
    params += fmt::format(", %p{}: {}", i, type_of(own));
    const std::string left = in_order(value, order, both),
                      right = in_order(fmt::format("%p{}", i), own, both);
    value = append(join(left, right));
    order = both;
    if (is_signed && random() % 2) value = append(fmt::format("neg({})", value));
  }
  value = append(join(value, value));  // a second node, in case there is only one
  const AxisOrder last = random() % 2 ? order : any_order();
  value = in_order(value, order, last);
  return fmt::format("program @f({}, %c: bool[]) -> (y: {}) {{\n{}  return {}\n}}\n", params,
                     type_of(last), body, value);
}

TEST_F(PermutedFusionTest, RandomChainsAreOneKernelThatMovesLittle) {
  ExpectOneKernelEach(PermutedChain, FillSmall);
}

}  // namespace
}  // namespace opwire::executor
