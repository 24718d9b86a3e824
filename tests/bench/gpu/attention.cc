// Attention, its gradient, and attention of one query to a cache, against the fastest of PyTorch's
// backends.
#include <fmt/format.h>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

constexpr double kOfBackend = 1.0;

struct Attention {
  int64_t batch, length, depth, causal;
  int64_t heads = 32, key_heads = 8;

  std::string Name(bool backward) const {
    return fmt::format("attention_{}{}_{}{}", backward ? "backward_" : "", depth, length,
                       causal ? "" : "_full");
  }
  // Of the two products, of the pairs that take part; the gradient's are five.
  double Flops(bool backward) const {
    const double pairs =
        static_cast<double>(length) * static_cast<double>(length) / (causal ? 2 : 1);
    return (backward ? 10 : 4) * static_cast<double>(batch * heads * depth) * pairs;
  }
};

std::vector<Attention> All(bool small) {
  if (small) return {{1, 96, 64, 1, 4, 2}};
  return {{4, 4096, 64, 1},  {4, 4096, 128, 1},  {4, 4096, 128, 0},
          {1, 16384, 64, 1}, {1, 16384, 128, 1}, {4, 4093, 128, 1}};
}

// Adds the row of `subject`, which does `work` operations or bytes.
void Compare(Gpu& gpu, Baseline& baseline, Subject& subject, const Attention& a,
             const std::string& name, std::string op, std::string unit, double work,
             std::vector<Row>& rows, std::vector<double>& ratios) {
  std::vector<Side> sides = {SideOf(gpu, subject)};
  const bool compares = baseline.there();
  if (compares) {
    sides.push_back(
        baseline.For({.row = name,
                      .op = std::move(op),
                      .dtype = DType::kBF16,
                      .shape = {a.batch, a.heads, a.key_heads, a.length, a.depth, a.causal},
                      .bytes = subject.bytes(),
                      .compiled = false}));
  }
  std::vector<Series> series = TakeTurns(gpu, sides);
  if (compares) series.back().name = baseline.NameOf(name);
  rows.push_back(RateRow(name, std::move(unit), 1e-12 * work, series[0],
                         compares ? &series.back() : nullptr, compares ? kOfBackend : 0));
  if (rows.back().baseline > 0) ratios.push_back(RatioOf(rows.back()));
}

Status MeasureOne(Gpu& gpu, Baseline& baseline, const Attention& a, bool backward,
                  std::vector<Row>& rows, std::vector<double>& ratios) {
  const TensorSpec own{DType::kBF16, {a.batch, a.heads, a.length, a.depth}},
      shared{DType::kBF16, {a.batch, a.key_heads, a.length, a.depth}};
  const TensorSpec log_sum{DType::kF32, {a.batch, a.heads, a.length}}, absent{DType::kInvalid, {}};
  const std::vector<NamedAttr> attrs = {{"causal", a.causal != 0}};
  OPWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subject> subject,
      backward ? Subject::OfOp(gpu, "scaled_dot_product_attention_backward",
                               {own, own, shared, shared, own, log_sum, absent}, attrs)
               : Subject::OfOp(gpu, "scaled_dot_product_attention", {own, shared, shared, absent},
                               attrs));
  Compare(gpu, baseline, *subject, a, a.Name(backward),
          backward ? "attention_backward" : "attention", "TFLOP/s", a.Flops(backward), rows,
          ratios);
  return absl::OkStatus();
}

// One query for each head, and all positions of the cache: a matter of bytes. PyTorch is given a
// cache of just that length.
Status MeasureDecode(Gpu& gpu, Baseline& baseline, const Attention& a, const std::string& name,
                     std::vector<Row>& rows, std::vector<double>& ratios) {
  const TensorSpec own{DType::kBF16, {a.batch, a.heads, 1, a.depth}},
      shared{DType::kBF16, {a.batch, a.key_heads, a.length, a.depth}};
  OPWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subject> subject,
      Subject::OfOp(gpu, "kv_attention",
                    {own, shared, shared, {DType::kI64, {}, Fill::kZeros}, {DType::kInvalid, {}}},
                    {{"causal", true}, {"window", int64_t{0}}, {"scale", 0.0}}));
  OPWIRE_RETURN_IF_ERROR(subject->SetOperand(3, &a.length));
  Compare(gpu, baseline, *subject, a, name, "attention_decode", "TB/s",
          static_cast<double>(subject->bytes()), rows, ratios);
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
      if (const Status s = MeasureOne(gpu, baseline, a, backward, rows, ratios); !s.ok())
        rows.push_back(FailedRow(name, s));
    }
  }
  AddMean(rows, "attention_torch_mean", ratios, 0);
  ratios.clear();
  const bool small = gpu.options().small;
  for (const Attention& a : small ? std::vector<Attention>{{2, 96, 64, 0, 4, 2}}
                                  : std::vector<Attention>{{1, 8192, 128, 0},
                                                           {1, 65536, 128, 0},
                                                           {32, 4096, 128, 0},
                                                           {32, 4096, 64, 0},
                                                           {32, 4093, 128, 0},
                                                           {32, 4096, 128, 0, 64, 8}}) {
    const std::string name =
        fmt::format("attention_decode_{}_{}x{}{}", a.depth, a.batch, a.length,
                    a.heads / a.key_heads == 4 ? "" : fmt::format("_of_{}", a.heads / a.key_heads));
    if (!gpu.Selected(name)) continue;
    gpu.Begin(name);
    if (const Status s = MeasureDecode(gpu, baseline, a, name, rows, ratios); !s.ok())
      rows.push_back(FailedRow(name, s));
  }
  AddMean(rows, "attention_decode_torch_mean", ratios, 0);
}

}  // namespace opwire::bench
