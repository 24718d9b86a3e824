// Loops over weights in GGUF's blocks, for the files built for an instruction set, and the form in
// which they read rows of x that are rounded to 8 bits. The product of a row of x with one of
// weights always has the same bits, except for those of NaNs. They do not depend on the instruction
// set, the number of rows, or the order of the weights' bytes.
#ifndef OPWIRE_KERNELS_OPS_BLOCKS_CPU_LOOPS_H_
#define OPWIRE_KERNELS_OPS_BLOCKS_CPU_LOOPS_H_

#include <stdint.h>

#include "kernels/ops/blocks/packed.h"

namespace opwire::ops::blocks {

inline constexpr int64_t kBlock = 32;     // neighbours along K that share a scale of x
inline constexpr int64_t kPadding = 512;  // rounded rows are padded with zeros to multiples of it,
                                          // so loops need not check a row's end
inline constexpr int64_t kPanelRows =
    512;  // most rows of x for which a panel of weights is unpacked once
inline constexpr int64_t kTileRows =
    8;  // rows of x that are multiplied with an unpacked panel at a time; memory of rounded rows
        // and of sums has room for a multiple

// Rows of x, each rounded: element k is values[k] * scales[k / 32]. In some loops weights are
// unsigned, w + bias. Corrections then hold minus bias times the sum of values, for each group that
// has a scale of weights.
struct RoundedRows {
  char* data;      // 64-byte aligned
  int64_t padded;  // elements of a row

  static constexpr int64_t BytesOf(int64_t padded) {
    return padded + padded / kBlock * 8 + padded / 16 * 4;
  }
  char* Row(int64_t row) const { return data + row * BytesOf(padded); }
  int8_t* Values(int64_t row) const { return reinterpret_cast<int8_t*>(Row(row)); }
  float* Scales(int64_t row) const { return reinterpret_cast<float*>(Row(row) + padded); }
  float* Sums(int64_t row) const {
    return Scales(row) + padded / kBlock;
  }  // scale times the sum of the block's values
  int32_t* Groups(int64_t row) const {
    return reinterpret_cast<int32_t*>(Sums(row) + padded / kBlock);
  }
};

// Rows of weights, at most kPanel.
struct BlockRows {
  const uint8_t* blocks;  // the first block, or the first of the panel's units
  int64_t stride;         // bytes of a row, if they are not packed
  int64_t k;              // elements of a row
  bool packed;
};

// Converts k elements of x's row to values, scales, sums and corrections. The scale of a block with
// elements that are not finite is NaN.
using RoundLoop = void (*)(const RoundedRows& to, int64_t row, const void* x, int64_t k);
// out[r * kPanel + j] = the product of row `first` + r of x with weight row j, for n rows of
// weights and `rows` rows of x, from 1 to kPanelRows.
using MultiplyLoop = void (*)(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first,
                              int64_t rows, float* out);
// Packs blocks [begin, end) of n rows, in the order of packed.h. REQUIRES: a unit begins with
// `begin`; the rows are not packed.
using PackLoop = void (*)(const BlockRows& w, int64_t n, int64_t begin, int64_t end, uint8_t* to);
// Converts n sums, plus the bias if it is not null, to elements.
using SumsLoop = void (*)(void* y, const float* sums, const void* bias, int64_t n);
// Converts whole blocks to floats.
using FloatsLoop = void (*)(void* y, const uint8_t* blocks, int64_t elements);

// By type of the floats and by encoding. Null: not available.
struct BlocksLoops {
  RoundLoop round[8][16];
  MultiplyLoop multiply[8];
  PackLoop pack[8];
  SumsLoop sums[16];
  FloatsLoop floats[8][16];
};

const BlocksLoops& BlocksLoopsAvx2();
const BlocksLoops& BlocksLoopsAvx512();
const BlocksLoops& BlocksLoopsAvx512Vnni();

}  // namespace opwire::ops::blocks

#endif  // OPWIRE_KERNELS_OPS_BLOCKS_CPU_LOOPS_H_
