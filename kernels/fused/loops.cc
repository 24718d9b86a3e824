// The loops of steps: those of the ops' variants for this processor, and portable ones of one
// element after the other.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/ops/catalogue.h"
#include "ir/scalar/primitives.h"
#include "ir/scalar/scalar.h"
#include "kernels/abi.h"
#include "kernels/fused/steps.h"

namespace opwire::fused {
namespace {

using ops::Bool;
using ops::ComputeOf;
using ops::Load;
using ops::TypeTag;

// The name of the row whose body is the primitive alone, applied to its operands; empty: none.
std::string_view RowOf(Prim prim) {
  static const auto* const names = [] {
    auto* const list = new std::array<std::string_view, kPrimCount>();
    for (const OpDef& row : Catalogue().rows()) {
      const std::vector<ExprNode>& nodes = row.body.nodes();
      if (nodes.empty() || nodes.size() != row.operands.size() + 1) continue;
      bool plain = true;
      for (size_t i = 0; i + 1 < nodes.size(); ++i)
        plain = plain && nodes[i].prim == Prim::kIn && nodes[i].index == static_cast<int>(i);
      if (plain) (*list)[static_cast<size_t>(nodes.back().prim)] = row.name;
    }
    return list;
  }();
  return (*names)[static_cast<size_t>(prim)];
}

const ops::elementwise::FastOp* FindFast(std::string_view name, const Isa& isa) {
  const ops::elementwise::FastElementwise fast = isa.avx512
                                                     ? ops::elementwise::FastElementwiseAvx512()
                                                     : ops::elementwise::FastElementwiseAvx2();
  for (int i = 0; i < fast.count; ++i) {
    if (name == fast.ops[i].op) return &fast.ops[i];
  }
  return nullptr;
}

uint32_t RunLoop(const Step& s, void* y, const void* const* in, int64_t n, unsigned repeated) {
  return s.loop(y, in, n, repeated);
}

// Element i of an operand whose elements are T's.
template <typename T>
struct Reader {
  const void* data;
  bool repeated;
  Reader(const void* const* in, unsigned mask, int operand)
      : data(in[operand]), repeated((mask >> operand & 1) != 0) {}
  auto operator[](int64_t i) const { return Load<T>(data, repeated ? 0 : i); }
};

template <typename T>
uint32_t RunPrimitive(const Step& s, void* y, const void* const* in, int64_t n, unsigned repeated) {
  using C = ComputeOf<T>;
  const Reader<T> a(in, repeated, 0),
      b(in, s.operands > 1 ? repeated : repeated & 1, s.operands > 1 ? 1 : 0);
  bool divided = false;
  for (int64_t i = 0; i < n; ++i) {
    const C v = s.operands == 1 ? ops::Unary<C>(s.prim, a[i])
                                : ops::Binary<C>(s.prim, a[i], b[i], &divided);
    if (IsTest(s.prim))
      ops::Store<Bool>(y, i, v);
    else
      ops::Store<T>(y, i, v);
  }
  return divided ? static_cast<uint32_t>(OPW_FLAG_DIVIDE) : 0;
}

template <typename U>
uint32_t RunSelect(const Step&, void* y, const void* const* in, int64_t n, unsigned repeated) {
  const Reader<Bool> condition(in, repeated, 0);
  const Reader<U> a(in, repeated, 1), b(in, repeated, 2);
  for (int64_t i = 0; i < n; ++i) static_cast<U*>(y)[i] = condition[i] ? a[i] : b[i];
  return 0;
}

template <typename U>
uint32_t RunCopy(const Step&, void* y, const void* const* in, int64_t n, unsigned repeated) {
  const Reader<U> a(in, repeated, 0);
  for (int64_t i = 0; i < n; ++i) static_cast<U*>(y)[i] = a[i];
  return 0;
}

// Bytes of bools as 0 and 1.
uint32_t RunTruth(const Step&, void* y, const void* const* in, int64_t n, unsigned repeated) {
  const auto* const x = static_cast<const uint8_t*>(in[0]);
  auto* const to = static_cast<uint8_t*>(y);
  if ((repeated & 1) != 0)
    std::memset(to, x[0] != 0, static_cast<size_t>(n));
  else
    for (int64_t i = 0; i < n; ++i) to[i] = x[i] != 0;
  return 0;
}

// From any type by way of one that holds all its values: f64, i64 or u64.
template <typename Carrier>
uint32_t RunCast(const Step& s, void* y, const void* const* in, int64_t n, unsigned repeated) {
  constexpr int64_t kBlock = 64;
  Carrier block[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t m = std::min(kBlock, n - at);
    ops::VisitType(s.types[0], [&](auto tag) {
      const Reader<typename decltype(tag)::Type> x(in, repeated, 0);
      for (int64_t i = 0; i < m; ++i) block[i] = static_cast<Carrier>(x[at + i]);
    });
    ops::VisitType(s.types[1], [&](auto tag) {
      using T = typename decltype(tag)::Type;
      for (int64_t i = 0; i < m; ++i)
        static_cast<T*>(y)[at + i] = ops::Convert<T>(block[i], s.saturate);
    });
  }
  return 0;
}

template <typename F>
uint32_t RunCanonical(const Step&, void* y, const void* const* in, int64_t n, unsigned repeated) {
  const Reader<F> x(in, repeated, 0);
  for (int64_t i = 0; i < n; ++i) {
    const F v = x[i];
    static_cast<F*>(y)[i] = v == v ? v : std::numeric_limits<F>::quiet_NaN();
  }
  return 0;
}

}  // namespace

Step OpStep(Prim prim, DType compute, const Isa& isa) {
  Step s;
  s.prim = prim;
  s.operands = InfoOf(prim).arity;
  if (isa.avx2) {
    const ops::elementwise::FastOp& fast = *FindFast(RowOf(prim), isa);
    s.run = RunLoop;
    s.loop = fast.loops[static_cast<int>(compute)];
    s.swap = fast.swap;
  } else if (prim == Prim::kSelect) {
    s.run = ops::VisitBits(DTypeBytes(compute),
                           [](auto tag) { return &RunSelect<typename decltype(tag)::Type>; });
  } else {
    s.run = ops::VisitType(compute,
                           [](auto tag) { return &RunPrimitive<typename decltype(tag)::Type>; });
  }
  return s;
}

Step CastStep(DType from, DType to, bool saturate, const Isa& isa) {
  Step s;
  s.prim = Prim::kCast;
  s.saturate = saturate;
  s.operands = 1;
  s.types[0] = from;
  s.types[1] = to;
  if (from == to) {
    s.run = from == DType::kBool ? RunTruth : ops::VisitBits(DTypeBytes(from), [](auto tag) {
      return &RunCopy<typename decltype(tag)::Type>;
    });
    return s;
  }
  const ops::elementwise::FastCasts& casts =
      isa.avx512 ? ops::elementwise::FastCastsAvx512() : ops::elementwise::FastCastsAvx2();
  s.loop = isa.avx2 ? casts.loops[static_cast<int>(from)][static_cast<int>(to)] : nullptr;
  if (s.loop != nullptr)
    s.run = RunLoop;
  else if ((kUnsigned | kBoolean).Has(from))
    s.run = RunCast<uint64_t>;
  else
    s.run = kSigned.Has(from) ? RunCast<int64_t> : RunCast<double>;
  return s;
}

Step CanonicalStep(DType compute) {
  Step s;
  s.operands = 1;
  s.run = compute == DType::kF64 ? RunCanonical<double> : RunCanonical<float>;
  return s;
}

}  // namespace opwire::fused
