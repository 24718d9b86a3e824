// The cpu and the null device: how each of them describes itself.
#include <dnnl.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "ir/base/cpu_quota.h"
#include "kernels/device/host_device.h"
#include "kernels/device/host_facts.h"
#include "kernels/select/isa.h"

namespace opwire {
namespace {

// The rest is for the system, the clients on this host, and copies on their way.
int64_t MemoryLimit() { return AvailableMemory() / 10 * 8; }

}  // namespace

DeviceProbe ProbeCpu() {
  const std::optional<double> quota = CpuQuota();
  return {"cpu", true,
          fmt::format("{}, {} cores{}, {}", CpuModelName(), AllowedCores().size(),
                      quota ? fmt::format(" (a quota of {:.3g})", *quota) : "",
                      Isa::Detect().ToString())};
}

StatusOr<std::unique_ptr<Device>> OpenCpu(const DeviceOptions& options) {
  std::vector<int> cores = AllowedCores();
  std::vector<int> pinned;
  if (!options.cores.empty()) {
    OPWIRE_ASSIGN_OR_RETURN(cores, ParseCores(options.cores, cores));
    pinned = cores;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int c : cores) CPU_SET(c, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
      return FailedPrecondition("cores: cannot bind to '{}'", options.cores);
  }
  const dnnl_version_t* const dnnl = dnnl_version();
  DeviceInfo info;
  info.kind = "cpu";
  info.name = CpuModelName();
  info.arch = Isa::Detect().ToString();
  info.memory_bytes = MemoryLimit();
  const std::optional<double> quota = CpuQuota();
  info.compute_units = ThreadsWithin(static_cast<int>(cores.size()), quota);
  info.dtypes = kAll;
  info.facts = {{"onednn", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
                {"cores", options.cores.empty() ? "any" : options.cores},
                {"cpu_quota", quota ? fmt::format("{:.3g}", *quota) : "none"},
                {"compiler", __VERSION__}};
  return std::unique_ptr<Device>(std::make_unique<HostDevice>(std::move(info), std::move(pinned)));
}

std::unique_ptr<Device> OpenNull() {
  DeviceInfo info;
  info.kind = "null";
  info.name = "null";
  info.memory_bytes = MemoryLimit();
  info.compute_units = 1;
  return std::make_unique<HostDevice>(std::move(info), std::vector<int>());
}

}  // namespace opwire
