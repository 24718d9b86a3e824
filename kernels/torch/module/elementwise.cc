// Elementwise rows. Operands broadcast as the rows say: by NumPy's rule.
#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/acosh.h>
#include <ATen/ops/add.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/asinh.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/atanh.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "kernels/torch/module/call.h"

namespace opwire::torch_module {
namespace {

using Unary = at::Tensor& (*)(at::Tensor&, const at::Tensor&);
template <Unary kOut>
void RunUnary(const Call& call) {
  at::Tensor y = call.Out();
  kOut(y, call.In(0));
}

using Binary = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Tensor&);
template <Binary kOut, As kAs = As::kType>
void RunBinary(const Call& call) {
  at::Tensor y = call.Out(0, kAs);
  kOut(y, call.In(0, kAs), call.In(1, kAs));
}

at::Tensor& AddOut(at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  return at::add_out(y, a, b);
}
at::Tensor& SubOut(at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  return at::sub_out(y, a, b);
}

// Counts are masked to the width.
template <Binary kOut>
void RunShift(const Call& call) {
  at::Tensor y = call.Out(0, As::kSigned);
  kOut(y, call.In(0, As::kSigned),
       call.In(1, As::kSigned).bitwise_and(static_cast<int64_t>(y.element_size() * 8 - 1)));
}

template <Binary kOut>
void RunCompare(const Call& call) {
  at::Tensor y = call.Out();
  kOut(y, call.In(0, As::kSigned), call.In(1, As::kSigned));
}

void BitwiseNot(const Call& call) {
  at::Tensor y = call.Out(0, As::kSigned);
  at::bitwise_not_out(y, call.In(0, As::kSigned));
}

void Where(const Call& call) {
  at::Tensor y = call.Out(0, As::kBits);
  at::where_out(y, call.In(0), call.In(1, As::kBits), call.In(2, As::kBits));
}

void Clamp(const Call& call) {
  at::Tensor y = call.Out();
  at::clamp_out(y, call.In(0), std::optional<at::Tensor>(call.In(1)),
                std::optional<at::Tensor>(call.In(2)));
}

// ATen's of f16 round in between.
template <at::Tensor (*kFunction)(const at::Tensor&)>
void RunWide(const Call& call) {
  call.Out().copy_(kFunction(Wide(call.In(0))));
}

// ATen's of infinity is NaN.
void Gelu(const Call& call) {
  const at::Tensor x = Wide(call.In(0));
  call.Out().copy_(x.mul(M_SQRT1_2).erf_().add_(1).mul_(x.mul(0.5)));
}
void GeluTanh(const Call& call) {
  at::Tensor y = call.Out();
  at::gelu_out(y, call.In(0), "tanh");
}

// Not of -0, which is 0 where x <= 0.
void Relu(const Call& call) {
  at::Tensor y = call.Out();
  const at::Tensor x = call.In(0);
  at::where_out(y, x.le(0), at::zeros_like(x), x);
}

void IsNan(const Call& call) { call.Out().copy_(at::isnan(call.In(0))); }
void IsInf(const Call& call) { call.Out().copy_(at::isinf(call.In(0))); }
void Copy(const Call& call) { call.Out(0, As::kBits).copy_(call.In(0, As::kBits)); }
void Cast(const Call& call) { call.Out().copy_(call.In(0)); }

}  // namespace

const Row kElementwiseRows[] = {{"add", RunBinary<AddOut, As::kSigned>},
                                {"sub", RunBinary<SubOut, As::kSigned>},
                                {"mul", RunBinary<at::mul_out, As::kSigned>},
                                {"div", RunBinary<at::div_out>},
                                {"pow", RunBinary<at::pow_out>},
                                {"maximum", RunBinary<at::maximum_out>},
                                {"minimum", RunBinary<at::minimum_out>},
                                {"atan2", RunBinary<at::atan2_out>},
                                {"hypot", RunBinary<at::hypot_out>},
                                {"logaddexp", RunBinary<at::logaddexp_out>},
                                {"bitwise_and", RunBinary<at::bitwise_and_out, As::kSigned>},
                                {"bitwise_or", RunBinary<at::bitwise_or_out, As::kSigned>},
                                {"bitwise_xor", RunBinary<at::bitwise_xor_out, As::kSigned>},
                                {"bitwise_left_shift", RunShift<at::bitwise_left_shift_out>},
                                {"bitwise_right_shift", RunShift<at::bitwise_right_shift_out>},
                                {"eq", RunCompare<at::eq_out>},
                                {"ne", RunCompare<at::ne_out>},
                                {"lt", RunCompare<at::lt_out>},
                                {"le", RunCompare<at::le_out>},
                                {"gt", RunCompare<at::gt_out>},
                                {"ge", RunCompare<at::ge_out>},
                                {"where", Where},
                                {"clamp", Clamp},
                                {"neg", RunUnary<at::neg_out>},
                                {"abs", RunUnary<at::abs_out>},
                                {"sign", RunUnary<at::sign_out>},
                                {"rsqrt", RunWide<at::rsqrt>},
                                {"reciprocal", RunUnary<at::reciprocal_out>},
                                {"exp", RunUnary<at::exp_out>},
                                {"expm1", RunUnary<at::expm1_out>},
                                {"log", RunUnary<at::log_out>},
                                {"log1p", RunUnary<at::log1p_out>},
                                {"log2", RunUnary<at::log2_out>},
                                {"log10", RunUnary<at::log10_out>},
                                {"sin", RunUnary<at::sin_out>},
                                {"cos", RunUnary<at::cos_out>},
                                {"tan", RunUnary<at::tan_out>},
                                {"tanh", RunUnary<at::tanh_out>},
                                {"erf", RunWide<at::erf>},
                                {"asin", RunUnary<at::asin_out>},
                                {"acos", RunUnary<at::acos_out>},
                                {"sinh", RunUnary<at::sinh_out>},
                                {"cosh", RunUnary<at::cosh_out>},
                                {"asinh", RunUnary<at::asinh_out>},
                                {"acosh", RunUnary<at::acosh_out>},
                                {"atanh", RunUnary<at::atanh_out>},
                                {"floor", RunUnary<at::floor_out>},
                                {"ceil", RunUnary<at::ceil_out>},
                                {"round", RunUnary<at::round_out>},
                                {"trunc", RunUnary<at::trunc_out>},
                                {"sigmoid", RunUnary<at::sigmoid_out>},
                                {"silu", RunUnary<at::silu_out>},
                                {"bitwise_not", BitwiseNot},
                                {"gelu", Gelu},
                                {"gelu_tanh", GeluTanh},
                                {"relu", Relu},
                                {"isnan", IsNan},
                                {"isinf", IsInf},
                                {"copy", Copy},
                                {"cast", Cast},
                                {nullptr, nullptr}};

}  // namespace opwire::torch_module
