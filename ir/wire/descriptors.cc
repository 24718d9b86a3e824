// The limit of the process, and its division.
#include "ir/wire/descriptors.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "ir/base/owned_fd.h"

namespace opwire {
namespace {

constexpr int64_t kLeast = 256, kMost = 65536;
constexpr int64_t kOwn = 128;   // libraries, the device, files, compilers of kernels
constexpr int64_t kSpare = 32;  // of those, whatever comes in
constexpr int64_t kOfRing = 7;  // with those that are handed to its client
constexpr int64_t kMostConnections = 512, kMostRings = 512;

}  // namespace

int64_t RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, kMost);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kMost));
}

StatusOr<DescriptorBudget> BudgetDescriptors(int64_t limit, int64_t sessions) {
  if (limit < kLeast)
    return ResourceExhausted(
        "descriptors: expected a limit of at least {}, got {}; raise it with `ulimit -n`", kLeast,
        limit);
  const int64_t rest = limit - kOwn, shared = rest - std::min(sessions, rest / 4),
                connections = std::min(kMostConnections, shared / 4),
                rings = std::min(kMostRings, (shared - 2 * connections) / kOfRing);
  return DescriptorBudget{static_cast<int>(connections), static_cast<int>(rings),
                          static_cast<int>(limit - kSpare)};
}

Status CheckFreeDescriptors(int count) {
  std::vector<OwnedFd> taken;
  for (int i = 0; i < count; ++i) {
    taken.emplace_back(eventfd(0, EFD_CLOEXEC));
    if (taken.back().get() >= 0) continue;
    const int error = errno;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return Unavailable(
        "descriptors: expected {} free ones for a connection, got {}: {}; the process's limit is "
        "{}; close files or connections, or raise it with `ulimit -n`",
        count, i, std::strerror(error), limit.rlim_cur);
  }
  return absl::OkStatus();
}

}  // namespace opwire
