// Calls of the optim family as numbers, places and chunks.
#include <algorithm>
#include <cmath>

#include "kernels/ops/optim/optim.h"

namespace opwire::ops::optim {

StepPlace PlaceOf(const opw_call* c, int states, int64_t place) {
  StepPlace out{};
  const int64_t places = ListSize(c, 0);
  for (int l = 0; l < 2 + states; ++l) out.in[l] = &c->operands[c->starts[l] + place];
  for (int l = 0; l < 1 + states; ++l) out.out[l] = &c->results[l * places + place];
  return out;
}

StepAttrs AttrsOf(const StepRow& row, const opw_call* c) {
  const auto number = [&](int i) { return c->attrs[i].value.f; };
  const auto flag = [&](int i) { return c->attrs[i].value.i != 0; };
  switch (row.rule) {
    case OptimRule::kAdamw:
      return {.beta1 = number(0),
              .beta2 = number(1),
              .rest1 = 1 - number(0),
              .eps = number(2),
              .weight_decay = number(3),
              .decoupled = flag(4),
              .bias_correction = flag(5),
              .maximize = flag(6)};
    case OptimRule::kSgd:
      return {.beta1 = number(0),
              .rest1 = 1 - number(1),
              .weight_decay = number(3),
              .maximize = flag(4),
              .nesterov = flag(2)};
    case OptimRule::kLion:
      return {.beta1 = number(0),
              .beta2 = number(1),
              .rest1 = 1 - number(0),
              .weight_decay = number(2),
              .decoupled = true,
              .maximize = flag(3)};
    case OptimRule::kAdagrad:
      return {.eps = number(0), .weight_decay = number(1), .maximize = flag(2)};
    case OptimRule::kLamb:
      return {.beta1 = number(0),
              .beta2 = number(1),
              .rest1 = 1 - number(0),
              .eps = number(2),
              .weight_decay = number(3),
              .least = number(4),
              .most = number(5),
              .bias_correction = flag(6),
              .maximize = flag(7)};
  }
  return {};
}

StepNumbers NumbersOf(const StepRow& row, const opw_call* c) {
  const StepAttrs a = AttrsOf(row, c);
  const double lr = *static_cast<const float*>(Operand(c, row.lr).data);
  const opw_tensor& scale = Operand(c, row.grad_scale);
  const int64_t step = row.step < 0 ? 0 : *static_cast<const int64_t*>(Operand(c, row.step).data);
  StepNumbers n{};
  n.gradient = (a.maximize ? -1 : 1) /
               (Absent(scale) ? 1.0 : static_cast<double>(*static_cast<const float*>(scale.data)));
  const bool lamb = row.rule == OptimRule::kLamb;
  n.l2 = a.decoupled || lamb ? 0 : a.weight_decay;
  n.decay = a.decoupled ? 1 - lr * a.weight_decay : 1;
  n.rate = lamb ? 1 : lr;
  n.pull = a.weight_decay;
  n.trust = lr;
  n.beta1 = a.beta1;
  n.rest1 = a.rest1;
  n.beta2 = a.beta2;
  n.rest2 = 1 - a.beta2;
  n.root = 1;
  n.eps = a.eps;
  n.nesterov = a.nesterov;
  n.first = step == 1;
  if (a.bias_correction) {
    // 1 - beta^step, without the rounding error of the difference.
    const auto correction = [&](double beta) {
      return -std::expm1(static_cast<double>(step) * std::log(beta));
    };
    n.rate /= correction(a.beta1);
    n.root = 1 / std::sqrt(correction(a.beta2));
  }
  return n;
}

bool Skips(const StepRow& row, const opw_call* c) {
  const opw_tensor& skip = Operand(c, row.skip);
  return !Absent(skip) && *static_cast<const uint8_t*>(skip.data) != 0;
}

double CoefficientOf(const StepAttrs& a, double params, double updates) {
  if (params == 0 || updates == 0) return 1;
  const double ratio = std::sqrt(params) / std::sqrt(updates);
  return ratio < a.least ? a.least : ratio > a.most ? a.most : ratio;  // a NaN stays
}

Chunks::Chunks(const opw_tensor* tensors, int64_t count, int64_t elements)
    : size(elements), first(static_cast<size_t>(count) + 1) {
  for (int64_t t = 0; t < count; ++t)
    first[static_cast<size_t>(t) + 1] =
        first[static_cast<size_t>(t)] + (tensors[t].elements + size - 1) / size;
}

int64_t Chunks::TensorOf(int64_t chunk) const {
  return std::upper_bound(first.begin(), first.end(), chunk) - first.begin() - 1;
}

}  // namespace opwire::ops::optim
