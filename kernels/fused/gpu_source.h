// Scalar programs as GPU code: a kernel over axes that all tensors share, with wide accesses where
// the tensors lie so.
//
//   GpuForm form = FormOf(program, tensors);                   // inputs, then outputs
//   // one kernel, to be compiled behind kernels/fused/primitives.cuh
//   const std::string text = GpuSource(program, form);
//   const std::vector<std::byte> params = GpuParams(program, form, ...);
//
// Equal programs and forms give equal text. It holds nothing of a program but its primitives,
// element types and constants' bits, and nothing of sizes but their class.
#ifndef OPWIRE_KERNELS_FUSED_GPU_SOURCE_H_
#define OPWIRE_KERNELS_FUSED_GPU_SOURCE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kernels/abi.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

// How a kernel reaches a tensor's elements.
enum class Access : uint8_t {
  kVector,    // `items` at a time, next to each other
  kOne,       // one for the kernel's step: each element's, or one that a whole step shares
  kConstant,  // one for all
};

// What decides the text beside the program, and what is known of sizes.
struct GpuForm {
  std::vector<Access> access;  // by tensor, inputs first
  int items = 1;               // elements that a thread's step has
  int threads = 256;           // of a block
  int unroll = 1;              // steps of a thread
  int resident = 0;            // blocks that should fit a multiprocessor at a time; 0: as it comes
  int rank = 1;                // of the axes: 1, 2, 4, 8 or 16
  bool wide = false;           // more steps than 2^31
  // Of this call: steps along the axes. Extents, and by tensor strides in elements.
  int64_t elements = 0;
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;

  int64_t steps() const { return (elements + items - 1) / items; }
  int64_t blocks() const {
    return (steps() + int64_t{threads} * unroll - 1) / (int64_t{threads} * unroll);
  }
};

// REQUIRES: program.Check().ok(); the tensors are the program's inputs and outputs, outputs of one
// shape.
GpuForm FormOf(const ScalarProgram& program, std::span<const opw_tensor* const> tensors);

// Other blocks and steps for the same elements, of which some devices run one faster for some
// programs: at most 7, none twice.
std::vector<GpuForm> FormsBeside(const GpuForm& rule);

// The kernel, as gpu::KernelText::text; it takes a structure `Params`. With `members`, a power of 2
// above 1: a structure of so many of these, `of`, and behind them by member the first of its
// blocks, an i32 each, INT32_MAX where there are no more members.
std::string GpuSource(const ScalarProgram& program, const GpuForm& form, int members = 1);

// The structure's bytes, but for the tensors' addresses, which lie in front, 8 bytes each, and the
// reporter behind them (kernels/device/gpu/flags.h). `arguments` are the program's, as a call's
// attributes.
std::vector<std::byte> GpuParams(const ScalarProgram& program, const GpuForm& form,
                                 std::span<const opw_attr> arguments);

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_GPU_SOURCE_H_
