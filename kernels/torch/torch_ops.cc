// The two tables.
#include "kernels/torch/torch_ops.h"

#include "kernels/ops/call.h"

namespace opwire::torch {
namespace {

// Types that ATen computes with: it has few kernels for unsigned integers wider than a byte, and
// none for 8-bit floats.
constexpr DTypeSet kInts = kSigned | DTypeSet{DType::kU8};
constexpr DTypeSet kComputes = kFloats | kInts;
// Integers that wrap have the same bits as signed ones.
constexpr DTypeSet kWraps = kFloats | kIntegers;

constexpr uint32_t kSame = OPW_DETERMINISTIC;
constexpr uint32_t kElementwise = OPW_DETERMINISTIC | OPW_INPLACE;

constexpr const char* kZeros = "not floats: -0 and 0 are equal to ATen, and either may come out";

bool IsWideInt(DType t) {
  return t == DType::kI64 || t == DType::kI32 || t == DType::kU64 || t == DType::kU32;
}

// Conversions that ATen makes as the op definition says.
const char* SupportsCast(const opw_call* c) {
  const DType from = ops::TypeOf(ops::Operand(c, 0)), to = ops::TypeOf(c->results[0]);
  if (c->attrs[1].value.i != 0) return "ATen does not saturate";
  if (from == to || to == DType::kBool) return nullptr;
  if (kFloat8s.Has(from) && !kFloats.Has(to))
    return "from an 8-bit float ATen makes no such type by the row's rules";
  const bool from_float = (kFloats | kFloat8s).Has(from), to_float = (kFloats | kFloat8s).Has(to);
  if (from_float && !to_float) return "float to integer: ATen does not saturate";
  if (!to_float) return nullptr;
  const bool direct = to == DType::kF64 || to == DType::kF32;
  if (direct && from != DType::kU64 && from != DType::kU32) return nullptr;
  if (from == DType::kF64 || IsWideInt(from)) return "ATen rounds twice, by way of f32";
  return nullptr;
}

const char* SupportsAdamwCopy(const opw_call* c) {
  const uint32_t count = c->starts[1];
  if (count == 0 || ops::TypeOf(c->results[0]) != DType::kF64) return nullptr;
  const DType copy = ops::TypeOf(c->results[3 * count]);
  return copy == DType::kF64 || copy == DType::kF32 ? nullptr : "ATen rounds twice, by way of f32";
}

const char* SupportsOneHot(const opw_call* c) {
  return (kComputes | kBoolean).Has(ops::TypeOf(c->results[0]))
             ? nullptr
             : "ATen has no scatter of this type";
}

// prod reduces one axis at a time and would round in between.
const char* SupportsProd(const opw_call* c) {
  const int64_t axes = c->attrs[0].count;
  return axes <= 1 || axes == ops::Operand(c, 0).rank ? nullptr
                                                      : "ATen's prod reduces one axis or all";
}

constexpr TorchOp kRows[] = {
    // elementwise
    {"add", kWraps, kElementwise},
    {"sub", kWraps, kElementwise},
    {"mul", kWraps, kElementwise},
    {.op = "div",
     .dtypes = kFloats,
     .flags = kElementwise,
     .others = "not integers: ATen's faults where the least is divided by -1"},
    {"pow", kComputes, kElementwise},
    {.op = "maximum", .dtypes = kInts, .flags = kElementwise, .others = kZeros},
    {.op = "minimum", .dtypes = kInts, .flags = kElementwise, .others = kZeros},
    {"atan2", kFloats, kElementwise},
    {"hypot", kFloats, kElementwise},
    {"logaddexp", kFloats, kElementwise},
    {"bitwise_and", kIntegers | kBoolean, kElementwise},
    {"bitwise_or", kIntegers | kBoolean, kElementwise},
    {"bitwise_xor", kIntegers | kBoolean, kElementwise},
    {"bitwise_left_shift", kIntegers, kSame},
    {"bitwise_right_shift", kInts, kSame},
    {"eq", kWraps | kBoolean, kSame},
    {"ne", kWraps | kBoolean, kSame},
    {"lt", kComputes | kBoolean, kSame},
    {"le", kComputes | kBoolean, kSame},
    {"gt", kComputes | kBoolean, kSame},
    {"ge", kComputes | kBoolean, kSame},
    {"where", kAll, kSame},
    {.op = "clamp", .dtypes = kInts, .flags = kElementwise, .others = kZeros},
    {"neg", kFloats | kSigned, kElementwise},
    {"abs", kFloats | kSigned, kElementwise},
    {.op = "sign",
     .dtypes = kSigned,
     .flags = kElementwise,
     .others = "not floats: ATen's of NaN is 0"},
    {"bitwise_not", kIntegers | kBoolean, kElementwise},
    {"rsqrt", kFloats, kSame},
    {"reciprocal", kFloats, kElementwise},
    {"exp", kFloats, kElementwise},
    {"expm1", kFloats, kElementwise},
    {"log", kFloats, kElementwise},
    {"log1p", kFloats, kElementwise},
    {"log2", kFloats, kElementwise},
    {"log10", kFloats, kElementwise},
    {"sin", kFloats, kElementwise},
    {"cos", kFloats, kElementwise},
    {"tan", kFloats, kElementwise},
    {"tanh", kFloats, kElementwise},
    {"erf", kFloats, kSame},
    {"asin", kFloats, kElementwise},
    {"acos", kFloats, kElementwise},
    {"sinh", kFloats, kElementwise},
    {"cosh", kFloats, kElementwise},
    {"asinh", kFloats, kElementwise},
    {"acosh", kFloats, kElementwise},
    {"atanh", kFloats, kElementwise},
    {"floor", kFloats, kElementwise},
    {"ceil", kFloats, kElementwise},
    {"round", kFloats, kElementwise},
    {"trunc", kFloats, kElementwise},
    {"sigmoid", kFloats, kElementwise},
    {"gelu", kFloats, kSame},
    {"gelu_tanh", kFloats, kElementwise},
    {"silu", kFloats, kElementwise},
    {"relu", kFloats | kSigned, kElementwise},
    {"isnan", kFloats, kSame},
    {"isinf", kFloats, kSame},
    {"copy", kAll, kSame},
    {"cast", kAll, kSame, SupportsCast, "only conversions that saturate nothing and round once"},
    // reduce
    {"sum", kWraps},
    {"prod", kWraps, 0, SupportsProd, "only one axis, or all"},
    {"amax", kComputes | kBoolean},
    {"amin", kComputes | kBoolean},
    {"mean", kFloats},
    {"any", kBoolean},
    {"all", kBoolean},
    {"argmax", kComputes},
    {"argmin", kComputes},
    {"cumsum", kWraps},
    {"sort", kComputes | kBoolean, kSame},
    {"argsort", kComputes | kBoolean, kSame},
    // shape
    {"reshape", kAll, kSame},
    {"recompute", kAll, kSame},
    {"permute", kAll, kSame},
    {"expand", kAll, kSame},
    {"cat", kAll, kSame},
    {"tile", kAll, kSame},
    {"slice", kAll, kSame},
    {"index_select", kAll, kSame},
    {"embedding", kAll, kSame},
    {"gather", kAll, kSame},
    {"scatter_add", kWraps},
    {"embedding_backward", kFloats},
    {"choose", kIndex, kSame},
    {"one_hot", kIndex, kSame, SupportsOneHot,
     "only to floats, bool and integers that ATen computes with"},
    // nn
    {"softmax", kFloats},
    {"log_softmax", kFloats},
    {"softmax_backward", kFloats},
    {"log_softmax_backward", kFloats},
    {"layer_norm", kFloats},
    {"rms_norm", kFloats},
    {"add_layer_norm", kFloats},
    {"add_rms_norm", kFloats},
    {"layer_norm_backward", kFloats},
    {"rms_norm_backward", kFloats},
    {.op = "matmul", .dtypes = kWraps, .only_cpu = kIntegers},
    {"linear", kFloats},
    {"rms_norm_linear", kFloats},
    {"convolution", kFloats},
    {"convolution_backward", kFloats},
    {"scaled_dot_product_attention", kFloats},
    {"cross_entropy", kFloats},
    {"cross_entropy_backward", kFloats},
    {"cross_entropy_with_gradient", kFloats},
    {"linear_cross_entropy", kFloats},
    {"linear_cross_entropy_backward", kFloats},
    // optim
    {"adamw", kFloats},
    {"adamw_copy", kFloats, 0, SupportsAdamwCopy, "no copies of f64 in narrower types than f32"},
    {"sgd", kFloats},
    {"lion", kFloats},
    {"adagrad", kFloats},
    {"l2_norm", kFloats},
    {"scale", kFloats},
};

constexpr UnsupportedOp kOthers[] = {
    {"fmod", "ATen's is not exact where the quotient is large or an operand subnormal"},
    {"sqrt", "ATen's, by MKL, is not rounded correctly"},
    {"zeros", "nothing to compute: the executor's own fill serves every type"},
    {"full", "ATen refuses values that the type cannot hold; the row converts them as cast does"},
    {"values", "nothing to compute"},
    {"constant", "nothing to compute"},
    {"arange", "ATen computes it in a wider type than the row's"},
    {"uniform",
     "the row's random numbers are Philox by element, equal on every device; ATen's are not"},
    {"normal",
     "the row's random numbers are Philox by element, equal on every device; ATen's are not"},
    {"rotary_embedding", "ATen has no such op"},
    {"scaled_dot_product_attention_backward", "ATen's gradients take what its own kernels kept"},
    {"slice_update", "ATen has no such op"},
    {"index_put", "of several for one place ATen takes any"},
    {"kv_append", "ATen has no such op"},
    {"kv_attention", "ATen has no such op"},
    {"topk", "which of equal elements ATen takes is left open"},
    {"scaled_matmul", "ATen's runs on some GPUs alone"},
    {"quantize", "ATen's has no groups"},
    {"dequantize", "ATen's has no groups"},
    {"quantized_linear", "ATen has no such blocks"},
    {"quantized_embedding", "ATen has no such blocks"},
    {"dequantize_blocks", "ATen has no such blocks"},
    {"lamb", "ATen has no such op"},
    {"sample", "the row's random numbers and sums are equal on every device; ATen's are not"},
    {"dropout",
     "the row's random numbers are Philox by element, equal on every device; ATen's are not"},
};

}  // namespace

std::span<const TorchOp> TorchOps() { return kRows; }
std::span<const UnsupportedOp> UnsupportedOps() { return kOthers; }

}  // namespace opwire::torch
