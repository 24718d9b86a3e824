// Programs of rows as GPU code: one kernel, in which a row's threads run its phases one after the
// other, with reductions between them.
//
//   OPWIRE_ASSIGN_OR_RETURN(const GpuRows rows, GpuRows::Make(program));
//   // operands, then results
//   const GpuRowForm form = rows.FormOf(tensors, multiprocessors, /*aligned=*/true);
//   // to be compiled behind kernels/fused/gpu_rows.cuh
//   const std::string text = rows.Source(form);
//   const std::vector<std::byte> params = rows.Params(form, arguments);
//
// Short and medium rows are held: what several phases read of a row's elements, and what one keeps
// for another while there is room, is in the registers of a few lanes, a warp or a block. Longer
// rows are streamed by a block, once for each phase with elements: these read their operands again,
// and compute again what earlier ones did. Where these are too few to keep the device busy they are
// cut: a part of a row is a block's, each phase with elements is a launch, and what its parts
// reduce is left for the next, which joins it in a fixed order before it begins.
//
// Equal programs and forms give equal text. It holds nothing of a program but its primitives,
// element types and constants' bits, and nothing of sizes but their class.
#ifndef OPWIRE_KERNELS_FUSED_GPU_ROWS_H_
#define OPWIRE_KERNELS_FUSED_GPU_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/abi.h"
#include "kernels/fused/row_phases.h"
#include "kernels/fused/row_program.h"

namespace opwire::fused {

// How device code names what reduces elements of a type (kernels/ops/reduce/gpu_ops.cuh).
std::string ReduceName(ReduceKind kind, DType type);

// How a kernel reaches a tensor's elements.
enum class RowAccess : uint8_t {
  kItems,     // those of a row lie next to each other
  kStrided,   // they do not
  kOfRow,     // one for all of a row
  kConstant,  // one for all rows
};

// What decides the text beside the program, and what is known of sizes.
struct GpuRowForm {
  std::vector<RowAccess> access;  // by tensor, operands first
  bool streamed = false;          // rows are read by each phase, else held,
  bool cut = false;               // and of these in parts, a launch for each phase
  bool keeps =
      false;      // what one phase computed at some cost is held for another, else computed again
  int lanes = 0;  // of a warp, that share a row; 0: a block
  int items = 1;  // neighbours that a thread takes at a time, in one access where they lie so
  int steps = 1;  // times `items` that a thread has of a row; of one that is streamed, at a time
  int batch =
      1;  // steps whose operands are loaded before the first is worked on, where these are not held
  int threads = 0;    // a block,
  int resident = 0;   // and blocks that should fit a multiprocessor at a time
  int rank = 1;       // of the axes that rows lie along: 1, 2, 4, 8 or 16
  bool wide = false;  // 2^31 rows or more
  // Of this call. Strides are in elements, by tensor: along a row, and of the axes that rows lie
  // along.
  int64_t blocks = 0, rows = 1, length = 1;
  int64_t parts = 1,
          part_length = 0;  // of a row that is cut: as many as a block has threads at the most
  std::vector<int64_t> along, extents;
  std::vector<std::vector<int64_t>> strides;
};

class GpuRows {
 public:
  // RESOURCE_EXHAUSTED where the program is too large for one kernel. REQUIRES:
  // program.scalar().Check().ok().
  static StatusOr<GpuRows> Make(const RowProgram& program);

  // `aligned`: all tensors lie at multiples of 16 bytes. Otherwise nothing is cut, so that no
  // workspace is needed.
  GpuRowForm FormOf(std::span<const opw_tensor* const> tensors, int multiprocessors,
                    bool aligned) const;
  // How many launches it takes, one after the other.
  int Launches(const GpuRowForm& form) const;
  // The kernel of one of them, as gpu::KernelText::text; it takes a structure `Params`.
  std::string Source(const GpuRowForm& form, int launch = 0) const;
  int64_t Blocks(const GpuRowForm& form, int launch = 0) const;
  // What rows that are cut leave between launches, in a workspace whose address lies behind the
  // tensors' in the parameters.
  int64_t PartialBytes(const GpuRowForm& form) const;
  // The structure's bytes, but for the tensors' addresses, which lie in front, 8 bytes each, and
  // the reporter behind them (kernels/device/gpu/flags.h).
  std::vector<std::byte> Params(const GpuRowForm& form, std::span<const opw_attr> arguments) const;

  const RowProgram& program() const { return program_; }
  size_t tensors() const { return types_.size(); }
  size_t operands() const { return program_.operand_places().size(); }
  DType TypeOf(size_t tensor) const { return types_[tensor]; }
  RowProgram::Place PlaceOf(size_t tensor) const { return places_[tensor]; }
  const RowPhases& PhasesOf(const GpuRowForm& form) const { return form.keeps ? keeping_ : anew_; }
  // Those that go over elements.
  int ElementPhases(const GpuRowForm& form) const;
  // Whether a phase reads or reduces a tensor.
  static bool Reads(const RowPhases::Step& step, size_t tensor);

 private:
  static constexpr int64_t kPartialBytes = 16;  // of a part's state, as gpu_rows.cuh has them

  GpuRows(const RowProgram& program, RowPhases keeping, RowPhases anew);

  RowProgram program_;
  RowPhases keeping_, anew_;
  std::vector<DType> types_;               // by tensor, operands first
  std::vector<RowProgram::Place> places_;  // the same
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_GPU_ROWS_H_
