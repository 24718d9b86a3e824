// Attention and its gradient against the fastest of PyTorch's backends.
#include <fmt/format.h>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

constexpr double kOfBackend = 1.0;

struct Attention {
  int64_t batch, length, depth, causal;
  int64_t heads = 32, key_heads = 8;

  std::string Name(bool backward) const { return fmt::format("attention_{}{}_{}{}", backward ? "backward_" : "", depth, length, causal ? "" : "_full"); }
  // Of the two products, of the pairs that take part; the gradient's are five.
  double Flops(bool backward) const {
    const double pairs = static_cast<double>(length) * static_cast<double>(length) / (causal ? 2 : 1);
    return (backward ? 10 : 4) * static_cast<double>(batch * heads * depth) * pairs;
  }
};

std::vector<Attention> All(bool small) {
  if (small) return {{1, 96, 64, 1, 4, 2}};
  return {{4, 4096, 64, 1}, {4, 4096, 128, 1}, {4, 4096, 128, 0}, {1, 16384, 64, 1}, {1, 16384, 128, 1}, {4, 4093, 128, 1}};
}

Status MeasureOne(Gpu& gpu, Baseline& baseline, const Attention& a, bool backward, std::vector<Row>& rows, std::vector<double>& ratios) {
  const TensorSpec own{DType::kBF16, {a.batch, a.heads, a.length, a.depth}}, shared{DType::kBF16, {a.batch, a.key_heads, a.length, a.depth}};
  const TensorSpec log_sum{DType::kF32, {a.batch, a.heads, a.length}}, absent{DType::kInvalid, {}};
  const std::vector<NamedAttr> attrs = {{"causal", a.causal != 0}};
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject,
                          backward ? Subject::OfOp(gpu, "scaled_dot_product_attention_backward", {own, own, shared, shared, own, log_sum, absent}, attrs)
                                   : Subject::OfOp(gpu, "scaled_dot_product_attention", {own, shared, shared, absent}, attrs));
  std::vector<Side> sides = {{subject->variant(), SecondsOf(gpu, [&](int i) { return subject->Launch(i); }, subject->sets())}};
  const bool compares = baseline.there();
  if (compares) {
    sides.push_back(baseline.For({.row = a.Name(backward), .op = backward ? "attention_backward" : "attention", .dtype = DType::kBF16,
                                  .shape = {a.batch, a.heads, a.key_heads, a.length, a.depth, a.causal}, .bytes = subject->bytes(), .compiled = false}));
  }
  std::vector<Series> series = TakeTurns(gpu, sides);
  if (compares) series.back().name = baseline.NameOf(a.Name(backward));
  rows.push_back(RateRow(a.Name(backward), "TFLOP/s", 1e-12 * a.Flops(backward), series[0], compares ? &series.back() : nullptr, compares ? kOfBackend : 0));
  if (rows.back().baseline > 0) ratios.push_back(RatioOf(rows.back()));
  return absl::OkStatus();
}

}  // namespace

void AttentionRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows) {
  std::vector<double> ratios;
  for (const bool backward : {false, true}) {
    for (const Attention& a : All(gpu.options().small)) {
      const std::string name = a.Name(backward);
      if (!gpu.Selected(name)) continue;
      gpu.Begin(name);
      if (const Status s = MeasureOne(gpu, baseline, a, backward, rows, ratios); !s.ok()) rows.push_back(FailedRow(name, s));
    }
  }
  AddMean(rows, "attention_torch_mean", ratios, 0);
}

}  // namespace opwire::bench
