// permute of dense tensors, by tiles that stay in the first cache.
#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/rows.h"
#include "kernels/ops/shape/runs.h"
#include "kernels/ops/shape/shape.h"

namespace opwire::ops {
namespace {

constexpr int64_t kTile = 32;

// One tile: rows of the result are `to` apart, its elements contiguous; in x the other way round.
template <typename U>
void Transpose(U* y, const U* x, int64_t rows, int64_t columns, int64_t to, int64_t from) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) y[i * to + j] = x[i + j * from];
  }
}

const char* SupportsDense(const opw_call* c) { return AllDense(c, 1) ? nullptr : "needs dense tensors"; }

// The result's last axis (l), and the one (p) that is x's last, by tiles; all others one by one.
int Permute(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  if (y.rank == 0) {
    std::memcpy(y.data, x.data, DTypeBytes(TypeOf(x)));
    return OPW_OK;
  }
  int64_t from[OPW_MAX_RANK], others[OPW_MAX_RANK];
  int p = 0;
  const int l = y.rank - 1;
  for (int a = 0; a < y.rank; ++a) {
    const int axis = Axis(c->attrs[0].value.ints[a], y.rank);
    from[a] = x.strides[axis];
    others[a] = y.shape[a];
    if (axis == x.rank - 1) p = a;
  }
  const int64_t rows = p == l ? 1 : y.shape[p], columns = y.shape[l];
  others[p] = others[l] = 1;
  const int64_t strips = (rows - 1) / kTile + 1, bytes = DTypeBytes(TypeOf(x));
  const int64_t grain = std::max<int64_t>(1, kRangeBytes / (std::min(rows, kTile) * columns * bytes));
  VisitBits(bytes, [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements / (rows * columns) * strips, grain, [&](int64_t begin, int64_t end) {
      Walk<2> walk(y.rank, others);
      for (int a = 0; a < y.rank; ++a) {
        walk.SetStride(0, a, y.strides[a]);
        walk.SetStride(1, a, from[a]);
      }
      walk.Start(begin / strips);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t first = unit % strips * kTile;
        U* const to = static_cast<U*>(y.data) + walk.offset(0) + first * y.strides[p];
        const U* const source = static_cast<const U*>(x.data) + walk.offset(1) + first;
        if (p == l) {
          std::memcpy(to, source, columns * sizeof(U));
        } else {
          for (int64_t j = 0; j < columns; j += kTile) {
            Transpose(to + j, source + j * from[l], std::min(kTile, rows - first), std::min(kTile, columns - j), y.strides[p],
                      from[l]);
          }
        }
        if (unit % strips == strips - 1) walk.Next();
      }
    });
  });
  return OPW_OK;
}

}  // namespace

void AddPermute(VariantTable& table, const Isa& isa) {
  AddProduction(table, isa, "permute", "generic", "", 0, kAll,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsDense, nullptr, nullptr, Permute});
}

}  // namespace opwire::ops
