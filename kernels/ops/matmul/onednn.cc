// matmul, linear and rms_norm_linear by oneDNN: f32, bf16 where the processor multiplies it, and
// the other 16-bit floats through f32 copies.
#include <optional>

#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/map_all.h"
#include "kernels/ops/matmul/forms.h"
#include "kernels/ops/matmul/matmul.h"
#include "kernels/ops/matmul/onednn_product.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::matmul {
namespace {

struct State {
  std::unique_ptr<OneDnnProduct> product;  // null: nothing to sum
  uint8_t type;              // that is multiplied: the tensors' own, or OPW_F32 of copies
  int64_t normal_bytes = 0;  // of the normalised x, in the workspace first
  int64_t x_bytes = 0, y_bytes = 0, bias_bytes = 0,
          z_bytes = 0;  // of the copies, in the workspace behind each other
};

template <typename Op>
const char* Supports(const opw_call* c) {
  const MatmulShapes s = Op::ShapesOf(c);
  if (const char* why = OneDnnRefuses(s)) return why;
  if (!Op::kLinear && IsDotProducts(s) && elementwise::WidestCasts() != nullptr)
    return "dot products, which oneDNN sums in order";
  if (c->results[0].contiguous == 0) return "oneDNN needs a contiguous result here";
  const opw_tensor* const bias = Op::BiasOf(c);
  if (bias != nullptr && bias->contiguous == 0) return "needs a contiguous bias";
  if (Op::kLinear && s.k == 0) return "nothing to sum";
  if (Op::kNorm && NormaliseRefuses(c) != nullptr) return NormaliseRefuses(c);
  if (Op::ActivationFor(c) == Activation::kRelu && elementwise::WidestCasts() == nullptr)
    return "relu needs avx2";
  if (OneDnnIsNative(Operand(c, 0).dtype)) return nullptr;
  if (elementwise::WidestCasts() == nullptr) return "16-bit floats need avx2 and f16c";
  return Operand(c, 0).contiguous && Operand(c, Op::kWeight).contiguous
             ? nullptr
             : "goes through f32 copies here, which need contiguous operands";
}

template <typename Op>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const opw_tensor &x = Operand(c, 0), &y = Operand(c, Op::kWeight), &z = c->results[0];
  const opw_tensor* const bias = Op::BiasOf(c);
  const MatmulShapes shapes = Op::ShapesOf(c);
  auto s = std::make_unique<State>();
  *workspace_bytes = 0;
  if (z.elements > 0 && shapes.k > 0) {
    s->type = x.dtype;
    if (Op::kNorm) s->normal_bytes = AlignedBytes(BytesOf(x));
    if (!OneDnnIsNative(x.dtype)) {
      s->type = OPW_F32;
      s->x_bytes = AlignedBytes(x.elements * 4);
      s->y_bytes = AlignedBytes(y.elements * 4);
      s->bias_bytes = bias != nullptr ? AlignedBytes(bias->elements * 4) : 0;
      s->z_bytes = AlignedBytes(z.elements * 4);
    }
    s->product = OneDnnProduct::Make(
        {shapes, s->type, s->type, bias != nullptr, Op::ActivationFor(c)}, ThreadsOf(c));
    if (s->product == nullptr) return OPW_FAILED;
    *workspace_bytes = s->normal_bytes + s->x_bytes + s->y_bytes + s->bias_bytes + s->z_bytes +
                       s->product->scratch_bytes();
  }
  *state = s.release();
  return OPW_OK;
}

void Release(void* state) { delete static_cast<State*>(state); }

template <typename Op>
int Run(const opw_call* c) {
  State* const s = static_cast<State*>(c->state);
  const opw_tensor &x = Operand(c, 0), &y = Operand(c, Op::kWeight), &z = c->results[0];
  const opw_tensor* const bias = Op::BiasOf(c);
  if (s->product == nullptr) {  // nothing to sum
    std::memset(z.data, 0, BytesOf(z));
    return OPW_OK;
  }
  const void *from_x = x.data, *from_y = y.data,
             *from_bias = bias != nullptr ? bias->data : nullptr;
  void* to_z = z.data;
  char* at = static_cast<char*>(c->workspace);
  if (Op::kNorm) {
    Normalise(c, at);
    from_x = at;
    at += s->normal_bytes;
  }
  if (s->type != x.dtype) {
    const auto copy = [&](const opw_tensor& t, const void* from, int64_t bytes) {
      char* const to = at;
      CastAll(c, to, OPW_F32, from, t.dtype, t.elements);
      at += bytes;
      return to;
    };
    from_x = copy(x, from_x, s->x_bytes);
    from_y = copy(y, from_y, s->y_bytes);
    if (bias != nullptr) from_bias = copy(*bias, from_bias, s->bias_bytes);
    to_z = at;
    at += s->z_bytes;
  }
  if (!s->product->Run(c, from_x, from_y, from_bias, to_z, at)) return OPW_FAILED;
  if (to_z != z.data) CastAll(c, z.data, z.dtype, to_z, OPW_F32, z.elements);
  if (Op::ActivationFor(c) == Activation::kRelu)
    MapAll(c, elementwise::WidestRelu(z.dtype), z.data, z.dtype, z.data, z.dtype,
           z.elements);  // rounds nothing
  return OPW_OK;
}

}  // namespace

void AddMatmulOneDnn(VariantTable& table, const Isa& isa) {
  const DTypeSet types = {DType::kF32, DType::kF16, DType::kBF16};
  AddProduction(
      table, isa, "matmul", "onednn", "", 0, types,
      {OPW_ABI_VERSION, 0, Supports<MatmulForm>, Prepare<MatmulForm>, Release, Run<MatmulForm>});
  AddProduction(table, isa, "linear", "onednn", "", 0, types,
                {OPW_ABI_VERSION, 0, Supports<LinearForm<false>>, Prepare<LinearForm<false>>,
                 Release, Run<LinearForm<false>>});
  AddProduction(table, isa, "rms_norm_linear", "onednn", "", 0, types,
                {OPW_ABI_VERSION, 0, Supports<LinearForm<true>>, Prepare<LinearForm<true>>, Release,
                 Run<LinearForm<true>>});
}

}  // namespace opwire::ops::matmul
