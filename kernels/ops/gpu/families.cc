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
  elementwise::AddElementwiseGpu(table, code);
  create::AddCreateGpu(table, code);
  shape::AddShapeGpu(table, code);
  matmul::AddMatmulGpu(table, code);
  convolution::AddConvolutionGpu(table, code);
  attention::AddAttentionGpu(table, code);
  attention::AddKvAppendGpu(table, code);
  attention::AddKvAttentionGpu(table, code);
  rotary::AddRotaryGpu(table, code);
  softmax::AddSoftmaxGpu(table, code);
  softmax::AddSoftmaxBackwardGpu(table, code);
  reduce::AddReduceGpu(table, code);
  reduce::AddScanGpu(table, code);
  sort::AddSortGpu(table, code);
  norm::AddNormGpu(table, code);
  norm::AddNormBackwardGpu(table, code);
  loss::AddLossGpu(table, code);
  optim::AddOptimGpu(table, code);
  quant::AddQuantGpu(table, code);
  blocks::AddBlocksGpu(table, code);
  sampling::AddSamplingGpu(table, code);
}

}  // namespace opwire::gpu
