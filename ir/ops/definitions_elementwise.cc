// Elementwise ops: one scalar expression of operands that broadcast.
#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

using expr::Attr;
using expr::Const;
using expr::In;
using expr::Op;
using expr::Select;

Expr Add(Expr a, Expr b) { return Op(Prim::kAdd, std::move(a), std::move(b)); }
Expr Mul(Expr a, Expr b) { return Op(Prim::kMul, std::move(a), std::move(b)); }

// 1 + exp(-x): the divisor of the logistic function, infinite if the function is 0.
Expr LogisticDivisor() { return Add(Const(1), Op(Prim::kExp, Op(Prim::kNeg, In(0)))); }

Expr Gelu() {
  return Mul(Mul(Const(0.5), In(0)),
             Add(Const(1), Op(Prim::kErf, Mul(In(0), Const(0.70710678118654752440)))));
}

Expr GeluTanh() {
  const Expr cube = Mul(Mul(In(0), In(0)), In(0));
  const Expr inner = Mul(Const(0.79788456080286535588), Add(In(0), Mul(Const(0.044715), cube)));
  return Mul(Mul(Const(0.5), In(0)), Add(Const(1), Op(Prim::kTanh, inner)));
}

Status BroadcastAll(InferContext& c, int operands) {
  std::vector<const TensorType*> types;
  for (int i = 0; i < operands; ++i) types.push_back(c.Operand(i));
  OPWIRE_ASSIGN_OR_RETURN(c.Result(0).shape, c.Broadcast(types));
  return absl::OkStatus();
}

double Operations(const Expr& body) {
  double n = 0;
  for (const ExprNode& node : body.nodes()) n += InfoOf(node.prim).arity > 0;
  return n;
}

struct Simple {
  std::string_view name;
  std::string_view signature;
  Expr body;
  std::string_view doc;
};

OpDef MakeElementwise(Simple s, std::vector<AttrSpec> attrs = {}, InferRule infer = nullptr) {
  OpDef row = Make({.name = s.name,
                    .signature = s.signature,
                    .attrs = std::move(attrs),
                    .body = s.body,
                    .aliasing = Aliasing::kElementwise,
                    .cost = PerResult(Operations(s.body)),
                    .family = "elementwise",
                    .doc = s.doc});
  if (infer == nullptr) {
    const int operands = static_cast<int>(row.operands.size());
    infer = [operands](InferContext& c) { return BroadcastAll(c, operands); };
  }
  row.infer = std::move(infer);
  return row;
}

Expr Binary(Prim p) { return Op(p, In(0), In(1)); }
Expr Unary(Prim p) { return Op(p, In(0)); }

constexpr std::string_view kArith = "x: A, y: A -> z: A";
constexpr std::string_view kBits = "x: B, y: B -> z: B";
constexpr std::string_view kShift = "x: N, y: N -> z: N";
constexpr std::string_view kCompare = "x: C, y: C -> z: bool";
constexpr std::string_view kSignedUnary = "x: S -> y: S";
constexpr std::string_view kFloat = "x: F -> y: F";
constexpr std::string_view kFloatTest = "x: F -> y: bool";

}  // namespace

std::vector<OpDef> ElementwiseOps() {
  const Simple simple[] = {
      // clang-format off
      {"add", kArith, Binary(Prim::kAdd), "x + y; integers wrap."},
      {"sub", kArith, Binary(Prim::kSub), "x - y; integers wrap."},
      {"mul", kArith, Binary(Prim::kMul), "x * y; integers wrap."},
      {"div", kArith, Binary(Prim::kDiv), "x / y; on integers it truncates, x/0 is 0 and flagged, MIN/-1 is MIN."},
      {"fmod", kArith, Binary(Prim::kRem), "C's remainder of x / y, with the sign of x; on integers x%0 is 0 and flagged."},
      {"pow", kArith, Binary(Prim::kPow), "x to the power y; integers wrap, a negative exponent gives 0 unless x is 1 or -1."},
      {"maximum", kArith, Binary(Prim::kMax), "The larger of x and y; NaN if either is NaN; -0 < +0."},
      {"minimum", kArith, Binary(Prim::kMin), "The smaller of x and y; NaN if either is NaN; -0 < +0."},
      {"atan2", "y: F, x: F -> z: F", Binary(Prim::kAtan2), "The angle of the point (x, y), in (-pi, pi]."},
      {"hypot", "x: F, y: F -> z: F", Binary(Prim::kHypot), "sqrt(x^2 + y^2), without overflow on the way; infinite if either is."},
      {"logaddexp", "x: F, y: F -> z: F", Binary(Prim::kLogAddExp), "log(exp(x) + exp(y)), without overflow on the way; its error is bounded relative to the larger of |x| and |y|."},
      {"bitwise_and", kBits, Binary(Prim::kAnd), "Bits set in both; on bool, logical and."},
      {"bitwise_or", kBits, Binary(Prim::kOr), "Bits set in either; on bool, logical or."},
      {"bitwise_xor", kBits, Binary(Prim::kXor), "Bits set in one of the two; on bool, exclusive or."},
      {"bitwise_left_shift", kShift, Binary(Prim::kShl), "x shifted left by y, whose count is masked to the width."},
      {"bitwise_right_shift", kShift, Binary(Prim::kShr), "x shifted right by y, masked to the width; arithmetic on signed types."},
      {"eq", kCompare, Binary(Prim::kEq), "x == y; false where either is NaN."},
      {"ne", kCompare, Binary(Prim::kNe), "x != y; true where either is NaN."},
      {"lt", kCompare, Binary(Prim::kLt), "x < y; false where either is NaN."},
      {"le", kCompare, Binary(Prim::kLe), "x <= y; false where either is NaN."},
      {"gt", kCompare, Binary(Prim::kGt), "x > y; false where either is NaN."},
      {"ge", kCompare, Binary(Prim::kGe), "x >= y; false where either is NaN."},
      {"where", "condition: bool, x: T, y: T -> z: T", Select(In(0), In(1), In(2)), "x where the condition holds, else y."},
      // clang-format on
      {"clamp", "x: A, min: A, max: A -> y: A", Op(Prim::kMin, Op(Prim::kMax, In(0), In(1)), In(2)),
       "min(max(x, min), max): max wins where min > max; NaN if any is NaN."},
      {"neg", kSignedUnary, Unary(Prim::kNeg), "-x; integers wrap."},
      {"abs", kSignedUnary, Unary(Prim::kAbs), "|x|; the least integer stays as it is."},
      {"sign", kSignedUnary, Unary(Prim::kSign), "-1, 0 or 1; NaN stays NaN."},
      {"bitwise_not", "x: B -> y: B", Unary(Prim::kNot), "All bits turned; on bool, logical not."},
      {"sqrt", kFloat, Unary(Prim::kSqrt), "The square root; NaN for x < 0."},
      {"rsqrt", kFloat, Unary(Prim::kRsqrt), "1 / sqrt(x)."},
      {"reciprocal", kFloat, Unary(Prim::kRecip), "1 / x."},
      {"exp", kFloat, Unary(Prim::kExp), "e to the power x."},
      {"expm1", kFloat, Unary(Prim::kExpm1), "exp(x) - 1, accurate near 0."},
      {"log", kFloat, Unary(Prim::kLog), "The natural logarithm; -inf at 0, NaN below."},
      {"log1p", kFloat, Unary(Prim::kLog1p), "log(1 + x), accurate near 0."},
      {"log2", kFloat, Unary(Prim::kLog2),
       "The logarithm to base 2, exact at powers of 2; -inf at 0, NaN below."},
      {"log10", kFloat, Unary(Prim::kLog10),
       "The logarithm to base 10, exact at powers of 10; -inf at 0, NaN below."},
      {"sin", kFloat, Unary(Prim::kSin), "The sine of x in radians."},
      {"cos", kFloat, Unary(Prim::kCos), "The cosine of x in radians."},
      {"tan", kFloat, Unary(Prim::kTan), "The tangent of x in radians."},
      {"tanh", kFloat, Unary(Prim::kTanh), "The hyperbolic tangent."},
      {"erf", kFloat, Unary(Prim::kErf), "The error function."},
      {"asin", kFloat, Unary(Prim::kAsin),
       "The angle in [-pi/2, pi/2] whose sine is x; NaN beyond [-1, 1]."},
      {"acos", kFloat, Unary(Prim::kAcos),
       "The angle in [0, pi] whose cosine is x; NaN beyond [-1, 1]."},
      {"sinh", kFloat, Unary(Prim::kSinh), "The hyperbolic sine."},
      {"cosh", kFloat, Unary(Prim::kCosh), "The hyperbolic cosine."},
      {"asinh", kFloat, Unary(Prim::kAsinh), "The number whose hyperbolic sine is x."},
      {"acosh", kFloat, Unary(Prim::kAcosh),
       "The number not below 0 whose hyperbolic cosine is x; NaN below 1."},
      {"atanh", kFloat, Unary(Prim::kAtanh),
       "The number whose hyperbolic tangent is x; NaN beyond [-1, 1]."},
      {"floor", kFloat, Unary(Prim::kFloor), "The largest whole number not above x."},
      {"ceil", kFloat, Unary(Prim::kCeil), "The smallest whole number not below x."},
      {"round", kFloat, Unary(Prim::kRound), "The nearest whole number, halves to even."},
      {"trunc", kFloat, Unary(Prim::kTrunc), "x without its fraction."},
      {"sigmoid", kFloat, Op(Prim::kRecip, LogisticDivisor()), "1 / (1 + exp(-x))."},
      {"gelu", kFloat, Gelu(),
       "x * Phi(x) by erf; its error is bounded relative to |x|, not to the result."},
      {"gelu_tanh", kFloat, GeluTanh(),
       "gelu in its tanh approximation; its error is bounded relative to |x|."},
      {"silu", kFloat, Op(Prim::kDiv, In(0), LogisticDivisor()),
       "x * sigmoid(x), as x / (1 + exp(-x))."},
      {"relu", kSignedUnary, Select(Op(Prim::kLe, In(0), Const(0)), Const(0), In(0)),
       "x where x > 0, else 0; NaN stays NaN."},
      {"isnan", kFloatTest, Unary(Prim::kIsNan), "Whether x is NaN."},
      {"isinf", kFloatTest, Unary(Prim::kIsInf), "Whether x is an infinity."},
      {"copy", "x: T -> y: T", In(0), "x in storage of its own."},
  };
  std::vector<OpDef> rows;
  for (const Simple& s : simple) rows.push_back(MakeElementwise(s));
  rows.push_back(MakeElementwise(
      {"cast", "x: T -> y: U", Unary(Prim::kCast),
       "x as another element type: float to int saturates and NaN gives 0, int to narrower int "
       "wraps, to bool is x != 0."},
      {Required("dtype", AttrKind::kDType, "The result's element type."),
       Optional(
           "saturate", false,
           "Beyond the range of an 8-bit float: its largest finite value, not NaN or infinity.")},
      [](InferContext& c) {
        c.Result(0).dtype = c.Attr<DType>(0);
        return SameAsFirst(c);
      }));
  return rows;
}

}  // namespace opwire::definitions
