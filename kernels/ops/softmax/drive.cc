// softmax and log_softmax along the last axis of dense tensors.
#include "kernels/ops/families.h"
#include "kernels/ops/rows.h"
#include "kernels/ops/softmax/fast.h"
#include "kernels/ops/softmax/softmax.h"

namespace opwire::ops {
namespace {

const char* Supports(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  if (!AllDense(c, 1)) return "needs dense tensors";
  return ElementsFrom(x, Axis(c->attrs[0].value.i, x.rank) + 1) == 1 ? nullptr : "only along the last axis";
}

template <const SoftmaxRows& (*kRows)(), bool kLog>
int Run(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  if (x.elements == 0) return OPW_OK;
  const SoftmaxRow row = (kLog ? kRows().log_softmax : kRows().softmax)[x.dtype];
  const int64_t extent = x.shape[Axis(c->attrs[0].value.i, x.rank)];
  ParallelFor(c, x.elements / extent, RowsPerRange(extent), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) row(At(c->results[0], r * extent), At(x, r * extent), extent);
  });
  return OPW_OK;
}

template <const SoftmaxRows& (*kRows)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_INPLACE;
  AddProduction(table, isa, "softmax", set, set, priority, kFloats,
                {OPW_ABI_VERSION, flags, Supports, nullptr, nullptr, Run<kRows, false>});
  AddProduction(table, isa, "log_softmax", set, set, priority, kFloats,
                {OPW_ABI_VERSION, flags, Supports, nullptr, nullptr, Run<kRows, true>});
}

}  // namespace

void AddSoftmaxFast(VariantTable& table, const Isa& isa) {
  Add<SoftmaxRowsAvx512>(table, isa, "avx512", 2);
  Add<SoftmaxRowsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops
