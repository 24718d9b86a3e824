// sample of dense logits. The kept elements are found by the ranks' digits, the highest first.
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/sampling/sampler.h"
#include "kernels/ops/sampling/sampling.h"

namespace opwire::ops::sampling {
namespace {

struct Digits {
  template <typename Row, typename Measure>
  static Cut Find(const Row& row, uint64_t last, uint64_t wanted, const Measure& measure) {
    uint64_t rank = 0;
    for (int shift = Row::kBits - 8; shift >= 0; shift -= 8) {
      uint64_t bins[256] = {};
      const uint64_t most =
          rank | ~uint64_t{0} >> (56 - shift);  // of this digit and those below it
      row.ForEach(std::min(last, most), [&](int64_t i, uint64_t r) {
        if (r >> shift >> 8 == rank >> shift >> 8) bins[r >> shift & 255] += measure(i, r);
        return true;
      });
      uint64_t digit = 0;
      for (; digit < 255 && bins[digit] < wanted; ++digit) wanted -= bins[digit];
      rank |= digit << shift;
    }
    return {rank, wanted};
  }
};

const char* Supports(const opw_call* c) { return AllDense(c, 5) ? nullptr : "needs dense tensors"; }
template <const sort::TopkLoops& (*kLoops)()>
int Sample(const opw_call* c) {
  return SampleRows<Digits>(c, RowsPerRange(Operand(c, 0).shape[1]),
                            kLoops().find[Operand(c, 0).dtype]);
}

}  // namespace

void AddSamplingFast(VariantTable& table, const Isa& isa) {
  const auto add = [&](const char* set, int priority, int (*run)(const opw_call*)) {
    AddProduction(table, isa, "sample", set, set, priority, kFloats,
                  {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports, nullptr, nullptr, run});
  };
  add("avx512", 2, Sample<sort::TopkAvx512>);
  add("avx2", 1, Sample<sort::TopkAvx2>);
}

}  // namespace opwire::ops::sampling
