// The unit that is compiled from a user's GPU source. It is the source, followed by a kernel for
// each combination of types and each launch of the manifest. Every thread of the grid calls the
// function that a launch names, with
//
//   const T*         each operand, dense row-major, and T* each result: float, double, opw::f16,
//                    opw::bf16, opw::i32 and the like, bool; 8-bit
//                    floats as their bits, opw::u8
//   opw::i64         each extent that the signature names, in its order, "leading" among them if it
//                    says "..."
//   opw::i64, double or bool   each attribute of kind int, float or bool, in the manifest's order
//   void*            the workspace, 256-byte aligned, if the variant asks for one
//   opw::Reporter    if the op has indices (kernels/ops/gpu/reports.cuh)
#ifndef OPWIRE_KERNELS_JIT_GPU_UNIT_H_
#define OPWIRE_KERNELS_JIT_GPU_UNIT_H_

#include <string>
#include <string_view>
#include <vector>

#include "kernels/jit/manifest.h"

namespace opwire::jit {

// A field of the struct that is a kernel's parameter: 8 bytes each; an opw::Reporter has 16.
struct GpuField {
  enum Kind : uint8_t { kOperand, kResult, kExtent, kAttr, kWorkspace, kReporter } kind;
  int index = 0;          // of the op definition's operands, results or attributes
  std::string name = {};  // of an extent, as FormulaNames has it
};
StatusOr<std::vector<GpuField>> GpuFieldsOf(const OpManifest& op, const OpVariantSpec& variant);

// RESOURCE_EXHAUSTED for too many combinations of types.
StatusOr<std::string> GpuUnit(const OpManifest& op, const OpVariantSpec& variant,
                              std::string_view source);
// The kernel's name for a launch, for the types of TypeBindings(op.row)[binding].
std::string GpuKernelName(size_t binding, size_t launch);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_GPU_UNIT_H_
