// Rows of x to 8 bits, sums to elements, and blocks to floats.
#include "kernels/ops/blocks/format.inc.h"

namespace opwire::ops::blocks::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

template <typename S, int kEncoding>
void Round(const RoundedRows& to, int64_t row, const void* x, int64_t k) {
  using F = Format<kEncoding>;
  constexpr int kLanes = Mem<S>::kLanes;
  const S* const from = static_cast<const S*>(x);
  int8_t* const values = to.Values(row);
  float *const scales = to.Scales(row), *const sums = to.Sums(row);
  int32_t* const groups = to.Groups(row);
  const auto clear = [](auto* all, int64_t begin, int64_t end) {
    __builtin_memset(all + begin, 0, static_cast<size_t>(end - begin) * sizeof(*all));
  };
  clear(values, k, to.padded);
  for (int64_t b = 0; b < k / kBlock; ++b) {
    alignas(64) float v[kBlock];
    for (int64_t i = 0; i < kBlock; i += kLanes)
      StoreBytes(v + i, Mem<S>::Load(from + b * kBlock + i));
    uint32_t most = 0;  // by their bits magnitudes are in order, and a NaN is beyond infinity
    for (int64_t i = 0; i < kBlock; ++i) {
      const uint32_t magnitude = BitCast<uint32_t>(v[i]) & 0x7fffffffu;
      most = magnitude > most ? magnitude : most;
    }
    const float largest = BitCast<float>(most),
                scale = most >= 0x7f800000u ? __builtin_nanf("") : largest / 127;
    const float inverse = 127 / largest,
                factor = inverse - inverse == 0 ? inverse
                                                : 0;  // a value too small to divide by becomes 0
    int32_t q[kBlock], sum = 0;
    for (int64_t i = 0; i < kBlock; ++i)
      q[i] = BitCast<int32_t>(v[i] * factor + 12582912.0f) - 0x4b400000;  // half to even
    int8_t* const bytes = values + b * kBlock;
    for (int64_t i = 0; i < kBlock; ++i) {
      bytes[i] = static_cast<int8_t>(q[i]);
      sum += bytes[i];
    }
    scales[b] = scale;
    sums[b] = scale * static_cast<float>(sum);
    if constexpr (F::kBias == 0) continue;
    for (int64_t g = 0; g < kBlock; g += F::kGroup) {
      int32_t of_group = 0;
      for (int64_t i = g; i < g + F::kGroup; ++i) of_group += bytes[i];
      groups[(b * kBlock + g) / F::kGroup] = -F::kBias * of_group;
    }
  }
  clear(scales, k / kBlock, to.padded / kBlock);
  clear(sums, k / kBlock, to.padded / kBlock);
  if (F::kBias != 0) clear(groups, k / F::kGroup, to.padded / F::kGroup);
}

template <typename S>
void Sums(void* y, const float* sums, const void* bias, int64_t n) {
  S* const to = static_cast<S*>(y);
  const S* const b = static_cast<const S*>(bias);
  for (int64_t i = 0; i < n; i += Mem<S>::kLanes) {
    const int64_t rest = n - i;
    const bool whole = rest >= Mem<S>::kLanes;
    Vec<float> v = whole ? Mem<float>::Load(sums + i) : Mem<float>::LoadN(sums + i, rest);
    if (b != nullptr) v += whole ? Mem<S>::Load(b + i) : Mem<S>::LoadN(b + i, rest);
    if (whole)
      Mem<S>::Store(to + i, v);
    else
      Mem<S>::StoreN(to + i, v, rest);
  }
}

template <typename S, int kEncoding>
void ToFloats(void* y, const uint8_t* blocks, int64_t elements) {
  using F = Format<kEncoding>;
  using E = typename Mem<S>::Compute;
  S* to = static_cast<S*>(y);
  for (int64_t k = 0; k < elements; k += F::kElements, blocks += F::kBytes, to += F::kElements) {
    uint8_t values[F::kElements];
    float scales[F::kElements / F::kGroup], offset = 0;
    Unpack<kEncoding>(blocks, values, scales, &offset);
    E floats[F::kElements];
    for (int i = 0; i < F::kElements; ++i) {
      const int value = F::kSigned ? static_cast<int8_t>(values[i]) : values[i];
      floats[i] = static_cast<E>(scales[i / F::kGroup]) * static_cast<E>(value - F::kBias);
      if constexpr (F::kOffset) floats[i] += static_cast<E>(offset);
    }
    for (int i = 0; i < F::kElements; i += Mem<S>::kLanes)
      Mem<S>::Store(to + i, LoadBytes<Vec<E>>(floats + i));
  }
}

}  // namespace
}  // namespace opwire::ops::blocks::OPWIRE_ISA
