// The scalar body of an elementwise op: an expression over a closed list of primitives, whose
// meaning is the same on every device. The reference kernels interpret it, and compilers generate
// code from it.
//
//   relu:  Select(Le(In(0), Const(0)), Const(0), In(0))        // a NaN stays a NaN
#ifndef OPWIRE_IR_OPS_EXPR_H_
#define OPWIRE_IR_OPS_EXPR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace opwire {

// For all primitives: floating types below f32 compute in f32; integers wrap; a comparison with NaN
// is false, except for kNe. Each line gives the NaN rule, the overflow rule and the bound in ulp of
// the computing type. For types of 16 bits and fewer a device may use cheaper implementations,
// within 1/128 of the type's own ulp.
enum class Prim : uint8_t {
  kIn,     // operand `index`
  kAttr,   // attribute `index` (int, float or bool), converted to the computing type
  kConst,  // `value`, converted to the computing type
  kAdd,    // exact rounding (0.5 ulp); integers wrap
  kSub,
  kMul,
  kDiv,  // floats: IEEE. Integers truncate; x/0 is 0 and raises the divide flag; MIN/-1 is MIN
  kRem,  // C's remainder, sign of the dividend; integers: x%0 is 0 and raises the divide flag,
         // MIN%-1 is 0
  kPow,  // as C's pow, 2 ulp; integers wrap, a negative exponent gives 0 except for bases 1 and -1
  kAtan2,      // 4 ulp
  kHypot,      // 4 ulp
  kLogAddExp,  // 2 ulp of the larger operand
  kMin,        // NaN if either is NaN; -0 < +0
  kMax,
  kAnd,  // bitwise on integers and bool
  kOr,
  kXor,
  kShl,  // the count is masked to the width
  kShr,  // arithmetic on signed types
  kEq,   // result is bool
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kSelect,  // a ? b : c
  kNot,     // bitwise; on bool logical
  kNeg,     // integers wrap
  kAbs,     // MIN stays MIN
  kSign,    // -1, 0, 1; NaN stays NaN
  kSqrt,    // 0.5 ulp; negative gives NaN
  kRsqrt,   // 2 ulp
  kRecip,   // 0.5 ulp
  kExp,     // 2 ulp
  kExpm1,
  kLog,
  kLog1p,
  kLog2,  // 1 ulp, exact at powers
  kLog10,
  kSin,  // 2 ulp for |x| <= 2^20, 4 beyond
  kCos,
  kTan,   // 4 ulp
  kTanh,  // 4 ulp
  kErf,   // 4 ulp
  kAsin,  // 4 ulp, as the following ones; NaN beyond [-1, 1]
  kAcos,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,  // NaN below 1
  kAtanh,
  kFloor,  // exact
  kCeil,
  kRound,  // half to even
  kTrunc,
  kIsNan,  // result is bool
  kIsInf,
  kCast,  // to the op's result type: float to int saturates, NaN gives 0; int to narrower int
          // wraps; to bool is != 0
};
inline constexpr int kPrimCount = static_cast<int>(Prim::kCast) + 1;

struct PrimInfo {
  std::string_view name;  // "add"
  int arity;
};
const PrimInfo& InfoOf(Prim p);

// A tree in postfix order: operands before operators, the root last. Empty: the op is not
// elementwise.
struct ExprNode {
  Prim prim;
  int32_t index = 0;  // kIn, kAttr
  double value = 0;   // kConst
};

class Expr {
 public:
  Expr() = default;
  bool Empty() const { return nodes_.empty(); }
  const std::vector<ExprNode>& nodes() const { return nodes_; }
  // "select(le(x, 0), 0, x)" with the operands' and attributes' names.
  std::string ToString(const std::vector<std::string>& operands,
                       const std::vector<std::string>& attrs) const;

  static Expr Leaf(ExprNode n);
  static Expr Apply(Prim p, std::vector<Expr> operands);

 private:
  std::vector<ExprNode> nodes_;
};

// Short forms for op definitions.
namespace expr {
inline Expr In(int i) { return Expr::Leaf({Prim::kIn, i, 0}); }
inline Expr Attr(int i) { return Expr::Leaf({Prim::kAttr, i, 0}); }
inline Expr Const(double v) { return Expr::Leaf({Prim::kConst, 0, v}); }
inline Expr Op(Prim p, Expr a) { return Expr::Apply(p, {std::move(a)}); }
inline Expr Op(Prim p, Expr a, Expr b) { return Expr::Apply(p, {std::move(a), std::move(b)}); }
inline Expr Select(Expr c, Expr a, Expr b) {
  return Expr::Apply(Prim::kSelect, {std::move(c), std::move(a), std::move(b)});
}
}  // namespace expr

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_EXPR_H_
