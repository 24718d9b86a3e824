// Attention of heads whose rows are contiguous, in blocks of queries that share a head of keys, one
// block after the other.
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/cpu_loops.h"
#include "kernels/ops/attention/shapes.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::attention {
namespace {

using Shapes = AttentionShapes;

constexpr int64_t kGrain = 1 << 19;  // multiplications of a range: about 20 us

const char* Supports(const opw_call* c) {
  const Shapes s(c);
  if (std::max(s.depth, s.value_depth) > kAttentionDepth)
    return "a head has more than 256 elements";
  for (const auto& [t, extent] : {std::pair{Shapes::kQuery, s.depth},
                                  {Shapes::kKey, s.depth},
                                  {Shapes::kValue, s.value_depth},
                                  {Shapes::kOutput, s.value_depth}}) {
    if (extent > 1 && s.column[t] != 1) return "needs contiguous rows";
  }
  return nullptr;
}

template <const AttentionLoops& (*kLoops)()>
int Run(const opw_call* c) {
  const Shapes s(c);
  if (s.heads * s.queries == 0) return OPW_OK;
  const AttentionWidth(&widths)[kAttentionWidths] = kLoops().of[Operand(c, 0).dtype];
  const opw_tensor& mask = Operand(c, 3);
  // The queries of all heads that share a head of keys.
  const int64_t group = s.extents[s.rank - 1], rows = group * s.queries,
                key_heads = s.heads / group;
  const int64_t each = widths[kAttentionWidths - 1].queries, blocks = (rows + each - 1) / each,
                work = std::min(each, rows) * std::max<int64_t>(1, s.keys) *
                       (s.depth + s.value_depth + 16);
  ParallelFor(
      c, key_heads * blocks, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
        Walk<Shapes::kTensors> head(s.rank - 1, s.extents);
        for (int t = 0; t < Shapes::kTensors; ++t) {
          for (int a = 0; a < s.rank - 1; ++a) head.SetStride(t, a, s.strides[t][a]);
        }
        for (int64_t u = begin; u < end; ++u) {
          head.Start(u / blocks);
          AttentionBlock b{};
          b.query = Operand(c, 0).data, b.mask = Absent(mask) ? nullptr : mask.data;
          b.key = At(Operand(c, 1), head.offset(Shapes::kKey)),
          b.value = At(Operand(c, 2), head.offset(Shapes::kValue));
          b.output = c->results[0].data, b.log_sum_exp = c->results[1].data;
          const int64_t first_row = u % blocks * each;
          b.count = std::min(each, rows - first_row);
          b.first = s.keys, b.last = 0;
          b.one_mask = true;
          for (int64_t r = 0; r < b.count; ++r) {
            const int64_t in_group = (first_row + r) / s.queries, i = (first_row + r) % s.queries;
            const auto at = [&](Shapes::Tensor t) {
              return head.offset(t) + in_group * s.strides[t][s.rank - 1] + i * s.row[t];
            };
            const AttentionRange range = s.KeysOf(i);
            b.queries[r] = {at(Shapes::kQuery),     at(Shapes::kMask), at(Shapes::kOutput),
                            at(Shapes::kLogSumExp), range.first,       range.last};
            b.first = std::min(b.first, range.first), b.last = std::max(b.last, range.last);
            b.one_mask = b.one_mask && b.queries[r].mask == b.queries[0].mask;
          }
          b.depth = s.depth, b.value_depth = s.value_depth;
          b.key_row = s.row[Shapes::kKey], b.value_row = s.row[Shapes::kValue],
          b.mask_column = s.column[Shapes::kMask];
          b.mask_is_bool = TypeOf(mask) == DType::kBool;
          b.scale = s.scale;
          b.stopped = [](const void* call) { return Stopped(static_cast<const opw_call*>(call)); };
          b.context = c;
          WidthFor(widths, b.count).run(b);
        }
      });
  return OPW_OK;
}

}  // namespace

void AddAttentionFast(VariantTable& table, const Isa& isa) {
  AddProduction(table, isa, "scaled_dot_product_attention", "avx512", "avx512", 2, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_STRIDED, Supports, nullptr, nullptr,
                 Run<AttentionLoopsAvx512>});
  AddProduction(table, isa, "scaled_dot_product_attention", "avx2", "avx2", 1, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_STRIDED, Supports, nullptr, nullptr,
                 Run<AttentionLoopsAvx2>});
}

}  // namespace opwire::ops::attention
