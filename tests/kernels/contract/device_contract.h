// What every device must do, whichever it is: tests over specs such as "cpu", which a program
// instantiates.
#ifndef OPWIRE_TESTS_KERNELS_CONTRACT_DEVICE_CONTRACT_H_
#define OPWIRE_TESTS_KERNELS_CONTRACT_DEVICE_CONTRACT_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/device/device.h"

namespace opwire {

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> device_ = OpenDevice(GetParam(), {}).value();
  // Its memory is the host's, its work the calling thread's.
  const bool on_host_ = device_->info().kind == "cpu" || device_->info().kind == "null";
};

// "cuda:0" as a test's name.
inline std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = c == ':' || c == '-' ? '_' : c;
  return name;
}

}  // namespace opwire

#endif  // OPWIRE_TESTS_KERNELS_CONTRACT_DEVICE_CONTRACT_H_
