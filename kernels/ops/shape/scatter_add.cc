// scatter_add. Each result adds its terms in order of their index in `dim`. So equal indices give
// equal bits whatever the number of threads. 16-bit floats add in f32, in the workspace, and round
// once.
#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/shape/shape.h"

namespace opwire::ops::shape {
namespace {

constexpr int64_t kGrain = 8192;  // additions, or copied elements, per range
constexpr int64_t kBlock = 128;   // columns of a unit if dim is not the last axis

// Sums of 16-bit floats are kept in f32; all others in the result.
bool NeedsSums(const opw_tensor& y) { return y.dtype == OPW_F16 || y.dtype == OPW_BF16; }

int Prepare(const opw_call* c, void**, int64_t* workspace_bytes) {
  const opw_tensor& y = c->results[0];
  *workspace_bytes = NeedsSums(y) ? y.elements * static_cast<int64_t>(sizeof(float)) : 0;
  return OPW_OK;
}

// One unit adds the terms for one position of all axes except dim, or for a block of positions of
// the last one.
struct Units {
  int dim;
  int last;                      // the axis of the columns; -1: dim is the last
  int64_t terms;                 // along dim
  int64_t columns;               // along `last`
  int64_t blocks;                // of columns
  int64_t others[OPW_MAX_RANK];  // the index's extents, 1 along dim and `last`
  int64_t count;

  explicit Units(const opw_call* c) {
    const opw_tensor& index = Operand(c, 1);
    dim = Axis(c->attrs[0].value.i, index.rank);
    last = dim == index.rank - 1 ? -1 : index.rank - 1;
    terms = index.shape[dim];
    columns = last < 0 ? 1 : index.shape[last];
    blocks = (columns - 1) / kBlock + 1;
    std::copy_n(index.shape, index.rank, others);
    others[dim] = 1;
    if (last >= 0) others[last] = 1;
    count = blocks * (index.elements / (terms * columns));
  }
};

// The additions of a call into sums with strides `to`.
template <typename T, typename A, typename I>
void AddTerms(const opw_call* c, A* sums, const int64_t* to, const I* index_data) {
  const opw_tensor& index = Operand(c, 1);
  const opw_tensor& src = Operand(c, 2);
  if (index.elements == 0) return;
  const Units u(c);
  const int64_t extent = Operand(c, 0).shape[u.dim];
  int64_t flat_strides[OPW_MAX_RANK];  // of a position in the index, row-major
  for (int64_t a = index.rank - 1, n = 1; a >= 0; n *= index.shape[a--]) flat_strides[a] = n;
  const int64_t to_dim = to[u.dim], index_dim = index.strides[u.dim], src_dim = src.strides[u.dim],
                flat_dim = flat_strides[u.dim];
  const auto along = [&](const int64_t* strides) { return u.last < 0 ? 0 : strides[u.last]; };
  const int64_t to_last = along(to), index_last = along(index.strides),
                src_last = along(src.strides);
  const int64_t work = u.terms * std::min(u.columns, kBlock);
  ParallelFor(c, u.count, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    Walk<4> walk(index.rank, u.others);  // sums, index, src, and the index's flat position
    for (int a = 0; a < index.rank; ++a) {
      walk.SetStride(0, a, to[a]);
      walk.SetStride(1, a, index.strides[a]);
      walk.SetStride(2, a, src.strides[a]);
      walk.SetStride(3, a, flat_strides[a]);
    }
    walk.Start(begin / u.blocks);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit % u.blocks * kBlock, n = std::min(kBlock, u.columns - first);
      A* const y = sums + walk.offset(0) + first * to_last;
      for (int64_t k = 0; k < u.terms; ++k) {
        if (k * n % kGrain < n && Stopped(c)) return;
        const int64_t flat = walk.offset(3) + k * flat_dim + first;
        const T* const terms =
            static_cast<const T*>(src.data) + walk.offset(2) + k * src_dim + first * src_last;
        const I* const places = index_data + walk.offset(1) + k * index_dim + first * index_last;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t at =
              WrapIndex(__atomic_load_n(places + j * index_last, __ATOMIC_RELAXED), extent);
          if (__builtin_expect(at < 0, 0)) {
            c->runtime->out_of_range(c->runtime, 1, flat + j);
            continue;
          }
          A& sum = y[at * to_dim + j * to_last];
          sum = Plus<A>(sum, Load<T>(terms, j * src_last));
        }
      }
      if (unit % u.blocks == u.blocks - 1) walk.Next();
    }
  });
}

int ScatterAdd(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    if constexpr (std::is_same_v<T, C> && !std::is_same_v<T, bool>) {
      ParallelFor(c, y.elements, kGrain, [&](int64_t begin, int64_t end) {
        if (x.contiguous && y.contiguous) {
          std::memcpy(At(y, begin), At(x, begin), (end - begin) * sizeof(T));
          return;
        }
        for (int64_t i = begin; i < end; ++i)
          static_cast<T*>(y.data)[OffsetOf(y, i)] = static_cast<const T*>(x.data)[OffsetOf(x, i)];
      });
      VisitIndex(Operand(c, 1), [&](const auto* index) {
        AddTerms<T>(c, static_cast<T*>(y.data), y.strides, index);
      });
    } else if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
      float* const sums = static_cast<float*>(c->workspace);
      int64_t strides[OPW_MAX_RANK];
      for (int64_t a = y.rank - 1, n = 1; a >= 0; n *= y.shape[a--]) strides[a] = n;
      ParallelFor(c, y.elements, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sums[i] = Load<T>(x.data, OffsetOf(x, i));
      });
      VisitIndex(Operand(c, 1), [&](const auto* index) { AddTerms<T>(c, sums, strides, index); });
      ParallelFor(c, y.elements, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) Store<T>(y.data, OffsetOf(y, i), sums[i]);
      });
    }
  });
  return OPW_OK;
}

}  // namespace

void AddScatterAdd(VariantTable& table, const Isa& isa) {
  AddProduction(table, isa, "scatter_add", "generic", "", 0, kArithmetic,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, Prepare, nullptr, ScatterAdd});
}

}  // namespace opwire::ops::shape
