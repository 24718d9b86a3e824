// How much of its processors this process may use.
#ifndef OPWIRE_IR_BASE_CPU_QUOTA_H_
#define OPWIRE_IR_BASE_CPU_QUOTA_H_

#include <optional>
#include <string>

namespace opwire {

// How many processors' time the control groups of this process allow it: 2.5 for two and a half.
// The least of its own group's limit and those up to the root; none if no group has one. Reads both
// versions of the interface (cpu.max; cpu.cfs_quota_us and cpu.cfs_period_us). system: the folder
// of /proc and /sys.
std::optional<double> CpuQuota(const std::string& system = "");

// As many threads as have a processor each: at most `cores`, and the quota rounded down; at
// least 1.
int ThreadsWithin(int cores, std::optional<double> quota);

// That of the cores that the scheduler may run this process on. The quota is read once.
int UsableThreads();

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_CPU_QUOTA_H_
