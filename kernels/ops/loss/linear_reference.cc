// linear_cross_entropy and its gradient, one row after the other, in f64. A row's logits, and the
// sums of weight's gradient, are stored in the workspace.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/loss/loss.h"
#include "kernels/ops/loss/target.h"

namespace opwire::ops::loss {
namespace {

// The logits of a row.
template <typename T>
void Logits(const opw_call* c, const opw_tensor& input, const opw_tensor& weight, int64_t row,
            double* logits) {
  for (int64_t i = 0; i < weight.shape[0] && !StoppedAt(c, i); ++i) {
    double sum = 0;
    for (int64_t d = 0; d < weight.shape[1] && !StoppedAt(c, d); ++d) {
      sum +=
          static_cast<double>(Load<T>(input.data, row * input.strides[0] + d * input.strides[1])) *
          static_cast<double>(Load<T>(weight.data, i * weight.strides[0] + d * weight.strides[1]));
    }
    logits[i] = sum;
  }
}

double LogSumExp(const double* logits, int64_t n) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t i = 0; i < n; ++i) most = std::fmax(most, logits[i]);
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - most);
  return most + std::log(sum);
}

int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  *state = nullptr;
  *workspace_bytes = Operand(c, 1).shape[0] * static_cast<int64_t>(sizeof(double));
  return OPW_OK;
}

int Forward(const opw_call* c) {
  const opw_tensor &input = Operand(c, 0), &weight = Operand(c, 1), &loss = c->results[0],
                   &log_sums = c->results[1];
  const int64_t classes = weight.shape[0];
  const bool none = ReductionOf(c) == Reduction::kNone;
  double* const logits = static_cast<double*>(c->workspace);
  VisitType(TypeOf(input), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    double total = 0;
    int64_t counted = 0;
    for (int64_t row = 0; row < input.shape[0] && !Stopped(c); ++row) {
      const int64_t target = CheckedTarget(c, 2, row, classes, &counted);
      Logits<T>(c, input, weight, row, logits);
      const double log_sum = LogSumExp(logits, classes),
                   value = target >= 0 ? log_sum - logits[target] : 0;
      if (TypeOf(log_sums) == DType::kF64)
        Store<double>(log_sums.data, row * log_sums.strides[0], log_sum);
      else
        Store<float>(log_sums.data, row * log_sums.strides[0], log_sum);
      total += value;
      if (none) Store<T>(loss.data, row * loss.strides[0], value);
    }
    if (!none)
      Store<T>(loss.data, 0,
               ReductionOf(c) == Reduction::kMean ? total / static_cast<double>(counted) : total);
  });
  return OPW_OK;
}

int PrepareBackward(const opw_call* c, void** state, int64_t* workspace_bytes) {
  *state = nullptr;
  *workspace_bytes =
      (Operand(c, 2).shape[0] + Operand(c, 2).elements) * static_cast<int64_t>(sizeof(double));
  return OPW_OK;
}

int Backward(const opw_call* c) {
  const opw_tensor &grad = Operand(c, 0), &input = Operand(c, 1), &weight = Operand(c, 2),
                   &log_sums = Operand(c, 4);
  const opw_tensor &grad_input = c->results[0], &grad_weight = c->results[1];
  const int64_t rows = input.shape[0], classes = weight.shape[0], depth = weight.shape[1];
  const double count =
      ReductionOf(c) == Reduction::kMean ? static_cast<double>(CountTargets(c, 3, rows)) : 1.0;
  double *const d = static_cast<double*>(c->workspace), *const sums = d + classes;
  std::fill_n(sums, weight.elements, 0.0);
  VisitType(TypeOf(input), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    int64_t counted = 0;
    for (int64_t row = 0; row < rows && !Stopped(c); ++row) {
      const int64_t target = CheckedTarget(c, 3, row, classes, &counted);
      const double scale =
          static_cast<double>(Load<T>(grad.data, grad.rank == 0 ? 0 : row * grad.strides[0])) /
          count;
      const int64_t at = row * log_sums.strides[0];
      const double log_sum = TypeOf(log_sums) == DType::kF64
                                 ? Load<double>(log_sums.data, at)
                                 : static_cast<double>(Load<float>(log_sums.data, at));
      Logits<T>(c, input, weight, row, d);
      for (int64_t i = 0; i < classes; ++i)
        d[i] = target < 0 ? 0 : (std::exp(d[i] - log_sum) - (i == target ? 1 : 0)) * scale;
      for (int64_t j = 0; j < depth; ++j) {
        double sum = 0;
        const double x =
            static_cast<double>(Load<T>(input.data, row * input.strides[0] + j * input.strides[1]));
        for (int64_t i = 0; i < classes && !StoppedAt(c, i); ++i) {
          sum += d[i] * static_cast<double>(
                            Load<T>(weight.data, i * weight.strides[0] + j * weight.strides[1]));
          sums[i * depth + j] += d[i] * x;
        }
        Store<T>(grad_input.data, row * grad_input.strides[0] + j * grad_input.strides[1], sum);
      }
    }
    for (int64_t i = 0; i < weight.elements && !StoppedAt(c, i); ++i)
      Store<T>(grad_weight.data, OffsetOf(grad_weight, i), sums[i]);
  });
  return OPW_OK;
}

}  // namespace

void AddLinearLossReference(VariantTable& table) {
  AddReference(table, "linear_cross_entropy",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, Prepare, nullptr, Forward});
  AddReference(table, "linear_cross_entropy_backward",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, PrepareBackward, nullptr, Backward});
}

}  // namespace opwire::ops::loss
