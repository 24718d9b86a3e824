// The list of backends.
#include "kernels/device/device.h"

#include <fmt/format.h>

#include "kernels/device/host_device.h"

namespace opwire {

std::vector<DeviceProbe> ProbeDevices() { return {ProbeCpu(), {"null", true, "for simulations: has memory and runs no kernel"}}; }

StatusOr<std::unique_ptr<Device>> OpenDevice(std::string_view spec, const DeviceOptions& options) {
  if (spec == "cpu" || spec == "auto") return OpenCpu(options);
  if (spec == "null") return OpenNull();
  std::string reasons;
  for (const DeviceProbe& p : ProbeDevices()) {
    reasons += fmt::format("; {}: {} ({})", p.spec, p.usable ? "usable" : "not usable", p.reason);
  }
  return FailedPrecondition("device '{}' cannot be bound: no backend of this build serves it{}", spec, reasons);
}

std::string WhyChosen(std::string_view kind) {
  std::string others;
  for (const DeviceProbe& p : ProbeDevices()) {
    if (!p.usable) others += fmt::format("{}{}: {}", others.empty() ? "" : "; ", p.spec, p.reason);
  }
  return others.empty() ? fmt::format("{}: this build serves no accelerator besides", kind) : fmt::format("{}; not {}", kind, others);
}

}  // namespace opwire
