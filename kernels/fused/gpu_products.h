// Product programs as GPU code (gpu_products.cuh).
//
//   OPWIRE_ASSIGN_OR_RETURN(const GpuProducts products, GpuProducts::Make(program));
//   const GpuProductForm form = products.FormOf(multiprocessors);
//   products.Source(form)       // one kernel, to be compiled behind kernels/fused/gpu_products.cuh
//   products.Params(arguments)   // what it is launched with
//
// The text holds the program's types and structure, and nothing of its sizes but their class.
#ifndef OPWIRE_KERNELS_FUSED_GPU_PRODUCTS_H_
#define OPWIRE_KERNELS_FUSED_GPU_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/product_program.h"

namespace opwire::fused {

struct GpuProductForm {
  static constexpr int kThreads = 256;  // of a block
  int vectors = 0;                      // of a row of x in shared memory, a multiple of 128
  int batch = 1;         // vectors of a row of a weight that a thread asks for at a time
  int64_t resident = 1;  // blocks that registers suffice for on a multiprocessor
  int64_t blocks = 1;
};

class GpuProducts {
 public:
  // UNIMPLEMENTED: the terms are no whole vectors, or rows are too long to be held.
  static StatusOr<GpuProducts> Make(const ProductProgram& program);

  const ProductProgram& program() const { return program_; }
  GpuProductForm FormOf(int multiprocessors) const;
  // Launches of it read weights early (GpuDevice::LaunchShape).
  std::string Source(const GpuProductForm& form) const;
  // The kernel's structure: addresses of operands and results, 8 bytes each, and behind them those
  // of the frequencies of each section that turns; the reporter; the rest.
  std::vector<std::byte> Params(std::span<const opw_attr> arguments) const;
  // What each pair of a section that turns has: its angle at a position of 1.
  static std::vector<float> Frequencies(const ProductProgram::Section& section);
  // By section with a cache: which operand and which result it is.
  struct Appended {
    size_t operand, result;
  };
  std::vector<Appended> Caches() const;

 private:
  explicit GpuProducts(const ProductProgram& program) : program_(program) {}
  int Each() const;
  int64_t UnitsOf(const ProductProgram::Section& s) const;
  int64_t Units() const;

  ProductProgram program_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_GPU_PRODUCTS_H_
