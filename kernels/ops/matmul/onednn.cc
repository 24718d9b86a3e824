// matmul and linear by oneDNN: f32, bf16 where the processor multiplies it, and the other 16-bit floats through f32 copies.
#include <optional>

#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"
#include "kernels/ops/matmul/onednn_product.h"

namespace opwire::ops {
namespace {

struct State {
  std::unique_ptr<OneDnnProduct> product;  // null: nothing to sum
  uint8_t type;                            // that is multiplied: the tensors' own, or OPW_F32 of copies
  int64_t x_bytes = 0, y_bytes = 0, bias_bytes = 0, z_bytes = 0;  // of the copies, in the workspace behind each other
};

struct Matmul {
  static constexpr bool kLinear = false;
  static MatmulShapes ShapesOf(const opw_call* c) { return MatmulShapes(c); }
  static const opw_tensor* BiasOf(const opw_call*) { return nullptr; }
  static Activation ActivationFor(const opw_call*) { return Activation::kNone; }
};
struct Linear {
  static constexpr bool kLinear = true;
  static MatmulShapes ShapesOf(const opw_call* c) { return MatmulShapes(Operand(c, 0), false, Operand(c, 1), true, c->results[0]); }
  static const opw_tensor* BiasOf(const opw_call* c) { return Absent(Operand(c, 2)) ? nullptr : &Operand(c, 2); }
  static Activation ActivationFor(const opw_call* c) { return ActivationOf(c->attrs[0]); }
};

template <typename Op>
const char* Supports(const opw_call* c) {
  const MatmulShapes s = Op::ShapesOf(c);
  if (const char* why = OneDnnRefuses(s)) return why;
  if (c->results[0].contiguous == 0) return "oneDNN needs a contiguous result here";
  const opw_tensor* const bias = Op::BiasOf(c);
  if (bias != nullptr && bias->contiguous == 0) return "needs a contiguous bias";
  if (Op::kLinear && s.k == 0) return "nothing to sum";
  if (Op::ActivationFor(c) == Activation::kRelu && WidestCasts() == nullptr) return "relu needs avx2";
  if (OneDnnIsNative(Operand(c, 0).dtype)) return nullptr;
  if (WidestCasts() == nullptr) return "16-bit floats need avx2 and f16c";
  return Operand(c, 0).contiguous && Operand(c, 1).contiguous ? nullptr : "goes through f32 copies here, which need contiguous operands";
}

template <typename Op>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const opw_tensor &x = Operand(c, 0), &y = Operand(c, 1), &z = c->results[0];
  const opw_tensor* const bias = Op::BiasOf(c);
  const MatmulShapes shapes = Op::ShapesOf(c);
  auto s = std::make_unique<State>();
  *workspace_bytes = 0;
  if (z.elements > 0 && shapes.k > 0) {
    s->type = x.dtype;
    if (!OneDnnIsNative(x.dtype)) {
      s->type = OPW_F32;
      s->x_bytes = Aligned64(x.elements * 4);
      s->y_bytes = Aligned64(y.elements * 4);
      s->bias_bytes = bias != nullptr ? Aligned64(bias->elements * 4) : 0;
      s->z_bytes = Aligned64(z.elements * 4);
    }
    s->product = OneDnnProduct::Make({shapes, s->type, s->type, bias != nullptr, Op::ActivationFor(c)}, ThreadsOf(c));
    if (s->product == nullptr) return OPW_FAILED;
    *workspace_bytes = s->x_bytes + s->y_bytes + s->bias_bytes + s->z_bytes + s->product->scratch_bytes();
  }
  *state = s.release();
  return OPW_OK;
}

void Release(void* state) { delete static_cast<State*>(state); }

template <typename Op>
int Run(const opw_call* c) {
  State* const s = static_cast<State*>(c->state);
  const opw_tensor &x = Operand(c, 0), &y = Operand(c, 1), &z = c->results[0];
  const opw_tensor* const bias = Op::BiasOf(c);
  if (s->product == nullptr) {  // nothing to sum
    std::memset(z.data, 0, BytesOf(z));
    return OPW_OK;
  }
  const void *from_x = x.data, *from_y = y.data, *from_bias = bias != nullptr ? bias->data : nullptr;
  void* to_z = z.data;
  char* at = static_cast<char*>(c->workspace);
  if (s->type != x.dtype) {
    const auto copy = [&](const opw_tensor& t, int64_t bytes) {
      char* const to = at;
      CastAll(c, to, OPW_F32, t.data, t.dtype, t.elements);
      at += bytes;
      return to;
    };
    from_x = copy(x, s->x_bytes);
    from_y = copy(y, s->y_bytes);
    if (bias != nullptr) from_bias = copy(*bias, s->bias_bytes);
    to_z = at;
    at += s->z_bytes;
  }
  if (!s->product->Run(c, from_x, from_y, from_bias, to_z, at)) return OPW_FAILED;
  if (to_z != z.data) CastAll(c, z.data, z.dtype, to_z, OPW_F32, z.elements);
  if (Op::ActivationFor(c) == Activation::kRelu) MapAll(c, WidestRelu(z.dtype), z.data, z.dtype, z.data, z.dtype, z.elements);  // rounds nothing
  return OPW_OK;
}

}  // namespace

void AddMatmulOneDnn(VariantTable& table, const Isa& isa) {
  const DTypeSet types = {DType::kF32, DType::kF16, DType::kBF16};
  AddProduction(table, isa, "matmul", "onednn", "", 0, types, {OPW_ABI_VERSION, 0, Supports<Matmul>, Prepare<Matmul>, Release, Run<Matmul>});
  AddProduction(table, isa, "linear", "onednn", "", 0, types, {OPW_ABI_VERSION, 0, Supports<Linear>, Prepare<Linear>, Release, Run<Linear>});
}

}  // namespace opwire::ops
