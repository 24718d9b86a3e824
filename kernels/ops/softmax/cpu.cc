// softmax, log_softmax and their gradients, of dense tensors: by rows along the last axis, by
// blocks of columns along others.
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/softmax/cpu_loops.h"
#include "kernels/ops/softmax/softmax.h"

namespace opwire::ops::softmax {
namespace {

// The first operand as [outer, extent, inner].
struct Extents {
  int64_t extent, inner, block;
  explicit Extents(const opw_call* c) {
    const opw_tensor& x = Operand(c, 0);
    const int dim = Axis(c->attrs[0].value.i, x.rank);
    extent = x.shape[dim];
    inner = ElementsFrom(x, dim + 1);
    block = std::min(inner, kSoftmaxColumns);
  }
};

template <int kOperands>
const char* Supports(const opw_call* c) {
  if (!AllDense(c, kOperands)) return "needs dense tensors";
  const Extents e(c);
  return e.extent * e.block <= kMaxStoppable ? nullptr : "an extent this long could not be stopped";
}

// Calls rows(position of the first one's first element, how many, elements of each) for rows of
// neighbours, or columns(position, elements down, columns, stride) for blocks of columns.
template <typename Rows, typename Columns>
int ForSlices(const opw_call* c, const Rows& rows, const Columns& columns) {
  const opw_tensor& x = Operand(c, 0);
  if (x.elements == 0) return OPW_OK;
  const Extents e(c);
  if (e.inner == 1) {
    ParallelFor(c, x.elements / e.extent, RowsPerRange(e.extent),
                [&](int64_t begin, int64_t end) { rows(begin * e.extent, end - begin, e.extent); });
    return OPW_OK;
  }
  const int64_t plane = e.extent * e.inner, blocks = (e.inner - 1) / e.block + 1;
  ParallelFor(c, x.elements / plane * blocks, RowsPerRange(e.extent * e.block),
              [&](int64_t begin, int64_t end) {
                for (int64_t u = begin; u < end; ++u) {
                  const int64_t j = u % blocks * e.block;
                  columns(u / blocks * plane + j, e.extent, std::min(e.block, e.inner - j),
                          e.inner);
                }
              });
  return OPW_OK;
}

template <const SoftmaxRows& (*kRows)(), bool kLog>
int Run(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &y = c->results[0];
  const SoftmaxRow row = (kLog ? kRows().log_softmax : kRows().softmax)[x.dtype];
  const ShortSoftmaxRows short_rows =
      (kLog ? kRows().short_log_softmax : kRows().short_softmax)[x.dtype];
  const SoftmaxColumn down =
      (kLog ? kRows().log_softmax_columns : kRows().softmax_columns)[x.dtype];
  return ForSlices(
      c,
      [&](int64_t at, int64_t rows, int64_t n) {
        if (n <= kSoftmaxShortRow) return short_rows(At(y, at), At(x, at), rows, n);
        for (int64_t r = 0; r < rows; ++r, at += n) row(At(y, at), At(x, at), n);
      },
      [&](int64_t at, int64_t n, int64_t columns, int64_t stride) {
        down(At(y, at), At(x, at), n, columns, stride);
      });
}

template <const SoftmaxRows& (*kRows)(), bool kLog>
int RunBackward(const opw_call* c) {
  const opw_tensor &grad = Operand(c, 0), &y = Operand(c, 1), &grad_x = c->results[0];
  const SoftmaxBackwardRow row =
      (kLog ? kRows().log_softmax_backward : kRows().softmax_backward)[y.dtype];
  const SoftmaxBackwardColumns down =
      (kLog ? kRows().log_softmax_backward_columns : kRows().softmax_backward_columns)[y.dtype];
  return ForSlices(
      c,
      [&](int64_t at, int64_t rows, int64_t n) {
        for (int64_t r = 0; r < rows; ++r, at += n) row(At(grad_x, at), At(grad, at), At(y, at), n);
      },
      [&](int64_t at, int64_t n, int64_t columns, int64_t stride) {
        down(At(grad_x, at), At(grad, at), At(y, at), n, columns, stride);
      });
}

template <const SoftmaxRows& (*kRows)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  const auto add = [&](std::string_view op, auto supports, auto run) {
    AddProduction(
        table, isa, op, set, set, priority, kFloats,
        {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, supports, nullptr, nullptr, run});
  };
  add("softmax", Supports<1>, Run<kRows, false>);
  add("log_softmax", Supports<1>, Run<kRows, true>);
  add("softmax_backward", Supports<2>, RunBackward<kRows, false>);
  add("log_softmax_backward", Supports<2>, RunBackward<kRows, true>);
}

}  // namespace

void AddSoftmaxFast(VariantTable& table, const Isa& isa) {
  Add<SoftmaxRowsAvx512>(table, isa, "avx512", 2);
  Add<SoftmaxRowsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::softmax
