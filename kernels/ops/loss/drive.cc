// cross_entropy and its gradient by softmax's rows. Losses of rows lie in the workspace and are summed in order.
#include "kernels/ops/families.h"
#include "kernels/ops/loss/loss.h"
#include "kernels/ops/loss/target.h"
#include "kernels/ops/rows.h"
#include "kernels/ops/scalar.h"
#include "kernels/ops/softmax/fast.h"

namespace opwire::ops {
namespace {

// An element of a floating type as f64, and back.
double ReadFloat(const opw_tensor& t, int64_t i) {
  return VisitType(TypeOf(t), [&](auto tag) { return static_cast<double>(Load<typename decltype(tag)::Type>(t.data, i)); });
}
void WriteFloat(const opw_tensor& t, int64_t i, double v) {
  VisitType(TypeOf(t), [&](auto tag) { Store<typename decltype(tag)::Type>(t.data, i, v); });
}

const char* Supports(const opw_call* c) { return AllDense(c, 2) ? nullptr : "needs dense tensors"; }
const char* SupportsBackward(const opw_call* c) { return AllDense(c, 3) ? nullptr : "needs dense tensors"; }

int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  *state = nullptr;
  *workspace_bytes = Operand(c, 0).shape[0] * static_cast<int64_t>(sizeof(double));
  return OPW_OK;
}

template <const SoftmaxRows& (*kRows)()>
int Run(const opw_call* c) {
  const opw_tensor& logits = Operand(c, 0);
  const opw_tensor& loss = c->results[0];
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const Reduction reduction = ReductionOf(c);
  const LogSumExpRow log_sum_exp = kRows().log_sum_exp[logits.dtype];
  double* const losses = static_cast<double*>(c->workspace);
  ParallelFor(c, rows, RowsPerRange(classes), [&](int64_t begin, int64_t end) {
    int64_t counted = 0;
    for (int64_t r = begin; r < end; ++r) {
      const int64_t target = CheckedTarget(c, 1, r, classes, &counted);
      losses[r] = target < 0 ? 0 : log_sum_exp(At(logits, r * classes), classes) - ReadFloat(logits, r * classes + target);
      if (reduction == Reduction::kNone) WriteFloat(loss, r, losses[r]);
    }
  });
  if (reduction == Reduction::kNone) return OPW_OK;
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) total += losses[r];
  WriteFloat(loss, 0, reduction == Reduction::kMean ? total / static_cast<double>(CountTargets(c, 1, rows)) : total);
  return OPW_OK;
}

template <const SoftmaxRows& (*kRows)()>
int RunBackward(const opw_call* c) {
  const opw_tensor& grad = Operand(c, 0);
  const opw_tensor& logits = Operand(c, 1);
  const opw_tensor& result = c->results[0];
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const double count = ReductionOf(c) == Reduction::kMean ? static_cast<double>(CountTargets(c, 2, rows)) : 1.0;
  const LogSumExpRow log_sum_exp = kRows().log_sum_exp[logits.dtype];
  const ExpRow exp = kRows().exp[logits.dtype];
  ParallelFor(c, rows, RowsPerRange(classes), [&](int64_t begin, int64_t end) {
    int64_t counted = 0;
    for (int64_t r = begin; r < end; ++r) {
      const int64_t target = CheckedTarget(c, 2, r, classes, &counted), first = r * classes;
      if (target < 0) {
        std::memset(At(result, first), 0, classes * DTypeBytes(TypeOf(result)));
        continue;
      }
      const double scale = ReadFloat(grad, grad.rank == 0 ? 0 : r) / count, log_sum = log_sum_exp(At(logits, first), classes);
      const double at_target = (std::exp(ReadFloat(logits, first + target) - log_sum) - 1) * scale;
      exp(At(result, first), At(logits, first), classes, log_sum, scale);
      WriteFloat(result, first + target, at_target);
    }
  });
  return OPW_OK;
}

template <const SoftmaxRows& (*kRows)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  AddProduction(table, isa, "cross_entropy", set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports, Prepare, nullptr, Run<kRows>});
  AddProduction(table, isa, "cross_entropy_backward", set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsBackward, nullptr, nullptr, RunBackward<kRows>});
}

}  // namespace

void AddLossFast(VariantTable& table, const Isa& isa) {
  Add<SoftmaxRowsAvx512>(table, isa, "avx512", 2);
  Add<SoftmaxRowsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops
