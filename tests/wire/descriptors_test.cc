// What the parts of a server may hold together fits into the limit.
#include "ir/wire/descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <utility>
#include <vector>

#include "ir/base/owned_fd.h"
#include "ir/wire/zmq_channel.h"
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

TEST(Descriptors, AConnectionNeedsSomeFreeOnes) {
  ASSERT_OK(CheckFreeDescriptors(16));
  ZmqContext context;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{128, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<OwnedFd> taken;
  do taken.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  while (taken.back().get() >= 0);
  for (int left : {0, 3, 6, 15}) {
    std::vector<OwnedFd> kept = std::exchange(taken, {});
    kept.resize(kept.size() - static_cast<size_t>(left) - (kept.back().get() >= 0 ? 0 : 1));
    const Status refused =
        Dealer::Connect(context, "ipc:///tmp/opwire-no-such-socket", ZmqOptions()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
    EXPECT_NE(refused.message().find(fmt::format("got {}: Too many open files", left)),
              std::string::npos)
        << refused;
    EXPECT_NE(refused.message().find("limit is 128"), std::string::npos) << refused;
    kept.clear();
    do taken.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    while (taken.back().get() >= 0);
  }
  taken.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_OK(CheckFreeDescriptors(16));
}

}  // namespace
}  // namespace opwire
