// How much of its processors this process may use.
#ifndef OPWIRE_IR_BASE_CPU_QUOTA_H_
#define OPWIRE_IR_BASE_CPU_QUOTA_H_

#include <optional>
#include <string>

namespace opwire {

// The processors' time per time that the control groups from this process's own up to the root
// leave it, 2.5 for two and a half processors; none where no group has a limit. Both versions of
// the interface: cpu.max, and cpu.cfs_quota_us by cpu.cfs_period_us. system: where /proc and /sys
// lie.
std::optional<double> CpuQuota(const std::string& system = "");

// As many threads as have a processor each: at most `cores`, and the quota rounded down; at
// least 1.
int ThreadsWithin(int cores, std::optional<double> quota);

// That of the cores that the scheduler may run this process on.
int UsableThreads();

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_CPU_QUOTA_H_
