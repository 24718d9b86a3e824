// The table of rewrites.
#include "ir/passes/rules.h"

#include <algorithm>
#include <array>

namespace opwire {
namespace {

constexpr DTypeSet kSignedArithmetic = kFloats | kSigned, kBits = kIntegers | kBoolean,
                   kCompared = kArithmetic | kBoolean;

constexpr Rule kRules[] = {
    // Neutral and absorbing operands. On floats x + 0 is not x where x is -0.
    {"add(x, 0) -> x", kIntegers},
    {"add(x, -0.0) -> x", kFloats},
    {"add(x, 0) -> x", kFloats, Accuracy::kFast},
    {"sub(x, 0) -> x", kArithmetic},
    {"sub(x, x) -> 0", kIntegers},
    {"sub(0, x) -> neg(x)", kSigned},
    {"mul(x, 1) -> x", kArithmetic},
    {"mul(x, -1) -> neg(x)", kSignedArithmetic},
    {"mul(x, 0) -> 0", kIntegers},
    {"div(x, 1) -> x", kArithmetic},
    {"div(x, -1) -> neg(x)", kSignedArithmetic},
    {"fmod(x, 1) -> 0", kIntegers},
    {"pow(x, 1) -> x", kArithmetic},
    {"pow(x, 0) -> 1", kIntegers},
    {"pow(x, 0) -> 1", kFloats, Accuracy::kFast},  // a signalling NaN gives NaN
    {"pow(x, 2) -> mul(x, x)", kIntegers},
    {"pow(x, 2) -> mul(x, x)", kFloats, Accuracy::kUsual},
    {"bitwise_and(x, 0) -> 0", kBits},
    {"bitwise_or(x, 0) -> x", kBits},
    {"bitwise_xor(x, 0) -> x", kBits},
    {"bitwise_and(x, -1) -> x", kSigned},
    {"bitwise_or(x, -1) -> -1", kSigned},
    {"bitwise_xor(x, -1) -> bitwise_not(x)", kSigned},
    {"bitwise_and(x, 1) -> x", kBoolean},
    {"bitwise_or(x, 1) -> 1", kBoolean},
    {"bitwise_xor(x, 1) -> bitwise_not(x)", kBoolean},
    {"bitwise_left_shift(x, 0) -> x", kIntegers},
    {"bitwise_right_shift(x, 0) -> x", kIntegers},

    // The same operand twice.
    {"maximum(x, x) -> x", kArithmetic},
    {"minimum(x, x) -> x", kArithmetic},
    {"bitwise_and(x, x) -> x", kBits},
    {"bitwise_or(x, x) -> x", kBits},
    {"bitwise_xor(x, x) -> 0", kBits},
    {"where(x, y, y) -> y", kBoolean},
    {"where(1, x, y) -> x", kBoolean},
    {"where(0, x, y) -> y", kBoolean},
    {"where(bitwise_not(x), y, z) -> where(x, z, y)", kBoolean},

    // An op twice, or an op and its inverse.
    {"copy(x) -> x", kAll},
    {"neg(neg(x)) -> x", kSignedArithmetic},
    {"bitwise_not(bitwise_not(x)) -> x", kBits},
    {"abs(abs(x)) -> abs(x)", kSignedArithmetic},
    {"abs(neg(x)) -> abs(x)", kSignedArithmetic},
    {"sign(sign(x)) -> sign(x)", kSignedArithmetic},
    {"relu(relu(x)) -> relu(x)", kSignedArithmetic},
    {"relu(abs(x)) -> abs(x)", kFloats},
    {"floor(floor(x)) -> floor(x)", kFloats},
    {"ceil(ceil(x)) -> ceil(x)", kFloats},
    {"round(round(x)) -> round(x)", kFloats},
    {"trunc(trunc(x)) -> trunc(x)", kFloats},
    {"log(exp(x)) -> x", kFloats, Accuracy::kFast},
    {"exp(log(x)) -> x", kFloats, Accuracy::kFast},

    // Signs.
    {"add(x, neg(y)) -> sub(x, y)", kSignedArithmetic},
    {"sub(x, neg(y)) -> add(x, y)", kSignedArithmetic},
    {"mul(neg(x), neg(y)) -> mul(x, y)", kSignedArithmetic},
    {"div(neg(x), neg(y)) -> div(x, y)", kFloats},
    {"neg(sub(x, y)) -> sub(y, x)", kSigned},
    {"neg(sub(x, y)) -> sub(y, x)", kFloats, Accuracy::kFast},

    // Comparisons. A NaN makes lt and ge both false.
    {"bitwise_not(eq(x, y)) -> ne(x, y)", kBoolean},
    {"bitwise_not(ne(x, y)) -> eq(x, y)", kBoolean},
    {"eq(x, x) -> 1", kBits},
    {"ne(x, x) -> 0", kBits},
    {"le(x, x) -> 1", kBits},
    {"ge(x, x) -> 1", kBits},
    {"lt(x, x) -> 0", kCompared},
    {"gt(x, x) -> 0", kCompared},

    // Constants together, so that the pass `constant-fold` makes one of them.
    {"add(add(x, c1), c2) -> add(x, add(c1, c2))", kIntegers},
    {"add(add(x, c1), c2) -> add(x, add(c1, c2))", kFloats, Accuracy::kFast},
    {"mul(mul(x, c1), c2) -> mul(x, mul(c1, c2))", kIntegers},
    {"mul(mul(x, c1), c2) -> mul(x, mul(c1, c2))", kFloats, Accuracy::kFast, Constants::kProduct},
    {"sub(sub(x, c1), c2) -> sub(x, add(c1, c2))", kIntegers},

    // Cheaper, or the same as a single op.
    {"div(x, c) -> mul(x, reciprocal(c))", kFloats, Accuracy::kExact, Constants::kPowerOfTwo},
    {"div(x, c) -> mul(x, reciprocal(c))", kFloats, Accuracy::kFast, Constants::kNormal},
    {"maximum(x, 0) -> relu(x)", kSignedArithmetic},
    {"log(add(x, 1)) -> log1p(x)", kFloats, Accuracy::kFast},
    {"sub(exp(x), 1) -> expm1(x)", kFloats, Accuracy::kFast},
    {"reciprocal(sqrt(x)) -> rsqrt(x)", kFloats, Accuracy::kUsual},
    {"mul(x, sigmoid(x)) -> silu(x)", kFloats, Accuracy::kFast},
    {"div(1, x) -> reciprocal(x)", kFloats},
};

}  // namespace

std::span<const Rule> Rules() { return kRules; }

bool IsCommutative(std::string_view op) {
  constexpr std::array<std::string_view, 9> kOps = {
      "add", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "maximum", "minimum", "mul", "ne"};
  return std::ranges::find(kOps, op) != kOps.end();
}

}  // namespace opwire
