// Matmuls, softmax, normalisation and losses.
#include <algorithm>
#include <cmath>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

void Matmul(const OracleCall& c, Expected* e) {
  const Tensor &x = c.In(0), &y = c.In(1);
  const bool tx = c.Bool(0), ty = c.Bool(1), floats = IsFloat(x.dtype),
             scaled = c.row->name == "scaled_matmul";
  const int64_t depth = x.shape[x.rank() - (tx ? 2 : 1)];
  const DType computing = ComputingType(x.dtype);
  if (floats) e->error().resize(e->result().elements());
  const Extents x_batch(x.shape.begin(), x.shape.end() - 2),
      y_batch(y.shape.begin(), y.shape.end() - 2);
  Extents index(e->result().shape.size(), 0);
  for (int64_t i = 0; i < e->result().elements(); ++i, NextIndex(e->result().shape, &index)) {
    const Extents batch(index.begin(), index.end() - 2);
    const int64_t row = index[index.size() - 2], column = index.back();
    const int64_t x_rows = x.shape[x.rank() - 2], x_columns = x.shape.back(),
                  y_rows = y.shape[y.rank() - 2], y_columns = y.shape.back();
    const int64_t x_base = BroadcastFlat(x_batch, batch) * x_rows * x_columns,
                  y_base = BroadcastFlat(y_batch, batch) * y_rows * y_columns;
    Real sum = 0, magnitude = 0;
    uint64_t wrapped = 0;
    for (int64_t l = 0; l < depth; ++l) {
      const Real a = x.values[x_base + (tx ? l * x_columns + row : row * x_columns + l)];
      const Real b = y.values[y_base + (ty ? column * y_columns + l : l * y_columns + column)];
      sum += a * b;
      magnitude += std::fabs(a * b);
      if (!floats)
        wrapped += static_cast<uint64_t>(static_cast<__int128>(a)) *
                   static_cast<uint64_t>(static_cast<__int128>(b));
    }
    if (scaled) {
      const auto scale = [&](int operand, int64_t at) {
        return c.In(operand).values[c.In(operand).rank() == 0 ? 0 : static_cast<size_t>(at)];
      };
      const Real by = scale(2, row) * scale(3, column);
      sum *= by;
      magnitude *= std::fabs(by);
    }
    e->result().values[i] = floats ? sum : Decode(x.dtype, &wrapped);
    // Tensor cores keep 13 bits below the largest of the products of 8-bit floats, before they sum
    // them in f32.
    const Real eps = scaled ? std::ldexp(Real{1}, -13) : Eps(computing);
    if (floats)
      e->error()[i] =
          (static_cast<Real>(scaled ? std::min<int64_t>(depth, 1) : depth) + 2) * eps * magnitude +
          Ulp(e->result().dtype, sum) / 2;
  }
}

// Applies an activation to a sum, and computes the error. No slope exceeds 1.13. The bound of the
// activation's own error is relative to its argument.
void Activate(const std::string& activation, DType type, Real sum, Real off, Real* value,
              Real* error) {
  const Real eps = Eps(ComputingType(type)), root = std::sqrt(2 / M_PIl);
  Real v = sum;
  if (activation == "relu") v = sum <= 0 ? 0 : sum;
  if (activation == "gelu") v = sum / 2 * (1 + std::erf(sum / std::sqrt(Real{2})));
  if (activation == "gelu_tanh")
    v = sum / 2 * (1 + std::tanh(root * (sum + 0.044715L * sum * sum * sum)));
  if (activation == "silu") v = sum / (1 + std::exp(-sum));
  const bool curved = activation != "none" && activation != "relu";
  *value = v;
  const Real own =
      (activation == "gelu_tanh" && type == DType::kBF16 ? std::ldexp(Real{1}, -12) : 8 * eps) *
      std::fabs(sum);
  *error = WithRounding(type, v, curved ? 1.13L * off + own : off);
}

// Computes sums of products of rows of x, whose elements may be off by `x_off`, with rows of
// weight. Adds the bias afterwards, if there is one.
void LinearOf(const OracleCall& c, const Tensor& x, const std::vector<Real>& x_off, int weight_at,
              const std::string& activation, Expected* e) {
  const Tensor &weight = c.In(weight_at), &bias = c.In(weight_at + 1);
  const int64_t n = weight.shape[0], k = weight.shape[1];
  const Real eps = Eps(ComputingType(weight.dtype)), relative = (static_cast<Real>(k) + 2) * eps;
  e->error().resize(e->result().elements());
  for (int64_t i = 0; i < e->result().elements(); ++i) {
    Real sum = 0, magnitude = 0, off = 0;
    for (int64_t l = 0; l < k; ++l) {
      const int64_t at = i / n * k + l;
      const Real w = weight.values[i % n * k + l];
      sum += x.values[at] * w;
      magnitude += std::fabs(x.values[at] * w);
      if (!x_off.empty()) off += x_off[at] * std::fabs(w);
    }
    off += relative * magnitude;
    const bool goes_on = bias.dtype != DType::kInvalid || activation != "none";
    if (goes_on && DTypeBytes(weight.dtype) == 2) off = WithRounding(weight.dtype, sum, off);
    if (bias.dtype != DType::kInvalid) {
      sum += bias.values[i % n];
      off += eps * (std::fabs(bias.values[i % n]) + magnitude);
    }
    Activate(activation, weight.dtype, sum, off, &e->result().values[i], &e->error()[i]);
  }
}

// The linear layer of normalised rows. Each of their elements is off by (8 + k / 32) eps and
// perhaps rounded.
void RmsNormLinear(const OracleCall& c, Expected* e) {
  const Tensor& weight = c.In(1);
  Tensor x = c.In(0);
  const int64_t k = x.shape.back();
  std::vector<Real> off(x.elements());
  for (int64_t first = 0; first < x.elements(); first += k) {
    Real square = 0;
    for (int64_t l = 0; l < k; ++l) square += x.values[first + l] * x.values[first + l];
    const Real factor =
        1 / std::sqrt(square / static_cast<Real>(k) + static_cast<Real>(c.Float(0)));
    for (int64_t l = 0; l < k; ++l) {
      Real& v = x.values[first + l];
      v *= factor * (weight.dtype == DType::kInvalid ? 1 : weight.values[l]);
      off[first + l] = WithRounding(
          x.dtype, v, (8 + static_cast<Real>(k) / 32) * Eps(ComputingType(x.dtype)) * std::fabs(v));
    }
  }
  LinearOf(c, x, off, 2, c.Text(1), e);
}

void Softmax(const OracleCall& c, Expected* e) {
  const Tensor& x = c.In(0);
  const int dim = static_cast<int>(c.Int(0) < 0 ? c.Int(0) + x.rank() : c.Int(0));
  const bool log = c.row->name == "log_softmax";
  const Real eps = Eps(ComputingType(x.dtype)), n = static_cast<Real>(x.shape[dim]);
  e->error().resize(x.elements());
  int64_t inner = 1;
  for (int a = dim + 1; a < x.rank(); ++a) inner *= x.shape[a];
  const int64_t extent = x.shape[dim];
  for (int64_t slice = 0; slice < x.elements() / std::max<int64_t>(1, extent); ++slice) {
    const int64_t first = slice / inner * extent * inner + slice % inner;
    Real most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < extent; ++k) most = std::fmax(most, x.values[first + k * inner]);
    for (int64_t k = 0; k < extent; ++k) sum += std::exp(x.values[first + k * inner] - most);
    for (int64_t k = 0; k < extent; ++k) {
      const int64_t i = first + k * inner;
      const Real v = x.values[i] - most, y = log ? v - std::log(sum) : std::exp(v) / sum;
      e->result().values[i] = y;
      // The rounded difference, 2 ulp of exp, and the sum as in the model.
      const Real relative = (std::fabs(v) + 12 + n / 32) * eps;
      e->error()[i] = (log ? relative : relative * y) + Ulp(x.dtype, y) / 2 +
                      std::ldexp(eps, x.dtype == DType::kF64 ? -970 : -103);
    }
  }
}

// Returns the sum of two elements, rounded once; long double would round that of f64 twice.
Real RoundedSum(DType type, Real a, Real b) {
  return type == DType::kF64 ? static_cast<Real>(static_cast<double>(a) + static_cast<double>(b))
                             : Rounded(type, a + b);
}

// Normalises x, or x + residual as it is stored: that sum is exact except for its rounding.
void Norm(const OracleCall& c, Expected* e) {
  const bool residual = c.row->name.starts_with("add_"),
             layer = c.row->name.ends_with("layer_norm");
  const int scales = residual ? 2 : 1;  // position of weight and bias
  Tensor x = c.In(0);
  if (residual) {
    for (int64_t i = 0; i < x.elements(); ++i)
      x.values[i] = RoundedSum(x.dtype, x.values[i], c.In(1).values[i]);
    e->results[1].tensor.values = x.values;
  }
  int64_t extent = 1;
  for (int a = x.rank() - static_cast<int>(c.Int(0)); a < x.rank(); ++a) extent *= x.shape[a];
  const Real eps = Eps(ComputingType(x.dtype)), n = static_cast<Real>(extent);
  const bool weighted = c.In(scales).dtype != DType::kInvalid,
             biased = layer && c.In(scales + 1).dtype != DType::kInvalid;
  e->error().resize(x.elements());
  for (int64_t first = 0; first < x.elements(); first += extent) {
    Real mean = 0, square = 0, magnitude = 0;
    for (int64_t i = 0; i < extent; ++i) {
      if (layer) mean += x.values[first + i] / n;
      magnitude = std::fmax(magnitude, std::fabs(x.values[first + i]));
    }
    for (int64_t i = 0; i < extent; ++i)
      square += (x.values[first + i] - mean) * (x.values[first + i] - mean);
    const Real factor = 1 / std::sqrt(square / n + static_cast<Real>(c.Float(1)));
    for (int64_t i = 0; i < extent; ++i) {
      const Real w = weighted ? c.In(scales).values[i] : 1,
                 b = biased ? c.In(scales + 1).values[i] : 0;
      const Real y = (x.values[first + i] - mean) * factor * w + b;
      e->result().values[first + i] = y;
      e->error()[first + i] =
          (8 + n / 32) * eps * (magnitude * factor * std::fabs(w) + std::fabs(b)) +
          Ulp(x.dtype, y) / 2;
    }
  }
}

// Loss and gradient of a row. A row whose target is ignored or bad does not count.
struct Row {
  bool counts;          // not ignored
  int64_t target = -1;  // -1: none
  Real most = 0, log_sum = 0;
};

Row Read(const OracleCall& c, int operand, const Tensor& logits, int64_t row, Expected* e) {
  const int64_t classes = logits.shape[1], value = static_cast<int64_t>(c.In(operand).values[row]);
  Row r{value != c.Int(1)};
  if (!r.counts) return r;
  if (value < 0 || value >= classes) {
    if (e->bad_operand < 0) e->bad_operand = operand, e->bad_position = row;
    return r;
  }
  r.target = value;
  Real most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < classes; ++i) most = std::fmax(most, logits.values[row * classes + i]);
  for (int64_t i = 0; i < classes; ++i) {
    sum += std::exp(logits.values[row * classes + i] - most);
    r.most = std::fmax(r.most, std::fabs(logits.values[row * classes + i]));
  }
  r.log_sum = most + std::log(sum);
  return r;
}

// Computes the losses of the logits in operand `first`, as result 0.
void CrossEntropy(const OracleCall& c, int first, Expected* e) {
  const Tensor& logits = c.In(first);
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const Real eps = Eps(ComputingType(logits.dtype));
  const bool none = c.Text(0) == "none", mean = c.Text(0) == "mean";
  Real total = 0, error = 0, counted = 0;
  e->error().resize(e->result().elements());
  for (int64_t row = 0; row < rows; ++row) {
    const Row r = Read(c, first + 1, logits, row, e);
    counted += r.counts;
    const Real v = r.target < 0 ? 0 : r.log_sum - logits.values[row * classes + r.target];
    const Real bound = (2 * r.most + 12 + static_cast<Real>(classes) / 32) * eps;
    total += v;
    error += bound + eps * std::fabs(total);
    if (none) {
      e->result().values[row] = v;
      e->error()[row] = bound + Ulp(logits.dtype, v) / 2;
    }
  }
  if (none) return;
  e->result().values[0] = mean ? total / counted : total;
  e->error()[0] = (mean && counted > 0 ? error / counted : error) + eps * std::fabs(total) +
                  Ulp(logits.dtype, e->result().values[0]) / 2;
}

void CrossEntropyBackward(const OracleCall& c, size_t result, Expected* e) {
  const Tensor &grad = c.In(0), &logits = c.In(1);
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const Real eps = Eps(ComputingType(logits.dtype));
  Tensor& gradient = e->results[result].tensor;
  std::vector<Real>& error = e->results[result].error;
  Real counted = 0;
  for (int64_t row = 0; row < rows; ++row)
    counted += static_cast<int64_t>(c.In(2).values[row]) != c.Int(1);
  error.resize(gradient.elements());
  for (int64_t row = 0; row < rows; ++row) {
    const Row r = Read(c, 2, logits, row, e);
    if (r.target < 0) continue;
    const Real scale =
        grad.values[grad.rank() == 0 ? 0 : row] / (c.Text(0) == "mean" ? counted : 1);
    for (int64_t i = 0; i < classes; ++i) {
      const Real p = std::exp(logits.values[row * classes + i] - r.log_sum),
                 v = (p - (i == r.target)) * scale;
      gradient.values[row * classes + i] = v;
      error[row * classes + i] = (2 * r.most + 14 + static_cast<Real>(classes) / 32) * eps *
                                     (p + (i == r.target)) * std::fabs(scale) +
                                 Ulp(logits.dtype, v) / 2 +
                                 std::ldexp(eps, logits.dtype == DType::kF64 ? -970 : -103);
    }
  }
}

// Sums of products of one row of input with each row of weight, and bounds of their errors.
struct Logits {
  std::vector<Real> values, off;
  Real most_off = 0;
};
Logits LogitsOf(const Tensor& input, const Tensor& weight, int64_t row) {
  const int64_t classes = weight.shape[0], depth = weight.shape[1];
  Logits l{std::vector<Real>(classes), std::vector<Real>(classes)};
  for (int64_t i = 0; i < classes; ++i) {
    Real magnitude = 0;
    for (int64_t d = 0; d < depth; ++d) {
      const Real term = input.values[row * depth + d] * weight.values[i * depth + d];
      l.values[i] += term;
      magnitude += std::fabs(term);
    }
    l.off[i] = (static_cast<Real>(depth) + 2) * Eps(ComputingType(input.dtype)) * magnitude;
    l.most_off = std::fmax(l.most_off, l.off[i]);
  }
  return l;
}

// Returns the target of a row in range, or -1. Notes a target that is neither in range nor ignored.
int64_t TargetAt(const OracleCall& c, int operand, int64_t row, int64_t classes, Expected* e) {
  const int64_t value = static_cast<int64_t>(c.In(operand).values[row]);
  if (value == c.Int(1)) return -1;
  if (value >= 0 && value < classes) return value;
  if (e->bad_operand < 0) e->bad_operand = operand, e->bad_position = row;
  return -1;
}
Real CountOf(const OracleCall& c, int operand) {
  Real counted = 0;
  for (const Real v : c.In(operand).values) counted += static_cast<int64_t>(v) != c.Int(1);
  return counted;
}

void LinearCrossEntropy(const OracleCall& c, Expected* e) {
  const Tensor &input = c.In(0), &weight = c.In(1);
  const int64_t rows = input.shape[0], classes = weight.shape[0];
  const Real eps = Eps(ComputingType(input.dtype));
  const bool none = c.Text(0) == "none", mean = c.Text(0) == "mean";
  Expected::Result &loss = e->results[0], &log_sums = e->results[1];
  loss.error.resize(loss.tensor.elements());
  log_sums.error.resize(rows);
  Real total = 0, error = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const Logits l = LogitsOf(input, weight, row);
    const int64_t target = TargetAt(c, 2, row, classes, e);
    Real most = -INFINITY, largest = 0, sum = 0;
    for (const Real v : l.values)
      most = std::fmax(most, v), largest = std::fmax(largest, std::fabs(v));
    for (const Real v : l.values) sum += std::exp(v - most);
    const Real log_sum = most + std::log(sum),
               bound = l.most_off + (2 * largest + 12 + static_cast<Real>(classes) / 32) * eps;
    log_sums.tensor.values[row] = log_sum;
    log_sums.error[row] = bound;
    const Real v = target < 0 ? 0 : log_sum - l.values[target],
               off = target < 0 ? 0 : bound + l.off[target];
    total += v;
    error += off + eps * std::fabs(total);
    if (none) {
      loss.tensor.values[row] = v;
      loss.error[row] = WithRounding(input.dtype, v, off);
    }
  }
  if (none) return;
  const Real divisor = mean ? CountOf(c, 2) : 1;
  loss.tensor.values[0] = total / divisor;
  loss.error[0] = WithRounding(input.dtype, loss.tensor.values[0],
                               (divisor > 0 ? error / divisor : error) + eps * std::fabs(total));
}

void LinearCrossEntropyBackward(const OracleCall& c, Expected* e) {
  const Tensor &grad = c.In(0), &input = c.In(1), &weight = c.In(2), &log_sums = c.In(4);
  const int64_t rows = input.shape[0], classes = weight.shape[0], depth = weight.shape[1];
  const DType type = input.dtype;
  const Real eps = Eps(ComputingType(type)), divisor = c.Text(0) == "mean" ? CountOf(c, 3) : 1;
  Expected::Result &by_input = e->results[0], &by_weight = e->results[1];
  by_input.error.resize(by_input.tensor.elements());
  by_weight.error.resize(by_weight.tensor.elements());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t target = TargetAt(c, 3, row, classes, e);
    const Logits l = LogitsOf(input, weight, row);
    const Real scale = grad.values[grad.rank() == 0 ? 0 : row] / divisor;
    for (int64_t i = 0; i < classes && target >= 0; ++i) {
      const Real away = l.values[i] - log_sums.values[row], p = std::exp(away),
                 d = (p - (i == target)) * scale;
      Real off = p *
                     (std::expm1(l.off[i]) +
                      (2 * std::fabs(away) + 2 * std::fabs(l.values[i]) + 14) * eps) *
                     std::fabs(scale) +
                 4 * eps * std::fabs(d);
      off += std::ldexp(eps, type == DType::kF64 ? -970 : -103) +
             (type == ComputingType(type) ? 0 : Ulp(type, d) / 2);
      for (int64_t j = 0; j < depth; ++j) {
        const Real w = weight.values[i * depth + j], x = input.values[row * depth + j];
        by_input.tensor.values[row * depth + j] += d * w;
        by_input.error[row * depth + j] +=
            (off + (static_cast<Real>(classes) + 2) * eps * std::fabs(d)) * std::fabs(w);
        by_weight.tensor.values[i * depth + j] += d * x;
        by_weight.error[i * depth + j] +=
            (off + (2 * static_cast<Real>(rows) + 2) * eps * std::fabs(d)) * std::fabs(x);
      }
    }
  }
  for (Expected::Result* r : {&by_input, &by_weight}) {
    for (int64_t i = 0; i < r->tensor.elements(); ++i)
      r->error[i] = WithRounding(type, r->tensor.values[i], r->error[i]);
  }
}

}  // namespace

bool ComputeNn(const OracleCall& c, Expected* e) {
  const std::string& op = c.row->name;
  if (op == "matmul" || op == "scaled_matmul")
    Matmul(c, e);
  else if (op == "linear")
    LinearOf(c, c.In(0), {}, 1, c.Text(0), e);
  else if (op == "rms_norm_linear")
    RmsNormLinear(c, e);
  else if (op == "softmax" || op == "log_softmax")
    Softmax(c, e);
  else if (c.row->family == "norm" && !op.ends_with("_backward"))
    Norm(c, e);
  else if (op == "cross_entropy")
    CrossEntropy(c, 0, e);
  else if (op == "cross_entropy_backward")
    CrossEntropyBackward(c, 0, e);
  else if (op == "cross_entropy_with_gradient") {
    CrossEntropy(c, 1, e);
    CrossEntropyBackward(c, 1, e);
  } else if (op == "linear_cross_entropy")
    LinearCrossEntropy(c, e);
  else if (op == "linear_cross_entropy_backward")
    LinearCrossEntropyBackward(c, e);
  else
    return false;
  return true;
}

}  // namespace opwire::conformance
