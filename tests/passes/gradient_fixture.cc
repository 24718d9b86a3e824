// What a run takes and gives, and its gradients by small steps.
#include "tests/passes/gradient_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/base/element.h"
#include "ir/passes/gradient.h"
#include "ir/passes/pipeline.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"

namespace opwire {
namespace {

constexpr uint64_t kRunSeed = 7;

}  // namespace

std::vector<int64_t> GradientTest::SymbolsOf(const Module& m) {
  std::mt19937_64 random(kRunSeed);
  return RandomSymbols(m.dims, random);
}

std::vector<double> GradientTest::Draw(DType dtype, size_t count, double low, double high,
                                       size_t drawn) {
  std::vector<double> out(count);
  if (dtype == DType::kI64) {
    for (double& v : out) v = static_cast<double>(random_() % static_cast<uint64_t>(index_limit_));
    return out;
  }
  // Of a grid that meets neither 0, nor another whole number, nor the values of other parameters,
  // where functions have kinks; each once, while they last.
  std::vector<double> grid;
  for (double v = low + 0.0037 + 0.0007 * static_cast<double>(drawn); v < high; v += 0.01)
    grid.push_back(v);
  for (size_t i = 0; i < count; ++i) {
    if (i % grid.size() == 0) std::ranges::shuffle(grid, random_);
    out[i] = dtype == DType::kF32 ? static_cast<double>(static_cast<float>(grid[i % grid.size()]))
                                  : grid[i % grid.size()];
  }
  return out;
}

Values GradientTest::Run(const Module& m, Values& inputs, double low, double high) {
  Restart();
  executor::Client c = Hello();
  const auto fill = [&](const Param& p, std::string& bytes, std::mt19937_64&) {
    const DType dtype = p.type.dtype;
    if (!kFloats.Has(dtype) && dtype != DType::kI64) return;
    const auto width = static_cast<size_t>(DTypeBytes(dtype));
    const size_t drawn = inputs.size();
    std::vector<double>& values = inputs[p.name];
    if (values.empty()) values = Draw(dtype, bytes.size() / width, low, high, drawn);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint64_t bits = ElementBits(dtype, values[i]);
      std::memcpy(bytes.data() + i * width, &bits, width);
    }
  };
  const std::vector<std::string> out = Outcome(c, m, kRunSeed, fill);
  EXPECT_EQ(out[0], "OK") << Print(m);
  const ValueTypes types(m.functions[0]);
  Values results;
  for (size_t i = 0; i < m.functions[0].results.size() && out[0] == "OK"; ++i) {
    const Result& r = m.functions[0].results[i];
    const DType dtype = types.types[static_cast<size_t>(r.value)]->dtype;
    const auto width = static_cast<size_t>(DTypeBytes(dtype));
    for (size_t at = 0; at < out[i + 1].size(); at += width)
      results[r.name].push_back(ElementValue(dtype, out[i + 1].data() + at));
    results.try_emplace(r.name);
  }
  return results;
}

void GradientTest::Check(const std::string& text, double low, double high) {
  SCOPED_TRACE(text);
  ASSERT_OK_AND(const Module m, Parse(text, "test.opw"));
  const std::vector<std::string> wrt = WantedOf(m);
  ASSERT_OK_AND(Module with, Gradient(m, wrt));
  Values inputs;
  const auto results = Run(with, inputs, low, high);
  seen_.merge(RowsOnTheWay(m));
  for (const std::string& name : wrt) {
    const auto gradient = results.find("grad." + name);
    ASSERT_NE(gradient, results.end());
    ASSERT_EQ(gradient->second.size(), inputs[name].size());
    for (size_t i = 0; i < inputs[name].size(); ++i) {
      const double at = inputs[name][i];
      constexpr double kStep = 4e-6;
      const auto loss = [&](double steps) {
        inputs[name][i] = at + steps * kStep;
        return Run(m, inputs, low, high)["loss"].at(0);
      };
      // Of fourth order.
      const double expected = (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * kStep),
                   scale = std::abs(loss(0));
      inputs[name][i] = at;
      ASSERT_NEAR(gradient->second[i], expected, 2e-8 * std::max({1.0, std::abs(expected), scale}))
          << "by " << name << "[" << i << "]\n"
          << Print(with);
    }
  }
  Module optimised = with;
  ASSERT_OK(RunPasses(optimised).status());
  const auto again = Run(optimised, inputs, low, high);
  for (const auto& [name, values] : results) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(again.at(name)[i], values[i], 1e-12 * std::max(1.0, std::abs(values[i])))
          << name << "\n"
          << Print(optimised);
  }
}

void GradientTest::Check(const std::vector<GradientCase>& cases) {
  for (const GradientCase& c : cases) {
    Check(c.text, c.low, c.high);
    if (HasFatalFailure()) return;
  }
}

}  // namespace opwire
