// The list of backends.
#include "kernels/device/device.h"

#include <fmt/format.h>

#include "kernels/device/gpu/gpu_device.h"
#include "kernels/device/host_device.h"
#include "kernels/select/variant.h"

namespace opwire {
namespace {

constexpr gpu::Vendor kVendors[] = {gpu::Vendor::kCuda, gpu::Vendor::kHip, gpu::Vendor::kEmu};

// Devices that are only used if the user names them.
bool IsForChecks(std::string_view spec) {
  return spec == "null" || spec.starts_with(gpu::VendorName(gpu::Vendor::kEmu));
}

// The first accelerator that can be bound and has kernels, else the cpu.
StatusOr<std::unique_ptr<Device>> OpenFirst(const DeviceOptions& options) {
  for (const gpu::Vendor vendor : kVendors) {
    if (IsForChecks(gpu::VendorName(vendor)) || !HasKernels(gpu::VendorName(vendor))) continue;
    for (const DeviceProbe& p : gpu::ProbeGpus(vendor)) {
      if (!p.usable) continue;
      auto device = gpu::OpenGpu(vendor, std::string_view(p.spec).substr(p.spec.find(':') + 1));
      if (device.ok()) return device;
    }
  }
  return OpenCpu(options);
}

}  // namespace

std::string SpecOf(const DeviceInfo& info) {
  return info.kind == "cpu" || info.kind == "null" ? info.kind
                                                   : fmt::format("{}:{}", info.kind, info.index);
}

std::vector<DeviceProbe> ProbeDevices() {
  std::vector<DeviceProbe> out = {ProbeCpu()};
  for (const gpu::Vendor vendor : kVendors) {
    for (DeviceProbe& p : gpu::ProbeGpus(vendor)) {
      if (p.usable && !HasKernels(gpu::VendorName(vendor)))
        p = {p.spec, false, p.reason + "; this build has no kernels for it"};
      out.push_back(std::move(p));
    }
  }
  out.push_back({"null", true, "for simulations: has memory and runs no kernel"});
  return out;
}

StatusOr<std::unique_ptr<Device>> OpenDevice(std::string_view spec, const DeviceOptions& options) {
  if (spec == "auto") return OpenFirst(options);
  if (spec == "cpu") return OpenCpu(options);
  if (spec == "null") return OpenNull();
  std::string why = "no backend has that name, there are cpu, cuda, hip, emu and null";
  for (const gpu::Vendor vendor : kVendors) {
    const std::string_view kind = gpu::VendorName(vendor);
    if (!spec.starts_with(kind) || (spec.size() > kind.size() && spec[kind.size()] != ':'))
      continue;
    auto device =
        gpu::OpenGpu(vendor, spec.size() > kind.size() ? spec.substr(kind.size() + 1) : "0");
    if (device.ok() || !absl::IsFailedPrecondition(device.status())) return device;
    why = MessageOf(device.status());
  }
  std::string usable;
  for (const DeviceProbe& p : ProbeDevices()) {
    if (p.usable && !IsForChecks(p.spec))
      usable += fmt::format("{}{}", usable.empty() ? "" : ", ", p.spec);
  }
  return FailedPrecondition("device '{}' cannot be bound: {}; usable here: {}", spec, why, usable);
}

std::string WhyChosen(std::string_view spec) {
  std::string others;
  for (const DeviceProbe& p : ProbeDevices()) {
    if (p.spec == spec || IsForChecks(p.spec)) continue;
    others += fmt::format("{}{}: {}", others.empty() ? "" : "; ", p.spec, p.reason);
  }
  return fmt::format("{}; not {}", spec, others);
}

}  // namespace opwire
