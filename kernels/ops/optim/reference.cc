// The optimisers' steps, norms and scaling of lists, one element after the other, in f64.
#include <cmath>

#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/optim/optim.h"

namespace opwire::ops::optim {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// One element: updates the parameter and its states.
void Step(OptimRule rule, const StepNumbers& n, bool stateless, double grad, double& p,
          double (&state)[kMostStates]) {
  double g = grad * n.gradient;
  if (n.l2 != 0) g += n.l2 * p;
  p *= n.decay;
  double& m = state[0];
  switch (rule) {
    case OptimRule::kAdamw: {
      double& v = state[1];
      m = n.beta1 * m + n.rest1 * g;
      v = n.beta2 * v + n.rest2 * g * g;
      p -= n.rate * m / (std::sqrt(v) * n.root + n.eps);
      break;
    }
    case OptimRule::kSgd:
      if (stateless) {
        p -= n.rate * g;
        break;
      }
      m = n.first ? g : n.beta1 * m + n.rest1 * g;
      p -= n.rate * (n.nesterov ? g + n.beta1 * m : m);
      break;
    case OptimRule::kLion: {
      const double c = n.beta1 * m + n.rest1 * g;
      p -= n.rate * (c != c ? c : c > 0 ? 1 : c < 0 ? -1 : 0);
      m = n.beta2 * m + n.rest2 * g;
      break;
    }
    case OptimRule::kLamb: {
      double& v = state[1];
      m = n.beta1 * m + n.rest1 * g;
      v = n.beta2 * v + n.rest2 * g * g;
      p -= n.trust * (n.rate * m / (std::sqrt(v) * n.root + n.eps) + n.pull * p);
      break;
    }
    case OptimRule::kAdagrad:
      m += g * g;
      p -= n.rate * g / (std::sqrt(m) + n.eps);
      break;
  }
}

double ValueAt(const opw_tensor& t, int64_t flat) {
  return VisitType(TypeOf(t), [&](auto tag) {
    return static_cast<double>(Load<typename decltype(tag)::Type>(t.data, OffsetOf(t, flat)));
  });
}
void SetAt(const opw_tensor& t, int64_t flat, double v) {
  VisitType(TypeOf(t),
            [&](auto tag) { Store<typename decltype(tag)::Type>(t.data, OffsetOf(t, flat), v); });
}

// Calls body(tensor, first element, one past the last) for parts of all tensors of a call's first
// list.
template <typename F>
void ForParts(const opw_call* c, const F& body) {
  for (int64_t t = 0; t < ListSize(c, 0); ++t) {
    ParallelFor(c, c->operands[c->starts[0] + t].elements, kReferenceGrain,
                [&](int64_t begin, int64_t end) { body(t, begin, end); });
  }
}

const opw_tensor& CoefficientsOf(const opw_call* c) { return c->results[3 * ListSize(c, 0)]; }

// lamb's coefficients, from the change of each parameter in a step of 1.
void Coefficients(const opw_call* c, StepNumbers numbers, bool skips) {
  numbers.trust = 1;
  for (int64_t t = 0; t < ListSize(c, 0); ++t) {
    const StepPlace place = PlaceOf(c, 2, t);
    double params = 0, updates = 0;
    for (int64_t i = 0; i < place.in[0]->elements && !skips && !StoppedAt(c, i); ++i) {
      double left = 0, state[kMostStates] = {ValueAt(*place.in[2], i), ValueAt(*place.in[3], i)};
      const double p = ValueAt(*place.in[0], i);
      StepNumbers own = numbers;
      own.pull = 0;
      Step(OptimRule::kLamb, own, false, ValueAt(*place.in[1], i), left, state);
      const double update = numbers.pull * p - left;
      params += p * p;
      updates += update * update;
    }
    SetAt(CoefficientsOf(c), t, CoefficientOf(AttrsOf(kStepRows[kLambRow], c), params, updates));
  }
}

template <int kRow>
int RunStep(const opw_call* c) {
  constexpr const StepRow& kStep = kStepRows[kRow];
  const int states = StatesOf(kStep, c);
  const StepNumbers all = NumbersOf(kStep, c);
  const bool skips = Skips(kStep, c);
  if (kRow == kLambRow) Coefficients(c, all, skips);
  ForParts(c, [&](int64_t t, int64_t begin, int64_t end) {
    const StepPlace place = PlaceOf(c, states, t);
    StepNumbers numbers = all;
    if (kRow == kLambRow) numbers.trust *= ValueAt(CoefficientsOf(c), t);
    for (int64_t i = begin; i < end; ++i) {
      double p = ValueAt(*place.in[0], i), state[kMostStates] = {};
      for (int s = 0; s < states; ++s) state[s] = ValueAt(*place.in[2 + s], i);
      if (!skips) Step(kStep.rule, numbers, states == 0, ValueAt(*place.in[1], i), p, state);
      SetAt(*place.out[0], i, p);
      for (int s = 0; s < states; ++s) SetAt(*place.out[1 + s], i, state[s]);
      if (kStep.copies) SetAt(CopyOf(c, t), i, ValueAt(*place.out[0], i));
    }
  });
  return OPW_OK;
}

int L2Norm(const opw_call* c) {
  double all = 0;
  for (int64_t t = 0; t < ListSize(c, 0); ++t) {
    const opw_tensor& x = c->operands[c->starts[0] + t];
    double sum = 0;
    for (int64_t i = 0; i < x.elements && !StoppedAt(c, i); ++i) {
      const double v = ValueAt(x, i);
      sum += v * v;
    }
    SetAt(c->results[1], t, std::sqrt(sum));
    all += sum;
  }
  SetAt(c->results[0], 0, std::sqrt(all));
  return OPW_OK;
}

int Scale(const opw_call* c) {
  const double factor = *static_cast<const float*>(Operand(c, 1).data);
  uint8_t* const overflow = static_cast<uint8_t*>(c->results[ListSize(c, 0)].data);
  *overflow = 0;
  ForParts(c, [&](int64_t t, int64_t begin, int64_t end) {
    const opw_tensor& y = c->results[t];
    for (int64_t i = begin; i < end; ++i) {
      SetAt(y, i, ValueAt(c->operands[c->starts[0] + t], i) * factor);
      if (!(std::fabs(ValueAt(y, i)) < kInfinite))
        __atomic_store_n(overflow, uint8_t{1}, __ATOMIC_RELAXED);
    }
  });
  return OPW_OK;
}

}  // namespace

void AddOptimReference(VariantTable& table) {
  const auto add = [&](const char* op, uint32_t flags, int (*run)(const opw_call*)) {
    AddReference(table, op,
                 {OPW_ABI_VERSION, OPW_DETERMINISTIC | flags, nullptr, nullptr, nullptr, run});
  };
  add(kStepRows[0].name, OPW_INPLACE, RunStep<0>);
  add(kStepRows[1].name, OPW_INPLACE, RunStep<1>);
  add(kStepRows[2].name, OPW_INPLACE, RunStep<2>);
  add(kStepRows[3].name, OPW_INPLACE, RunStep<3>);
  add(kStepRows[kLambRow].name, OPW_INPLACE, RunStep<kLambRow>);
  add(kStepRows[kCopyRow].name, OPW_INPLACE, RunStep<kCopyRow>);
  add("l2_norm", 0, L2Norm);
  add("scale", OPW_INPLACE, Scale);
}

}  // namespace opwire::ops::optim
