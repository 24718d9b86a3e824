// The ops on GGUF's blocks, computed with the suite's own reader of blocks.
#include <algorithm>
#include <cmath>

#include "tests/conformance/blocks.h"
#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

void Linear(const OracleCall& c, Expected* e) {
  const Tensor &x = c.In(0), &weight = c.In(1), &bias = c.In(2);
  Tensor& y = e->result();
  const auto n = static_cast<size_t>(weight.shape[0]), k = static_cast<size_t>(weight.shape[1]),
             m = x.values.size() / k;
  const std::vector<BlockElement> w = ReadBlocks(weight.encoding, weight.encoded);
  const bool rounds = x.dtype != DType::kF64;
  const Real eps = Eps(ComputingType(x.dtype));
  e->error().resize(y.values.size());
  for (size_t i = 0; i < m; ++i) {
    std::vector<Real> off(k);  // the rounding error of each element
    for (size_t b = 0; b < k && rounds; b += 32) {
      Real most = 0;
      for (size_t l = b; l < b + 32; ++l) most = std::max(most, std::fabs(x.values[i * k + l]));
      std::fill_n(off.begin() + static_cast<std::ptrdiff_t>(b), 32,
                  most / 254 * (1 + 0x1p-10L) + 0x1p-119L);
    }
    for (size_t j = 0; j < n; ++j) {
      Real sum = 0, error = 0, magnitude = 0;
      for (size_t l = 0; l < k; ++l) {
        const Real v = x.values[i * k + l];
        const BlockElement& of = w[j * k + l];
        sum += v * (of.product + of.offset);
        error += off[l] * std::fabs(of.product + of.offset);
        magnitude += (std::fabs(v) + off[l]) * (std::fabs(of.product) + std::fabs(of.offset));
      }
      if (bias.dtype != DType::kInvalid) {
        sum += bias.values[j];
        magnitude += std::fabs(bias.values[j]);
      }
      y.values[i * n + j] = sum;
      e->error()[i * n + j] =
          WithRounding(y.dtype, sum, error + static_cast<Real>(k + 3) * eps * magnitude);
    }
  }
}

// Returns the value that the ops use: rounded to f32 first, except for f64.
Real AsFloat(DType type, const BlockElement& v) {
  const Real exact = v.product + v.offset;
  return type == DType::kF64 ? exact : Rounded(DType::kF32, exact);
}

void Embedding(const OracleCall& c, Expected* e) {
  const Tensor &weight = c.In(0), &indices = c.In(1);
  Tensor& y = e->result();
  const std::vector<BlockElement> w = ReadBlocks(weight.encoding, weight.encoded);
  const int64_t rows = weight.shape[0], depth = weight.shape[1];
  for (int64_t i = 0; i < indices.elements(); ++i) {
    const Real named = indices.values[static_cast<size_t>(i)],
               row = named < 0 ? named + static_cast<Real>(rows) : named;
    const bool there = row >= 0 && row < static_cast<Real>(rows);
    if (!there && e->bad_operand < 0) {
      e->bad_operand = 1;
      e->bad_position = i;
    }
    for (int64_t l = 0; l < depth && there; ++l)
      y.values[static_cast<size_t>(i * depth + l)] =
          AsFloat(y.dtype, w[static_cast<size_t>(static_cast<int64_t>(row) * depth + l)]);
  }
}

}  // namespace

bool ComputeBlocks(const OracleCall& c, Expected* e) {
  if (c.row->name == "quantized_linear") {
    Linear(c, e);
  } else if (c.row->name == "quantized_embedding") {
    Embedding(c, e);
  } else if (c.row->name == "dequantize_blocks") {
    const std::vector<BlockElement> x = ReadBlocks(c.In(0).encoding, c.In(0).encoded);
    std::ranges::transform(x, e->result().values.begin(),
                           [&](const BlockElement& v) { return AsFloat(e->result().dtype, v); });
  } else {
    return false;
  }
  return true;
}

}  // namespace opwire::conformance
