// topk's search for elements that go before those it has, of one instruction set. The includer
// defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/sort/cpu_loops.h"
#include "kernels/ops/sort/keys.h"

namespace opwire::ops::sort::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// Blocks without any are passed over; the loop over a block is one that compilers make vectors of.
template <typename Key>
int64_t Find(const void* from_x, int64_t from, int64_t n, uint64_t all, uint64_t least) {
  using Bits = typename Key::Bits;
  constexpr int64_t kBlock = 256 / static_cast<int64_t>(sizeof(Bits));
  const Bits* const x = static_cast<const Bits*>(from_x);
  const auto flip = static_cast<Bits>(all), bound = static_cast<Bits>(least);
  int64_t i = from;
  for (; i + kBlock <= n; i += kBlock) {
    Bits any = 0;
    for (int64_t k = 0; k < kBlock; ++k)
      any |= static_cast<Bits>(static_cast<Bits>(Key::Key(x[i + k]) ^ flip) < bound);
    if (any != 0) break;
  }
  for (; i < n; ++i) {
    if (static_cast<Bits>(Key::Key(x[i]) ^ flip) < bound) return i;
  }
  return n;
}

TopkLoops Loops() {
  constexpr int kTypes[] = {OPW_F64, OPW_F32, OPW_F16, OPW_BF16, OPW_I64, OPW_I32, OPW_I16,
                            OPW_I8,  OPW_U64, OPW_U32, OPW_U16,  OPW_U8,  OPW_BOOL};
  TopkLoops loops{};
  for (const int type : kTypes) {
    loops.find[type] = VisitKey(type, [](auto key) -> FindBelow { return Find<decltype(key)>; });
  }
  return loops;
}

}  // namespace
}  // namespace opwire::ops::sort::OPWIRE_ISA
