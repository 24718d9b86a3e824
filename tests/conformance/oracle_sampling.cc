// sample, by sorting the row.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/conformance/oracle.h"
#include "tests/conformance/philox.h"

namespace opwire::conformance {

bool ComputeSampling(const OracleCall& c, Expected* e) {
  if (c.row->name != "sample") return false;
  const Tensor &logits = c.In(0), &key = c.In(1);
  const auto rows = static_cast<size_t>(logits.shape[0]), n = static_cast<size_t>(logits.shape[1]);
  for (size_t b = 0; b < rows; ++b) {
    const auto of_row = [&](int operand, Real otherwise) {
      const Tensor& t = c.In(operand);
      return t.dtype == DType::kInvalid ? otherwise : t.values[t.shape.empty() ? 0 : b];
    };
    const Real temperature = of_row(2, 1), top_k = of_row(3, 0), top_p = of_row(4, 1);
    std::vector<Real> x(logits.values.begin() + static_cast<int64_t>(b * n),
                        logits.values.begin() + static_cast<int64_t>((b + 1) * n));
    for (Real& v : x) v = std::isnan(v) ? -INFINITY : v;
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t i, size_t j) { return x[i] > x[j]; });
    const Real most = x[order[0]];
    std::vector<uint64_t> weights(n);
    for (size_t i = 0; i < n; ++i) {
      const double d = (static_cast<double>(x[i]) - static_cast<double>(most)) /
                       static_cast<double>(temperature);
      weights[i] =
          x[i] == most ? uint64_t{1} << 36
          : d <= 0
              ? static_cast<uint64_t>(std::floor(std::ldexp(std::exp(static_cast<Real>(d)), 36)))
              : 0;
    }
    const auto sum = [&] {
      uint64_t all = 0;
      for (size_t i : order) all += weights[i];
      return all;
    };
    if (top_k > 0 && top_k < static_cast<Real>(n)) order.resize(static_cast<size_t>(top_k));
    if (top_p < 1) {
      const double wanted = static_cast<double>(top_p) * static_cast<double>(sum());
      uint64_t so_far = weights[order[0]];
      size_t kept = 1;
      while (kept < order.size() && static_cast<double>(so_far) < wanted)
        so_far += weights[order[kept++]];
      order.resize(kept);
    }
    if (!(temperature > 0)) order.resize(1), weights[order[0]] = 1;
    const auto lanes =
        Philox(static_cast<uint64_t>(key.values[0]), b / 2,
               static_cast<uint64_t>(key.values[1]) + static_cast<uint64_t>(c.Int(0)));
    const uint64_t bits = static_cast<uint64_t>(lanes[2 * (b % 2)]) << 32 | lanes[2 * (b % 2) + 1];
    const uint64_t target =
        static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * sum() >> 64);
    std::ranges::sort(order);
    uint64_t through = 0;
    for (size_t i : order) {
      through += weights[i];
      if (through <= target) continue;
      e->result().values[b] = static_cast<Real>(i);
      break;
    }
  }
  return true;
}

}  // namespace opwire::conformance
