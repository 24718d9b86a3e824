// layer_norm and rms_norm of dense tensors, and of sums of two.
#include "kernels/ops/families.h"
#include "kernels/ops/norm/cpu_loops.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::norm {
namespace {

int64_t ExtentOf(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  return ElementsFrom(x, x.rank - static_cast<int>(c->attrs[0].value.i));
}

template <bool kLayer, bool kResidual>
const char* Supports(const opw_call* c) {
  if (!AllDense(c, (kLayer ? 3 : 2) + kResidual, 1 + kResidual)) return "needs dense tensors";
  return ExtentOf(c) <= kMaxStoppable ? nullptr : "a row this long could not be stopped";
}

template <const NormRows& (*kRows)(), bool kLayer, bool kResidual>
int Run(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  if (x.elements == 0) return OPW_OK;
  constexpr int kWeight = kResidual ? 2 : 1, kBias = kWeight + 1;
  const NormRow row = (kLayer ? kRows().layer : kRows().rms)[x.dtype];
  const SumRow sum = kRows().sum[x.dtype];
  const void* const weight = Absent(Operand(c, kWeight)) ? nullptr : Operand(c, kWeight).data;
  const void* const bias = !kLayer || Absent(Operand(c, kBias)) ? nullptr : Operand(c, kBias).data;
  const int64_t extent = ExtentOf(c);
  ParallelFor(c, x.elements / extent, RowsPerRange(extent), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const void* in = At(x, r * extent);
      if constexpr (kResidual) {
        sum(At(c->results[1], r * extent), in, At(Operand(c, 1), r * extent), extent);
        in = At(c->results[1], r * extent);
      }
      row(At(c->results[0], r * extent), in, weight, bias, extent, c->attrs[1].value.f);
    }
  });
  return OPW_OK;
}

template <const NormRows& (*kRows)(), bool kLayer, bool kResidual>
void AddRow(VariantTable& table, const Isa& isa, std::string_view op, const char* set,
            int priority) {
  AddProduction(table, isa, op, set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, Supports<kLayer, kResidual>,
                 nullptr, nullptr, Run<kRows, kLayer, kResidual>});
}

template <const NormRows& (*kRows)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  AddRow<kRows, true, false>(table, isa, "layer_norm", set, priority);
  AddRow<kRows, false, false>(table, isa, "rms_norm", set, priority);
  AddRow<kRows, true, true>(table, isa, "add_layer_norm", set, priority);
  AddRow<kRows, false, true>(table, isa, "add_rms_norm", set, priority);
}

}  // namespace

void AddNormFast(VariantTable& table, const Isa& isa) {
  Add<NormRowsAvx512>(table, isa, "avx512", 2);
  Add<NormRowsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::norm
