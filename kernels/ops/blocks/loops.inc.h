// The loops of one instruction set, by type and encoding. The includer defines OPWIRE_ISA.
#include "kernels/ops/blocks/many.inc.h"
#include "kernels/ops/blocks/round.inc.h"
#ifdef __AVX512F__
#include "kernels/ops/blocks/few_wide.inc.h"
#else
#include "kernels/ops/blocks/few_narrow.inc.h"
#endif

namespace opwire::ops::OPWIRE_ISA {
namespace {

template <int kEncoding>
void Few(const BlockRows& w, int64_t n, const RoundedRows& x, int64_t first, int64_t rows, float* out) {
  switch (rows) {
    case 1: return FewOfPanel<kEncoding, 1>(w, n, x, first, out);
    case 2: return FewOfPanel<kEncoding, 2>(w, n, x, first, out);
    case 3: return FewOfPanel<kEncoding, 3>(w, n, x, first, out);
    default: return FewOfPanel<kEncoding, 4>(w, n, x, first, out);
  }
}
static_assert(kFewRows == 4);

template <int kEncoding>
constexpr void AddEncoding(BlocksLoops& loops) {
  loops.few[kEncoding] = Few<kEncoding>;
  loops.many[kEncoding] = Many<kEncoding>;
  loops.round[kEncoding][OPW_F32] = Round<float, kEncoding>;
  loops.round[kEncoding][OPW_F16] = Round<Half, kEncoding>;
  loops.round[kEncoding][OPW_BF16] = Round<Brain, kEncoding>;
  loops.floats[kEncoding][OPW_F64] = ToFloats<double, kEncoding>;
  loops.floats[kEncoding][OPW_F32] = ToFloats<float, kEncoding>;
  loops.floats[kEncoding][OPW_F16] = ToFloats<Half, kEncoding>;
  loops.floats[kEncoding][OPW_BF16] = ToFloats<Brain, kEncoding>;
}
constexpr BlocksLoops MakeLoops() {
  BlocksLoops loops{};
  AddEncoding<kQ4_0>(loops);
  AddEncoding<kQ4_1>(loops);
  AddEncoding<kQ8_0>(loops);
  AddEncoding<kQ6_K>(loops);
  loops.sums[OPW_F32] = Sums<float>;
  loops.sums[OPW_F16] = Sums<Half>;
  loops.sums[OPW_BF16] = Sums<Brain>;
  return loops;
}
constexpr BlocksLoops kBlocksLoops = MakeLoops();

}  // namespace
}  // namespace opwire::ops::OPWIRE_ISA
