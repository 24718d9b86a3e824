// Loops over weights in GGUF's blocks, for the files built for an instruction set, and how they see rows of x that are rounded to 8 bits.
#ifndef OPWIRE_KERNELS_OPS_BLOCKS_FAST_H_
#define OPWIRE_KERNELS_OPS_BLOCKS_FAST_H_

#include <stdint.h>

namespace opwire::ops {

// Encodings: the numbers of opwire::Encoding.
inline constexpr int kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 4, kQ6_K = 5;

inline constexpr int64_t kBlock = 32;      // neighbours along K that share a scale of x
inline constexpr int64_t kPadding = 512;   // rounded rows are whole multiples of it, with zeros at their end: no loop looks where a row ends
inline constexpr int64_t kFewRows = 4;     // of x, that one pass over weights serves at the most
inline constexpr int64_t kPanel = 16;      // rows of weights whose results a loop gives together at the most
inline constexpr int64_t kPanelRows = 512; // of x, that a panel of weights is unpacked for at the most
inline constexpr int64_t kTileRows = 8;    // of x, that are multiplied with a panel at one time; memory of rounded rows holds a multiple

// Rows of x, each rounded: element k is values[k] * scales[k / 32]. Weights are unsigned in some loops, w + bias: corrections hold minus bias times sums
// of values, of the quads that lanes of products hold and of each group that has a scale of weights.
struct RoundedRows {
  char* data;      // 64-byte aligned
  int64_t padded;  // elements of a row

  static constexpr int64_t BytesOf(int64_t padded) { return padded + padded / kBlock * 8 + padded / 16 * 4 + padded; }
  char* Row(int64_t row) const { return data + row * BytesOf(padded); }
  int8_t* Values(int64_t row) const { return reinterpret_cast<int8_t*>(Row(row)); }
  float* Scales(int64_t row) const { return reinterpret_cast<float*>(Row(row) + padded); }
  float* Sums(int64_t row) const { return Scales(row) + padded / kBlock; }  // scale times the sum of the block's values
  int32_t* Groups(int64_t row) const { return reinterpret_cast<int32_t*>(Sums(row) + padded / kBlock); }
  int32_t* Quads(int64_t row) const { return Groups(row) + padded / 16; }
};

struct BlockRows {
  const uint8_t* blocks;  // the first of them
  int64_t stride;         // bytes of a row
  int64_t k;              // elements of a row
};

// k elements of x's row to values, scales, sums and corrections, for a FewLoop in the order in which that looks for them and with those of quads, else for a
// ManyLoop. Of a block that holds what is not finite the scale is NaN.
using RoundLoop = void (*)(const RoundedRows& to, int64_t row, const void* x, int64_t k, bool few);
// out[r * kPanel + j] = the product of row `first` + r of x with weight row j: `rows` up to kFewRows, `n` up to kPanel. The first reads weights from where they
// are; the second unpacks them first, for `rows` up to kPanelRows.
using FewLoop = void (*)(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first, int64_t rows, float* out);
using ManyLoop = void (*)(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first, int64_t rows, float* out);
// n sums and, where it is not null, the bias, to elements.
using SumsLoop = void (*)(void* y, const float* sums, const void* bias, int64_t n);
// The elements of whole blocks.
using FloatsLoop = void (*)(void* y, const uint8_t* blocks, int64_t elements);

// By type of the floats and by encoding. Null: none.
struct BlocksLoops {
  RoundLoop round[8][16];
  FewLoop few[8];
  ManyLoop many[8];
  SumsLoop sums[16];
  FloatsLoop floats[8][16];
};

const BlocksLoops& BlocksLoopsAvx2();
const BlocksLoops& BlocksLoopsAvx512();
const BlocksLoops& BlocksLoopsAvx512Vnni();

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_BLOCKS_FAST_H_
