// The loops of one instruction set, by type and encoding. The includer defines OPWIRE_ISA.
#include "kernels/ops/blocks/many.inc.h"
#include "kernels/ops/blocks/pack.inc.h"
#include "kernels/ops/blocks/round.inc.h"

namespace opwire::ops::blocks::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// Most rows of x that are multiplied with packed weights directly: as many as registers have sums
// for, and too few to pay for unpacking.
template <int kEncoding>
constexpr int64_t kFewRows = kEncoding != kQ6_K&& kLanes == 16 ? 8 : 4;

template <int kEncoding>
void Multiply(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first, int64_t rows,
              float* out) {
  constexpr PackedFormat kPacked = PackedFormatOf(kEncoding);
  static_assert(kDepth % kPacked.UnitElements() == 0);
  alignas(64) uint8_t packed[kDepth / kPacked.UnitElements() * kPacked.UnitBytes()];
  __builtin_memset(
      out, 0,
      static_cast<size_t>((rows + kTileRows - 1) / kTileRows * kTileRows * kPanel) * sizeof(float));
  const int64_t all = w.k / kPacked.elements;
  // If nothing is unpacked, and so kept in the first-level cache, a row is one piece.
  const int64_t at_once = w.packed && rows <= kFewRows<kEncoding> ? all : kDepth / kPacked.elements;
  for (int64_t block = 0; block < all; block += at_once) {
    const int64_t blocks = at_once < all - block ? at_once : all - block,
                  begin = block * kPacked.elements;
    const uint8_t* unit = w.blocks + block / kPacked.blocks * kPacked.UnitBytes();
    if (!w.packed) {
      Pack<kEncoding>(w, n, block, block + blocks, packed);
      unit = packed;
    }
    switch (rows) {
      case 1:
        FewOf<kEncoding, 1>(unit, blocks, x, first, begin, out);
        break;
      case 2:
        FewOf<kEncoding, 2>(unit, blocks, x, first, begin, out);
        break;
      case 3:
        FewOf<kEncoding, 3>(unit, blocks, x, first, begin, out);
        break;
      case 4:
        FewOf<kEncoding, 4>(unit, blocks, x, first, begin, out);
        break;
      case 5:
      case 6:
      case 7:
      case 8:
        // Sums of missing rows are not read.
        if constexpr (kFewRows<kEncoding> == 8) {
          FewOf<kEncoding, 8>(unit, blocks, x, first, begin, out);
          break;
        }
        [[fallthrough]];
      default:
        ManyOf<kEncoding>(unit, blocks, x, first, rows, begin, out);
    }
  }
}

template <int kEncoding>
constexpr void AddEncoding(BlocksLoops& loops) {
  loops.multiply[kEncoding] = Multiply<kEncoding>;
  loops.pack[kEncoding] = Pack<kEncoding>;
  loops.round[kEncoding][OPW_F32] = Round<float, kEncoding>;
  loops.round[kEncoding][OPW_F16] = Round<Half, kEncoding>;
  loops.round[kEncoding][OPW_BF16] = Round<BFloat16, kEncoding>;
  loops.floats[kEncoding][OPW_F64] = ToFloats<double, kEncoding>;
  loops.floats[kEncoding][OPW_F32] = ToFloats<float, kEncoding>;
  loops.floats[kEncoding][OPW_F16] = ToFloats<Half, kEncoding>;
  loops.floats[kEncoding][OPW_BF16] = ToFloats<BFloat16, kEncoding>;
}
constexpr BlocksLoops MakeLoops() {
  BlocksLoops loops{};
  AddEncoding<kQ4_0>(loops);
  AddEncoding<kQ4_1>(loops);
  AddEncoding<kQ8_0>(loops);
  AddEncoding<kQ6_K>(loops);
  loops.sums[OPW_F32] = Sums<float>;
  loops.sums[OPW_F16] = Sums<Half>;
  loops.sums[OPW_BF16] = Sums<BFloat16>;
  return loops;
}
constexpr BlocksLoops kBlocksLoops = MakeLoops();

}  // namespace
}  // namespace opwire::ops::blocks::OPWIRE_ISA
