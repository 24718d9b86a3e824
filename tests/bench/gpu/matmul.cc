// Matrix products against PyTorch's, and those with one row against reading as many bytes.
#include <fmt/format.h>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

constexpr double kOneRowOfCeiling = 0.85;

struct Product {
  std::string name;
  DType dtype;
  int64_t m, n, k;
  bool linear = false;  // y is [n, k]: a layer's weights
  std::string precision = "ieee";
};

std::vector<Product> Products(bool small) {
  std::vector<Product> all;
  const auto square = [&](const char* name, DType dtype, int64_t n,
                          const char* precision = "ieee") {
    if (small) n /= 128;
    all.push_back({fmt::format("matmul_{}_{}", name, n), dtype, n, n, n, false, precision});
  };
  for (const int64_t n : {4096, 8192, 16384}) square("bf16", DType::kBF16, n);
  square("f32", DType::kF32, 4096);
  square("tf32", DType::kF32, 8192, "tf32");
  square("fp8", DType::kF8E4M3, 8192);
  all.back().linear = true;  // as its tensor cores read it
  const std::vector<std::pair<int64_t, int64_t>> weights = {
      {4096, 4096}, {4096, 14336}, {14336, 4096}};
  for (const auto& [n, k] : weights) {
    for (const int64_t m : {1, 8, 64, 512}) {
      const int64_t scale = small ? 128 : 1;
      all.push_back({fmt::format("linear_{}_{}x{}", m, n / scale, k / scale), DType::kBF16, m,
                     n / scale, k / scale, true});
    }
  }
  return all;
}

Status MeasureOne(Gpu& gpu, Baseline& baseline, const Product& p, std::vector<Row>& rows,
                  std::vector<double>& ratios) {
  std::vector<int64_t> y = {p.k, p.n};
  if (p.linear) std::swap(y[0], y[1]);
  const bool scaled = p.dtype == DType::kF8E4M3;  // by tensor, to bf16
  std::vector<TensorSpec> operands = {{p.dtype, {p.m, p.k}}, {p.dtype, y}};
  std::vector<NamedAttr> attrs = {{"transpose_y", p.linear}};
  if (scaled)
    operands.insert(operands.end(), 2, TensorSpec{DType::kF32, {}, Fill::kOnes});
  else
    attrs.push_back({"precision", p.precision});
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject,
                          Subject::OfOp(gpu, scaled ? "scaled_matmul" : "matmul",
                                        std::move(operands), std::move(attrs)));
  std::vector<Side> sides = {SideOf(gpu, *subject)};
  const int64_t bytes = subject->bytes();
  const bool one_row = p.m == 1, compares = baseline.there();
  if (one_row) {
    OPWIRE_ASSIGN_OR_RETURN(Measurement many, MakeReadCeiling(gpu, bytes, 8));
    OPWIRE_ASSIGN_OR_RETURN(Measurement once, MakeReadCeiling(gpu, bytes, 0));
    sides.push_back({"reading, 8 blocks a multiprocessor", std::move(many)});
    sides.push_back({"reading, a block for 16 KiB", std::move(once)});
  }
  if (compares) {
    sides.push_back(baseline.For({.row = p.name,
                                  .op = scaled     ? "scaled_matmul"
                                        : p.linear ? "linear"
                                                   : "matmul",
                                  .dtype = p.dtype,
                                  .shape = {p.m, p.n, p.k},
                                  .precision = p.precision,
                                  .bytes = bytes,
                                  .compiled = p.linear && !scaled}));
  }
  std::vector<Series> series = TakeTurns(gpu, sides);
  // Few rows are a matter of bytes.
  const bool by_bytes = p.m <= 64;
  const double work =
      1e-12 * (by_bytes ? static_cast<double>(bytes)
                        : 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n * p.k));
  const std::string unit = by_bytes ? "TB/s" : "TFLOP/s";
  if (one_row) {
    const Series* const ceiling = Fastest({&series[1], &series[2]});
    rows.push_back(
        RateRow(p.name, unit, work, series[0], ceiling ? ceiling : &series[1], kOneRowOfCeiling));
  }
  if (compares) {
    series.back().name = baseline.NameOf(p.name);
    rows.push_back(RateRow(p.name + "_torch", unit, work, series[0], &series.back(), kOfPyTorch));
    if (rows.back().baseline > 0) ratios.push_back(RatioOf(rows.back()));
  } else if (!one_row) {
    rows.push_back(RateRow(p.name, unit, work, series[0], nullptr, 0));
  }
  return absl::OkStatus();
}

}  // namespace

void MatmulRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows) {
  std::vector<double> ratios;
  for (const Product& p : Products(gpu.options().small)) {
    if (!gpu.Selected(p.name)) continue;
    gpu.Begin(p.name);
    if (const Status s = MeasureOne(gpu, baseline, p, rows, ratios); !s.ok())
      rows.push_back(FailedRow(p.name, s));
  }
  AddMean(rows, "products_torch_mean", ratios, 0);
}

}  // namespace opwire::bench
