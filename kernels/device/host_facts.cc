// Facts from /proc, /sys and the scheduler.
#include "kernels/device/host_facts.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>

namespace opwire {
namespace {

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value;
  if (file >> value) return value;
  return std::nullopt;
}

// The smallest limit minus use on the way from this process's control group to the root, for both
// versions of the interface.
int64_t ControlGroupMemory() {
  int64_t least = std::numeric_limits<int64_t>::max();
  const auto consider = [&](const std::string& folder, const char* limit, const char* use) {
    const std::optional<int64_t> max = ReadNumber(folder + limit);  // "max" is no number: no limit
    if (max)
      least = std::min(least, std::max<int64_t>(0, *max - ReadNumber(folder + use).value_or(0)));
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (std::string path = line.substr(second + 1);;
         path = path.substr(0, path.find_last_of('/'))) {
      if (controllers.empty()) {
        consider("/sys/fs/cgroup" + path + "/", "memory.max", "memory.current");
      } else if (controllers == "memory") {
        consider("/sys/fs/cgroup/memory" + path + "/", "memory.limit_in_bytes",
                 "memory.usage_in_bytes");
      }
      if (path.empty()) break;
    }
  }
  return least;
}

}  // namespace

std::string CpuModelName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::vector<int> AllowedCores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  }
  return cores;
}

StatusOr<std::vector<int>> ParseCores(std::string_view text, const std::vector<int>& allowed) {
  std::vector<int> cores;
  const char* p = text.data();
  const char* const end = p + text.size();
  while (true) {
    int first = 0;
    auto [next, error] = std::from_chars(p, end, first);
    int last = first;
    if (error == std::errc() && next != end && *next == '-') {
      const auto range = std::from_chars(next + 1, end, last);
      next = range.ptr;
      error = range.ec;
    }
    if (error != std::errc() || first < 0 || last < first || last >= CPU_SETSIZE ||
        (next != end && *next != ',')) {
      return InvalidArgument("cores: expected a list such as 0-3,6, got '{}'", text);
    }
    for (int c = first; c <= last; ++c) cores.push_back(c);
    if (next == end) break;
    p = next + 1;
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  for (const int c : cores) {
    if (!std::binary_search(allowed.begin(), allowed.end(), c)) {
      return FailedPrecondition("cores: core {} of '{}' is not one that this process may use", c,
                                text);
    }
  }
  return cores;
}

int64_t AvailableMemory() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %ld kB", &kib) == 1) available = kib * 1024;
  }
  return std::min(available, ControlGroupMemory());
}

}  // namespace opwire
