// The list of backends.
#include "kernels/device/device.h"

#include <fmt/format.h>

#include "kernels/device/gpu/gpu_device.h"
#include "kernels/device/host_device.h"

namespace opwire {

std::vector<DeviceProbe> ProbeDevices() {
  std::vector<DeviceProbe> out = {ProbeCpu()};
  for (const gpu::Vendor vendor : {gpu::Vendor::kCuda, gpu::Vendor::kHip}) {
    for (DeviceProbe& p : gpu::ProbeGpus(vendor)) out.push_back(std::move(p));
  }
  out.push_back({"null", true, "for simulations: has memory and runs no kernel"});
  return out;
}

StatusOr<std::unique_ptr<Device>> OpenDevice(std::string_view spec, const DeviceOptions& options) {
  if (spec == "cpu" || spec == "auto") return OpenCpu(options);
  if (spec == "null") return OpenNull();
  for (const gpu::Vendor vendor : {gpu::Vendor::kCuda, gpu::Vendor::kHip}) {
    const std::string_view kind = gpu::VendorName(vendor);
    if (!spec.starts_with(kind) || (spec.size() > kind.size() && spec[kind.size()] != ':')) continue;
    auto device = gpu::OpenGpu(vendor, spec.size() > kind.size() ? spec.substr(kind.size() + 1) : "0");
    if (device.ok() || !absl::IsFailedPrecondition(device.status())) return device;
    return FailedPrecondition("device '{}' cannot be bound: {}", spec, MessageOf(device.status()));
  }
  std::string reasons;
  for (const DeviceProbe& p : ProbeDevices()) {
    reasons += fmt::format("; {}: {} ({})", p.spec, p.usable ? "usable" : "not usable", p.reason);
  }
  return FailedPrecondition("device '{}' cannot be bound: no backend of this build serves it{}", spec, reasons);
}

std::string WhyChosen(std::string_view kind) {
  std::string others;
  for (const DeviceProbe& p : ProbeDevices()) {
    if (p.spec == kind || p.spec == "null") continue;
    others += fmt::format("{}{}: {}", others.empty() ? "" : "; ", p.spec, p.usable ? "this build has no kernels for it" : p.reason);
  }
  return fmt::format("{}; not {}", kind, others);
}

}  // namespace opwire
