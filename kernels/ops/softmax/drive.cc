// softmax and log_softmax of dense tensors: by rows along the last axis, by blocks of columns along others.
#include "kernels/ops/families.h"
#include "kernels/ops/rows.h"
#include "kernels/ops/softmax/fast.h"
#include "kernels/ops/softmax/softmax.h"

namespace opwire::ops {
namespace {

constexpr int64_t kColumnBlock = 64;   // columns of a unit

// x as [outer, extent, inner].
struct Extents {
  int64_t extent, inner, block;
  explicit Extents(const opw_call* c) {
    const opw_tensor& x = Operand(c, 0);
    const int dim = Axis(c->attrs[0].value.i, x.rank);
    extent = x.shape[dim];
    inner = ElementsFrom(x, dim + 1);
    block = std::min(inner, kColumnBlock);
  }
};

const char* Supports(const opw_call* c) {
  if (!AllDense(c, 1)) return "needs dense tensors";
  const Extents e(c);
  return e.extent * e.block <= kMaxStoppable ? nullptr : "an extent this long could not be stopped";
}

template <const SoftmaxRows& (*kRows)(), bool kLog>
int Run(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  if (x.elements == 0) return OPW_OK;
  const Extents e(c);
  if (e.inner == 1) {
    const SoftmaxRow row = (kLog ? kRows().log_softmax : kRows().softmax)[x.dtype];
    ParallelFor(c, x.elements / e.extent, RowsPerRange(e.extent), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(At(y, r * e.extent), At(x, r * e.extent), e.extent);
    });
    return OPW_OK;
  }
  const SoftmaxColumn columns = (kLog ? kRows().log_softmax_columns : kRows().softmax_columns)[x.dtype];
  const int64_t plane = e.extent * e.inner, blocks = (e.inner - 1) / e.block + 1;
  ParallelFor(c, x.elements / plane * blocks, RowsPerRange(e.extent * e.block), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t j = u % blocks * e.block, at = u / blocks * plane + j;
      columns(At(y, at), At(x, at), e.extent, std::min(e.block, e.inner - j), e.inner);
    }
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
