// layer_norm and rms_norm of dense tensors.
#include "kernels/ops/families.h"
#include "kernels/ops/norm/fast.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/rows.h"

namespace opwire::ops {
namespace {

constexpr int64_t kMaxRow = 4 << 20;  // elements: some milliseconds

int64_t ExtentOf(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  return ElementsFrom(x, x.rank - static_cast<int>(c->attrs[0].value.i));
}

template <int kOperands>
const char* Supports(const opw_call* c) {
  if (!AllDense(c, kOperands)) return "needs dense tensors";
  return ExtentOf(c) <= kMaxRow ? nullptr : "a row this long could not be stopped";
}

template <const NormRows& (*kRows)(), bool kLayer>
int Run(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  if (x.elements == 0) return OPW_OK;
  const NormRow row = (kLayer ? kRows().layer : kRows().rms)[x.dtype];
  const void* const weight = Absent(Operand(c, 1)) ? nullptr : Operand(c, 1).data;
  const void* const bias = !kLayer || Absent(Operand(c, 2)) ? nullptr : Operand(c, 2).data;
  const int64_t extent = ExtentOf(c);
  ParallelFor(c, x.elements / extent, RowsPerRange(extent), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      row(At(c->results[0], r * extent), At(x, r * extent), weight, bias, extent, c->attrs[1].value.f);
    }
  });
  return OPW_OK;
}

template <const NormRows& (*kRows)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_INPLACE;
  AddProduction(table, isa, "layer_norm", set, set, priority, kFloats,
                {OPW_ABI_VERSION, flags, Supports<3>, nullptr, nullptr, Run<kRows, true>});
  AddProduction(table, isa, "rms_norm", set, set, priority, kFloats,
                {OPW_ABI_VERSION, flags, Supports<2>, nullptr, nullptr, Run<kRows, false>});
}

}  // namespace

void AddNormFast(VariantTable& table, const Isa& isa) {
  Add<NormRowsAvx512>(table, isa, "avx512", 2);
  Add<NormRowsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops
