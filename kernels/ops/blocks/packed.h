// Weights in the order in which products read them: rows by panels of kPanel, a panel by units of a
// few blocks along K. A unit holds of each block its words of four bytes, of each word those of all
// rows one after the other, and behind these of each block a scale of all rows; it is whole lines
// of a cache. Blocks that are not there are zeros, for rows that are not there stands another.
#ifndef OPWIRE_KERNELS_OPS_BLOCKS_PACKED_H_
#define OPWIRE_KERNELS_OPS_BLOCKS_PACKED_H_

#include <stdint.h>

namespace opwire::ops {

// Encodings: the numbers of opwire::Encoding.
inline constexpr int kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 4, kQ6_K = 5;

inline constexpr int64_t kPanel = 16;  // rows

struct PackedFormat {
  int elements, bytes;  // of a block as it lies
  int words_at, words;  // where its words are among them, and how many; a multiple of four
  int scale_at,
      scale;   // where its scale is, and of how many bytes; of q4_1 with the offset behind it
  int blocks;  // of a unit

  constexpr int64_t WordsBytes() const { return kPanel * words * 4; }   // of a packed block
  constexpr int64_t ScalesAt() const { return blocks * WordsBytes(); }  // in a unit
  constexpr int64_t UnitBytes() const {
    return (ScalesAt() + blocks * kPanel * scale + 63) / 64 * 64;
  }
  constexpr int64_t UnitElements() const { return int64_t{blocks} * elements; }
  constexpr int64_t PanelBytes(int64_t k) const {
    return (k + UnitElements() - 1) / UnitElements() * UnitBytes();
  }
};

constexpr PackedFormat PackedFormatOf(int encoding) {
  switch (encoding) {
    case kQ4_0:
      return {32, 18, 2, 4, 0, 2, 2};
    case kQ4_1:
      return {32, 20, 4, 4, 0, 4, 1};
    case kQ8_0:
      return {32, 34, 2, 8, 0, 2, 2};
    default:
      return {256, 210, 0, 52, 208, 2, 1};
  }
}

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_BLOCKS_PACKED_H_
