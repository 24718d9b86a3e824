// cross_entropy and its gradient by softmax's rows. Losses of rows are stored in the workspace and
// summed in order.
#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/loss/loss.h"
#include "kernels/ops/loss/target.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/softmax/cpu_loops.h"

namespace opwire::ops::loss {
namespace {

// Converts elements of a floating type to f64, and back.
template <typename T>
double ReadAs(const void* base, int64_t i) {
  return static_cast<double>(Load<T>(base, i));
}
double ReadFloat(DType type, const void* base, int64_t i) {
  return VisitType(type, [&](auto tag) { return ReadAs<typename decltype(tag)::Type>(base, i); });
}
void WriteFloat(DType type, void* base, int64_t i, double v) {
  VisitType(type, [&](auto tag) { Store<typename decltype(tag)::Type>(base, i, v); });
}
// Reads the element at its target from each of `count` rows that have a target.
void AtTargets(const LogitRows& l, const char* rows, int64_t count, const int64_t* targets,
               double* at) {
  VisitType(l.type, [&](auto tag) {
    for (int64_t i = 0; i < count; ++i)
      at[i] = targets[i] < 0
                  ? 0
                  : ReadAs<typename decltype(tag)::Type>(rows, i * l.classes + targets[i]);
  });
}

const char* Supports(const opw_call* c) { return AllDense(c, 2) ? nullptr : "needs dense tensors"; }
const char* SupportsBackward(const opw_call* c) {
  return AllDense(c, 3) ? nullptr : "needs dense tensors";
}
const char* SupportsWithGradient(const opw_call* c) {
  return AllDense(c, 3, 2) ? nullptr : "needs dense tensors";
}

// Memory for each row's loss.
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  *state = nullptr;
  *workspace_bytes = Operand(c, 0).shape[0] * static_cast<int64_t>(sizeof(double));
  return OPW_OK;
}
int PrepareWithGradient(const opw_call* c, void** state, int64_t* workspace_bytes) {
  *state = nullptr;
  *workspace_bytes = Operand(c, 1).shape[0] * static_cast<int64_t>(sizeof(double));
  return OPW_OK;
}

// Calls f(first row, number of rows, their targets as from CheckedTarget) for blocks of up to
// kTogether rows.
constexpr int64_t kTogether = 64;
template <typename F>
void ForBlocks(const opw_call* c, const LogitRows& l, const F& f) {
  ParallelFor(c, l.rows, RowsPerRange(l.classes), [&](int64_t begin, int64_t end) {
    int64_t counted = 0;
    for (; begin < end; begin += kTogether) {
      const int64_t count = std::min(kTogether, end - begin);
      int64_t targets[kTogether] = {};
      for (int64_t i = 0; i < count; ++i)
        targets[i] = CheckedTarget(c, l.target, l.first + begin + i, l.classes, &counted);
      f(begin, count, targets);
    }
  });
}
// log(sum(exp)) of each of `count` rows. Of long rows only if they have a target, or with `all`.
void LogSums(const LogitRows& l, const char* rows, int64_t count, const int64_t* targets, bool all,
             double* sums) {
  const int type = static_cast<int>(l.type);
  if (l.classes <= softmax::kSoftmaxShortRow)
    return l.loops.short_log_sum_exp[type](sums, rows, count, l.classes);
  for (int64_t i = 0; i < count; ++i) {
    if (all || targets[i] >= 0)
      sums[i] = l.loops.log_sum_exp[type](rows + i * l.classes * DTypeBytes(l.type), l.classes);
  }
}

LogitRows AllRows(const softmax::SoftmaxRows& loops, const opw_tensor& logits, int target) {
  return {loops, TypeOf(logits), logits.data, 0, logits.shape[0], logits.shape[1], target};
}

template <const softmax::SoftmaxRows& (*kRows)()>
int Run(const opw_call* c) {
  double* const losses = static_cast<double*>(c->workspace);
  const LogitRows rows = AllRows(kRows(), Operand(c, 0), 1);
  LossesOf(c, rows, losses, nullptr);
  StoreLosses(c, losses, rows.rows, 1);
  return OPW_OK;
}

// The divisor of each row's gradient.
double DivisorOf(const opw_call* c, const LogitRows& l) {
  return ReductionOf(c) == Reduction::kMean ? static_cast<double>(CountTargets(c, l.target, l.rows))
                                            : 1.0;
}

template <const softmax::SoftmaxRows& (*kRows)()>
int RunBackward(const opw_call* c) {
  const LogitRows rows = AllRows(kRows(), Operand(c, 1), 2);
  GradientsOf(c, rows, DivisorOf(c, rows), nullptr, c->results[0].data);
  return OPW_OK;
}

template <const softmax::SoftmaxRows& (*kRows)()>
int RunWithGradient(const opw_call* c) {
  double* const losses = static_cast<double*>(c->workspace);
  const LogitRows rows = AllRows(kRows(), Operand(c, 1), 2);
  GradientsOf(c, rows, DivisorOf(c, rows), nullptr, c->results[1].data, losses);
  StoreLosses(c, losses, rows.rows, 2);
  return OPW_OK;
}

template <const softmax::SoftmaxRows& (*kRows)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  AddProduction(table, isa, "cross_entropy", set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports, Prepare, nullptr, Run<kRows>});
  AddProduction(
      table, isa, "cross_entropy_backward", set, set, priority, kFloats,
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsBackward, nullptr, nullptr, RunBackward<kRows>});
  AddProduction(table, isa, "cross_entropy_with_gradient", set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsWithGradient, PrepareWithGradient,
                 nullptr, RunWithGradient<kRows>});
}

}  // namespace

void LossesOf(const opw_call* c, const LogitRows& l, double* losses, const opw_tensor* log_sums) {
  const int64_t row_bytes = l.classes * DTypeBytes(l.type);
  ForBlocks(c, l, [&](int64_t begin, int64_t count, const int64_t* targets) {
    const char* const block = static_cast<const char*>(l.logits) + begin * row_bytes;
    double sums[kTogether], at_targets[kTogether];
    LogSums(l, block, count, targets, log_sums != nullptr, sums);
    AtTargets(l, block, count, targets, at_targets);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = l.first + begin + i;
      if (log_sums != nullptr) WriteFloat(l.type, log_sums->data, row, sums[i]);
      losses[row] = targets[i] < 0 ? 0 : sums[i] - at_targets[i];
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
  WriteFloat(TypeOf(loss), loss.data, 0,
             reduction == Reduction::kMean
                 ? total / static_cast<double>(CountTargets(c, target, rows))
                 : total);
}

void GradientsOf(const opw_call* c, const LogitRows& l, double count, const opw_tensor* log_sums,
                 void* to, double* losses) {
  const opw_tensor& grad = Operand(c, 0);
  const softmax::ExpRow exp = l.loops.exp[static_cast<int>(l.type)];
  const int64_t row_bytes = l.classes * DTypeBytes(l.type);
  const double scale = grad.rank == 0 ? ReadFloat(TypeOf(grad), grad.data, 0) / count : 0;
  ForBlocks(c, l, [&](int64_t begin, int64_t rows, const int64_t* targets) {
    const char* const block = static_cast<const char*>(l.logits) + begin * row_bytes;
    char* const into = static_cast<char*>(to) + begin * row_bytes;
    double sums[kTogether], scales[kTogether], at_targets[kTogether], minus_losses[kTogether];
    if (log_sums == nullptr) LogSums(l, block, rows, targets, false, sums);
    AtTargets(l, block, rows, targets, at_targets);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = l.first + begin + i;
      scales[i] = grad.rank == 0 ? scale : ReadFloat(TypeOf(grad), grad.data, row) / count;
      if (log_sums != nullptr) sums[i] = ReadFloat(l.type, log_sums->data, row);
      const double loss = targets[i] < 0 ? 0 : sums[i] - at_targets[i];
      if (losses != nullptr) losses[row] = loss;
      minus_losses[i] = -loss;
    }
    l.loops.exp[static_cast<int>(DType::kF64)](at_targets, minus_losses, rows, 0, 1);
    const bool together = l.classes <= softmax::kSoftmaxShortRow;
    if (together)
      l.loops.short_exp[static_cast<int>(l.type)](into, block, rows, l.classes, sums, scales);
    VisitType(l.type, [&](auto tag) {
      for (int64_t i = 0; i < rows; ++i) {
        char* const row = into + i * row_bytes;
        if (targets[i] < 0) {
          std::memset(row, 0, static_cast<size_t>(row_bytes));
          continue;
        }
        if (!together) exp(row, block + i * row_bytes, l.classes, sums[i], scales[i]);
        Store<typename decltype(tag)::Type>(row, targets[i], (at_targets[i] - 1) * scales[i]);
      }
    });
  });
}

void AddLossFast(VariantTable& table, const Isa& isa) {
  Add<softmax::SoftmaxRowsAvx512>(table, isa, "avx512", 2);
  Add<softmax::SoftmaxRowsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::loss
