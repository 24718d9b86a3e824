// The device contract on the devices of this machine, and the errors for unusable devices.
#include "kernels/device/device.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/device/gpu/gpu_device.h"
#include "kernels/device/host_facts.h"
#include "kernels/select/variant.h"
#include "tests/kernels/contract/device_contract.h"

namespace opwire {
namespace {

// Returns the devices of this machine: a GPU too, if there is one, and the emulated ones.
std::vector<std::string> Devices() {
  std::vector<std::string> out = {"cpu", "null"};
  for (const gpu::Vendor vendor : {gpu::Vendor::kCuda, gpu::Vendor::kHip, gpu::Vendor::kEmu}) {
    for (const DeviceProbe& p : gpu::ProbeGpus(vendor)) {
      if (p.usable) out.push_back(p.spec);
    }
  }
  return out;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Here, DeviceTest, testing::ValuesIn(Devices()), NameOf);

namespace {

TEST(OpenDevice, RefusesWithReasons) {
  const auto unknown = OpenDevice("warp:9", {});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(MessageOf(unknown.status()).find("no backend has that name"), std::string::npos)
      << unknown.status();
  EXPECT_NE(MessageOf(unknown.status()).find("usable here: cpu"), std::string::npos)
      << unknown.status();
  EXPECT_EQ(OpenDevice("cpu", {.cores = "0-"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenDevice("cpu", {.cores = "1023"}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(OpenDevice, NullRunsNoKernel) {
  EXPECT_TRUE(BuildVariantTable(**OpenDevice("null", {})).variants().empty());
}

TEST(ParseCores, ReadsListsAndRanges) {
  const std::vector<int> allowed = {0, 1, 2, 3, 6};
  EXPECT_EQ(*ParseCores("0-2,6", allowed), (std::vector<int>{0, 1, 2, 6}));
  EXPECT_EQ(*ParseCores("3,3", allowed), std::vector<int>{3});
  for (const char* bad : {"", "a", "1-", "2-1", "1,", "-1", "1;2", "99999", "5,"}) {
    EXPECT_EQ(ParseCores(bad, allowed).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(ParseCores("5", allowed).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace opwire
