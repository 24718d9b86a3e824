// Gradients of attention of heads whose rows are contiguous: by blocks of queries, then by blocks
// of keys.
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/cpu_loops.h"
#include "kernels/ops/attention/shapes.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::attention {
namespace {

using Shapes = AttentionShapes;
using Head = Walk<Shapes::kAll>;

constexpr int64_t kGrain = 1 << 19;  // multiplications of a range: about 20 us

const char* Supports(const opw_call* c) {
  const Shapes s = Shapes::OfBackward(c);
  if (std::max(s.depth, s.value_depth) > kAttentionDepth)
    return "a head has more than 256 elements";
  for (const auto t : {Shapes::kQuery, Shapes::kKey, Shapes::kGradQuery, Shapes::kGradKey}) {
    if (s.depth > 1 && s.column[t] != 1) return "needs contiguous rows";
  }
  for (const auto t : {Shapes::kValue, Shapes::kOutput, Shapes::kGrad, Shapes::kGradValue}) {
    if (s.value_depth > 1 && s.column[t] != 1) return "needs contiguous rows";
  }
  return nullptr;
}

Head HeadsOf(const Shapes& s, int rank) {
  Head head(rank, s.extents);
  for (int t = 0; t < Shapes::kAll; ++t) {
    for (int a = 0; a < rank; ++a) head.SetStride(t, a, s.strides[t][a]);
  }
  return head;
}

AttentionBackwardBlock BlockOf(const opw_call* c, const Shapes& s) {
  AttentionBackwardBlock b{};
  b.mask = Absent(Operand(c, 6)) ? nullptr : Operand(c, 6).data;
  b.mask_is_bool = TypeOf(Operand(c, 6)) == DType::kBool;
  b.log_sum_exp = Operand(c, 5).data, b.output = Operand(c, 4).data;
  b.depth = s.depth, b.value_depth = s.value_depth, b.scale = s.scale;
  b.stopped = [](const void* call) { return Stopped(static_cast<const opw_call*>(call)); };
  b.context = c;
  return b;
}

template <const AttentionBackwardLoops& (*kLoops)()>
void OfQueries(const opw_call* c, const Shapes& s) {
  const int type = static_cast<int>(TypeOf(Operand(c, 1)));
  const int64_t each = kLoops().lanes[type], group = s.extents[s.rank - 1],
                rows = group * s.queries, key_heads = group == 0 ? 0 : s.heads / group;
  const int64_t blocks = (rows + each - 1) / each,
                work = each * std::max<int64_t>(1, s.keys) * (2 * s.depth + s.value_depth + 16);
  ParallelFor(
      c, key_heads * blocks, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
        Head head = HeadsOf(s, s.rank - 1);
        for (int64_t u = begin; u < end; ++u) {
          head.Start(u / blocks);
          AttentionBackwardBlock b = BlockOf(c, s);
          b.lane_a = Operand(c, 1).data, b.lane_b = Operand(c, 0).data,
          b.grad_a = c->results[0].data;
          b.row_a = At(Operand(c, 2), head.offset(Shapes::kKey)),
          b.row_b = At(Operand(c, 3), head.offset(Shapes::kValue));
          b.row_a_stride = s.row[Shapes::kKey], b.row_b_stride = s.row[Shapes::kValue],
          b.row_mask = s.column[Shapes::kMask];
          b.heads = 1;
          const int64_t first_row = u % blocks * each;
          b.count = std::min(each, rows - first_row);
          b.first = s.keys, b.last = 0;
          for (int64_t r = 0; r < b.count; ++r) {
            const int64_t in_group = (first_row + r) / s.queries, i = (first_row + r) % s.queries;
            const auto at = [&](Shapes::Tensor t) {
              return head.offset(t) + in_group * s.strides[t][s.rank - 1] + i * s.row[t];
            };
            const AttentionRange range = s.KeysOf(i);
            b.lanes[r] = {at(Shapes::kQuery),
                          at(Shapes::kGrad),
                          at(Shapes::kMask),
                          at(Shapes::kGradQuery),
                          0,
                          at(Shapes::kLogSumExp),
                          at(Shapes::kOutput),
                          range.first,
                          range.last};
            b.first = std::min(b.first, range.first), b.last = std::max(b.last, range.last);
          }
          kLoops().of_queries[type](b);
        }
      });
}

template <const AttentionBackwardLoops& (*kLoops)()>
void OfKeys(const opw_call* c, const Shapes& s) {
  const int type = static_cast<int>(TypeOf(Operand(c, 1)));
  int64_t key_heads = 1;
  for (int a = 0; a + 1 < s.rank; ++a) key_heads *= s.extents[a];
  const int64_t each = kLoops().lanes[type], group = s.extents[s.rank - 1],
                blocks = (s.keys + each - 1) / each;
  const int64_t work =
      each * std::max<int64_t>(1, group * s.queries) * (2 * (s.depth + s.value_depth) + 16);
  ParallelFor(
      c, key_heads * blocks, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
        Head head = HeadsOf(s, s.rank - 1);
        for (int64_t u = begin; u < end; ++u) {
          head.Start(u / blocks);
          AttentionBackwardBlock b = BlockOf(c, s);
          b.lane_a = Operand(c, 2).data, b.lane_b = Operand(c, 3).data,
          b.grad_a = c->results[1].data, b.grad_b = c->results[2].data;
          b.row_a = At(Operand(c, 1), head.offset(Shapes::kQuery)),
          b.row_b = At(Operand(c, 0), head.offset(Shapes::kGrad));
          const auto stride = [&](Shapes::Tensor t) { return s.strides[t][s.rank - 1]; };
          b.heads = group;
          b.head_a = stride(Shapes::kQuery), b.head_b = stride(Shapes::kGrad),
          b.head_mask = stride(Shapes::kMask);
          b.head_log_sum_exp = stride(Shapes::kLogSumExp), b.head_output = stride(Shapes::kOutput);
          b.row_a_stride = s.row[Shapes::kQuery], b.row_b_stride = s.row[Shapes::kGrad],
          b.row_mask = s.row[Shapes::kMask];
          b.row_log_sum_exp = s.row[Shapes::kLogSumExp], b.row_output = s.row[Shapes::kOutput];
          b.log_sum_exp = static_cast<const char*>(b.log_sum_exp) +
                          head.offset(Shapes::kLogSumExp) * DTypeBytes(TypeOf(Operand(c, 5)));
          b.output = At(Operand(c, 4), head.offset(Shapes::kOutput));
          const int64_t first_key = u % blocks * each;
          b.count = std::min(each, s.keys - first_key);
          b.first = s.queries, b.last = 0;
          for (int64_t r = 0; r < b.count; ++r) {
            const int64_t j = first_key + r;
            const auto at = [&](Shapes::Tensor t) { return head.offset(t) + j * s.row[t]; };
            const AttentionRange range = s.QueriesOf(j);
            b.lanes[r] = {at(Shapes::kKey),
                          at(Shapes::kValue),
                          head.offset(Shapes::kMask) + j * s.column[Shapes::kMask],
                          at(Shapes::kGradKey),
                          at(Shapes::kGradValue),
                          0,
                          0,
                          range.first,
                          range.last};
            b.first = std::min(b.first, range.first), b.last = std::max(b.last, range.last);
          }
          kLoops().of_keys[type](b);
        }
      });
}

template <const AttentionBackwardLoops& (*kLoops)()>
int Run(const opw_call* c) {
  const Shapes s = Shapes::OfBackward(c);
  OfQueries<kLoops>(c, s);
  OfKeys<kLoops>(c, s);
  return OPW_OK;
}

}  // namespace

void AddAttentionBackwardFast(VariantTable& table, const Isa& isa) {
  AddProduction(table, isa, "scaled_dot_product_attention_backward", "avx512", "avx512", 2, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_STRIDED, Supports, nullptr, nullptr,
                 Run<AttentionBackwardLoopsAvx512>});
  AddProduction(table, isa, "scaled_dot_product_attention_backward", "avx2", "avx2", 1, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_STRIDED, Supports, nullptr, nullptr,
                 Run<AttentionBackwardLoopsAvx2>});
}

}  // namespace opwire::ops::attention
