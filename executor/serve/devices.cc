// The probe's lines, printed.
#include "executor/serve/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/base/json.h"
#include "kernels/device/device.h"

namespace opwire::executor {

int ShowDevices(bool as_json) {
  const std::vector<DeviceProbe> probes = ProbeDevices();
  if (as_json) {
    nlohmann::json out = nlohmann::json::array();
    for (const DeviceProbe& p : probes)
      out.push_back({{"device", p.spec}, {"usable", p.usable}, {"reason", p.reason}});
    fmt::print("{}\n", DumpJson(out, 2));
    return 0;
  }
  size_t width = 6;
  for (const DeviceProbe& p : probes) width = std::max(width, p.spec.size());
  fmt::print("{:<{}}  USABLE  WHAT IT IS, OR WHY NOT\n", "DEVICE", width);
  for (const DeviceProbe& p : probes)
    fmt::print("{:<{}}  {:<6}  {}\n", p.spec, width, p.usable ? "yes" : "no", p.reason);
  return 0;
}

}  // namespace opwire::executor
