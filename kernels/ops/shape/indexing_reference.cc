// Ops whose elements are found by an index value: each is read once and checked before it is used.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/shape/put_places.h"
#include "kernels/ops/shape/shape.h"

namespace opwire::ops::shape {
namespace {

// The value of an index operand as a position in [0, extent); -1, and a report, if it is outside.
int64_t CheckedIndex(const opw_call* c, int operand, int64_t offset, int64_t flat, int64_t extent) {
  const int64_t at = WrapIndex(LoadIndex(Operand(c, operand), offset), extent);
  if (at < 0) c->runtime->out_of_range(c->runtime, operand, flat);
  return at;
}

// y's axes are x's before dim, the index's, and x's after dim.
int SelectAlong(const opw_call* c, int dim) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& index = Operand(c, 1);
  const opw_tensor& y = c->results[0];
  int64_t index_after[OPW_MAX_RANK] = {};  // row-major strides of the index's flat position
  for (int64_t a = index.rank - 1, n = 1; a >= 0; n *= index.shape[a--]) index_after[a] = n;
  VisitBits(DTypeBytes(TypeOf(x)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      Walk<4> walk(y.rank, y.shape);  // y, x, the index, and its flat position
      walk.SetBroadcast(0, y);
      for (int a = 0; a < dim; ++a) walk.SetStride(1, a, x.strides[a]);
      for (int a = 0; a < index.rank; ++a) {
        walk.SetStride(2, dim + a, index.strides[a]);
        walk.SetStride(3, dim + a, index_after[a]);
      }
      for (int a = dim + 1; a < x.rank; ++a) walk.SetStride(1, a + index.rank - 1, x.strides[a]);
      walk.Start(begin);
      for (int64_t i = begin; i < end; ++i, walk.Next()) {
        const int64_t at = CheckedIndex(c, 1, walk.offset(2), walk.offset(3), x.shape[dim]);
        static_cast<U*>(y.data)[walk.offset(0)] =
            at < 0 ? U{0} : static_cast<const U*>(x.data)[walk.offset(1) + at * x.strides[dim]];
      }
    });
  });
  return OPW_OK;
}

int IndexSelect(const opw_call* c) {
  return SelectAlong(c, Axis(c->attrs[0].value.i, Operand(c, 0).rank));
}
int Embedding(const opw_call* c) { return SelectAlong(c, 0); }

// Adds in order of the index, in f64 in the workspace, and rounds once.
int PrepareEmbeddingBackward(const opw_call* c, void**, int64_t* workspace_bytes) {
  *workspace_bytes = c->results[0].elements * static_cast<int64_t>(sizeof(double));
  return OPW_OK;
}

int EmbeddingBackward(const opw_call* c) {
  const opw_tensor &grad = Operand(c, 0), &index = Operand(c, 1), &y = c->results[0];
  const int64_t rows = y.shape[0], columns = y.shape[1];
  double* const sums = static_cast<double*>(c->workspace);
  if (y.elements == 0) return OPW_OK;
  VisitType(TypeOf(y), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      ParallelFor(
          c, columns,
          std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, rows + index.elements)),
          [&](int64_t begin, int64_t end) {
            for (int64_t j = begin; j < end; ++j) {
              for (int64_t r = 0; r < rows; ++r) sums[r * columns + j] = 0;
              for (int64_t n = 0; n < index.elements && !StoppedAt(c, n); ++n) {
                const int64_t at = CheckedIndex(c, 1, OffsetOf(index, n), n, rows);
                if (at >= 0)
                  sums[at * columns + j] +=
                      static_cast<double>(Load<T>(grad.data, OffsetOf(grad, n * columns + j)));
              }
              for (int64_t r = 0; r < rows && !StoppedAt(c, r); ++r)
                Store<T>(y.data, OffsetOf(y, r * columns + j), sums[r * columns + j]);
            }
          });
    }
  });
  return OPW_OK;
}

int Gather(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& index = Operand(c, 1);
  const opw_tensor& y = c->results[0];
  const int dim = Axis(c->attrs[0].value.i, x.rank);
  VisitBits(DTypeBytes(TypeOf(x)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      Walk<3> walk(y.rank, y.shape);
      walk.SetBroadcast(0, y);
      for (int a = 0; a < y.rank; ++a) {
        walk.SetStride(1, a, a == dim ? 0 : x.strides[a]);
        walk.SetStride(2, a, index.strides[a]);
      }
      walk.Start(begin);
      for (int64_t i = begin; i < end; ++i, walk.Next()) {
        const int64_t at = CheckedIndex(c, 1, walk.offset(2), i, x.shape[dim]);
        static_cast<U*>(y.data)[walk.offset(0)] =
            at < 0 ? U{0} : static_cast<const U*>(x.data)[walk.offset(1) + at * x.strides[dim]];
      }
    });
  });
  return OPW_OK;
}

// Adds in order of src, so that equal indices are added in the same order every time. It uses the
// computing type, in the workspace for narrow floats, and rounds once.
int PrepareScatterAdd(const opw_call* c, void**, int64_t* workspace_bytes) {
  VisitType(TypeOf(c->results[0]), [&](auto tag) {
    *workspace_bytes = c->results[0].elements *
                       static_cast<int64_t>(sizeof(ComputeOf<typename decltype(tag)::Type>));
  });
  return OPW_OK;
}

int ScatterAdd(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& index = Operand(c, 1);
  const opw_tensor& src = Operand(c, 2);
  const opw_tensor& y = c->results[0];
  const int dim = Axis(c->attrs[0].value.i, x.rank);
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    C* const sums = static_cast<C*>(c->workspace);  // row-major
    int64_t strides[OPW_MAX_RANK];
    for (int64_t a = y.rank - 1, n = 1; a >= 0; n *= y.shape[a--]) strides[a] = n;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[i] = Load<T>(x.data, OffsetOf(x, i));
    });
    Walk<3> walk(index.rank, index.shape);
    for (int a = 0; a < index.rank; ++a) {
      walk.SetStride(0, a, a == dim ? 0 : strides[a]);
      walk.SetStride(1, a, index.strides[a]);
      walk.SetStride(2, a, src.strides[a]);
    }
    if (index.elements > 0) walk.Start(0);
    for (int64_t i = 0; i < index.elements && !StoppedAt(c, i); ++i, walk.Next()) {
      const int64_t at = CheckedIndex(c, 1, walk.offset(1), i, x.shape[dim]);
      if (at < 0) continue;
      C& sum = sums[walk.offset(0) + at * strides[dim]];
      sum = Plus<C>(sum, Load<T>(src.data, walk.offset(2)));
    }
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Store<T>(y.data, OffsetOf(y, i), sums[i]);
    });
  });
  return OPW_OK;
}

int IndexPut(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &src = Operand(c, 1), &y = c->results[0];
  const PutPlaces p(c);
  bool sets = src.elements > 0 && y.elements > 0;
  const int64_t looked_at = sets ? p.puts : 0;
  for (int64_t i = 0; i < looked_at && !StoppedAt(c, i); ++i) sets = p.Find(c, i) >= 0 && sets;
  VisitBits(DTypeBytes(TypeOf(x)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    U* const to = static_cast<U*>(y.data);
    const U* const from = static_cast<const U*>(src.data);
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        to[OffsetOf(y, i)] = static_cast<const U*>(x.data)[OffsetOf(x, i)];
    });
    const int64_t slice = p.outer * p.inner, n = sets ? p.puts * slice : 0;
    for (int64_t i = 0; i < n && !StoppedAt(c, i); ++i) {
      const int64_t put = i / slice, o = i % slice / p.inner, k = i % p.inner, at = p.Find(c, put);
      if (at < 0) break;
      to[OffsetOf(y, (o * p.extent + at) * p.inner + k)] =
          from[OffsetOf(src, (o * p.puts + put) * p.inner + k)];
    }
  });
  return OPW_OK;
}

int Choose(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  const opw_tensor& choice = Operand(c, 0);
  const opw_tensor* const xs = c->operands + c->starts[1];
  const int64_t count = ListSize(c, 1);
  VisitBits(DTypeBytes(TypeOf(y)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = CheckedIndex(c, 0, OffsetOf(choice, i), i, count);
        static_cast<U*>(y.data)[OffsetOf(y, i)] =
            at < 0 ? U{0} : static_cast<const U*>(xs[at].data)[OffsetOf(xs[at], i)];
      }
    });
  });
  return OPW_OK;
}

int OneHot(const opw_call* c) {
  const opw_tensor& index = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const int64_t classes = y.shape[y.rank - 1], stride = y.strides[y.rank - 1];
  if (y.elements == 0) return OPW_OK;
  VisitType(TypeOf(y), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ParallelFor(c, index.elements, std::max<int64_t>(1, kReferenceGrain / classes),
                [&](int64_t begin, int64_t end) {
                  Walk<2> walk(index.rank, index.shape);
                  for (int a = 0; a < index.rank; ++a) {
                    walk.SetStride(0, a, y.strides[a]);
                    walk.SetStride(1, a, index.strides[a]);
                  }
                  walk.Start(begin);
                  for (int64_t i = begin; i < end; ++i, walk.Next()) {
                    const int64_t at = CheckedIndex(c, 0, walk.offset(1), i, classes);
                    for (int64_t k = 0; k < classes && !StoppedAt(c, k); ++k)
                      Store<T>(y.data, walk.offset(0) + k * stride, k == at ? 1 : 0);
                  }
                });
  });
  return OPW_OK;
}

}  // namespace

void AddIndexingReference(VariantTable& table) {
  const auto add = [&](const char* op, int (*run)(const opw_call*)) {
    AddReference(table, op, {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, run});
  };
  add("index_select", IndexSelect);
  add("gather", Gather);
  AddReference(
      table, "scatter_add",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, PrepareScatterAdd, nullptr, ScatterAdd});
  AddReference(
      table, "index_put",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, nullptr, nullptr, nullptr, IndexPut});
  add("choose", Choose);
  add("one_hot", OneHot);
  add("embedding", Embedding);
  AddReference(table, "embedding_backward",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, PrepareEmbeddingBackward, nullptr,
                EmbeddingBackward});
}

}  // namespace opwire::ops::shape
