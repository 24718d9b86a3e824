// Weights in the order in which products read them: rows by panels of kPanel, a panel by units of a
// few blocks along K. A unit first has the words of each block, of four bytes; each word of all
// rows is contiguous. Then it has a scale of each block for all rows. Its size is a multiple of a
// cache line's size. Missing blocks are zeros; missing rows repeat another row.
#ifndef OPWIRE_KERNELS_OPS_BLOCKS_PACKED_H_
#define OPWIRE_KERNELS_OPS_BLOCKS_PACKED_H_

#include <stdint.h>

namespace opwire::ops::blocks {

// Encodings: the numbers of opwire::Encoding.
inline constexpr int kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 4, kQ6_K = 5;

inline constexpr int64_t kPanel = 16;  // rows

struct PackedFormat {
  int elements, bytes;  // of an unpacked block
  int words_at, words;  // offset of its words, and their number; a multiple of four
  int scale_at,
      scale;   // offset of its scale, and its bytes; for q4_1 with the offset after it
  int blocks;  // per unit

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

}  // namespace opwire::ops::blocks

#endif  // OPWIRE_KERNELS_OPS_BLOCKS_PACKED_H_
