// Folds of dense tensors whose folded axes are neighbours: [outer, folded, inner]. Long rows are folded in parts of fixed size,
// so results do not depend on the number of threads.
#include "kernels/ops/families.h"
#include "kernels/ops/reduce/fast.h"
#include "kernels/ops/reduce/folding.h"
#include "kernels/ops/reduce/reduce.h"
#include "kernels/ops/rows.h"

namespace opwire::ops {
namespace {

constexpr int64_t kPart = 16384;        // elements of a row that are folded to a partial result
constexpr int64_t kColumnBlock = 1024;  // columns of a range

struct Blocks {
  int64_t outer = 1, folded = 1, inner = 1;
};

// The axes as [outer, folded, inner]; false where the folded ones are not neighbours.
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
  for (int64_t i = 0; i < c->attrs[0].count; ++i) fold[Axis(c->attrs[0].value.ints[i], x.rank)] = true;
  return SplitAxes(x, fold, b);
}

const char* SupportsSplit(const opw_call* c) {
  Blocks b;
  if (!AllDense(c, 1)) return "needs dense tensors";
  if (Operand(c, 0).elements == 0) return "nothing to fold";
  return SplitDims(c, &b) ? nullptr : "the folded axes must be neighbours";
}

int64_t PartsOf(const Blocks& b) { return b.inner == 1 && b.outer < 16 ? (b.folded - 1) / kPart + 1 : 1; }

template <const ReduceLoops& (*kLoops)(), size_t kFold>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  Blocks b;
  SplitDims(c, &b);
  *state = nullptr;
  *workspace_bytes = PartsOf(b) * b.outer * kLoops().folds[kFold].partial_bytes[Operand(c, 0).dtype];
  return OPW_OK;
}

template <const ReduceLoops& (*kLoops)(), size_t kFold>
int Run(const opw_call* c) {
  const FoldLoops& fold = kLoops().folds[kFold];
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const double divisor = static_cast<double>(x.elements) / static_cast<double>(y.elements);
  Blocks b;
  SplitDims(c, &b);
  if (b.inner > 1) {
    const int64_t blocks = (b.inner - 1) / kColumnBlock + 1;
    ParallelFor(c, b.outer * blocks, RowsPerRange(b.folded * std::min(b.inner, kColumnBlock)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t o = i / blocks, j = i % blocks * kColumnBlock;
        fold.columns[x.dtype](At(y, o * b.inner + j), At(x, o * b.folded * b.inner + j), b.folded,
                              std::min(kColumnBlock, b.inner - j), b.inner, divisor);
      }
    });
    return OPW_OK;
  }
  const int64_t parts = PartsOf(b);
  if (parts == 1) {
    ParallelFor(c, b.outer, RowsPerRange(b.folded), [&](int64_t begin, int64_t end) {
      fold.rows[x.dtype](At(y, begin), At(x, begin * b.folded), end - begin, b.folded, divisor);
    });
    return OPW_OK;
  }
  char* const partial = static_cast<char*>(c->workspace);
  const int64_t bytes = fold.partial_bytes[x.dtype];
  ParallelFor(c, b.outer * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % parts * kPart;
      fold.partial[x.dtype](partial + i * bytes, At(x, i / parts * b.folded + first), 1, std::min(kPart, b.folded - first),
                            divisor);
    }
  });
  fold.finish[x.dtype](y.data, partial, b.outer, parts, divisor);
  return OPW_OK;
}

const char* SupportsArg(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  if (!AllDense(c, 1)) return "needs dense tensors";
  if (ElementsFrom(x, Axis(c->attrs[0].value.i, x.rank) + 1) != 1) return "only along the last axis";
  return SupportsArgOfSomething(c);
}

template <const ReduceLoops& (*kLoops)(), bool kLargest>
int RunArg(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  if (x.elements == 0) return OPW_OK;
  const ArgRow row = (kLargest ? kLoops().argmax : kLoops().argmin)[x.dtype];
  const int64_t extent = x.shape[Axis(c->attrs[0].value.i, x.rank)];
  int64_t* const y = static_cast<int64_t*>(c->results[0].data);
  ParallelFor(c, x.elements / extent, RowsPerRange(extent), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) y[r] = row(At(x, r * extent), extent);
  });
  return OPW_OK;
}

template <typename Loop>
DTypeSet TypesOf(const Loop (&loops)[16]) {
  DTypeSet types;
  for (int t = 1; t < kDTypeCount; ++t) {
    if (loops[t] != nullptr) types = types | DTypeSet{static_cast<DType>(t)};
  }
  return types;
}

template <const ReduceLoops& (*kLoops)(), size_t... kFold>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority, std::index_sequence<kFold...>) {
  const ReduceLoops& loops = kLoops();
  (AddProduction(table, isa, loops.folds[kFold].op, set, set, priority, TypesOf(loops.folds[kFold].rows),
                 {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsSplit, Prepare<kLoops, kFold>, nullptr, Run<kLoops, kFold>}),
   ...);
  AddProduction(table, isa, "argmax", set, set, priority, TypesOf(loops.argmax),
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsArg, nullptr, nullptr, RunArg<kLoops, true>});
  AddProduction(table, isa, "argmin", set, set, priority, TypesOf(loops.argmin),
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsArg, nullptr, nullptr, RunArg<kLoops, false>});
}

}  // namespace

void AddReduceFast(VariantTable& table, const Isa& isa) {
  Add<ReduceLoopsAvx512>(table, isa, "avx512", 2, std::make_index_sequence<kFoldCount>());
  Add<ReduceLoopsAvx2>(table, isa, "avx2", 1, std::make_index_sequence<kFoldCount>());
}

}  // namespace opwire::ops
