// Ops that create values. Philox and Box-Muller are implemented here again, from their papers.
#include <cmath>

#include "tests/conformance/oracle.h"
#include "tests/conformance/philox.h"

namespace opwire::conformance {
namespace {

// Returns u of element i in [0, 1), as the op definitions specify.
Real UniformOf(const OracleCall& c, int key, int site, DType type, int64_t i) {
  const auto word = [&](int k) { return static_cast<uint64_t>(c.In(key).values[k]); };
  const uint64_t high = word(1) + static_cast<uint64_t>(c.Int(site));
  if (type != DType::kF64)
    return static_cast<Real>(Philox(word(0), static_cast<uint64_t>(i) / 4, high)[i % 4] >> 8) *
           0x1p-24L;
  const std::array<uint32_t, 4> lanes = Philox(word(0), static_cast<uint64_t>(i) / 2, high);
  const uint64_t bits = static_cast<uint64_t>(lanes[i % 2 * 2]) << 32 | lanes[i % 2 * 2 + 1];
  return static_cast<Real>(bits >> 11) * 0x1p-53L;
}

}  // namespace

bool ComputeCreate(const OracleCall& c, Expected* e) {
  if (c.row->family != "create") return false;
  const std::string& op = c.row->name;
  const DType type = e->result().dtype, computing = ComputingType(type);
  const Real eps = IsFloat(type) ? Eps(computing) : 0;
  std::vector<Real>& y = e->result().values;
  const int64_t n = e->result().elements();
  const bool random = op == "uniform" || op == "normal" || op == "dropout";
  if (random || (op == "arange" && IsFloat(type))) e->error().resize(n);
  for (int64_t i = 0; i < n; ++i) {
    if (op == "zeros") {
      y[i] = 0;
    } else if (op == "full") {
      y[i] = CastValue(DType::kF64, type, c.Float(1), false);
    } else if (op == "values") {
      y[i] = CastValue(DType::kF64, type, std::get<Doubles>(c.attrs[0])[i], false);
    } else if (op == "constant") {
      y[i] = Decode(type, c.blob.data() + i * DTypeBytes(type));
    } else if (op == "arange") {
      const Real start = c.In(0).values[0], step = c.In(1).values[0],
                 exact = start + static_cast<Real>(i) * step;
      y[i] = IsFloat(type) ? exact : CastValue(DType::kI64, type, exact, false);
      if (IsFloat(type))
        e->error()[i] =
            Eps(DType::kF64) * (std::fabs(start) + std::fabs(static_cast<Real>(i) * step)) +
            Ulp(type, exact) / 2;
    } else if (op == "uniform") {
      const Real low = c.In(1).values[0], high = c.In(2).values[0];
      y[i] = low + UniformOf(c, 0, 1, type, i) * (high - low);
      e->error()[i] = 2 * eps * (std::fabs(low) + std::fabs(high)) + Ulp(type, y[i]) / 2;
    } else if (op == "normal") {
      const Real u = UniformOf(c, 0, 1, type, i - i % 2),
                 v = UniformOf(c, 0, 1, type, i - i % 2 + 1);
      const Real r = std::sqrt(-2 * std::log(1 - u)), angle = 2 * M_PIl * v;
      const Real z = r * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)), mean = c.In(1).values[0],
                 std = c.In(2).values[0];
      y[i] = mean + std * z;
      e->error()[i] =
          2 * eps * (std::fabs(mean) + std::fabs(std) * (std::fabs(z) + Eps(DType::kF64) * 8)) +
          Ulp(type, y[i]) / 2;
    } else {  // dropout
      const Real p = c.In(1).values[0];
      y[i] = UniformOf(c, 2, 0, type, i) >= p ? c.In(0).values[i] / (1 - p) : 0;
      e->error()[i] = 2 * eps * std::fabs(y[i]) + Ulp(type, y[i]) / 2;
    }
  }
  return true;
}

}  // namespace opwire::conformance
