// Reductions of dense tensors whose reduced axes are neighbours: `[outer, folded, inner]`. Long
// ones are reduced in parts of fixed size, so results do not depend on the number of threads.
#include "kernels/ops/families.h"
#include "kernels/ops/reduce/fast.h"
#include "kernels/ops/reduce/folding.h"
#include "kernels/ops/reduce/reduce.h"
#include "kernels/ops/rows.h"

namespace opwire::ops {
namespace {

constexpr int64_t kPart = 16384;        // elements of a row that are reduced to a partial result
constexpr int64_t kColumnBlock = 1024;  // columns of a range
constexpr int64_t kColumnPart =
    65536;  // elements of a block of columns that are reduced to partial results
constexpr int64_t kEnough = 16;     // units that keep all threads busy
constexpr int64_t kLong = 1 << 20;  // elements of a unit that take a millisecond

struct Blocks {
  int64_t outer = 1, folded = 1, inner = 1;
};

// The axes as `[outer, folded, inner]`; false if the reduced axes are not neighbours.
bool SplitAxes(const opw_tensor& x, const bool* fold, Blocks* b) {
  for (int a = 0; a < x.rank; ++a) {
    if (x.shape[a] == 1) continue;
    if (fold[a] && b->inner != 1) return false;
    int64_t& part = fold[a] ? b->folded : b->folded != 1 ? b->inner : b->outer;
    part *= x.shape[a];
  }
  return true;
}

bool SplitDims(const opw_call* c, Blocks* b) {
  const opw_tensor& x = Operand(c, 0);
  bool fold[OPW_MAX_RANK] = {};
  for (int a = 0; a < x.rank; ++a) fold[a] = c->attrs[0].count == 0;
  for (int64_t i = 0; i < c->attrs[0].count; ++i)
    fold[Axis(c->attrs[0].value.ints[i], x.rank)] = true;
  return SplitAxes(x, fold, b);
}

const char* SupportsSplit(const opw_call* c) {
  Blocks b;
  if (!AllDense(c, 1)) return "needs dense tensors";
  if (Operand(c, 0).elements == 0) return "nothing to fold";
  return SplitDims(c, &b) ? nullptr : "the reduced axes must be neighbours";
}

// The division of a reduction into units of `part` reduced positions of a row, or of a block of
// columns.
struct Cut {
  int64_t block, blocks;  // columns of a unit; 1 for a row
  int64_t part, parts;    // reduced positions of a unit

  explicit Cut(const Blocks& b) {
    block = std::min(b.inner, kColumnBlock);
    blocks = (b.inner - 1) / block + 1;
    const bool whole = b.outer * blocks >= kEnough && b.folded * block <= kLong;
    part = whole ? b.folded : b.inner == 1 ? kPart : std::max<int64_t>(64, kColumnPart / block);
    parts = (b.folded - 1) / part + 1;
  }
};

template <const FoldLoops* (*kLoops)(), size_t kFold>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  Blocks b;
  SplitDims(c, &b);
  const Cut cut(b);
  *state = nullptr;
  *workspace_bytes = cut.parts == 1 ? 0
                                    : b.outer * cut.parts * b.inner *
                                          kLoops()[kFold].partial_bytes[Operand(c, 0).dtype];
  return OPW_OK;
}

// y[o, j] = reduction over i of x[o, i, j], by the loops for whole or for partial reductions. x is
// `[outer, folded, inner]`, divided into [outer, parts, blocks].
void FoldInner(const opw_call* c, const Blocks& b, const Cut& cut, FoldColumns loop, char* y,
               int64_t y_bytes, const char* x, int64_t x_bytes, double divisor) {
  const int64_t units = b.outer * cut.parts * cut.blocks;
  ParallelFor(c, units, RowsPerRange(cut.part * cut.block), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u / cut.blocks, o = row / cut.parts, first = row % cut.parts * cut.part,
                    j = u % cut.blocks * cut.block;
      loop(y + (row * b.inner + j) * y_bytes, x + ((o * b.folded + first) * b.inner + j) * x_bytes,
           std::min(cut.part, b.folded - first), std::min(cut.block, b.inner - j), b.inner,
           divisor);
    }
  });
}

template <const FoldLoops* (*kLoops)(), size_t kFold>
int Run(const opw_call* c) {
  const FoldLoops& fold = kLoops()[kFold];
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const double divisor = static_cast<double>(x.elements) / static_cast<double>(y.elements);
  const int64_t bytes = DTypeBytes(TypeOf(x)), partial_bytes = fold.partial_bytes[x.dtype];
  char* const partial = static_cast<char*>(c->workspace);
  Blocks b;
  SplitDims(c, &b);
  const Cut cut(b);
  if (b.inner > 1) {
    if (cut.parts == 1) {
      FoldInner(c, b, cut, fold.columns[x.dtype], At(y, 0), bytes, At(x, 0), bytes, divisor);
      return OPW_OK;
    }
    FoldInner(c, b, cut, fold.partial_columns[x.dtype], partial, partial_bytes, At(x, 0), bytes,
              divisor);
    Cut rest = cut;
    rest.part = cut.parts, rest.parts = 1;
    FoldInner(c, {b.outer, cut.parts, b.inner}, rest, fold.finish_columns[x.dtype], At(y, 0), bytes,
              partial, partial_bytes, divisor);
    return OPW_OK;
  }
  if (cut.parts == 1) {
    ParallelFor(c, b.outer, RowsPerRange(b.folded), [&](int64_t begin, int64_t end) {
      fold.rows[x.dtype](At(y, begin), At(x, begin * b.folded), end - begin, b.folded, divisor);
    });
    return OPW_OK;
  }
  ParallelFor(c, b.outer * cut.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % cut.parts * cut.part;
      fold.partial[x.dtype](partial + i * partial_bytes, At(x, i / cut.parts * b.folded + first), 1,
                            std::min(cut.part, b.folded - first), divisor);
    }
  });
  ParallelFor(c, b.outer, RowsPerRange(cut.parts), [&](int64_t begin, int64_t end) {
    fold.finish[x.dtype](At(y, begin), partial + begin * cut.parts * partial_bytes, end - begin,
                         cut.parts, divisor);
  });
  return OPW_OK;
}

template <const FoldLoops* (*kLoops)(), size_t... kFold>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority,
         std::index_sequence<kFold...>) {
  const auto types = [](const FoldLoops& fold) {
    DTypeSet types;
    for (int t = 1; t < kDTypeCount; ++t) {
      if (fold.rows[t] != nullptr) types = types | DTypeSet{static_cast<DType>(t)};
    }
    return types;
  };
  (AddProduction(table, isa, kLoops()[kFold].op, set, set, priority, types(kLoops()[kFold]),
                 {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsSplit, Prepare<kLoops, kFold>,
                  nullptr, Run<kLoops, kFold>}),
   ...);
}

}  // namespace

void AddFolds(VariantTable& table, const Isa& isa) {
  Add<FoldsAvx512>(table, isa, "avx512", 2, std::make_index_sequence<kFoldCount>());
  Add<FoldsAvx2>(table, isa, "avx2", 1, std::make_index_sequence<kFoldCount>());
}

}  // namespace opwire::ops
