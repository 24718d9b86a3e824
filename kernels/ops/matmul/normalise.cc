// The rms_norm that rms_norm_linear begins with on CPUs.
#include "kernels/ops/map_all.h"
#include "kernels/ops/matmul/forms.h"
#include "kernels/ops/norm/cpu_loops.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/select/isa.h"

namespace opwire::ops::matmul {

const char* NormaliseRefuses(const opw_call* c) {
  if (Operand(c, 0).contiguous == 0 || (!Absent(Operand(c, 1)) && Operand(c, 1).contiguous == 0))
    return "needs dense rows";
  return elementwise::WidestCasts() == nullptr ? "norms need avx2" : nullptr;
}

void Normalise(const opw_call* c, char* to) {
  const opw_tensor &x = Operand(c, 0), &weight = Operand(c, 1);
  const norm::NormRow row =
      (Isa::Detect().avx512 ? norm::NormRowsAvx512() : norm::NormRowsAvx2()).rms[x.dtype];
  const int64_t extent = x.shape[x.rank - 1], bytes = DTypeBytes(TypeOf(x));
  ParallelFor(c, x.elements / extent, RowsPerRange(extent), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      row(to + r * extent * bytes, At(x, r * extent), Absent(weight) ? nullptr : weight.data,
          nullptr, extent, c->attrs[0].value.f);
  });
}

}  // namespace opwire::ops::matmul
