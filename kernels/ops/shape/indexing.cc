// index_select, embedding, gather, choose and one_hot of dense tensors.
#include "kernels/ops/families.h"
#include "kernels/ops/shape/runs.h"
#include "kernels/ops/shape/shape.h"

namespace opwire::ops::shape {
namespace {

constexpr int64_t kGrain = 8192;  // elements per range that are looked up one by one

template <int kOperands>
const char* SupportsDense(const opw_call* c) {
  return AllDense(c, kOperands) ? nullptr : "needs dense tensors";
}
const char* SupportsDenseList(const opw_call* c) {
  return AllDense(c, static_cast<int>(c->starts[2])) ? nullptr : "needs dense tensors";
}

// The index at `flat` as a position in [0, extent); -1, and a report, if it is outside.
int64_t CheckedIndex(const opw_call* c, int operand, int64_t flat, int64_t extent) {
  const int64_t at = WrapIndex(LoadIndex(Operand(c, operand), flat), extent);
  if (__builtin_expect(at < 0, 0)) c->runtime->out_of_range(c->runtime, operand, flat);
  return at;
}

// y[o, i, :] = x[o, index[i], :].
int SelectRows(const opw_call* c, int dim) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const int64_t inner = ElementsFrom(x, dim + 1), extent = x.shape[dim],
                count = Operand(c, 1).elements;
  const int64_t bytes = inner * DTypeBytes(TypeOf(x));
  if (y.elements == 0) return OPW_OK;
  // A long row is split, and its index is read once for each part: every part is checked
  // separately.
  CopyRuns(c, At(y, 0), y.elements / inner, bytes, bytes, [&](int64_t r) {
    const int64_t at = CheckedIndex(c, 1, r % count, extent);
    return at < 0 ? nullptr : At(x, (r / count * extent + at) * inner);
  });
  return OPW_OK;
}
int IndexSelect(const opw_call* c) {
  return SelectRows(c, Axis(c->attrs[0].value.i, Operand(c, 0).rank));
}
int Embedding(const opw_call* c) { return SelectRows(c, 0); }

// y[j] = x[index[flat + j] * stride + j * step] for j < n.
template <typename U, typename I>
void GatherRow(const opw_call* c, U* y, const U* x, const I* index, int64_t flat, int64_t n,
               int64_t extent, int64_t stride, int64_t step) {
  for (int64_t j = 0; j < n; ++j) {
    const int64_t at = WrapIndex(__atomic_load_n(index + flat + j, __ATOMIC_RELAXED), extent);
    if (__builtin_expect(at < 0, 0)) c->runtime->out_of_range(c->runtime, 1, flat + j);
    y[j] = at < 0 ? U{0} : x[at * stride + j * step];
  }
}

// By rows of the index's last axis, or by parts of long rows.
int Gather(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  const int dim = Axis(c->attrs[0].value.i, x.rank), last = y.rank - 1;
  const int64_t extent = x.shape[dim], stride = x.strides[dim], step = dim == last ? 0 : 1,
                row = y.shape[last];
  const int64_t part = std::min(row, kGrain), parts = (row - 1) / part + 1;
  VisitBits(DTypeBytes(TypeOf(x)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    VisitIndex(Operand(c, 1), [&](const auto* index) {
      ParallelFor(c, y.elements / row * parts, std::max<int64_t>(1, kGrain / part),
                  [&](int64_t begin, int64_t end) {
                    Walk<1> walk(last, y.shape);
                    for (int a = 0; a < last; ++a)
                      walk.SetStride(0, a, a == dim ? 0 : x.strides[a]);
                    walk.Start(begin / parts);
                    for (int64_t unit = begin; unit < end; ++unit) {
                      const int64_t first = unit % parts * part, n = std::min(part, row - first),
                                    flat = unit / parts * row + first;
                      const U* const from =
                          static_cast<const U*>(x.data) + walk.offset(0) + first * step;
                      GatherRow(c, static_cast<U*>(y.data) + flat, from, index, flat, n, extent,
                                stride, step);
                      if (unit % parts == parts - 1) walk.Next();
                    }
                  });
    });
  });
  return OPW_OK;
}

int Choose(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  const opw_tensor* const xs = c->operands + c->starts[1];
  const int64_t count = ListSize(c, 1);
  VisitBits(DTypeBytes(TypeOf(y)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = CheckedIndex(c, 0, i, count);
        static_cast<U*>(y.data)[i] = at < 0 ? U{0} : static_cast<const U*>(xs[at].data)[i];
      }
    });
  });
  return OPW_OK;
}

// Writes zeros, and a one in each row. Rows as long as a range are cleared in parts first.
int OneHot(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  const int64_t classes = y.shape[y.rank - 1], rows = y.elements / classes,
                bytes = DTypeBytes(TypeOf(y)), row = classes * bytes;
  const bool split = row >= kRangeBytes;
  if (split) CopyRuns(c, At(y, 0), rows, row, row, [](int64_t) { return nullptr; });
  VisitType(TypeOf(y), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const T one = Convert<T>(1);
    ParallelFor(c, rows, split ? kGrain : std::max<int64_t>(1, kRangeBytes / row),
                [&](int64_t begin, int64_t end) {
                  if (!split) std::memset(At(y, begin * classes), 0, (end - begin) * row);
                  for (int64_t r = begin; r < end; ++r) {
                    const int64_t at = CheckedIndex(c, 0, r, classes);
                    if (at >= 0) static_cast<T*>(y.data)[r * classes + at] = one;
                  }
                });
  });
  return OPW_OK;
}

}  // namespace

void AddIndexing(VariantTable& table, const Isa& isa) {
  const auto add = [&](const char* op, int (*run)(const opw_call*),
                       const char* (*supports)(const opw_call*), DTypeSet types) {
    AddProduction(table, isa, op, "generic", "", 0, types,
                  {OPW_ABI_VERSION, OPW_DETERMINISTIC, supports, nullptr, nullptr, run});
  };
  const DTypeSet indices = {DType::kI64, DType::kI32};
  add("index_select", IndexSelect, SupportsDense<2>, kAll);
  add("embedding", Embedding, SupportsDense<2>, kAll);
  add("gather", Gather, SupportsDense<2>, kAll);
  add("choose", Choose, SupportsDenseList, indices);
  add("one_hot", OneHot, SupportsDense<1>, indices);
}

}  // namespace opwire::ops::shape
