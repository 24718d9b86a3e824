// argmax and argmin along the last axis, and cumsum along any, of dense tensors.
#include "kernels/ops/families.h"
#include "kernels/ops/reduce/cpu_loops.h"
#include "kernels/ops/reduce/reduce.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::reduce {
namespace {

constexpr int64_t kPart =
    16384;  // elements of a row that are scanned before the stop word is read again
constexpr int64_t kEnough = 16;        // rows that keep all threads busy
constexpr int64_t kColumnBlock = 256;  // columns of a unit
constexpr int64_t kMaxSumBytes = 8;

const char* SupportsArg(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  if (!AllDense(c, 1)) return "needs dense tensors";
  if (ElementsFrom(x, Axis(c->attrs[0].value.i, x.rank) + 1) != 1)
    return "only along the last axis";
  return SupportsArgOfSomething(c);
}

template <const ScanLoops& (*kLoops)(), bool kLargest>
int Arg(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  if (x.elements == 0) return OPW_OK;
  const ArgLoops& loops = (kLargest ? kLoops().argmax : kLoops().argmin)[x.dtype];
  const int64_t extent = x.shape[Axis(c->attrs[0].value.i, x.rank)];
  int64_t* const y = static_cast<int64_t*>(c->results[0].data);
  ParallelFor(c, x.elements / extent, RowsPerRange(extent), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = r * extent;
      int64_t best = 0;
      for (int64_t first = 0; first < extent && (first == 0 || !Stopped(c)); first += kPart) {
        const int64_t at = first + loops.row(At(x, row + first), std::min(kPart, extent - first));
        if (first == 0 || loops.beyond(At(x, row + at), At(x, row + best))) best = at;
      }
      y[r] = best;
    }
  });
  return OPW_OK;
}

// x as [outer, extent, inner].
struct Extents {
  int64_t outer, extent, inner;
};
Extents ExtentsOf(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const int dim = Axis(c->attrs[0].value.i, x.rank);
  const int64_t inner = ElementsFrom(x, dim + 1);
  return {x.elements / (x.shape[dim] * inner), x.shape[dim], inner};
}

const char* SupportsCumsum(const opw_call* c) {
  if (!AllDense(c, 1)) return "needs dense tensors";
  return Operand(c, 0).elements == 0 ? "nothing to sum" : nullptr;
}

// Few long rows are summed in parts first, so that the parts can be scanned side by side.
int64_t PartsOf(const Extents& e) {
  return e.inner == 1 && e.outer < kEnough ? (e.extent - 1) / kPart + 1 : 1;
}

template <const ScanLoops& (*kLoops)()>
int PrepareCumsum(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const Extents e = ExtentsOf(c);
  *state = nullptr;
  *workspace_bytes = PartsOf(e) > 1 ? e.outer * PartsOf(e) * kMaxSumBytes : 0;
  return OPW_OK;
}

template <const ScanLoops& (*kLoops)(), const ReduceLoops* (*kReductions)()>
int Cumsum(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const CumsumLoops& loops = kLoops().cumsum[x.dtype];
  const Extents e = ExtentsOf(c);
  const int64_t parts = PartsOf(e);
  if (e.inner > 1) {
    const int64_t block = std::min(e.inner, kColumnBlock), blocks = (e.inner - 1) / block + 1;
    const int64_t part = std::max<int64_t>(1, kPart / block);
    ParallelFor(c, e.outer * blocks, RowsPerRange(e.extent * block),
                [&](int64_t begin, int64_t end) {
                  for (int64_t u = begin; u < end; ++u) {
                    const int64_t o = u / blocks, j = u % blocks * block,
                                  columns = std::min(block, e.inner - j);
                    alignas(64) char sums[kColumnBlock * kMaxSumBytes] = {};
                    for (int64_t i = 0; i < e.extent && (i == 0 || !Stopped(c)); i += part) {
                      const int64_t at = (o * e.extent + i) * e.inner + j;
                      loops.columns(At(y, at), At(x, at), std::min(part, e.extent - i), columns,
                                    e.inner, sums);
                    }
                  }
                });
    return OPW_OK;
  }
  if (parts == 1) {
    ParallelFor(c, e.outer, RowsPerRange(e.extent), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        alignas(kMaxSumBytes) char sum[kMaxSumBytes] = {};
        for (int64_t i = 0; i < e.extent && (i == 0 || !Stopped(c)); i += kPart) {
          loops.row(At(y, r * e.extent + i), At(x, r * e.extent + i), std::min(kPart, e.extent - i),
                    sum);
        }
      }
    });
    return OPW_OK;
  }
  // The sums of the parts, then of all parts before each, then the parts from there.
  const ReduceRows total = kReductions()[0].partial[x.dtype];
  const int64_t bytes = loops.sum_bytes;
  char* const sums = static_cast<char*>(c->workspace);
  const auto element = [&](int64_t unit) { return unit / parts * e.extent + unit % parts * kPart; };
  const auto count = [&](int64_t unit) { return std::min(kPart, e.extent - unit % parts * kPart); };
  ParallelFor(c, e.outer * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u)
      total(sums + u * bytes, At(x, element(u)), 1, count(u), 1);
  });
  const bool narrow = x.dtype == OPW_F16 || x.dtype == OPW_BF16;
  const CumsumLoops& of_sums = kLoops().cumsum[narrow ? static_cast<uint8_t>(OPW_F32) : x.dtype];
  for (int64_t o = 0; o < e.outer; ++o) {
    alignas(kMaxSumBytes) char sum[kMaxSumBytes] = {};
    char* const row = sums + o * parts * bytes;
    of_sums.row(row, row, parts, sum);
  }
  ParallelFor(c, e.outer * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      alignas(kMaxSumBytes) char sum[kMaxSumBytes] = {};
      if (u % parts != 0) std::memcpy(sum, sums + (u - 1) * bytes, bytes);
      loops.row(At(y, element(u)), At(x, element(u)), count(u), sum);
    }
  });
  return OPW_OK;
}

template <const ScanLoops& (*kLoops)(), const ReduceLoops* (*kReductions)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  const auto add = [&](const char* op, const opw_kernel& kernel) {
    AddProduction(table, isa, op, set, set, priority, kArithmetic, kernel);
  };
  add("argmax",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsArg, nullptr, nullptr, Arg<kLoops, true>});
  add("argmin",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsArg, nullptr, nullptr, Arg<kLoops, false>});
  add("cumsum", {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsCumsum, PrepareCumsum<kLoops>, nullptr,
                 Cumsum<kLoops, kReductions>});
}

}  // namespace

void AddScans(VariantTable& table, const Isa& isa) {
  Add<ScansAvx512, ReductionsAvx512>(table, isa, "avx512", 2);
  Add<ScansAvx2, ReductionsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::reduce
