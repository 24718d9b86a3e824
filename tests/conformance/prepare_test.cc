// Kernels that are compiled before the cases run.
#include "tests/conformance/prepare.h"

#include <gtest/gtest.h>

#include "kernels/ops/gpu/families.h"
#include "tests/folder.h"
#include "tests/kernels/counting_toolchain.h"

namespace opwire::conformance {
namespace {

class Prepare : public testing::Test {
 protected:
  // Prepares and runs all cases of softmax in bf16, as another process with the same cache would.
  void Run(uint64_t seed) {
    const auto code = std::make_shared<gpu::Code>(
        device_, std::make_unique<jit::CountingToolchain>(calls_), cache_.path());
    Target target{"emu:0", &device_, code, VariantTable()};
    gpu::AddAll(target.variants, code);
    const OpDef& row = *Catalogue().Find("softmax");
    Random random(seed);
    std::vector<Case> cases = CasesOf(row, DType::kBF16, random);
    std::erase_if(cases, &Case::large);
    PrepareKernels(target, row, cases, [](const Variant& v) { return v.unavailable.empty(); });
    prepared_ = calls_.compiled;
    for (const Case& c : cases) {
      const BoundCase b = Bind(row, c).value();
      for (const Variant& v : target.variants.Of(row.name)) {
        for (const Layout layout : {Layout::kDense, Layout::kReversed, Layout::kGapped}) {
          if (layout == Layout::kDense || (v.kernel.flags & OPW_CONTIGUOUS) == 0) {
            EXPECT_EQ(RunCase(v, b, layout, false, device_).failure, "") << c.name;
          }
        }
      }
    }
  }

  const Folder cache_;
  jit::CountingToolchain::Calls calls_;
  int prepared_ = 0;  // compilations until the first case ran
  const std::unique_ptr<Device> opened_ = OpenDevice("emu:0", {}).value();
  gpu::GpuDevice& device_ = static_cast<gpu::GpuDevice&>(*opened_);
};

TEST_F(Prepare, CasesCompileNothingMore) {
  Run(1);
  EXPECT_GT(prepared_, 0);
  EXPECT_LT(prepared_, 5);
  const int compiled = calls_.compiled;
  EXPECT_EQ(compiled, prepared_);
  Run(2);
  EXPECT_EQ(calls_.compiled, compiled) << "units differ with the seed";
}

TEST_F(Prepare, KernelsOfAUnitThatFailsAreCompiledAlone) {
  calls_.before = [](const jit::CompileRequest& request) {
    return request.name.find(" kernels of ") == std::string::npos ? absl::OkStatus()
                                                                  : Internal("refused");
  };
  Run(1);
  EXPECT_GT(calls_.compiled, prepared_);
}

}  // namespace
}  // namespace opwire::conformance
