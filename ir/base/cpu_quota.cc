// Limits of control groups, from /proc and /sys.
#include "ir/base/cpu_quota.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string_view>

namespace opwire {
namespace {

// The quota of one folder: quota and period in microseconds, in one file or in two. "max" and -1
// are no limit.
std::optional<double> QuotaOf(const std::string& folder) {
  double quota = 0, period = 0;
  if (std::ifstream both(folder + "cpu.max"); both >> quota >> period && period > 0)
    return quota / period;
  std::ifstream first(folder + "cpu.cfs_quota_us"), second(folder + "cpu.cfs_period_us");
  if (first >> quota && second >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

bool HasCpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

std::optional<double> CpuQuota(const std::string& system) {
  std::optional<double> least;
  std::ifstream groups(system + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/a/b", or "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !HasCpu(controllers)) continue;
    const std::string root = system + "/sys/fs/cgroup" + (controllers.empty() ? "" : "/cpu");
    for (std::string path = line.substr(second + 1);;
         path = path.substr(0, path.find_last_of('/'))) {
      if (const std::optional<double> quota = QuotaOf(root + path + "/"))
        least = std::min(least.value_or(*quota), *quota);
      if (path.empty()) break;
    }
  }
  return least;
}

int ThreadsWithin(int cores, std::optional<double> quota) {
  const double most = quota ? std::min<double>(*quota, cores) : cores;
  return std::max(1, static_cast<int>(most));
}

int UsableThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  static const std::optional<double> quota = CpuQuota();
  return ThreadsWithin(cores, quota);
}

}  // namespace opwire
