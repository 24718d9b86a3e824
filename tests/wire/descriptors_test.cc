// What the parts of a server may hold together fits into the limit.
#include "ir/wire/descriptors.h"

#include <gtest/gtest.h>

#include "tests/assert_ok.h"

namespace opwire {
namespace {

TEST(Descriptors, PartsFitIntoTheLimit) {
  for (int64_t limit = 256; limit <= 65536; limit = limit * 5 / 4) {
    for (const int64_t sessions : {0, 1, 16, 256, 100'000}) {
      ASSERT_OK_AND(const DescriptorBudget budget, BudgetDescriptors(limit, sessions));
      EXPECT_GE(budget.connections, 16) << limit;
      EXPECT_GE(budget.rings, 4) << limit;
      EXPECT_LE(budget.connections, 512);
      EXPECT_LE(budget.rings, 512);
      EXPECT_EQ(budget.accepted, limit - 32);
      EXPECT_LE(128 + 2 * budget.connections + 7 * budget.rings, limit);
    }
  }
  ASSERT_OK_AND(const DescriptorBudget usual, BudgetDescriptors(65536, 256));
  EXPECT_EQ(usual.connections, 512);
  EXPECT_EQ(usual.rings, 512);
}

TEST(Descriptors, TooLowALimitIsRefused) {
  EXPECT_EQ(BudgetDescriptors(255, 1).status(),
            ResourceExhausted("descriptors: expected a limit of at least 256, got 255; raise it "
                              "with `ulimit -n`"));
}

}  // namespace
}  // namespace opwire
