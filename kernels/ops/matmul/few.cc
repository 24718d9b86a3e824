// Products of a few rows on CPUs: the supported calls, and the division of columns among threads.
#include "kernels/ops/matmul/few.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/map_all.h"
#include "kernels/ops/matmul/forms.h"
#include "kernels/ops/matmul/matmul.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::matmul {
namespace {

constexpr int64_t kRangeWork = 128 * 1024;  // multiplications per range
static_assert(static_cast<int>(Activation::kRelu) == 1 &&
              static_cast<int>(Activation::kGelu) == 2 &&
              static_cast<int>(Activation::kGeluTanh) == 3 &&
              static_cast<int>(Activation::kSilu) == 4);

template <typename Op>
const char* Supports(const opw_call* c) {
  const MatmulShapes s = Op::ShapesOf(c);
  if (s.m > kMostFewRows || s.Batches() != 1) return "more than 4 rows, or several products";
  if (s.k == 0) return "nothing to sum";
  if (Op::kNorm && NormaliseRefuses(c) != nullptr) return NormaliseRefuses(c);
  if ((s.x_k != 1 || s.y_k != 1) && s.k > 1) return "x's rows or y's columns are not contiguous";
  if (s.n > 1 && s.z_n != 1) return "the result's rows are not contiguous";
  const opw_tensor* const bias = Op::BiasOf(c);
  return bias != nullptr && bias->contiguous == 0 ? "needs a contiguous bias" : nullptr;
}

struct State {
  FewLoop loop;
  MatmulShapes shapes;
  int64_t row_bytes =
      0;  // of x in f32, first in the workspace; after it x normalised, if of another type
};

template <typename Op, const FewLoops& (*kLoops)()>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const MatmulShapes s = Op::ShapesOf(c);
  const opw_tensor& x = Operand(c, 0);
  State* const made =
      new (std::nothrow) State{s.m > 0 ? kLoops().by_type[x.dtype][s.m - 1] : nullptr, s};
  if (made == nullptr) return OPW_FAILED;
  made->row_bytes = AlignedBytes(s.m * s.k * static_cast<int64_t>(sizeof(float)));
  *workspace_bytes = made->row_bytes + (Op::kNorm && x.dtype != OPW_F32 ? BytesOf(x) : 0);
  *state = made;
  return OPW_OK;
}
void Release(void* state) { delete static_cast<State*>(state); }

template <typename Op>
int Run(const opw_call* c) {
  const State& state = *static_cast<const State*>(c->state);
  const MatmulShapes& s = state.shapes;
  if (s.m == 0 || s.n == 0) return OPW_OK;
  const opw_tensor &x = Operand(c, 0), &y = Operand(c, Op::kWeight);
  float* const rows = static_cast<float*>(c->workspace);
  if constexpr (Op::kNorm) {
    char* const normal = x.dtype == OPW_F32 ? reinterpret_cast<char*>(rows)
                                            : static_cast<char*>(c->workspace) + state.row_bytes;
    Normalise(c, normal);
    if (x.dtype != OPW_F32) CastAll(c, rows, OPW_F32, normal, x.dtype, x.elements);
  } else {
    for (int64_t i = 0; i < s.m; ++i) {
      if (x.dtype == OPW_F32)
        std::memcpy(rows + i * s.k, At(x, i * s.x_m), static_cast<size_t>(s.k) * sizeof(float));
      else
        CastAll(c, rows + i * s.k, OPW_F32, At(x, i * s.x_m), x.dtype, s.k);
    }
  }
  const opw_tensor* const bias = Op::BiasOf(c);
  const FewCall call{rows,  y.data, bias == nullptr ? nullptr : bias->data, c->results[0].data, s.k,
                     s.y_n, s.z_m,  static_cast<int>(Op::ActivationFor(c))};
  const int64_t grain = std::max<int64_t>(1, kRangeWork / (s.m * s.k * kFewColumns));
  ParallelFor(c, (s.n + kFewColumns - 1) / kFewColumns, grain, [&](int64_t begin, int64_t end) {
    state.loop(call, begin * kFewColumns, std::min(end * kFewColumns, s.n));
  });
  return OPW_OK;
}

template <typename Op>
void Add(VariantTable& table, const Isa& isa, std::string_view op) {
  const DTypeSet types{DType::kF32, DType::kF16, DType::kBF16};
  constexpr std::string_view kNeeds = "up to 4 rows, and columns that are contiguous";
  AddProduction(table, isa, op, "few_avx512", "avx512", 2, types,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports<Op>, Prepare<Op, FewLoopsAvx512>,
                 Release, Run<Op>},
                kNeeds);
  AddProduction(table, isa, op, "few_avx2", "avx2", 1, types,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports<Op>, Prepare<Op, FewLoopsAvx2>,
                 Release, Run<Op>},
                kNeeds);
}

}  // namespace

// Not for matmul: the pass "shapes" transposes its operands (not with --exact), and the order of
// sums should not depend on their layout.
void AddLinearFew(VariantTable& table, const Isa& isa) {
  Add<LinearForm<false>>(table, isa, "linear");
  Add<LinearForm<true>>(table, isa, "rms_norm_linear");
}

}  // namespace opwire::ops::matmul
