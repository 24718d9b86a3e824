// cross_entropy and its gradient by softmax's rows. Losses of rows lie in the workspace and are summed in order.
#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/loss/loss.h"
#include "kernels/ops/loss/target.h"
#include "kernels/ops/rows.h"
#include "kernels/ops/softmax/fast.h"

namespace opwire::ops {
namespace {

// An element of a floating type as f64, and back.
double ReadFloat(DType type, const void* base, int64_t i) {
  return VisitType(type, [&](auto tag) { return static_cast<double>(Load<typename decltype(tag)::Type>(base, i)); });
}
void WriteFloat(DType type, void* base, int64_t i, double v) {
  VisitType(type, [&](auto tag) { Store<typename decltype(tag)::Type>(base, i, v); });
}

const char* Supports(const opw_call* c) { return AllDense(c, 2) ? nullptr : "needs dense tensors"; }
const char* SupportsBackward(const opw_call* c) { return AllDense(c, 3) ? nullptr : "needs dense tensors"; }

int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  *state = nullptr;
  *workspace_bytes = Operand(c, 0).shape[0] * static_cast<int64_t>(sizeof(double));
  return OPW_OK;
}

LogitRows AllRows(const SoftmaxRows& loops, const opw_tensor& logits, int target) {
  return {loops, TypeOf(logits), logits.data, 0, logits.shape[0], logits.shape[1], target};
}

template <const SoftmaxRows& (*kRows)()>
int Run(const opw_call* c) {
  double* const losses = static_cast<double*>(c->workspace);
  const LogitRows rows = AllRows(kRows(), Operand(c, 0), 1);
  LossesOf(c, rows, losses, nullptr);
  StoreLosses(c, losses, rows.rows, 1);
  return OPW_OK;
}

template <const SoftmaxRows& (*kRows)()>
int RunBackward(const opw_call* c) {
  const LogitRows rows = AllRows(kRows(), Operand(c, 1), 2);
  const double count = ReductionOf(c) == Reduction::kMean ? static_cast<double>(CountTargets(c, 2, rows.rows)) : 1.0;
  GradientsOf(c, rows, count, nullptr, c->results[0].data);
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

void LossesOf(const opw_call* c, const LogitRows& l, double* losses, const opw_tensor* log_sums) {
  const LogSumExpRow log_sum_exp = l.loops.log_sum_exp[static_cast<int>(l.type)];
  const int64_t row_bytes = l.classes * DTypeBytes(l.type);
  ParallelFor(c, l.rows, RowsPerRange(l.classes), [&](int64_t begin, int64_t end) {
    int64_t counted = 0;
    for (int64_t r = begin; r < end; ++r) {
      const char* const row = static_cast<const char*>(l.logits) + r * row_bytes;
      const int64_t target = CheckedTarget(c, l.target, l.first + r, l.classes, &counted);
      losses[l.first + r] = 0;
      if (target < 0 && log_sums == nullptr) continue;
      const double log_sum = log_sum_exp(row, l.classes);
      if (log_sums != nullptr) WriteFloat(l.type, log_sums->data, l.first + r, log_sum);
      if (target >= 0) losses[l.first + r] = log_sum - ReadFloat(l.type, row, target);
    }
  });
}

void StoreLosses(const opw_call* c, const double* losses, int64_t rows, int target) {
  const opw_tensor& loss = c->results[0];
  const Reduction reduction = ReductionOf(c);
  if (reduction == Reduction::kNone) {
    for (int64_t r = 0; r < rows; ++r) WriteFloat(TypeOf(loss), loss.data, r, losses[r]);
    return;
  }
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) total += losses[r];
  WriteFloat(TypeOf(loss), loss.data, 0, reduction == Reduction::kMean ? total / static_cast<double>(CountTargets(c, target, rows)) : total);
}

void GradientsOf(const opw_call* c, const LogitRows& l, double count, const opw_tensor* log_sums, void* to) {
  const opw_tensor& grad = Operand(c, 0);
  const LogSumExpRow log_sum_exp = l.loops.log_sum_exp[static_cast<int>(l.type)];
  const ExpRow exp = l.loops.exp[static_cast<int>(l.type)];
  const int64_t row_bytes = l.classes * DTypeBytes(l.type);
  ParallelFor(c, l.rows, RowsPerRange(l.classes), [&](int64_t begin, int64_t end) {
    int64_t counted = 0;
    for (int64_t r = begin; r < end; ++r) {
      const char* const row = static_cast<const char*>(l.logits) + r * row_bytes;
      char* const into = static_cast<char*>(to) + r * row_bytes;
      const int64_t target = CheckedTarget(c, l.target, l.first + r, l.classes, &counted);
      if (target < 0) {
        std::memset(into, 0, static_cast<size_t>(row_bytes));
        continue;
      }
      const double scale = ReadFloat(TypeOf(grad), grad.data, grad.rank == 0 ? 0 : l.first + r) / count;
      const double log_sum = log_sums != nullptr ? ReadFloat(l.type, log_sums->data, l.first + r) : log_sum_exp(row, l.classes);
      const double at_target = (std::exp(ReadFloat(l.type, row, target) - log_sum) - 1) * scale;
      exp(into, row, l.classes, log_sum, scale);
      WriteFloat(l.type, into, target, at_target);
    }
  });
}

void AddLossFast(VariantTable& table, const Isa& isa) {
  Add<SoftmaxRowsAvx512>(table, isa, "avx512", 2);
  Add<SoftmaxRowsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops
