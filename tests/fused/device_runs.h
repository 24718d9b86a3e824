// Common parts of tests of GPU kernels of groups: one run of a kernel on an emulated device.
#ifndef OPWIRE_TESTS_FUSED_DEVICE_RUNS_H_
#define OPWIRE_TESTS_FUSED_DEVICE_RUNS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/fused/fuser.h"
#include "kernels/jit/sanitized.h"
#include "kernels/select/failure.h"
#include "kernels/select/variant.h"
#include "tests/folder.h"
#include "tests/fused/fixture.h"

namespace opwire::fused {

// Kernels of groups on a device that the parameter names.
class DeviceRunsTest : public ::testing::TestWithParam<const char*> {
 protected:
  DeviceRunsTest()
      : device_(OpenDevice(GetParam(), {}).value()),
        fuser_(BuildFuser(*device_, {.cache = KernelCache(cache_)})) {}
  ~DeviceRunsTest() override { unsetenv("OPWIRE_EMU_ORDER"); }
  void SetUp() override {
    if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
  }

  // Runs the kernel once. Returns the flags that it raised. Each tensor begins `shift` elements
  // after a boundary. `shares`: by result, the operand whose memory it shares; -1: it has its own
  // memory.
  uint32_t RunKernel(const std::shared_ptr<const opw_kernel>& kernel, std::vector<TestTensor>& in,
                     std::vector<TestTensor>& out, std::vector<int> shares, int64_t shift,
                     const std::vector<opw_attr>& arguments = {}) {
    if (!kernel) {
      ADD_FAILURE() << "no kernel";
      return 0;
    }
    shares.resize(out.size(), -1);
    std::vector<void*> memory;
    const auto place = [&](const TestTensor& t) {
      memory.push_back(
          device_->Allocate(static_cast<int64_t>(t.bytes.size()) + 64, MemoryKind::kDevice)
              .value());
      opw_tensor made = t.abi();
      made.data = static_cast<char*>(memory.back()) + shift * DTypeBytes(t.type);
      ExpectOk(device_->Copy(made.data, t.bytes.data(), static_cast<int64_t>(t.bytes.size()), 0));
      return made;
    };
    std::vector<opw_tensor> operands, results;
    for (const TestTensor& t : in) operands.push_back(place(t));
    for (size_t o = 0; o < out.size(); ++o)
      results.push_back(shares[o] >= 0 ? operands[static_cast<size_t>(shares[o])] : place(out[o]));
    std::vector<uint32_t> starts;
    for (uint32_t i = 0; i <= in.size(); ++i) starts.push_back(i);
    opw_call call{};
    call.operands = operands.data();
    call.starts = starts.data();
    call.results = results.data();
    call.attrs = arguments.data();
    call.runtime = device_->runtime();
    call.context = kernel->context;
    EXPECT_EQ(kernel->prepare(&call, &call.state, &call.workspace_bytes), OPW_OK) << TakeFailure();
    void* const workspace =
        device_->Allocate(call.workspace_bytes + 256, MemoryKind::kDevice).value();
    memory.push_back(workspace);
    call.workspace =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace) + 255) & ~uintptr_t{255});
    EXPECT_EQ(kernel->run(&call), OPW_OK) << TakeFailure();
    ExpectOk(device_->Synchronize());
    for (size_t o = 0; o < out.size(); ++o)
      ExpectOk(device_->Copy(out[o].bytes.data(), results[o].data,
                             static_cast<int64_t>(out[o].bytes.size()), 0));
    ExpectOk(device_->Synchronize());
    kernel->release(call.state);
    for (void* const m : memory) device_->Free(m);
    return device_->TakeFlags().raised;
  }
  static void ExpectOk(const Status& s) { EXPECT_TRUE(s.ok()) << s; }

  const Folder cache_;
  const std::unique_ptr<Device> device_;
  const std::shared_ptr<Fuser> fuser_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_FUSED_DEVICE_RUNS_H_
