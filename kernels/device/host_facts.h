// Facts about this machine's processor and memory, read once at probe: text of /proc and /sys is
// parsed into them.
#ifndef OPWIRE_KERNELS_DEVICE_HOST_FACTS_H_
#define OPWIRE_KERNELS_DEVICE_HOST_FACTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace opwire {

// "AMD EPYC"; "unknown" where /proc/cpuinfo has no model name.
std::string CpuModelName();

// Cores that this process may run on, ascending.
std::vector<int> AllowedCores();

// "0-3,6" as {0, 1, 2, 3, 6}. INVALID_ARGUMENT for text that is no list of cores,
// FAILED_PRECONDITION for cores that are not in `allowed`; both name the offending part.
StatusOr<std::vector<int>> ParseCores(std::string_view text, const std::vector<int>& allowed);

// The least of the available memory that the system reports and of the control groups' remaining
// memory.
int64_t AvailableMemory();

}  // namespace opwire

#endif  // OPWIRE_KERNELS_DEVICE_HOST_FACTS_H_
