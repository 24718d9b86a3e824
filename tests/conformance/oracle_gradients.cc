// Gradients of normalisation and softmax.
#include <algorithm>
#include <cmath>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

void NormBackward(const OracleCall& c, Expected* e) {
  const Tensor &grad = c.In(0), &x = c.In(1), &weight = c.In(2), &residual = c.In(3);
  const bool layer = c.row->name == "layer_norm_backward";
  int64_t extent = 1;
  for (int a = x.rank() - static_cast<int>(c.Int(0)); a < x.rank(); ++a) extent *= x.shape[a];
  const Real n = static_cast<Real>(extent), eps = Eps(ComputingType(x.dtype)),
             step = (8 + n / 32) * eps;
  for (Expected::Result& r : e->results) r.error.resize(r.tensor.elements());
  if (extent == 0) return;
  const int64_t rows = x.elements() / extent;
  const Real sums = (16 + static_cast<Real>(rows) / 8) * eps;
  for (int64_t first = 0; first < x.elements(); first += extent) {
    Real mean = 0, square = 0, most = 0, slope = 0, slopes = 0, product = 0, products = 0;
    for (int64_t i = 0; i < extent; ++i) {
      if (layer) mean += x.values[first + i] / n;
      most = std::fmax(most, std::fabs(x.values[first + i]));
    }
    for (int64_t i = 0; i < extent; ++i)
      square += (x.values[first + i] - mean) * (x.values[first + i] - mean);
    const Real factor = 1 / std::sqrt(square / n + static_cast<Real>(c.Float(1)));
    const Real off =
        step * (1 + most * factor);  // of a normalised element, and relatively of the factor
    const auto normal = [&](int64_t i) { return (x.values[first + i] - mean) * factor; };
    const auto by_normal = [&](int64_t i) {
      return grad.values[first + i] * (weight.dtype == DType::kInvalid ? 1 : weight.values[i]);
    };
    for (int64_t i = 0; i < extent; ++i) {
      slope += layer ? by_normal(i) / n : 0;
      slopes += std::fabs(by_normal(i)) / n;
      product += by_normal(i) * normal(i) / n;
      products += std::fabs(by_normal(i) * normal(i)) / n;
    }
    for (int64_t i = 0; i < extent; ++i) {
      const Real g = by_normal(i), v = (g - slope - normal(i) * product) * factor,
                 magnitude = std::fabs(g) + slopes + std::fabs(normal(i)) * products;
      const Real beside = residual.dtype == DType::kInvalid ? 0 : residual.values[first + i];
      e->results[0].tensor.values[first + i] = v + beside;
      e->results[0].error[first + i] = factor * ((2 * step + off) * magnitude +
                                                 off * (products + std::fabs(normal(i)) * slopes)) +
                                       Ulp(x.dtype, v) / 2;
      if (beside != 0)
        e->results[0].error[first + i] += Ulp(x.dtype, v + beside);  // it is rounded again
      const Real dy = grad.values[first + i];
      e->results[1].tensor.values[i] += dy * normal(i);
      e->results[1].error[i] += std::fabs(dy) * (off + sums * std::fabs(normal(i)));
      if (!layer) continue;
      e->results[2].tensor.values[i] += dy;
      e->results[2].error[i] += std::fabs(dy) * sums;
    }
  }
  for (size_t r = 1; r < e->results.size(); ++r) {
    for (int64_t i = 0; i < extent; ++i)
      e->results[r].error[i] =
          WithRounding(x.dtype, e->results[r].tensor.values[i], e->results[r].error[i]);
  }
}

void SoftmaxBackward(const OracleCall& c, Expected* e) {
  const Tensor &grad = c.In(0), &y = c.In(1);
  const bool log = c.row->name == "log_softmax_backward";
  const int dim = Axis(c.Int(0), y.rank());
  const int64_t extent = y.shape[dim];
  int64_t inner = 1;
  for (int a = dim + 1; a < y.rank(); ++a) inner *= y.shape[a];
  const Real eps = Eps(ComputingType(y.dtype)), step = (8 + static_cast<Real>(extent) / 32) * eps,
             tiny = std::ldexp(eps, y.dtype == DType::kF64 ? -970 : -103);
  e->error().resize(y.elements());
  for (int64_t slice = 0; slice < y.elements() / std::max<int64_t>(1, extent); ++slice) {
    const int64_t first = slice / inner * extent * inner + slice % inner;
    Real sum = 0, magnitude = 0;
    for (int64_t i = first; i < first + extent * inner; i += inner) {
      const Real v = log ? grad.values[i] : grad.values[i] * y.values[i];
      sum += v;
      magnitude += std::fabs(v);
    }
    for (int64_t i = first; i < first + extent * inner; i += inner) {
      const Real g = grad.values[i], v = y.values[i], p = std::exp(v),
                 result = log ? g - p * sum : v * (g - sum);
      e->result().values[i] = result;
      e->error()[i] =
          log ? p * (step * magnitude + (2 * std::fabs(v) + 8) * eps * std::fabs(sum)) +
                    tiny * (1 + std::fabs(sum)) + 2 * eps * std::fabs(g)
              : std::fabs(v) * (step * magnitude + 2 * eps * (std::fabs(g) + std::fabs(sum))) +
                    tiny;
      if (log && p == 0)
        e->error()[i] = tiny * (1 + std::fabs(sum)) + 2 * eps * std::fabs(g);  // of -inf
      e->error()[i] += Ulp(y.dtype, result) / 2;
    }
  }
}

}  // namespace

bool ComputeGradients(const OracleCall& c, Expected* e) {
  if (c.row->family == "norm" && c.row->name.ends_with("_backward"))
    NormBackward(c, e);
  else if (c.row->name.ends_with("softmax_backward"))
    SoftmaxBackward(c, e);
  else
    return false;
  return true;
}

}  // namespace opwire::conformance
