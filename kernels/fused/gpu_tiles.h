// Scalar programs over tensors of which some lie along another axis than the rest, as GPU code: a
// block reads a tile of these along their axis into shared memory, and goes through it along the
// others'; what is written so leaves by shared memory too.
//
//   // inputs, then outputs; none: all lie alike, or are too narrow
//   const std::optional<GpuTileForm> form = TileFormOf(program, tensors);
//   // one kernel, to be compiled behind kernels/fused/primitives.cuh
//   const std::string text = GpuSource(program, *form);
//   const std::vector<std::byte> params = GpuParams(program, *form, ...);
#ifndef OPWIRE_KERNELS_FUSED_GPU_TILES_H_
#define OPWIRE_KERNELS_FUSED_GPU_TILES_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/abi.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

struct GpuTileForm {
  // How a tensor's elements are reached.
  enum class Reach : uint8_t {
    kAlong,     // neighbours along the columns
    kShared,    // one for a row
    kConstant,  // one for all
    kTurned     // through shared memory
  };
  std::vector<Reach> reach;  // by tensor, inputs first
  int side = 0;              // a tile's rows, and its columns
  int threads = 256;         // of a block
  int rank = 1;              // of the planes' axes: 1, 2, 4, 8 or 16
  // Of this call: a plane's extents, and the planes'; strides in elements by tensor.
  int64_t rows = 0, columns = 0, planes = 0;
  std::vector<int64_t> across, along;  // from row to row, from column to column
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;

  int64_t down() const { return (rows + side - 1) / side; }
  int64_t blocks() const { return down() * ((columns + side - 1) / side) * planes; }
};

// REQUIRES: program.Check().ok(); the tensors are the program's inputs and outputs, outputs of one
// shape that has elements.
std::optional<GpuTileForm> TileFormOf(const ScalarProgram& program,
                                      std::span<const opw_tensor* const> tensors);

// As those of GpuForm (gpu_source.h).
std::vector<GpuTileForm> FormsBeside(const GpuTileForm& rule);
std::string GpuSource(const ScalarProgram& program, const GpuTileForm& form);
std::vector<std::byte> GpuParams(const ScalarProgram& program, const GpuTileForm& form,
                                 std::span<const opw_attr> arguments);

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_GPU_TILES_H_
