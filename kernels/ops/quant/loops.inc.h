// Ranges, quantising and back of contiguous elements, vector by vector in the computing type. The
// includer defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/quant/cpu_loops.h"
#include "kernels/ops/simd/reduction.h"

namespace opwire::ops::quant::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

constexpr int64_t kBuffered = 512;  // values that wait to be packed, or are unpacked, at a time

template <typename S>
void RangeOf(const void* from, int64_t n, bool symmetric, double* least, double* most) {
  using E = typename Mem<S>::Compute;
  const S* const x = static_cast<const S*>(from);
  const E infinity = static_cast<E>(__builtin_inf());
  if (symmetric) {
    *least = 0;
    *most = static_cast<double>(ReduceWith(
        x, n, E{0}, [](Vec<E> v) { return Abs(v); }, Larger()));
  } else {
    *least = static_cast<double>(ReduceWith(x, n, infinity, Same(), Smaller()));
    *most = static_cast<double>(ReduceWith(x, n, -infinity, Same(), Larger()));
  }
}

template <typename S>
void QuantizeBytes(int8_t* values, const S* x, int64_t n, typename Mem<S>::Compute low,
                   typename Mem<S>::Compute factor, typename Mem<S>::Compute offset) {
  using E = typename Mem<S>::Compute;
  using I = typename SignedOf<sizeof(E)>::Type;
  using Bytes = VecLike<int8_t, E>;
  ForVectors<E>(n, [&](int64_t i, auto lanes) {
    const Vec<E> v = (lanes.Load(x + i) - Splat(offset)) * Splat(factor), least = Splat(low),
                 most = Splat(-low - 1);
    const Vec<E> clamped = v < least ? least : v > most ? most : v;
    const Bytes out =
        ConvertVector<Bytes>(ConvertVector<Vec<I>>(RoundEven(v != v ? Vec<E>{} : clamped)));
    if constexpr (__is_same(decltype(lanes), Whole))
      StoreBytes(values + i, out);
    else
      __builtin_memcpy(values + i, &out, static_cast<size_t>(lanes.count));
  });
}

template <typename S>
void QuantizeOf(void* to, const void* from, int64_t n, int bits, double factor, double offset) {
  using E = typename Mem<S>::Compute;
  const S* const x = static_cast<const S*>(from);
  if (bits == 8)
    return QuantizeBytes(static_cast<int8_t*>(to), x, n, E{-128}, static_cast<E>(factor),
                         static_cast<E>(offset));
  uint8_t* const packed = static_cast<uint8_t*>(to);
  int8_t values[kBuffered];
  for (int64_t first = 0; first < n; first += kBuffered) {
    const int64_t count = n - first < kBuffered ? n - first : kBuffered;
    QuantizeBytes(values, x + first, count, E{-8}, static_cast<E>(factor), static_cast<E>(offset));
    for (int64_t i = 0; i < count / 2; ++i)
      packed[first / 2 + i] =
          static_cast<uint8_t>((values[2 * i] & 15) | (values[2 * i + 1] & 15) << 4);
  }
}

template <typename S>
void DequantizeBytes(S* y, const int8_t* values, int64_t n, typename Mem<S>::Compute scale,
                     const double* offset) {
  using E = typename Mem<S>::Compute;
  using Bytes = VecLike<int8_t, E>;
  const E added = offset != nullptr ? static_cast<E>(*offset) : E{0};
  ForVectors<E>(n, [&](int64_t i, auto lanes) {
    Bytes v{};
    if constexpr (__is_same(decltype(lanes), Whole))
      v = LoadBytes<Bytes>(values + i);
    else
      __builtin_memcpy(&v, values + i, static_cast<size_t>(lanes.count));
    const Vec<E> product = ConvertVector<Vec<E>>(v) * Splat(scale);
    lanes.Store(y + i, offset != nullptr ? product + Splat(added) : product);
  });
}

template <typename S>
void DequantizeOf(void* to, const void* from, int64_t n, int bits, double scale,
                  const double* offset) {
  using E = typename Mem<S>::Compute;
  S* const y = static_cast<S*>(to);
  if (bits == 8)
    return DequantizeBytes(y, static_cast<const int8_t*>(from), n, static_cast<E>(scale), offset);
  const int8_t* const packed = static_cast<const int8_t*>(from);
  int8_t values[kBuffered];
  for (int64_t first = 0; first < n; first += kBuffered) {
    const int64_t count = n - first < kBuffered ? n - first : kBuffered;
    for (int64_t i = 0; i < count / 2; ++i) {
      values[2 * i] = static_cast<int8_t>(static_cast<int8_t>(packed[first / 2 + i] << 4) >> 4);
      values[2 * i + 1] = static_cast<int8_t>(packed[first / 2 + i] >> 4);
    }
    DequantizeBytes(y + first, values, count, static_cast<E>(scale), offset);
  }
}

template <typename S>
constexpr void AddLoops(QuantLoops& loops, int type) {
  loops.range[type] = RangeOf<S>;
  loops.quantize[type] = QuantizeOf<S>;
  loops.dequantize[type] = DequantizeOf<S>;
}
constexpr QuantLoops MakeLoops() {
  QuantLoops loops{};
  AddLoops<double>(loops, OPW_F64);
  AddLoops<float>(loops, OPW_F32);
  AddLoops<Half>(loops, OPW_F16);
  AddLoops<BFloat16>(loops, OPW_BF16);
  return loops;
}
constexpr QuantLoops kQuantLoops = MakeLoops();

}  // namespace
}  // namespace opwire::ops::quant::OPWIRE_ISA
