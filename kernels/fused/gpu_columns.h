// Programs of columns as GPU code: a kernel in which threads lie along columns, some neighbours
// each, and take turns with the rows, over as many blocks as keep the device busy; what they reduce
// is joined as kernels/ops/reduce/gpu.cuh does it, in an order that the grid fixes.
//
//   OPWIRE_ASSIGN_OR_RETURN(const GpuColumns columns, GpuColumns::Make(program));
//   // operands, then results
//   const GpuColumnForm form = columns.FormOf(tensors, multiprocessors, cluster_blocks);
//   // to be compiled behind kernels/fused/gpu_columns.cuh
//   const std::string text = columns.Source(form);
//   const std::vector<std::byte> params = columns.Params(form, arguments);
//
// Where the rows are cut into chunks, a reduction's result is not final: the kernel leaves states,
// which reduce::ReduceStates reduces. Equal programs and forms give equal text, which holds
// nothing of sizes but their class.
#ifndef OPWIRE_KERNELS_FUSED_GPU_COLUMNS_H_
#define OPWIRE_KERNELS_FUSED_GPU_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/column_program.h"
#include "kernels/ops/reduce/gpu_params.h"

namespace opwire::fused {

// How a kernel reaches what it needs of a tensor for a row and some neighbouring columns.
enum class ColumnAccess : uint8_t {
  kItems,   // neighbours in memory too
  kOne,     // one for all of them
  kReduce,  // it is reduced
};

// What decides the text beside the program, and what is known of sizes.
struct GpuColumnForm {
  std::vector<ColumnAccess> access;  // by tensor, operands first
  std::vector<bool> by_row;          // the same: it is not alike in all rows
  int items = 1;                     // neighbouring columns that a thread takes
  int batch = 1;                     // rows whose operands are loaded before the first is worked on
  int cluster = 1;                   // blocks that share their columns' rows
  int resident = 0;                  // blocks that should fit a multiprocessor at a time
  int row_rank = 1, column_rank = 1;  // of the axes of either: 1, 2, 4, 8 or 16
  bool wide = false;                  // 2^31 rows or steps of columns, or more
  // Of this call: blocks along x, with those of clusters; strides in elements, by tensor.
  int64_t blocks = 0;
  opw::reduce::ReduceParams reduction{};
  std::vector<int64_t> row_extents, column_extents;
  std::vector<std::vector<int64_t>> row_strides, column_strides;

  static constexpr int kThreads = 256;
  bool final() const { return reduction.chunks == 1; }
};

class GpuColumns {
 public:
  // RESOURCE_EXHAUSTED or INVALID_ARGUMENT where the program is too large for one kernel, or
  // malformed.
  static StatusOr<GpuColumns> Make(const ColumnProgram& program);

  // `cluster_blocks`: the most blocks of a cluster.
  GpuColumnForm FormOf(std::span<const opw_tensor* const> tensors, int multiprocessors,
                       int cluster_blocks) const;
  // Up to seven others that FormOf might have named, for a device that measures which is the
  // fastest; none is what another is.
  std::vector<GpuColumnForm> FormsBeside(const GpuColumnForm& rule, int multiprocessors,
                                         int cluster_blocks) const;
  // The kernel, as gpu::KernelText::text; it takes a structure `Params`.
  std::string Source(const GpuColumnForm& form) const;
  // The structure's bytes, but for the tensors' addresses, which lie in front, 8 bytes each, and
  // the reporter behind them (kernels/device/gpu/flags.h). States lie in a result's place.
  std::vector<std::byte> Params(const GpuColumnForm& form,
                                std::span<const opw_attr> arguments) const;

  const ColumnProgram& program() const { return program_; }
  size_t operands() const { return program_.scalar.inputs().size(); }
  size_t tensors() const { return operands() + program_.results.size(); }
  bool Reduces(size_t tensor) const {
    return tensor >= operands() && program_.results[tensor - operands()];
  }
  DType TypeOf(size_t tensor) const;
  // Of a tensor that is reduced: how device code names the reduction, and the bytes of its state.
  // REQUIRES: Reduces(tensor).
  std::string ReductionOf(size_t tensor) const;
  int64_t StateBytes(size_t tensor) const;

 private:
  explicit GpuColumns(const ColumnProgram& program)
      : program_(program), computed_(program.Computed()) {}

  ColumnProgram program_;
  ScalarProgram computed_;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_GPU_COLUMNS_H_
