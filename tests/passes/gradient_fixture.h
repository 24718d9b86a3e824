// Gradients of programs whose parameters are drawn, by the reference kernels, against central
// differences.
#ifndef OPWIRE_TESTS_PASSES_GRADIENT_FIXTURE_H_
#define OPWIRE_TESTS_PASSES_GRADIENT_FIXTURE_H_

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/passes/gradient_cases.h"
#include "tests/passes/outcome.h"
#include "tests/seed.h"

namespace opwire {

// Of tensors by name.
using Values = std::map<std::string, std::vector<double>>;

class GradientTest : public OutcomeTest {
 protected:
  // The results, or none where the run fails, which is a failure of the test. What `inputs` lacks
  // of parameters of f64, f32 and i64 is drawn and noted there: floats between low and high,
  // indices below index_limit_.
  Values Run(const Module& m, Values& inputs, double low, double high);
  // What Run binds the program's symbols to.
  static std::vector<int64_t> SymbolsOf(const Module& m);

  // In f64, the gradients of a program's loss by WantedOf, before and after the passes. Notes in
  // seen_ what it compared.
  void Check(const std::string& text, double low = -2, double high = 2);
  void Check(const std::vector<GradientCase>& cases);

  std::mt19937_64 random_{Seed()};
  int64_t index_limit_ = 1;
  std::set<std::string> seen_;  // rows

 private:
  std::vector<double> Draw(DType dtype, size_t count, double low, double high, size_t drawn);
};

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_GRADIENT_FIXTURE_H_
