// All GPU variants, and the object that compiles them.
#include "kernels/ops/gpu/families.h"

namespace opwire::gpu {

std::shared_ptr<Code> MakeCode(GpuDevice& device, const KernelOptions& options) {
  jit::ToolchainOptions toolchain;
  toolchain.worker = options.worker;
  const Vendor vendor = device.driver().vendor();
  auto compiler = vendor == Vendor::kEmu   ? jit::EmuCompiler(toolchain)
                  : vendor == Vendor::kHip ? jit::Hiprtc(toolchain)
                                           : jit::Nvrtc(toolchain);
  return std::make_shared<Code>(device, std::move(compiler), options.cache, options.choices);
}

void AddAll(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddElementwiseGpu(table, code);
  AddCreateGpu(table, code);
  AddShapeGpu(table, code);
  AddMatmulGpu(table, code);
  AddConvolutionGpu(table, code);
  AddAttentionGpu(table, code);
  AddKvAppendGpu(table, code);
  AddKvAttentionGpu(table, code);
  AddRotaryGpu(table, code);
  AddSoftmaxGpu(table, code);
  AddSoftmaxBackwardGpu(table, code);
  AddReduceGpu(table, code);
  AddScanGpu(table, code);
  AddSortGpu(table, code);
  AddNormGpu(table, code);
  AddNormBackwardGpu(table, code);
  AddLossGpu(table, code);
  AddOptimGpu(table, code);
  AddQuantGpu(table, code);
  AddBlocksGpu(table, code);
  AddSamplingGpu(table, code);
}

}  // namespace opwire::gpu
