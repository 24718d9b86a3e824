// layer_norm_backward and rms_norm_backward of dense tensors. Blocks of rows each have sums for
// weight and bias, which are then added.
#include <cstring>

#include "kernels/ops/families.h"
#include "kernels/ops/norm/cpu_loops.h"
#include "kernels/ops/norm/norm.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::norm {
namespace {

constexpr int64_t kMostParts = 128, kLeastParts = 8;
constexpr int64_t kMostAtOnce = 1 << 20;  // elements between two checks whether the run was stopped

// x as [rows, extent], its rows in parts.
struct Sizes {
  int64_t extent, rows, each, parts;  // rows of each part except the last
  explicit Sizes(const opw_call* c) {
    const opw_tensor& x = Operand(c, 1);
    extent = ElementsFrom(x, x.rank - static_cast<int>(c->attrs[0].value.i));
    rows = extent == 0 ? 0 : x.elements / extent;
    const auto part = [&](int64_t parts) { return (rows + parts - 1) / parts; };
    each =
        std::max({int64_t{1}, part(kMostParts), std::min(RowsPerRange(extent), part(kLeastParts))});
    parts = part(each);
  }
};

int64_t SumBytes(DType type) { return type == DType::kF64 ? 8 : 4; }

template <bool kLayer>
const char* BackwardSupports(const opw_call* c) {
  if (!AllDense(c, 4, kLayer ? 3 : 2)) return "needs dense tensors";
  return Sizes(c).extent <= kMaxStoppable ? nullptr : "a row this long could not be stopped";
}

// Memory for the sums of weight of each part, then those of bias.
template <bool kLayer>
int BackwardPrepare(const opw_call* c, void**, int64_t* workspace_bytes) {
  const Sizes s(c);
  *workspace_bytes = s.parts * s.extent * (kLayer ? 2 : 1) * SumBytes(TypeOf(Operand(c, 1)));
  return OPW_OK;
}

template <const NormRows& (*kRows)(), bool kLayer>
int RunBackward(const opw_call* c) {
  const opw_tensor &grad = Operand(c, 0), &x = Operand(c, 1);
  const Sizes s(c);
  const int64_t bytes_each = SumBytes(TypeOf(x)), plane = s.parts * s.extent;
  const void* const weight = Absent(Operand(c, 2)) ? nullptr : Operand(c, 2).data;
  const opw_tensor& residual = Operand(c, 3);
  const NormBackwardRow row = (kLayer ? kRows().layer_backward : kRows().rms_backward)[x.dtype];
  const auto sums = [&](int64_t at) { return static_cast<char*>(c->workspace) + at * bytes_each; };
  if (s.rows == 0) {
    for (int i = 1; i <= (kLayer ? 2 : 1); ++i)
      std::memset(c->results[i].data, 0, static_cast<size_t>(BytesOf(c->results[i])));
    return OPW_OK;
  }
  ParallelFor(c, s.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      char* const by_weight = sums(p * s.extent);
      char* const by_bias = kLayer ? sums(plane + p * s.extent) : nullptr;
      std::memset(by_weight, 0, static_cast<size_t>(s.extent * bytes_each));
      if constexpr (kLayer) std::memset(by_bias, 0, static_cast<size_t>(s.extent * bytes_each));
      const int64_t first = p * s.each, last = std::min(s.rows, first + s.each),
                    asks = std::max<int64_t>(1, kMostAtOnce / s.extent);
      for (int64_t r = first; r < last; ++r) {
        if (r % asks == asks - 1 && Stopped(c)) break;
        row(At(c->results[0], r * s.extent), by_weight, by_bias, At(grad, r * s.extent),
            At(x, r * s.extent), weight, Absent(residual) ? nullptr : At(residual, r * s.extent),
            s.extent, c->attrs[1].value.f);
      }
    }
  });
  const ReduceRow reduction = kRows().reduction[x.dtype];
  for (int i = 0; i < (kLayer ? 2 : 1); ++i) {
    ParallelFor(c, s.extent, std::max<int64_t>(64, kRowGrain / s.parts),
                [&](int64_t begin, int64_t end) {
                  reduction(At(c->results[i + 1], begin), sums(i * plane + begin), s.parts,
                            s.extent, end - begin);
                });
  }
  return OPW_OK;
}

template <const NormRows& (*kRows)()>
void AddBackward(VariantTable& table, const Isa& isa, const char* set, int priority) {
  AddProduction(table, isa, "layer_norm_backward", set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, BackwardSupports<true>, BackwardPrepare<true>,
                 nullptr, RunBackward<kRows, true>});
  AddProduction(table, isa, "rms_norm_backward", set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, BackwardSupports<false>,
                 BackwardPrepare<false>, nullptr, RunBackward<kRows, false>});
}

}  // namespace

void AddNormBackward(VariantTable& table, const Isa& isa) {
  AddBackward<NormRowsAvx512>(table, isa, "avx512", 2);
  AddBackward<NormRowsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::norm
