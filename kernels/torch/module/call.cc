// Tensors over a call's memory.
#include "kernels/torch/module/call.h"

#include <ATen/ops/from_blob.h>

namespace opwire::torch_module {
namespace {

at::ScalarType TypeOf(uint8_t dtype, As as) {
  switch (dtype) {
    case OPW_F64:
      return as == As::kBits ? at::kLong : at::kDouble;
    case OPW_F32:
      return as == As::kBits ? at::kInt : at::kFloat;
    case OPW_F16:
      return as == As::kBits ? at::kShort : at::kHalf;
    case OPW_BF16:
      return as == As::kBits ? at::kShort : at::kBFloat16;
    case OPW_F8E4M3:
      return as == As::kBits ? at::kByte : at::kFloat8_e4m3fn;
    case OPW_F8E5M2:
      return as == As::kBits ? at::kByte : at::kFloat8_e5m2;
    case OPW_I64:
      return at::kLong;
    case OPW_I32:
      return at::kInt;
    case OPW_I16:
      return at::kShort;
    case OPW_I8:
      return as == As::kBits ? at::kByte : at::kChar;
    case OPW_U64:
      return as == As::kType ? at::kUInt64 : at::kLong;
    case OPW_U32:
      return as == As::kType ? at::kUInt32 : at::kInt;
    case OPW_U16:
      return as == As::kType ? at::kUInt16 : at::kShort;
    case OPW_U8:
      return at::kByte;
    default:
      return as == As::kBits ? at::kByte : at::kBool;
  }
}

}  // namespace

at::Tensor Call::Over(const opw_tensor& t, As as) const {
  if (t.dtype == 0) return {};
  const at::TensorOptions options = at::TensorOptions(TypeOf(t.dtype, as)).device(device);
  return at::for_blob(t.data, {t.shape, t.rank})
      .strides(at::IntArrayRef(t.strides, t.rank))
      .options(options)
      .target_device(device)
      .make_tensor();
}

std::vector<at::Tensor> Call::List(int i, As as) const {
  std::vector<at::Tensor> out;
  for (uint32_t k = c->starts[i]; k < c->starts[i + 1]; ++k)
    out.push_back(Over(c->operands[k], as));
  return out;
}

at::ScalarType ComputingType(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor Wide(const at::Tensor& t) {
  return t.defined() && (t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16)
             ? t.to(at::kFloat)
             : t;
}

bool Report(const Call& call, int operand, const at::Tensor& bad) {
  if (!bad.any().item<bool>()) return false;
  call.c->runtime->out_of_range(call.c->runtime, operand,
                                bad.reshape(-1).to(at::kByte).argmax().item<int64_t>());
  return true;
}

// The executor's clients may write to memory that they share with it at any time. So the values are
// copied, and the copy is both checked and used.
Indices CheckIndices(const Call& call, int operand, int64_t extent) {
  const at::Tensor read = call.In(operand).to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  Indices out{at::Tensor(read.where(read.ge(0), read.add(extent))), {}};
  const at::Tensor bad = out.values.lt(0).logical_or(out.values.ge(extent));
  if (!Report(call, operand, bad)) return out;
  out.bad = bad;
  out.values.masked_fill_(bad, 0);
  return out;
}

}  // namespace opwire::torch_module
