// Product programs of many rows as GPU code, for Hopper (kernels/ops/matmul/gpu_hopper.cuh): a
// tile's sums are finished while the tensor cores are at the next.
//
//   OPWIRE_ASSIGN_OR_RETURN(const GpuEpilogue epilogue, GpuEpilogue::Make(program));
//   epilogue.Source(columns)                 // one kernel, of tiles of so many columns
//   epilogue.Params(product, arguments)      // what it is launched with
#ifndef OPWIRE_KERNELS_FUSED_GPU_EPILOGUE_H_
#define OPWIRE_KERNELS_FUSED_GPU_EPILOGUE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/product_program.h"
#include "kernels/ops/matmul/gpu_params.h"

namespace opwire::fused {

class GpuEpilogue {
 public:
  // UNIMPLEMENTED: the program is none of many rows, its types are not of 16 bits, or rows do not
  // begin at 16 bytes.
  static StatusOr<GpuEpilogue> Make(const ProductProgram& program);

  const ProductProgram& program() const { return program_; }
  const ProductProgram::Section& section() const { return program_.sections[0]; }
  std::string Source(int columns) const;
  // The kernel's structure: the product, then addresses of operands behind x and weight and of
  // results, then the reporter and the arguments.
  struct Bytes {
    std::vector<std::byte> all;
    size_t data, reporter;  // where the addresses and the reporter are
  };
  Bytes Params(const opw::matmul::HopperParams& product, std::span<const opw_attr> arguments) const;
  // The finish with sums of the program's type in place of f32 ones, for a kernel by itself.
  ScalarProgram Apart() const;

 private:
  explicit GpuEpilogue(const ProductProgram& program) : program_(program) {}

  ProductProgram program_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_GPU_EPILOGUE_H_
