// embedding_backward of dense tensors: positions sorted by the row that they name, in their order,
// and then row by row; 16-bit floats add in f32 and round once.
#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/shape/shape.h"

namespace opwire::ops::shape {
namespace {

constexpr int64_t kAdditions = 8192;  // per range, and between two checks of the stop word
constexpr int64_t kSums = 256;        // columns of a unit

// In the workspace.
struct Sorted {
  int64_t* starts;  // [rows + 2]: order holds row r's positions from starts[r] to starts[r + 1]
  int64_t* places;  // [positions]: the row that each names, -1: none
  int64_t* order;   // [positions]
  Sorted(void* workspace, int64_t rows, int64_t positions)
      : starts(static_cast<int64_t*>(workspace)),
        places(starts + rows + 2),
        order(places + positions) {}
  static int64_t Bytes(int64_t rows, int64_t positions) {
    return (rows + 2 + 2 * positions) * static_cast<int64_t>(sizeof(int64_t));
  }
};

const char* SupportsBackward(const opw_call* c) {
  return AllDense(c, 2) ? nullptr : "needs dense tensors";
}

int PrepareBackward(const opw_call* c, void**, int64_t* workspace_bytes) {
  *workspace_bytes = Sorted::Bytes(c->results[0].shape[0], Operand(c, 1).elements);
  return OPW_OK;
}

void Sort(const opw_call* c, const Sorted& s, int64_t rows, int64_t positions) {
  std::fill_n(s.starts, rows + 2, int64_t{0});
  for (int64_t n = 0; n < positions; ++n) {
    if (StoppedAt(c, n)) return;
    s.places[n] = WrapIndex(LoadIndex(Operand(c, 1), n), rows);
    if (s.places[n] < 0)
      c->runtime->out_of_range(c->runtime, 1, n);
    else
      ++s.starts[s.places[n] + 2];
  }
  for (int64_t r = 2; r <= rows; ++r) s.starts[r] += s.starts[r - 1];
  for (int64_t n = 0; n < positions; ++n) {  // leaves starts one row further on
    if (s.places[n] >= 0) s.order[s.starts[s.places[n] + 1]++] = n;
  }
}

int EmbeddingBackward(const opw_call* c) {
  const opw_tensor &grad = Operand(c, 0), &y = c->results[0];
  const int64_t rows = y.shape[0], columns = y.shape[1], positions = Operand(c, 1).elements;
  if (y.elements == 0) return OPW_OK;
  const Sorted s(c->workspace, rows, positions);
  ParallelFor(c, 1, 1, [&](int64_t, int64_t) { Sort(c, s, rows, positions); });
  const int64_t blocks = (columns - 1) / kSums + 1;
  VisitType(TypeOf(y), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    if constexpr (std::is_floating_point_v<C>) {
      ParallelFor(c, rows * blocks, std::max<int64_t>(1, kAdditions / std::min(columns, kSums)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t unit = begin; unit < end; ++unit) {
                      const int64_t row = unit / blocks, first = unit % blocks * kSums,
                                    n = std::min(kSums, columns - first);
                      C sums[kSums] = {};
                      for (int64_t k = s.starts[row]; k < s.starts[row + 1]; ++k) {
                        if (k % (kAdditions / kSums) == 0 && Stopped(c)) return;
                        const T* const from =
                            static_cast<const T*>(grad.data) + s.order[k] * columns + first;
                        for (int64_t j = 0; j < n; ++j) sums[j] += Load<T>(from, j);
                      }
                      for (int64_t j = 0; j < n; ++j)
                        Store<T>(y.data, row * columns + first + j, sums[j]);
                    }
                  });
    }
  });
  return OPW_OK;
}

}  // namespace

void AddEmbeddingBackward(VariantTable& table, const Isa& isa) {
  AddProduction(table, isa, "embedding_backward", "generic", "", 0, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsBackward, PrepareBackward, nullptr,
                 EmbeddingBackward});
}

}  // namespace opwire::ops::shape
