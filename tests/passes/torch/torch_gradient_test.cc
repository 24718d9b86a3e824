// Gradients against libtorch's autograd: of every row that has one, where functions have kinks, and
// of whole models by all their parameters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "ir/passes/backward.h"
#include "ir/passes/gradient.h"
#include "ir/passes/pipeline.h"
#include "ir/text/text.h"
#include "tests/assert_ok.h"
#include "tests/passes/gradient_fixture.h"
#include "tests/passes/torch/autograd.h"
#include "tests/passes/torch/models.h"

namespace opwire {
namespace {

// Errors that are allowed: relative to the largest element of a gradient, at least 0.01, and to 1
// for a loss. A loss is a sum of terms of about 1 that may cancel.
constexpr double kExact = 1e-10, kNarrow = 1e-4;

std::string Narrow(std::string text) {
  for (size_t at = 0; (at = text.find("f64", at)) != std::string::npos; at += 3)
    text.replace(at, 3, "f32");
  return text;
}

class TorchGradient : public GradientTest {
 protected:
  // Of these inputs, and others that are drawn; before and after the passes.
  void Compare(const std::string& text, double tolerance, double low, double high,
               Values inputs = {}) {
    SCOPED_TRACE(text);
    ASSERT_OK_AND(const Module m, Parse(text, "test.opw"));
    const std::vector<std::string> wrt = WantedOf(m);
    seen_.merge(RowsOnTheWay(m));
    ASSERT_OK_AND(Module with, Gradient(m, wrt));
    const Values before = Run(with, inputs, low, high);
    ASSERT_OK_AND(const Values expected, TorchGradients(m, SymbolsOf(m), inputs, wrt));
    CompareValues(before, expected, tolerance);
    ASSERT_OK(RunPasses(with).status());
    if (!HasFatalFailure()) CompareValues(Run(with, inputs, low, high), expected, tolerance);
  }

  // From now on by the kernels that an executor chooses.
  void UseProduction() { variants_ = BuildVariantTable(*device_); }

 private:
  static void CompareValues(const Values& got, const Values& expected, double tolerance) {
    for (const auto& [name, values] : expected) {
      ASSERT_TRUE(got.contains(name)) << name;
      ASSERT_EQ(got.at(name).size(), values.size()) << name;
      double largest = name == "loss" ? 1 : 0.01;
      for (const double v : values)
        largest = std::isfinite(v) ? std::max(largest, std::abs(v)) : largest;
      for (size_t i = 0; i < values.size(); ++i) {
        const double v = got.at(name)[i];
        ASSERT_TRUE(v == values[i] || std::abs(v - values[i]) <= tolerance * largest ||
                    (std::isnan(v) && std::isnan(values[i])))
            << name << "[" << i << "]: " << v << ", and libtorch's is " << values[i];
      }
    }
  }
};

// A row whose gradient is compared with none of libtorch's does not pass.
TEST_F(TorchGradient, OfEveryRow) {
  OPWIRE_TRACE_SEED();
  for (const auto& cases : {BodyCases(), RowCases(), ProgramCases()}) {
    for (const GradientCase& c : cases) {
      Compare(c.text, kExact, c.low, c.high);
      if (HasFatalFailure()) return;
    }
  }
  std::set<std::string> rows = RowsWithGradients();
  for (const char* op : {"repeat", "if"}) rows.erase(op);  // OfModels has them
  EXPECT_EQ(seen_, rows);
}

TEST_F(TorchGradient, OfEveryRowInF32) {
  OPWIRE_TRACE_SEED();
  UseProduction();
  for (const auto& cases : {BodyCases(), RowCases(), ProgramCases()}) {
    for (const GradientCase& c : cases) {
      if (c.text.find("dropout") != std::string::npos)
        continue;  // drops other elements than in f64
      Compare(Narrow(c.text), kNarrow, c.low, c.high);
      if (HasFatalFailure()) return;
    }
  }
}

// Every combination of operands at zero, at whole numbers, and at one another.
TEST_F(TorchGradient, AtKinks) {
  OPWIRE_TRACE_SEED();
  constexpr double kValues[] = {-2, -1, -0.5, 0, 0.5, 1, 2};
  for (const OpDef& row : Catalogue().rows()) {
    if (!BodyGradients(row.name)) continue;
    const size_t first = row.name == "where", floats = row.operands.size() - first,
                 count = static_cast<size_t>(std::pow(std::size(kValues), floats));
    std::string params, operands = first ? "%b" : "";
    Values inputs;
    for (size_t k = 0; k < floats; ++k) {
      const std::string name = fmt::format("p{}", k);
      params += fmt::format("%{}: f64[{}], ", name, count);
      operands += fmt::format("{}%{}", operands.empty() ? "" : ", ", name);
      for (size_t i = 0; i < count; ++i)
        inputs[name].push_back(
            kValues[i / static_cast<size_t>(std::pow(std::size(kValues), k)) % std::size(kValues)]);
    }
    // At the origin its gradient is 0 here, and NaN in libtorch.
    if (row.name == "hypot") inputs["p0"][std::size(kValues) * 3 + 3] = 1;
    Compare(fmt::format("program @f({}%cotangent: f64[{}]) -> (loss: f64[], y: f64[{}]) {{ {} %y = "
                        "{}({}) %m = mul(%y, %cotangent) %loss = sum(%m) return %loss, %y }}",
                        params, count, count, first ? "%b = gt(%p0, %p1)" : "", row.name, operands),
            kExact, 0.5, 4.5, inputs);
    if (HasFatalFailure()) return;
  }
}

// Of elements that are equal.
TEST_F(TorchGradient, OfTies) {
  OPWIRE_TRACE_SEED();
  const Values ties = {{"x", {1, 3, 3, 2, 3, 1, 1, 1, -2, 0, 0, -2}}};
  for (const char* body :
       {"%y = amax(%x) {dims = [1], keepdim = true}", "%y = amin(%x) {dims = [-1], keepdim = true}",
        "%y = amax(%x)", "%y, %i = sort(%x)", "%y, %i = sort(%x) {descending = true}",
        "%w = full() {shape = [4, 4], value = 0.0, dtype = f64} %y = linear(%x, %w) {activation = "
        "\"relu\"}"}) {
    Compare(fmt::format("program @f(%x: f64[3, 4], %cotangent: f64[3, 4]) -> (loss: f64[]) {{ {} "
                        "%e = expand(%y) {{shape = [3, 4]}} %m = mul(%e, %cotangent) %loss = "
                        "sum(%m) return %loss }}",
                        body),
            kExact, -2, 2, ties);
    if (HasFatalFailure()) return;
  }
}

TEST_F(TorchGradient, OfModels) {
  OPWIRE_TRACE_SEED();
  for (const Model& model : Models()) {
    index_limit_ = model.index_limit;
    Compare(model.text, kExact, model.low, model.high);
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(seen_.contains("repeat") && seen_.contains("if"));
}

TEST_F(TorchGradient, OfModelsInF32) {
  OPWIRE_TRACE_SEED();
  UseProduction();
  for (const Model& model : Models()) {
    index_limit_ = model.index_limit;
    Compare(Narrow(model.text), kNarrow, model.low, model.high);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace opwire
