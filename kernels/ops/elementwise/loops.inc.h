// The elementwise loops and functions of one instruction set. The includer defines OPWIRE_ISA.
#include "kernels/abi.h"
#include "kernels/ops/elementwise/cpu_loops.h"
#include "kernels/ops/simd/math.h"

namespace opwire::ops::elementwise::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// An operand of a loop: advances by a vector, or repeats a vector that has its only element in
// every lane.
template <typename S>
class Cursor {
 public:
  Cursor(const void* data, bool repeat)
      : next_(static_cast<const S*>(data)), step_(Mem<S>::kLanes) {
    if (!repeat) return;
    const S value = *next_;
    for (S& s : repeated_) s = value;
    next_ = repeated_;
    step_ = 0;
  }
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  auto Next() {
    const auto v = Mem<S>::Load(next_);
    next_ += step_;
    return v;
  }
  auto Rest(int64_t n) const { return Mem<S>::LoadN(next_, n); }

 private:
  alignas(kVectorBytes) S repeated_[Mem<S>::kLanes];
  const S* next_;
  int64_t step_;
};

// Where the results go: elements of S, or a byte for each lane of a test's mask.
template <typename S, bool kTest>
struct Sink {
  using E = typename Mem<S>::Compute;
  static constexpr int kLanes = Mem<S>::kLanes;
  template <typename V>
  static void Put(void* y, int64_t i, V v) {
    if constexpr (kTest)
      StoreBytes(static_cast<uint8_t*>(y) + i, BytesOfMask<E>(v));
    else
      Mem<S>::Store(static_cast<S*>(y) + i, v);
  }
  template <typename V>
  static void PutRest(void* y, int64_t i, V v, int64_t n) {
    if constexpr (kTest)
      StoreSome<uint8_t>(static_cast<uint8_t*>(y) + i, BytesOfMask<E>(v), n);
    else
      Mem<S>::StoreN(static_cast<S*>(y) + i, v, n);
  }
};

template <typename Op, typename S>
uint32_t UnaryLoop(void* y, const void* const* in, int64_t n, unsigned repeated) {
  using Out = Sink<S, Op::kTest>;
  Cursor<S> a(in[0], repeated & 1);
  int64_t i = 0;
  for (; i + Out::kLanes <= n; i += Out::kLanes) Out::Put(y, i, Op::Apply(a.Next()));
  if (i < n) Out::PutRest(y, i, Op::Apply(a.Rest(n - i)), n - i);
  return 0;
}

template <typename Op, typename S>
uint32_t BinaryLoop(void* y, const void* const* in, int64_t n, unsigned repeated) {
  using Out = Sink<S, Op::kTest>;
  Cursor<S> a(in[0], repeated & 1), b(in[1], repeated & 2);
  int64_t i = 0;
  for (; i + Out::kLanes <= n; i += Out::kLanes) {
    const auto x = a.Next();
    Out::Put(y, i, Op::Apply(x, b.Next()));
  }
  if (i < n) Out::PutRest(y, i, Op::Apply(a.Rest(n - i), b.Rest(n - i)), n - i);
  return 0;
}

template <typename Op, typename S>
uint32_t TernaryLoop(void* y, const void* const* in, int64_t n, unsigned repeated) {
  using Out = Sink<S, false>;
  Cursor<S> a(in[0], repeated & 1), b(in[1], repeated & 2), c(in[2], repeated & 4);
  int64_t i = 0;
  for (; i + Out::kLanes <= n; i += Out::kLanes) {
    const auto u = a.Next();
    const auto v = b.Next();
    Out::Put(y, i, Op::Apply(u, v, c.Next()));
  }
  if (i < n) Out::PutRest(y, i, Op::Apply(a.Rest(n - i), b.Rest(n - i), c.Rest(n - i)), n - i);
  return 0;
}

// y = condition ? a : b for elements of any type as wide as U.
template <typename U>
uint32_t WhereLoop(void* y, const void* const* in, int64_t n, unsigned repeated) {
  using Out = Sink<U, false>;
  using Bytes = VecLike<uint8_t, U>;
  const uint8_t* condition = static_cast<const uint8_t*>(in[0]);
  alignas(kVectorBytes) uint8_t same[Out::kLanes];
  if ((repeated & 1) != 0) {
    __builtin_memset(same, *condition, sizeof(same));
    condition = same;
  }
  const int64_t step = (repeated & 1) != 0 ? 0 : Out::kLanes;
  Cursor<U> a(in[1], repeated & 2), b(in[2], repeated & 4);
  const auto select = [](Bytes c, Vec<U> x, Vec<U> z) {
    return ConvertVector<Vec<U>>(c) != 0 ? x : z;
  };
  int64_t i = 0;
  for (; i + Out::kLanes <= n; i += Out::kLanes, condition += step) {
    const Vec<U> x = a.Next();
    Out::Put(y, i, select(LoadBytes<Bytes>(condition), x, b.Next()));
  }
  if (i < n)
    Out::PutRest(y, i,
                 select(LoadSome<uint8_t, Bytes>(condition, n - i), a.Rest(n - i), b.Rest(n - i)),
                 n - i);
  return 0;
}

}  // namespace
}  // namespace opwire::ops::elementwise::OPWIRE_ISA
