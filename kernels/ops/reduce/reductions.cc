// Reductions of dense tensors whose reduced axes are neighbours: `[outer, reduced, inner]`. Long
// ones are reduced in parts of fixed size, so results do not depend on the number of threads.
#include "kernels/ops/families.h"
#include "kernels/ops/reduce/cpu_loops.h"
#include "kernels/ops/reduce/reduce.h"
#include "kernels/ops/reduce/reduced_axes.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::reduce {
namespace {

constexpr int64_t kPart = 16384;        // elements of a row that are reduced to a partial result
constexpr int64_t kColumnBlock = 1024;  // columns of a range
constexpr int64_t kColumnPart =
    65536;  // elements of a block of columns that are reduced to partial results
constexpr int64_t kEnough = 16;     // units that keep all threads busy
constexpr int64_t kLong = 1 << 20;  // elements of a unit that take a millisecond

struct Blocks {
  int64_t outer = 1, reduced = 1, inner = 1;
};

// The axes as `[outer, reduced, inner]`; false if the reduced axes are not neighbours.
bool SplitAxes(const opw_tensor& x, const bool* reduction, Blocks* b) {
  for (int a = 0; a < x.rank; ++a) {
    if (x.shape[a] == 1) continue;
    if (reduction[a] && b->inner != 1) return false;
    int64_t& part = reduction[a] ? b->reduced : b->reduced != 1 ? b->inner : b->outer;
    part *= x.shape[a];
  }
  return true;
}

bool SplitDims(const opw_call* c, Blocks* b) {
  const opw_tensor& x = Operand(c, 0);
  bool reduction[OPW_MAX_RANK] = {};
  for (int a = 0; a < x.rank; ++a) reduction[a] = c->attrs[0].count == 0;
  for (int64_t i = 0; i < c->attrs[0].count; ++i)
    reduction[Axis(c->attrs[0].value.ints[i], x.rank)] = true;
  return SplitAxes(x, reduction, b);
}

const char* SupportsSplit(const opw_call* c) {
  Blocks b;
  if (!AllDense(c, 1)) return "needs dense tensors";
  if (Operand(c, 0).elements == 0) return "nothing to reduce";
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
    const bool whole = b.outer * blocks >= kEnough && b.reduced * block <= kLong;
    part = whole ? b.reduced : b.inner == 1 ? kPart : std::max<int64_t>(64, kColumnPart / block);
    parts = (b.reduced - 1) / part + 1;
  }
};

template <const ReduceLoops* (*kLoops)(), size_t kReduce>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  Blocks b;
  SplitDims(c, &b);
  const Cut cut(b);
  *state = nullptr;
  *workspace_bytes = cut.parts == 1 ? 0
                                    : b.outer * cut.parts * b.inner *
                                          kLoops()[kReduce].partial_bytes[Operand(c, 0).dtype];
  return OPW_OK;
}

// y[o, j] = reduction over i of x[o, i, j], by the loops for whole or for partial reductions. x is
// `[outer, reduced, inner]`, divided into [outer, parts, blocks].
void ReduceInner(const opw_call* c, const Blocks& b, const Cut& cut, ReduceColumns loop, char* y,
                 int64_t y_bytes, const char* x, int64_t x_bytes, double divisor) {
  const int64_t units = b.outer * cut.parts * cut.blocks;
  ParallelFor(c, units, RowsPerRange(cut.part * cut.block), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u / cut.blocks, o = row / cut.parts, first = row % cut.parts * cut.part,
                    j = u % cut.blocks * cut.block;
      loop(y + (row * b.inner + j) * y_bytes, x + ((o * b.reduced + first) * b.inner + j) * x_bytes,
           std::min(cut.part, b.reduced - first), std::min(cut.block, b.inner - j), b.inner,
           divisor);
    }
  });
}

template <const ReduceLoops* (*kLoops)(), size_t kReduce>
int Run(const opw_call* c) {
  const ReduceLoops& reduction = kLoops()[kReduce];
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const double divisor = static_cast<double>(x.elements) / static_cast<double>(y.elements);
  const int64_t bytes = DTypeBytes(TypeOf(x)), partial_bytes = reduction.partial_bytes[x.dtype];
  char* const partial = static_cast<char*>(c->workspace);
  Blocks b;
  SplitDims(c, &b);
  const Cut cut(b);
  if (b.inner > 1) {
    if (cut.parts == 1) {
      ReduceInner(c, b, cut, reduction.columns[x.dtype], At(y, 0), bytes, At(x, 0), bytes, divisor);
      return OPW_OK;
    }
    ReduceInner(c, b, cut, reduction.partial_columns[x.dtype], partial, partial_bytes, At(x, 0),
                bytes, divisor);
    Cut rest = cut;
    rest.part = cut.parts, rest.parts = 1;
    ReduceInner(c, {b.outer, cut.parts, b.inner}, rest, reduction.finish_columns[x.dtype], At(y, 0),
                bytes, partial, partial_bytes, divisor);
    return OPW_OK;
  }
  if (cut.parts == 1) {
    ParallelFor(c, b.outer, RowsPerRange(b.reduced), [&](int64_t begin, int64_t end) {
      reduction.rows[x.dtype](At(y, begin), At(x, begin * b.reduced), end - begin, b.reduced,
                              divisor);
    });
    return OPW_OK;
  }
  ParallelFor(c, b.outer * cut.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % cut.parts * cut.part;
      reduction.partial[x.dtype](partial + i * partial_bytes,
                                 At(x, i / cut.parts * b.reduced + first), 1,
                                 std::min(cut.part, b.reduced - first), divisor);
    }
  });
  ParallelFor(c, b.outer, RowsPerRange(cut.parts), [&](int64_t begin, int64_t end) {
    reduction.finish[x.dtype](At(y, begin), partial + begin * cut.parts * partial_bytes,
                              end - begin, cut.parts, divisor);
  });
  return OPW_OK;
}

template <const ReduceLoops* (*kLoops)(), size_t... kReduce>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority,
         std::index_sequence<kReduce...>) {
  const auto types = [](const ReduceLoops& reduction) {
    DTypeSet types;
    for (int t = 1; t < kDTypeCount; ++t) {
      if (reduction.rows[t] != nullptr) types = types | DTypeSet{static_cast<DType>(t)};
    }
    return types;
  };
  (AddProduction(table, isa, kLoops()[kReduce].op, set, set, priority, types(kLoops()[kReduce]),
                 {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsSplit, Prepare<kLoops, kReduce>,
                  nullptr, Run<kLoops, kReduce>}),
   ...);
}

}  // namespace

void AddReductions(VariantTable& table, const Isa& isa) {
  Add<ReductionsAvx512>(table, isa, "avx512", 2, std::make_index_sequence<kReduceCount>());
  Add<ReductionsAvx2>(table, isa, "avx2", 1, std::make_index_sequence<kReduceCount>());
}

}  // namespace opwire::ops::reduce
