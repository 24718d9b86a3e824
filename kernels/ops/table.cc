// All variants built into this program, family by family.
#include <cassert>

#include "ir/ops/catalogue.h"
#include "kernels/device/device.h"
#include "kernels/fused/fuser.h"
#include "kernels/ops/families.h"
#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/fused.h"
#include "kernels/select/key_types.h"
#include "kernels/torch/library.h"

namespace opwire {
namespace ops {

void AddReference(VariantTable& table, std::string_view op, const opw_kernel& kernel) {
  const OpDef* const row = Catalogue().Find(op);
  assert(row != nullptr);
  table.Add(
      {std::string(op), "reference", Tier::kReference, 0, KeyTypesOf(*row), "", "builtin", kernel});
}

void AddProduction(VariantTable& table, const Isa& isa, std::string_view op, std::string_view name,
                   std::string_view set, int priority, DTypeSet dtypes, const opw_kernel& kernel,
                   std::string_view restriction, const Packing* packing) {
  Variant v{std::string(op),
            std::string(name),
            Tier::kProduction,
            priority,
            dtypes,
            isa.Missing(std::string(set)),
            "builtin",
            kernel};
  v.restriction = restriction;
  v.packing = packing;
  // "few_avx512" is the same code as "few_avx2".
  const std::string stem(name.ends_with(set) ? name.substr(0, name.size() - set.size()) : "");
  if (set == "avx2") v.wider = stem + "avx512";
  if (set == "avx512") v.wider = stem + "avx512vnni";
  table.Add(std::move(v));
}

}  // namespace ops

bool HasKernels(std::string_view kind) { return kind == "cpu" || kind == "cuda" || kind == "emu"; }

VariantTable BuildVariantTable(Device& device, const KernelOptions& options) {
  VariantTable table;
  if (!HasKernels(device.info().kind)) return table;
  if (device.info().kind != "cpu") {
    gpu::AddAll(table, options.code ? options.code
                                    : gpu::MakeCode(static_cast<gpu::GpuDevice&>(device), options));
    if (device.info().kind == "cuda") torch::AddTorch(table, device);
    return table;
  }
  const Isa& isa = Isa::Detect();
  ops::elementwise::AddElementwise(table, isa);
  ops::shape::AddShape(table, isa);
  ops::create::AddCreate(table, isa);
  ops::reduce::AddReduce(table, isa);
  ops::sort::AddSort(table, isa);
  ops::softmax::AddSoftmax(table, isa);
  ops::norm::AddNorm(table, isa);
  ops::matmul::AddMatmul(table, isa);
  ops::convolution::AddConvolution(table, isa);
  ops::attention::AddAttention(table, isa);
  ops::rotary::AddRotary(table, isa);
  ops::loss::AddLoss(table, isa);
  ops::optim::AddOptim(table, isa);
  ops::quant::AddQuant(table, isa);
  ops::blocks::AddBlocks(table, isa);
  ops::sampling::AddSampling(table, isa);
  torch::AddTorch(table, device);
  return table;
}

std::shared_ptr<fused::Fuser> BuildFuser(Device& device, const KernelOptions& options) {
  if (!HasKernels(device.info().kind)) return nullptr;
  if (device.info().kind == "cpu")
    return fused::MakeHostFuser({.cache = options.cache, .worker = options.worker});
  return gpu::MakeFuser(
      options.code ? options.code : gpu::MakeCode(static_cast<gpu::GpuDevice&>(device), options));
}

}  // namespace opwire
