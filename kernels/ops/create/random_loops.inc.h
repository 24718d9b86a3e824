// Random f32 values of one instruction set, with the operations and so the bits of the reference.
// The includer defines OPWIRE_ISA.
#include "kernels/ops/create/cpu_loops.h"
#include "kernels/ops/create/random.h"

namespace opwire::ops::create::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// y[i] = value(i, random[i]) with blocks of random values from `fill`.
template <typename Fill, typename Value>
inline void ByBlocks(float* y, const RandomKey& key, int64_t begin, int64_t end, const Fill& fill,
                     const Value& value) {
  float random[kRandomBlock];
  for (int64_t first = begin; first < end; first += kRandomBlock) {
    fill(key, first, random);
    const int64_t n = end - first < kRandomBlock ? end - first : kRandomBlock;
    for (int64_t i = 0; i < n; ++i) y[first + i] = value(first + i, random[i]);
  }
}

void Uniform(float* y, const float*, uint64_t key, uint64_t high_counter, int64_t begin,
             int64_t end, float low, float high) {
  ByBlocks(y, {key, high_counter}, begin, end, Uniform24,
           [=](int64_t, float u) { return low + u * (high - low); });
}
void Normal(float* y, const float*, uint64_t key, uint64_t high_counter, int64_t begin, int64_t end,
            float mean, float std) {
  ByBlocks(y, {key, high_counter}, begin, end, Normal24,
           [=](int64_t, float z) { return mean + std * z; });
}
void Dropout(float* y, const float* x, uint64_t key, uint64_t high_counter, int64_t begin,
             int64_t end, float p, float) {
  const float keep = 1.0f - p;
  ByBlocks(y, {key, high_counter}, begin, end, Uniform24,
           [=](int64_t i, float u) { return u >= p ? x[i] / keep : 0.0f; });
}

constexpr RandomLoops kRandomLoops = {Uniform, Normal, Dropout};

}  // namespace
}  // namespace opwire::ops::create::OPWIRE_ISA
