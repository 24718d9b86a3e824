// cross_entropy and its gradient, one row after the other, in f64.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/loss/loss.h"
#include "kernels/ops/loss/target.h"

namespace opwire::ops::loss {
namespace {

// log(sum(exp(row))).
template <typename T>
double LogSumExp(const opw_call* c, const opw_tensor& logits, int64_t row) {
  const int64_t classes = logits.shape[1];
  const auto in = [&](int64_t i) {
    return static_cast<double>(
        Load<T>(logits.data, row * logits.strides[0] + i * logits.strides[1]));
  };
  double most = in(0), sum = 0;
  for (int64_t i = 1; i < classes && !StoppedAt(c, i); ++i) most = std::fmax(most, in(i));
  for (int64_t i = 0; i < classes && !StoppedAt(c, i); ++i) sum += std::exp(in(i)-most);
  return most + std::log(sum);
}

// Writes result 0. Operand `first` has the logits, the next one the targets.
void Losses(const opw_call* c, int first) {
  const opw_tensor& logits = Operand(c, first);
  const opw_tensor& loss = c->results[0];
  const bool none = ReductionOf(c) == Reduction::kNone;
  VisitType(TypeOf(logits), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      double total = 0;
      int64_t counted = 0;
      for (int64_t row = 0; row < logits.shape[0] && !Stopped(c); ++row) {
        const int64_t target = CheckedTarget(c, first + 1, row, logits.shape[1], &counted);
        double value = 0;
        if (target >= 0) {
          value = LogSumExp<T>(c, logits, row) -
                  static_cast<double>(
                      Load<T>(logits.data, row * logits.strides[0] + target * logits.strides[1]));
        }
        total += value;
        if (none) Store<T>(loss.data, row * loss.strides[0], value);
      }
      if (!none)
        Store<T>(loss.data, 0,
                 ReductionOf(c) == Reduction::kMean ? total / static_cast<double>(counted) : total);
    }
  });
}

void Gradients(const opw_call* c, const opw_tensor& result) {
  const opw_tensor& grad = Operand(c, 0);
  const opw_tensor& logits = Operand(c, 1);
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const double count =
      ReductionOf(c) == Reduction::kMean ? static_cast<double>(CountTargets(c, 2, rows)) : 1.0;
  VisitType(TypeOf(logits), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      int64_t counted = 0;
      for (int64_t row = 0; row < rows && !Stopped(c); ++row) {
        const int64_t target = CheckedTarget(c, 2, row, classes, &counted);
        const double scale =
            static_cast<double>(Load<T>(grad.data, grad.rank == 0 ? 0 : row * grad.strides[0])) /
            count;
        const double log_sum = target >= 0 ? LogSumExp<T>(c, logits, row) : 0;
        for (int64_t i = 0; i < classes && !StoppedAt(c, i); ++i) {
          const double v = static_cast<double>(
              Load<T>(logits.data, row * logits.strides[0] + i * logits.strides[1]));
          const double d =
              target >= 0 ? (std::exp(v - log_sum) - (i == target ? 1 : 0)) * scale : 0;
          Store<T>(result.data, row * result.strides[0] + i * result.strides[1], d);
        }
      }
    }
  });
}

int CrossEntropy(const opw_call* c) {
  Losses(c, 0);
  return OPW_OK;
}
int CrossEntropyBackward(const opw_call* c) {
  Gradients(c, c->results[0]);
  return OPW_OK;
}
int CrossEntropyWithGradient(const opw_call* c) {
  Losses(c, 1);
  Gradients(c, c->results[1]);
  return OPW_OK;
}

}  // namespace

void AddLossReference(VariantTable& table) {
  AddReference(table, "cross_entropy",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, CrossEntropy});
  AddReference(
      table, "cross_entropy_backward",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, CrossEntropyBackward});
  AddReference(
      table, "cross_entropy_with_gradient",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, CrossEntropyWithGradient});
}

}  // namespace opwire::ops::loss
