// Moves of dense tensors by whole rows, and transposes by tiles that stay in the first cache.
#include "kernels/ops/families.h"
#include "kernels/ops/rows.h"
#include "kernels/ops/scalar.h"
#include "kernels/ops/shape/shape.h"

namespace opwire::ops {
namespace {

constexpr int64_t kRangeBytes = 64 * 1024;
constexpr int64_t kTile = 32;

const char* SupportsDense(const opw_call* c) {
  return AllDense(c, static_cast<int>(c->starts[1])) ? nullptr : "needs dense tensors";
}
const char* SupportsDenseIndexed(const opw_call* c) { return AllDense(c, 2) ? nullptr : "needs dense tensors"; }

int Reshape(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  const char* const x = static_cast<const char*>(Operand(c, 0).data);
  ParallelFor(c, BytesOf(y), kRangeBytes,
              [&](int64_t begin, int64_t end) { std::memcpy(static_cast<char*>(y.data) + begin, x + begin, end - begin); });
  return OPW_OK;
}

int Cat(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  const int dim = Axis(c->attrs[0].value.i, y.rank);
  const int64_t row = ElementsFrom(y, dim), inner = ElementsFrom(y, dim + 1), bytes = DTypeBytes(TypeOf(y));
  int64_t at = 0;
  for (int64_t i = 0; i < ListSize(c, 0); ++i) {
    const opw_tensor& x = c->operands[c->starts[0] + i];
    const int64_t part = x.shape[dim] * inner;
    if (part == 0) continue;
    ParallelFor(c, x.elements / part, std::max<int64_t>(1, kRangeBytes / (part * bytes)), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) std::memcpy(At(y, o * row + at), At(x, o * part), part * bytes);
    });
    at += part;
  }
  return OPW_OK;
}

// y[o, i, :] = x[o, index[i], :].
int SelectRows(const opw_call* c, int dim) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& index = Operand(c, 1);
  const opw_tensor& y = c->results[0];
  const int64_t inner = ElementsFrom(x, dim + 1), extent = x.shape[dim], count = index.elements;
  const int64_t bytes = inner * DTypeBytes(TypeOf(x));
  if (y.elements == 0) return OPW_OK;
  ParallelFor(c, y.elements / inner, std::max<int64_t>(1, kRangeBytes / bytes), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t i = r % count, at = WrapIndex(LoadIndex(index, i), extent);
      if (at < 0) {
        c->runtime->out_of_range(c->runtime, 1, i);
        std::memset(At(y, r * inner), 0, bytes);
      } else {
        std::memcpy(At(y, r * inner), At(x, (r / count * extent + at) * inner), bytes);
      }
    }
  });
  return OPW_OK;
}
int IndexSelect(const opw_call* c) { return SelectRows(c, Axis(c->attrs[0].value.i, Operand(c, 0).rank)); }
int Embedding(const opw_call* c) { return SelectRows(c, 0); }

// One tile: rows of the result are `to` apart, its elements contiguous; in x the other way round.
template <typename U>
void Transpose(U* y, const U* x, int64_t rows, int64_t columns, int64_t to, int64_t from) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) y[i * to + j] = x[i + j * from];
  }
}

// The result's last axis (l), and the one (p) that is x's last, by tiles; all others one by one.
int Permute(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  if (y.rank == 0) return Reshape(c);
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

void AddMoveFast(VariantTable& table, const Isa& isa) {
  const auto add = [&](const char* op, int (*run)(const opw_call*), const char* (*supports)(const opw_call*)) {
    AddProduction(table, isa, op, "generic", "", 0, kAll, {OPW_ABI_VERSION, OPW_DETERMINISTIC, supports, nullptr, nullptr, run});
  };
  add("reshape", Reshape, SupportsDense);
  add("permute", Permute, SupportsDense);
  add("cat", Cat, SupportsDense);
  add("index_select", IndexSelect, SupportsDenseIndexed);
  add("embedding", Embedding, SupportsDenseIndexed);
}

}  // namespace opwire::ops
