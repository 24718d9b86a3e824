// The table of elementwise loops of one instruction set. The includer defines OPWIRE_ISA.
#include <initializer_list>

#include "kernels/ops/elementwise/functions.inc.h"
#include "kernels/ops/elementwise/integers.inc.h"
#include "kernels/ops/elementwise/loops.inc.h"

namespace opwire::ops::elementwise::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;
namespace {

// The loops of function Op, chosen by how many operands Op::Apply takes.
template <typename Op, int kOperands, typename S>
constexpr ElementwiseLoop LoopOf() {
  if constexpr (kOperands == 1)
    return UnaryLoop<Op, S>;
  else if constexpr (kOperands == 2)
    return BinaryLoop<Op, S>;
  else
    return TernaryLoop<Op, S>;
}

template <typename Op, int kOperands>
struct Entry : FastOp {
  constexpr explicit Entry(const char* name, bool swapped = false)
      : FastOp{name, kOperands, swapped, {}} {}

  constexpr Entry Below64() const {  // floats that compute in f32
    Entry e = *this;
    e.loops[OPW_F32] = LoopOf<Op, kOperands, float>();
    e.loops[OPW_F16] = LoopOf<Op, kOperands, Half>();
    e.loops[OPW_BF16] = LoopOf<Op, kOperands, BFloat16>();
    return e;
  }
  constexpr Entry Floats() const {
    Entry e = Below64();
    e.loops[OPW_F64] = LoopOf<Op, kOperands, double>();
    return e;
  }
  constexpr Entry Signed() const {
    Entry e = *this;
    e.loops[OPW_I64] = LoopOf<Op, kOperands, int64_t>();
    e.loops[OPW_I32] = LoopOf<Op, kOperands, int32_t>();
    e.loops[OPW_I16] = LoopOf<Op, kOperands, int16_t>();
    e.loops[OPW_I8] = LoopOf<Op, kOperands, int8_t>();
    return e;
  }
  constexpr Entry Unsigned() const {
    Entry e = *this;
    e.loops[OPW_U64] = LoopOf<Op, kOperands, uint64_t>();
    e.loops[OPW_U32] = LoopOf<Op, kOperands, uint32_t>();
    e.loops[OPW_U16] = LoopOf<Op, kOperands, uint16_t>();
    e.loops[OPW_U8] = LoopOf<Op, kOperands, uint8_t>();
    return e;
  }
  // Signed types use the loops of unsigned ones: for ops that wrap.
  constexpr Entry SignedWrapping() const {
    const Entry u = Unsigned();
    Entry e = *this;
    e.loops[OPW_I64] = u.loops[OPW_U64];
    e.loops[OPW_I32] = u.loops[OPW_U32];
    e.loops[OPW_I16] = u.loops[OPW_U16];
    e.loops[OPW_I8] = u.loops[OPW_U8];
    return e;
  }
  constexpr Entry Wrapping() const { return SignedWrapping().Unsigned(); }
  constexpr Entry Booleans() const {
    Entry e = *this;
    e.loops[OPW_BOOL] = LoopOf<Op, kOperands, Boolean>();
    return e;
  }
};

template <typename Op>
using Unary = Entry<Op, 1>;
template <typename Op>
using Binary = Entry<Op, 2>;

// Loops by the width of elements alone.
constexpr FastOp ByWidth(const char* name, int operands, ElementwiseLoop one, ElementwiseLoop two,
                         ElementwiseLoop four, ElementwiseLoop eight) {
  FastOp e{name, operands, false, {}};
  for (int t : {OPW_F8E4M3, OPW_F8E5M2, OPW_I8, OPW_U8, OPW_BOOL}) e.loops[t] = one;
  for (int t : {OPW_F16, OPW_BF16, OPW_I16, OPW_U16}) e.loops[t] = two;
  for (int t : {OPW_F32, OPW_I32, OPW_U32}) e.loops[t] = four;
  for (int t : {OPW_F64, OPW_I64, OPW_U64}) e.loops[t] = eight;
  return e;
}

constexpr FastOp Copies(const char* name) {
  return ByWidth(name, 1, UnaryLoop<CopyOp, uint8_t>, UnaryLoop<CopyOp, uint16_t>,
                 UnaryLoop<CopyOp, uint32_t>, UnaryLoop<CopyOp, uint64_t>);
}

constexpr FastOp NotEntry() {
  FastOp e = Unary<NotOp>("bitwise_not").Wrapping();
  e.loops[OPW_BOOL] = UnaryLoop<LogicalNotOp, Boolean>;
  return e;
}

constexpr FastOp kOps[] = {
    Binary<AddOp>("add").Floats().Wrapping(),
    Binary<SubOp>("sub").Floats().Wrapping(),
    Binary<MulOp>("mul").Floats().Wrapping(),
    WithIntegers<DivideOp<false>>(Binary<DivOp>("div").Floats()),
    WithIntegers<DivideOp<true>>(Binary<FmodOp>("fmod").Floats()),
    WithIntegers<IntegerPowOp>(Binary<PowOp>("pow").Floats()),
    Binary<Atan2Op>("atan2").Floats(),
    Binary<HypotOp>("hypot").Floats(),
    Binary<LogAddExpOp>("logaddexp").Floats(),
    Binary<MaxOp>("maximum").Floats().Signed().Unsigned(),
    Binary<MinOp>("minimum").Floats().Signed().Unsigned(),
    Binary<AndOp>("bitwise_and").Wrapping().Booleans(),
    Binary<OrOp>("bitwise_or").Wrapping().Booleans(),
    Binary<XorOp>("bitwise_xor").Wrapping().Booleans(),
    Binary<ShlOp>("bitwise_left_shift").Wrapping(),
    Binary<ShrOp>("bitwise_right_shift").Signed().Unsigned(),
    Binary<EqOp>("eq").Floats().Wrapping().Booleans(),
    Binary<NeOp>("ne").Floats().Wrapping().Booleans(),
    Binary<LtOp>("lt").Floats().Signed().Unsigned().Booleans(),
    Binary<LeOp>("le").Floats().Signed().Unsigned().Booleans(),
    Binary<LtOp>("gt", /*swapped=*/true).Floats().Signed().Unsigned().Booleans(),
    Binary<LeOp>("ge", /*swapped=*/true).Floats().Signed().Unsigned().Booleans(),
    ByWidth("where", 3, WhereLoop<uint8_t>, WhereLoop<uint16_t>, WhereLoop<uint32_t>,
            WhereLoop<uint64_t>),
    Entry<ClampOp, 3>("clamp").Floats().Signed().Unsigned(),
    Unary<NegOp>("neg").Floats().SignedWrapping(),
    Unary<AbsOp>("abs").Floats().Signed(),
    Unary<SignOp>("sign").Floats().Signed(),
    Unary<ReluOp>("relu").Floats().Signed(),
    NotEntry(),
    Unary<IsNanOp>("isnan").Floats(),
    Unary<IsInfOp>("isinf").Floats(),
    Unary<SqrtOp>("sqrt").Floats(),
    Unary<RsqrtOp>("rsqrt").Floats(),
    Unary<ReciprocalOp>("reciprocal").Floats(),
    Unary<FloorOp>("floor").Floats(),
    Unary<CeilOp>("ceil").Floats(),
    Unary<RoundOp>("round").Floats(),
    Unary<TruncOp>("trunc").Floats(),
    Unary<ExpOp>("exp").Floats(),
    Unary<LogOp>("log").Floats(),
    Unary<SigmoidOp>("sigmoid").Floats(),
    Unary<SiluOp>("silu").Floats(),
    Unary<Expm1Op>("expm1").Floats(),
    Unary<Log1pOp>("log1p").Floats(),
    Unary<Log2Op>("log2").Floats(),
    Unary<Log10Op>("log10").Floats(),
    Unary<SinOp>("sin").Floats(),
    Unary<CosOp>("cos").Floats(),
    Unary<TanOp>("tan").Floats(),
    Unary<TanhOp>("tanh").Floats(),
    Unary<ErfOp>("erf").Floats(),
    Unary<AsinOp>("asin").Floats(),
    Unary<AcosOp>("acos").Floats(),
    Unary<SinhOp>("sinh").Floats(),
    Unary<CoshOp>("cosh").Floats(),
    Unary<AsinhOp>("asinh").Floats(),
    Unary<AcoshOp>("acosh").Floats(),
    Unary<AtanhOp>("atanh").Floats(),
    Unary<GeluOp>("gelu").Floats(),
    Unary<GeluTanhOp>("gelu_tanh").Floats(),
    Copies("copy"),
    Copies("expand"),  // a copy whose operand is broadcast
};

}  // namespace
}  // namespace opwire::ops::elementwise::OPWIRE_ISA
