// Convolutions of ResNet-50 and their gradients against PyTorch, both of tensors [N, C, H, W].
#include <fmt/format.h>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

constexpr double kOfFastest = 1.0;

struct Convolution {
  int64_t batch, in, out, kernel, stride, extent;

  int64_t padding() const { return kernel / 2; }
  int64_t output() const { return (extent + 2 * padding() - kernel) / stride + 1; }
  std::string Name(bool backward) const {
    return fmt::format("convolution_{}{}x{}_{}_{}_{}", backward ? "backward_" : "", kernel, kernel,
                       in, out, extent);
  }
  // The gradients are two such products.
  double Flops(bool backward) const {
    return (backward ? 4.0 : 2.0) * static_cast<double>(batch * output() * output() * out) *
           static_cast<double>(in * kernel * kernel);
  }
};

std::vector<Convolution> Convolutions(bool small) {
  if (small) return {{2, 8, 16, 3, 1, 10}};
  return {{64, 64, 64, 3, 1, 56},
          {64, 512, 512, 3, 1, 7},
          {64, 256, 64, 1, 1, 56},
          {64, 3, 64, 7, 2, 224}};
}

Status MeasureLayer(Gpu& gpu, Baseline& baseline, const Convolution& c, bool backward,
                    std::vector<Row>& rows, std::vector<double>& ratios) {
  const TensorSpec input{DType::kBF16, {c.batch, c.in, c.extent, c.extent}},
      weight{DType::kBF16, {c.out, c.in, c.kernel, c.kernel}};
  const TensorSpec grad{DType::kBF16, {c.batch, c.out, c.output(), c.output()}},
      absent{DType::kInvalid, {}};
  const std::vector<NamedAttr> attrs = {{"stride", Ints{c.stride}}, {"padding", Ints{c.padding()}}};
  OPWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subject> subject,
      backward ? Subject::OfOp(gpu, "convolution_backward", {grad, input, weight}, attrs)
               : Subject::OfOp(gpu, "convolution", {input, weight, absent}, attrs));
  std::vector<Side> sides = {SideOf(gpu, *subject)};
  const bool compares = baseline.there();
  if (compares) {
    sides.push_back(baseline.For({.row = c.Name(backward),
                                  .op = backward ? "convolution_backward" : "convolution",
                                  .dtype = DType::kBF16,
                                  .shape = {c.batch, c.in, c.out, c.kernel, c.stride, c.extent},
                                  .bytes = subject->bytes(),
                                  .compiled = false}));
  }
  std::vector<Series> series = TakeTurns(gpu, sides);
  if (compares) series.back().name = baseline.NameOf(c.Name(backward));
  rows.push_back(RateRow(c.Name(backward), "TFLOP/s", 1e-12 * c.Flops(backward), series[0],
                         compares ? &series.back() : nullptr, compares ? kOfFastest : 0));
  if (rows.back().baseline > 0) ratios.push_back(RatioOf(rows.back()));
  return absl::OkStatus();
}

}  // namespace

void ConvolutionRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows) {
  std::vector<double> ratios;
  for (const bool backward : {false, true}) {
    for (const Convolution& c : Convolutions(gpu.options().small)) {
      const std::string name = c.Name(backward);
      if (!gpu.Selected(name)) continue;
      gpu.Begin(name);
      if (const Status s = MeasureLayer(gpu, baseline, c, backward, rows, ratios); !s.ok())
        rows.push_back(FailedRow(name, s));
    }
  }
  AddMean(rows, "convolution_torch_mean", ratios, 0);
}

}  // namespace opwire::bench
