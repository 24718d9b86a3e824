// Linear layers with the ops that are fused with them, and the loss of a language model's last
// layer, against PyTorch.
#include <fmt/format.h>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

// Of bf16: x [m, k] and weight [n, k].
struct Layer {
  std::string name, op, python;  // python: what baseline.py calls it
  int64_t m, n, k;
  std::vector<NamedAttr> attrs;
  bool norm = false, bias = false;
};

std::vector<Layer> Layers(bool small) {
  std::vector<Layer> all;
  const int64_t scale = small ? 128 : 1, wide = 14336 / scale, own = 4096 / scale;
  const int64_t many = small ? 130 : 8192;
  for (const int64_t m : {1, 512}) {
    all.push_back({fmt::format("linear_gelu_tanh_{}_{}x{}", m, wide, own),
                   "linear",
                   "linear_gelu_tanh",
                   m,
                   wide,
                   own,
                   {{"activation", std::string("gelu_tanh")}},
                   false,
                   true});
  }
  for (const std::string activation : {"gelu", "silu"}) {
    const std::string python = "linear_" + activation;
    for (const int64_t m : {int64_t{512}, many})
      all.push_back({fmt::format("{}_{}_{}x{}", python, m, wide, own),
                     "linear",
                     python,
                     m,
                     wide,
                     own,
                     {{"activation", activation}},
                     false,
                     true});
  }
  for (const int64_t n : {own, wide})
    all.push_back({fmt::format("rms_norm_linear_1_{}x{}", n, own),
                   "rms_norm_linear",
                   "rms_norm_linear",
                   1,
                   n,
                   own,
                   {},
                   true});
  return all;
}

Status MeasureLayer(Gpu& gpu, Baseline& baseline, const Layer& l, std::vector<Row>& rows,
                    std::vector<double>& ratios) {
  const TensorSpec absent{DType::kInvalid, {}}, bias{DType::kBF16, {l.n}};
  std::vector<TensorSpec> operands = {{DType::kBF16, {l.m, l.k}}};
  if (l.norm) operands.push_back({DType::kBF16, {l.k}});
  operands.push_back({DType::kBF16, {l.n, l.k}});
  operands.push_back(l.bias ? bias : absent);
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject,
                          Subject::OfOp(gpu, l.op, std::move(operands), l.attrs));
  std::vector<Side> sides = {SideOf(gpu, *subject)};
  const bool compares = baseline.there(), by_bytes = l.m <= 64;  // memory traffic limits few rows
  if (compares)
    sides.push_back(baseline.For({.row = l.name,
                                  .op = l.python,
                                  .dtype = DType::kBF16,
                                  .shape = {l.m, l.n, l.k},
                                  .bytes = subject->bytes()}));
  std::vector<Series> series = TakeTurns(gpu, sides);
  if (compares) series.back().name = baseline.NameOf(l.name);
  const double work =
      1e-12 * (by_bytes ? static_cast<double>(subject->bytes())
                        : 2.0 * static_cast<double>(l.m) * static_cast<double>(l.n * l.k));
  rows.push_back(RateRow(l.name, by_bytes ? "TB/s" : "TFLOP/s", work, series[0],
                         compares ? &series.back() : nullptr, compares ? kOfPyTorch : 0));
  if (rows.back().baseline > 0) ratios.push_back(RatioOf(rows.back()));
  return absl::OkStatus();
}

// The loss alone, or with its gradients. PyTorch computes the gradients from logits that it kept;
// our kernels compute the logits again. Both count as the three matmuls of a step.
Status MeasureLoss(Gpu& gpu, Baseline& baseline, const std::string& name, bool step,
                   std::vector<Row>& rows, std::vector<double>& ratios) {
  const bool small = gpu.options().small;
  const int64_t n = small ? 64 : 8192, depth = small ? 32 : 4096, classes = small ? 300 : 128256;
  const TensorSpec input{DType::kBF16, {n, depth}}, weight{DType::kBF16, {classes, depth}},
      target{DType::kI64, {n}, Fill::kZeros};
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> forward,
                          Subject::OfOp(gpu, "linear_cross_entropy", {input, weight, target}, {}));
  std::unique_ptr<Subject> backward;
  if (step) {
    const TensorSpec one{DType::kBF16, {}, Fill::kOnes}, log_sums{DType::kF32, {n}};
    OPWIRE_ASSIGN_OR_RETURN(backward, Subject::OfOp(gpu, "linear_cross_entropy_backward",
                                                    {one, input, weight, target, log_sums}, {}));
    OPWIRE_RETURN_IF_ERROR(forward->Launch(0));  // all sets have the same numbers
    OPWIRE_RETURN_IF_ERROR(backward->SetOperand(4, *forward, 1));
  }
  const auto launch = [&](int i) -> Status {
    OPWIRE_RETURN_IF_ERROR(forward->Launch(i));
    return step ? backward->Launch(i) : absl::OkStatus();
  };
  const auto check = [&]() -> Status {
    OPWIRE_RETURN_IF_ERROR(forward->Check());
    return step ? backward->Check() : absl::OkStatus();
  };
  std::vector<Side> sides = {{forward->variant(), SecondsOf(gpu, launch, forward->sets()), check}};
  const bool compares = baseline.there();
  if (compares) {
    sides.push_back(baseline.For({.row = name,
                                  .op = step ? "linear_cross_entropy_step" : "linear_cross_entropy",
                                  .dtype = DType::kBF16,
                                  .shape = {n, depth, classes},
                                  .bytes = forward->bytes()}));
  }
  std::vector<Series> series = TakeTurns(gpu, sides);
  if (compares) series.back().name = baseline.NameOf(name);
  const double work =
      1e-12 * (step ? 6.0 : 2.0) * static_cast<double>(n * depth) * static_cast<double>(classes);
  rows.push_back(RateRow(name, "TFLOP/s", work, series[0], compares ? &series.back() : nullptr, 0));
  if (rows.back().baseline > 0) ratios.push_back(RatioOf(rows.back()));
  return absl::OkStatus();
}

}  // namespace

void LinearRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows) {
  std::vector<double> ratios;
  for (const Layer& l : Layers(gpu.options().small)) {
    if (!gpu.Selected(l.name)) continue;
    gpu.Begin(l.name);
    if (const Status s = MeasureLayer(gpu, baseline, l, rows, ratios); !s.ok())
      rows.push_back(FailedRow(l.name, s));
  }
  for (const bool step : {false, true}) {
    const std::string name = step ? "linear_cross_entropy_step" : "linear_cross_entropy";
    if (!gpu.Selected(name)) continue;
    gpu.Begin(name);
    if (const Status s = MeasureLoss(gpu, baseline, name, step, rows, ratios); !s.ok())
      rows.push_back(FailedRow(name, s));
  }
  AddMean(rows, "linear_torch_mean", ratios, 0);
}

}  // namespace opwire::bench
