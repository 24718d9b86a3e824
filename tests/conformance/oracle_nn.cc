// Matrix products, softmax, normalisation and losses.
#include <algorithm>
#include <cmath>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

void Matmul(const OracleCall& c, Expected* e) {
  const Tensor &x = c.In(0), &y = c.In(1);
  const bool tx = c.Bool(0), ty = c.Bool(1), floats = IsFloat(x.dtype);
  const int64_t depth = x.shape[x.rank() - (tx ? 2 : 1)];
  const DType computing = ComputingType(x.dtype);
  if (floats) e->error().resize(e->result().elements());
  const Extents x_batch(x.shape.begin(), x.shape.end() - 2), y_batch(y.shape.begin(), y.shape.end() - 2);
  Extents index(e->result().shape.size(), 0);
  for (int64_t i = 0; i < e->result().elements(); ++i, NextIndex(e->result().shape, &index)) {
    const Extents batch(index.begin(), index.end() - 2);
    const int64_t row = index[index.size() - 2], column = index.back();
    const int64_t x_rows = x.shape[x.rank() - 2], x_columns = x.shape.back(), y_rows = y.shape[y.rank() - 2],
                  y_columns = y.shape.back();
    const int64_t x_base = BroadcastFlat(x_batch, batch) * x_rows * x_columns,
                  y_base = BroadcastFlat(y_batch, batch) * y_rows * y_columns;
    Real sum = 0, magnitude = 0;
    uint64_t wrapped = 0;
    for (int64_t l = 0; l < depth; ++l) {
      const Real a = x.values[x_base + (tx ? l * x_columns + row : row * x_columns + l)];
      const Real b = y.values[y_base + (ty ? column * y_columns + l : l * y_columns + column)];
      sum += a * b;
      magnitude += std::fabs(a * b);
      if (!floats) wrapped += static_cast<uint64_t>(static_cast<__int128>(a)) * static_cast<uint64_t>(static_cast<__int128>(b));
    }
    e->result().values[i] = floats ? sum : Decode(x.dtype, &wrapped);
    if (floats) e->error()[i] = (static_cast<Real>(depth) + 2) * Eps(computing) * magnitude + Ulp(x.dtype, sum) / 2;
  }
}

// What an activation makes of a sum, and the error: no slope is beyond 1.13, and of the activation's own the bound is relative to its argument.
void Activate(const std::string& activation, DType type, Real sum, Real off, Real* value, Real* error) {
  const Real eps = Eps(ComputingType(type)), root = std::sqrt(2 / M_PIl);
  Real v = sum;
  if (activation == "relu") v = sum <= 0 ? 0 : sum;
  if (activation == "gelu") v = sum / 2 * (1 + std::erf(sum / std::sqrt(Real{2})));
  if (activation == "gelu_tanh") v = sum / 2 * (1 + std::tanh(root * (sum + 0.044715L * sum * sum * sum)));
  if (activation == "silu") v = sum / (1 + std::exp(-sum));
  const bool curved = activation != "none" && activation != "relu";
  *value = v;
  *error = (curved ? 1.13L * off + 8 * eps * std::fabs(sum) : off) + Ulp(type, v) / 2;
}

// Sums of products of rows of x, which are `x_off` from what they say relatively, by rows of weight; with the bias after it, where there is one.
void LinearOf(const OracleCall& c, const Tensor& x, Real x_off, int weight_at, const std::string& activation, Expected* e) {
  const Tensor &weight = c.In(weight_at), &bias = c.In(weight_at + 1);
  const int64_t n = weight.shape[0], k = weight.shape[1];
  const Real eps = Eps(ComputingType(weight.dtype)), relative = (static_cast<Real>(k) + 2) * eps + x_off;
  e->error().resize(e->result().elements());
  for (int64_t i = 0; i < e->result().elements(); ++i) {
    Real sum = 0, magnitude = 0;
    for (int64_t l = 0; l < k; ++l) {
      const Real term = x.values[i / n * k + l] * weight.values[i % n * k + l];
      sum += term;
      magnitude += std::fabs(term);
    }
    Real off = relative * magnitude;
    if (bias.dtype != DType::kInvalid) {
      sum += bias.values[i % n];
      off += eps * (std::fabs(bias.values[i % n]) + magnitude);
    }
    Activate(activation, weight.dtype, sum, off, &e->result().values[i], &e->error()[i]);
  }
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
      // The difference is rounded, exp is 2 ulp, the sum as in the model.
      const Real relative = (std::fabs(v) + 12 + n / 32) * eps;
      e->error()[i] = (log ? relative : relative * y) + Ulp(x.dtype, y) / 2 + std::ldexp(eps, x.dtype == DType::kF64 ? -970 : -103);
    }
  }
}

// The sum of two elements, rounded once; long double would round that of f64 twice.
Real RoundedSum(DType type, Real a, Real b) { return type == DType::kF64 ? static_cast<Real>(static_cast<double>(a) + static_cast<double>(b)) : Rounded(type, a + b); }

// Of x, or of x + residual as it is stored: that sum is exact but for its rounding.
void Norm(const OracleCall& c, Expected* e) {
  const bool residual = c.row->name.starts_with("add_"), layer = c.row->name.ends_with("layer_norm");
  const int scales = residual ? 2 : 1;  // where weight and bias are
  Tensor x = c.In(0);
  if (residual) {
    for (int64_t i = 0; i < x.elements(); ++i) x.values[i] = RoundedSum(x.dtype, x.values[i], c.In(1).values[i]);
    e->results[1].tensor.values = x.values;
  }
  int64_t extent = 1;
  for (int a = x.rank() - static_cast<int>(c.Int(0)); a < x.rank(); ++a) extent *= x.shape[a];
  const Real eps = Eps(ComputingType(x.dtype)), n = static_cast<Real>(extent);
  const bool weighted = c.In(scales).dtype != DType::kInvalid, biased = layer && c.In(scales + 1).dtype != DType::kInvalid;
  e->error().resize(x.elements());
  for (int64_t first = 0; first < x.elements(); first += extent) {
    Real mean = 0, square = 0, magnitude = 0;
    for (int64_t i = 0; i < extent; ++i) {
      if (layer) mean += x.values[first + i] / n;
      magnitude = std::fmax(magnitude, std::fabs(x.values[first + i]));
    }
    for (int64_t i = 0; i < extent; ++i) square += (x.values[first + i] - mean) * (x.values[first + i] - mean);
    const Real factor = 1 / std::sqrt(square / n + static_cast<Real>(c.Float(1)));
    for (int64_t i = 0; i < extent; ++i) {
      const Real w = weighted ? c.In(scales).values[i] : 1, b = biased ? c.In(scales + 1).values[i] : 0;
      const Real y = (x.values[first + i] - mean) * factor * w + b;
      e->result().values[first + i] = y;
      e->error()[first + i] = (8 + n / 32) * eps * (magnitude * factor * std::fabs(w) + std::fabs(b)) + Ulp(x.dtype, y) / 2;
    }
  }
}

// Loss and gradient of a row; a row whose target is ignored or bad counts for nothing.
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

void CrossEntropy(const OracleCall& c, Expected* e) {
  const Tensor& logits = c.In(0);
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const Real eps = Eps(ComputingType(logits.dtype));
  const bool none = c.Text(0) == "none", mean = c.Text(0) == "mean";
  Real total = 0, error = 0, counted = 0;
  e->error().resize(e->result().elements());
  for (int64_t row = 0; row < rows; ++row) {
    const Row r = Read(c, 1, logits, row, e);
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
  e->error()[0] =
      (mean && counted > 0 ? error / counted : error) + eps * std::fabs(total) + Ulp(logits.dtype, e->result().values[0]) / 2;
}

void CrossEntropyBackward(const OracleCall& c, Expected* e) {
  const Tensor &grad = c.In(0), &logits = c.In(1);
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  const Real eps = Eps(ComputingType(logits.dtype));
  Real counted = 0;
  for (int64_t row = 0; row < rows; ++row) counted += static_cast<int64_t>(c.In(2).values[row]) != c.Int(1);
  e->error().resize(e->result().elements());
  for (int64_t row = 0; row < rows; ++row) {
    const Row r = Read(c, 2, logits, row, e);
    if (r.target < 0) continue;
    const Real scale = grad.values[grad.rank() == 0 ? 0 : row] / (c.Text(0) == "mean" ? counted : 1);
    for (int64_t i = 0; i < classes; ++i) {
      const Real p = std::exp(logits.values[row * classes + i] - r.log_sum), v = (p - (i == r.target)) * scale;
      e->result().values[row * classes + i] = v;
      e->error()[row * classes + i] =
          (2 * r.most + 14 + static_cast<Real>(classes) / 32) * eps * (p + (i == r.target)) * std::fabs(scale) +
          Ulp(logits.dtype, v) / 2 + std::ldexp(eps, logits.dtype == DType::kF64 ? -970 : -103);
    }
  }
}

}  // namespace

bool ComputeNn(const OracleCall& c, Expected* e) {
  const std::string& op = c.row->name;
  if (op == "matmul")
    Matmul(c, e);
  else if (op == "linear")
    LinearOf(c, c.In(0), 0, 1, c.Text(0), e);
  else if (op == "softmax" || op == "log_softmax")
    Softmax(c, e);
  else if (c.row->family == "norm" && !op.ends_with("_backward"))
    Norm(c, e);
  else if (op == "cross_entropy")
    CrossEntropy(c, e);
  else if (op == "cross_entropy_backward")
    CrossEntropyBackward(c, e);
  else
    return false;
  return true;
}

}  // namespace opwire::conformance
