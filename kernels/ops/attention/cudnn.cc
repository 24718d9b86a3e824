// Attention and its gradient by cuDNN: heads of up to 128 elements without a mask.
#include <optional>

#include "kernels/ops/attention/gpu.h"
#include "kernels/ops/attention/shapes.h"
#include "kernels/ops/gpu/cudnn_plan.h"

namespace opwire::gpu::attention {
namespace {

using Shapes = ops::attention::AttentionShapes;

constexpr int64_t kMostDepth = 128, kMostPositions = int64_t{1} << 30;
constexpr int64_t kStep = kCudnnAlignment / 2;  // elements: rows are aligned as addresses are

// [B, H, rows, columns] of a tensor whose heads are `heads` of each of its batches; nullopt: its
// batches or heads are not one stride apart.
std::optional<CudnnTensor> TensorOf(const Shapes& s, Shapes::Tensor t, int64_t heads, int64_t rows,
                                    int64_t columns) {
  const int batches = s.rank - 2;
  int64_t batch = 1, stride = 0;
  for (int a = batches - 1; a >= 0; --a) {
    if (s.extents[a] == 1) continue;
    if (batch == 1)
      stride = s.strides[t][a];
    else if (s.strides[t][a] != stride * batch)
      return std::nullopt;
    batch *= s.extents[a];
  }
  // Along the heads of one batch: those of the query are key heads by group.
  const int64_t group = s.extents[s.rank - 1], by_key_head = s.strides[t][batches],
                by_head = heads == s.extents[batches] ? by_key_head : s.strides[t][s.rank - 1];
  if (heads != s.extents[batches] && by_key_head != by_head * group && s.extents[batches] > 1)
    return std::nullopt;
  if ((rows > 1 && s.row[t] == 0) || (heads > 1 && by_head == 0) || (batch > 1 && stride == 0))
    return std::nullopt;  // one is broadcast
  // Axes of one element have strides that the library checks too.
  const int64_t row = rows > 1 ? s.row[t] : columns, head = heads > 1 ? by_head : row * rows;
  return CudnnTensor{{batch, heads, rows, columns},
                     {batch > 1 ? stride : head * heads, head, row, 1}};
}

struct Attention {
  CudnnAttention call{};
  const char* unsupported = nullptr;
};

Attention AttentionOf(const opw_call* c, const Shapes& s, bool backward) {
  Attention out;
  const auto refuse = [&](const char* why) {
    if (!out.unsupported) out.unsupported = why;
  };
  const int64_t key_heads = s.extents[s.rank - 2], query_heads = key_heads * s.extents[s.rank - 1];
  if (!ops::Absent(ops::Operand(c, backward ? 6 : 3))) refuse("a mask");
  if (s.heads == 0 || s.queries == 0 || s.keys == 0 || s.depth == 0 || s.value_depth == 0)
    refuse("nothing to attend to");
  if (s.depth > kMostDepth || s.value_depth > kMostDepth)
    refuse("a head has more than 128 elements");
  if (s.depth % kStep != 0 || s.value_depth % kStep != 0)
    refuse("a head's elements are no multiple of 8");
  if (s.queries > kMostPositions || s.keys > kMostPositions) refuse("more than 2^30 positions");
  if ((s.causal || s.window > 0) && s.queries > s.keys) refuse("queries before the first key");
  if (s.window > 0 && !s.causal) refuse("a window that is not causal");
  if (out.unsupported) return out;
  CudnnAttention& call = out.call;
  call.type = ops::TypeOf(ops::Operand(c, backward ? 1 : 0));
  call.causal = s.causal, call.scale = static_cast<float>(s.scale);
  call.window = s.window >= s.keys ? 0 : s.window;
  struct Place {
    Shapes::Tensor which;
    CudnnTensor CudnnAttention::*tensor;
    int64_t heads, rows, columns;
  };
  const Place places[] = {
      {Shapes::kQuery, &CudnnAttention::query, query_heads, s.queries, s.depth},
      {Shapes::kKey, &CudnnAttention::key, key_heads, s.keys, s.depth},
      {Shapes::kValue, &CudnnAttention::value, key_heads, s.keys, s.value_depth},
      {Shapes::kOutput, &CudnnAttention::output, query_heads, s.queries, s.value_depth},
      {Shapes::kLogSumExp, &CudnnAttention::log_sum_exp, query_heads, s.queries, 1},
      {Shapes::kGrad, &CudnnAttention::grad, query_heads, s.queries, s.value_depth},
      {Shapes::kGradQuery, &CudnnAttention::grad_query, query_heads, s.queries, s.depth},
      {Shapes::kGradKey, &CudnnAttention::grad_key, key_heads, s.keys, s.depth},
      {Shapes::kGradValue, &CudnnAttention::grad_value, key_heads, s.keys, s.value_depth}};
  for (const Place& p : std::span(places).first(backward ? 9 : 5)) {
    const auto tensor = TensorOf(s, p.which, p.heads, p.rows, p.columns);
    if (!tensor) {
      refuse("batches or heads that are not one stride apart");
      return out;
    }
    if (p.columns > 1 && s.column[p.which] != 1) refuse("rows are not contiguous");
    for (int a = 0; a < 3 && p.columns > 1; ++a) {
      if (tensor->strides[a] % kStep != 0) refuse("rows do not begin at multiples of 16 bytes");
    }
    call.*p.tensor = *tensor;
  }
  return out;
}

const char* Supports(const opw_call* c, const Shapes& s, bool backward) {
  const Attention attention = AttentionOf(c, s, backward);
  return attention.unsupported ? attention.unsupported : WithoutCudnn();
}
const char* SupportsForward(const opw_call* c) { return Supports(c, Shapes(c), false); }
const char* SupportsBackward(const opw_call* c) { return Supports(c, Shapes::OfBackward(c), true); }

Status PlanForward(const Call& call, Plan& plan) {
  auto graph = CudnnAttentionForward(call.code, AttentionOf(call.c, Shapes(call.c), false).call);
  if (absl::IsUnimplemented(graph.status())) return PlanAttention(call, plan);
  OPWIRE_RETURN_IF_ERROR(graph.status());
  const uint32_t* const at = call.c->starts;
  RunCudnn(*std::move(graph),
           {{false, at[0]}, {false, at[1]}, {false, at[2]}, {true, 0}, {true, 1}}, call,
           PlanAttention, plan);
  return absl::OkStatus();
}

template <bool kDeterministic>
Status PlanBackward(const Call& call, Plan& plan) {
  CudnnAttention attention = AttentionOf(call.c, Shapes::OfBackward(call.c), true).call;
  attention.deterministic = kDeterministic;
  auto graph = CudnnAttentionBackward(call.code, attention);
  if (absl::IsUnimplemented(graph.status())) return PlanAttentionBackward(call, plan);
  OPWIRE_RETURN_IF_ERROR(graph.status());
  const uint32_t* const at = call.c->starts;
  RunCudnn(*std::move(graph),
           {{false, at[1]},
            {false, at[2]},
            {false, at[3]},
            {false, at[4]},
            {false, at[5]},
            {false, at[0]},
            {true, 0},
            {true, 1},
            {true, 2}},
           call, PlanAttentionBackward, plan);
  return absl::OkStatus();
}

}  // namespace

void AddAttentionCudnn(VariantTable& table, const std::shared_ptr<Code>& code) {
  constexpr DTypeSet kTypes{DType::kF16, DType::kBF16};
  AddGpu(table, code, "scaled_dot_product_attention",
         {.name = "cudnn",
          .dtypes = kTypes,
          .flags = OPW_DETERMINISTIC | OPW_STRIDED,
          .supports = SupportsForward,
          .plan = PlanForward,
          .without = WithoutCudnn});
  AddGpu(table, code, "scaled_dot_product_attention_backward",
         {.name = "cudnn",
          .priority = 1,
          .dtypes = kTypes,
          .flags = OPW_STRIDED,
          .supports = SupportsBackward,
          .plan = PlanBackward<false>,
          .without = WithoutCudnn});
  AddGpu(table, code, "scaled_dot_product_attention_backward",
         {.name = "cudnn-ordered",
          .dtypes = kTypes,
          .flags = OPW_DETERMINISTIC | OPW_STRIDED,
          .supports = SupportsBackward,
          .plan = PlanBackward<true>,
          .without = WithoutCudnn});
}

}  // namespace opwire::gpu::attention
