// The device contract on a GPU whose driver is a fake, and each way in which a driver refuses.
#include "kernels/device/gpu/gpu_device.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/assert_ok.h"
#include "tests/kernels/contract/device_contract.h"

namespace opwire {
namespace {

// Before any test, as a driver is opened once.
const bool named = setenv("OPWIRE_CUDA_DRIVER", OPWIRE_FAKE_DRIVER, 0) == 0;

class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }

 private:
  const char* const name_;
};

std::string Refusal(const char* spec) {
  const auto device = OpenDevice(spec, {});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition) << device.status();
  return MessageOf(device.status());
}
bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(GpuDevice, IsNamedByIndexAndByUuid) {
  ASSERT_TRUE(named);
  const auto second = OpenDevice("cuda:1", {}).value();
  EXPECT_EQ(second->info().index, 1);
  EXPECT_EQ(second->info().name, "Fake GPU 1");
  EXPECT_EQ(second->info().uuid, "GPU-a0a2a4a6-a8aa-acae-b0b2-b4b6b8babcbe");
  EXPECT_EQ(second->info().arch, "sm_90a");
  EXPECT_EQ(second->info().memory_bytes, 1 << 30);
  EXPECT_EQ(second->info().compute_units, 132);
  EXPECT_EQ(second->info().facts.at("driver"), "CUDA 13.0");
  EXPECT_EQ(OpenDevice("cuda:GPU-A0A2A4A6-A8AA-ACAE-B0B2-B4B6B8BABCBE", {}).value()->info().index,
            1);
  EXPECT_EQ(OpenDevice("cuda", {}).value()->info().index, 0);
  const Setting old("FAKE_MAJOR", "8");
  EXPECT_EQ(OpenDevice("cuda:0", {}).value()->info().arch, "sm_80");
}

TEST(GpuDevice, IsRefusedWithTheReason) {
  for (const char* none :
       {"cuda:2", "cuda:-1", "cuda:", "cuda:0x", "cuda:GPU-1", "cuda:99999999999999999999"}) {
    EXPECT_TRUE(Has(Refusal(none), "no device '")) << Refusal(none);
    EXPECT_TRUE(Has(Refusal(none), "0 (Fake GPU 0, GPU-a0a1")) << Refusal(none);
  }
  EXPECT_TRUE(Has(Refusal("cudax:0"), "no backend has that name")) << Refusal("cudax:0");
  {
    const Setting mode("FAKE_MODE", "2");
    EXPECT_TRUE(Has(Refusal("cuda:0"), "its compute mode prohibits processes"))
        << Refusal("cuda:0");
    EXPECT_FALSE(gpu::ProbeGpus(gpu::Vendor::kCuda)[0].usable);
  }
  const Setting taken("FAKE_RETAIN", "46");
  EXPECT_TRUE(Has(Refusal("cuda:0"), "takes no process now")) << Refusal("cuda:0");
}

TEST(GpuDevice, IsProbedWithoutBeingBound) {
  const std::vector<DeviceProbe> gpus = gpu::ProbeGpus(gpu::Vendor::kCuda);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_TRUE(gpus[1].usable);
  EXPECT_EQ(gpus[1].spec, "cuda:1");
  EXPECT_EQ(gpus[1].reason, "Fake GPU 1, 1.0 GiB, sm_90a, CUDA 13.0");
  // All backends, whatever they have to say.
  std::string specs;
  for (const DeviceProbe& p : ProbeDevices()) specs += p.spec + " ";
  EXPECT_TRUE(specs.starts_with("cpu cuda:0 cuda:1 hip:0 ") && specs.ends_with("null ")) << specs;
}

TEST(GpuDevice, SaysWhatIsFreeWhenMemoryIsShort) {
  const auto device = OpenDevice("cuda:0", {}).value();
  ASSERT_TRUE(device->Allocate(1000, MemoryKind::kDevice).ok());
  const Setting full("FAKE_FULL", "1");
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
    const Status s = device->Allocate(4096, kind).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(Has(MessageOf(s), "asked for 4096 bytes")) << s;
    EXPECT_TRUE(Has(MessageOf(s), "in use here 1000, free 1048576 of 1073741824")) << s;
  }
  EXPECT_EQ(device->memory_stats().in_use, 1000);
}

TEST(GpuDevice, KernelsThatReadEarlyOverlapOnlyWhatIsCapturedWithThem) {
  struct Counts {
    int behind = 0, overlapping = 0;
  };
  using Shape = gpu::GpuDevice::LaunchShape;
  const auto launch = [](Device& device, Counts& counts, const Shape& shape) {
    ASSERT_OK(static_cast<gpu::GpuDevice&>(device).Launch(reinterpret_cast<gpu::Function>(&counts),
                                                          shape, "", 1));
  };
  const Shape plain{}, overlaps{.overlaps = true}, early{.overlaps = true, .reads_early = true};
  Counts counts;
  const auto device = OpenDevice("cuda:0", {}).value();
  launch(*device, counts, plain);
  EXPECT_EQ(counts.overlapping, 0);
  launch(*device, counts, overlaps);
  EXPECT_EQ(counts.overlapping, 1);
  launch(*device, counts, early);
  EXPECT_EQ(counts.behind, 2) << "another request may have written what it reads";
  ASSERT_OK(device->BeginCapture(0));
  launch(*device, counts, overlaps);
  launch(*device, counts, early);
  EXPECT_EQ(counts.overlapping, 3);
  device->DestroyGraph(device->EndCapture(0).value());
  launch(*device, counts, early);
  EXPECT_EQ(counts.behind, 3);
  const Setting old("FAKE_MAJOR", "8");
  launch(*OpenDevice("cuda:0", {}).value(), counts, overlaps);
  EXPECT_EQ(counts.behind, 4) << "no such launches before Hopper";
}

// Of processes of their own, each with another driver.
class DriverTest : public testing::Test {
 protected:
  // This program again, with a setting: what Driver::Open says there.
  static std::string Says(const std::string& settings) {
    std::string out;
    FILE* const child = popen((settings + " " OPWIRE_SELF " --open").c_str(), "r");
    for (char buffer[256]; child && std::fgets(buffer, sizeof buffer, child);) out += buffer;
    pclose(child);
    return out;
  }
};

TEST_F(DriverTest, IsRefusedWithTheReason) {
  EXPECT_EQ(Says("FAKE=1"), "CUDA 13.0\n");
  EXPECT_EQ(Says("FAKE_VERSION=12040"), "CUDA 12.4\n");
  EXPECT_EQ(
      Says("FAKE_VERSION=11080"),
      "FAILED_PRECONDITION: the driver is too old: expected CUDA 12.0 at least, got CUDA 11.8\n");
  EXPECT_EQ(Says("FAKE_DEVICES=0"),
            "FAILED_PRECONDITION: no device; the driver is there (CUDA 13.0)\n");
  EXPECT_EQ(Says("FAKE_INIT=999"),
            "FAILED_PRECONDITION: the driver (CUDA 13.0) does not start: CUDA_ERROR_FAKE: as it "
            "was told to\n");
  EXPECT_TRUE(Has(Says("OPWIRE_CUDA_DRIVER=/nowhere/libcuda.so.1"),
                  "no driver: /nowhere/libcuda.so.1: cannot open"));
  EXPECT_TRUE(Has(Says("OPWIRE_CUDA_DRIVER=libm.so.6"), "the driver has no cuInit: it is too old"));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(FakeDriver, DeviceTest, testing::Values("cuda:0", "cuda:1"), NameOf);

}  // namespace opwire

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--open") {
    const auto driver = opwire::gpu::Driver::Open(opwire::gpu::Vendor::kCuda);
    std::printf("%s\n",
                driver.ok() ? (*driver)->version().c_str() : driver.status().ToString().c_str());
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
