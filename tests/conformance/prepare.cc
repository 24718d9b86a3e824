// Cases planned by a code that records, and units compiled by the code of the target.
#include "tests/conformance/prepare.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/ops/gpu/ahead.h"
#include "kernels/ops/gpu/families.h"

namespace opwire::conformance {
namespace {

constexpr size_t kKernelsInUnit = 8;
constexpr int kJobs = 2;

std::vector<gpu::KernelText> KernelsOf(gpu::GpuDevice& device, const OpDef& row,
                                       std::span<const Case> cases,
                                       const std::function<bool(const Variant&)>& runs) {
  std::vector<gpu::KernelText> kernels;
  VariantTable table;
  gpu::AddAll(table, std::make_shared<gpu::Code>(device, [&](const gpu::KernelText& kernel) {
                kernels.push_back(kernel);
              }));
  for (const Case& c : cases) {
    const StatusOr<BoundCase> bound = Bind(row, c, /*with_bytes=*/false);
    if (!bound.ok()) continue;
    for (const Variant& v : table.Of(row.name)) {
      if (!runs(v)) continue;
      for (const Layout layout : {Layout::kDense, Layout::kReversed, Layout::kGapped}) {
        if (layout == Layout::kDense || (v.kernel.flags & OPW_CONTIGUOUS) == 0)
          (void)PlanCase(v, *bound, layout);  // an error comes again when the call runs
      }
    }
  }
  return kernels;
}

}  // namespace

void PrepareKernels(const Target& target, const OpDef& row, std::span<const Case> cases,
                    const std::function<bool(const Variant&)>& runs) {
  if (!target.code) return;
  const std::vector<gpu::AheadUnit> units =
      gpu::UnitsOf(KernelsOf(target.code->device(), row, cases, runs),
                   [](std::string_view) { return kKernelsInUnit; });
  std::atomic<size_t> next{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kJobs; ++i) {
    threads.emplace_back([&] {
      for (size_t u; (u = next++) < units.size();) (void)target.code->Prepare(units[u]);
    });
  }
}

}  // namespace opwire::conformance
