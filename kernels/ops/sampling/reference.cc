// sample. The kept elements are found by bisection of the ranks.
#include "kernels/ops/families.h"
#include "kernels/ops/sampling/sampler.h"
#include "kernels/ops/sampling/sampling.h"

namespace opwire::ops::sampling {
namespace {

struct Bisection {
  template <typename Row, typename Measure>
  static Cut Find(const Row& row, uint64_t last, uint64_t wanted, const Measure& measure) {
    uint64_t rank = 0, before = 0;
    for (int bit = Row::kBits - 1; bit >= 0; --bit) {
      const uint64_t half = uint64_t{1} << bit;
      uint64_t sum = 0;  // of ranks below rank + half
      row.ForEach(std::min(last, rank + half - 1), [&](int64_t i, uint64_t r) {
        sum += measure(i, r);
        return true;
      });
      if (sum >= wanted) continue;
      rank += half;
      before = sum;
    }
    return {rank, wanted - before};
  }
};

int Sample(const opw_call* c) { return SampleRows<Bisection>(c, 1, nullptr); }

}  // namespace

void AddSamplingReference(VariantTable& table) {
  AddReference(table, "sample",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Sample});
}

}  // namespace opwire::ops::sampling
