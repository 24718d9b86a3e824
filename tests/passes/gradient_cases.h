// Programs whose gradients are compared: with central differences (gradient_test.cc) and with
// libtorch's (torch). All are in f64, and what they give is `loss`.
#ifndef OPWIRE_TESTS_PASSES_GRADIENT_CASES_H_
#define OPWIRE_TESTS_PASSES_GRADIENT_CASES_H_

#include <set>
#include <string>
#include <vector>

#include "ir/program/module.h"

namespace opwire {

struct GradientCase {
  std::string text;
  double low = -2, high = 2;  // of its parameters
};

// Of the rows that are one expression, with operands of equal shapes, and broadcast.
std::vector<GradientCase> BodyCases();
// Of every other row, but for loops and branches.
std::vector<GradientCase> RowCases();
// Several uses of one value, chains, and values that the loss does not depend on.
std::vector<GradientCase> ProgramCases();

// The parameters to differentiate by: floats that are only read, but for one called `cotangent`.
std::vector<std::string> WantedOf(const Module& m);
// The rows of the nodes between these parameters and the loss.
std::set<std::string> RowsOnTheWay(const Module& m);
// All rows that have a gradient.
std::set<std::string> RowsWithGradients();

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_GRADIENT_CASES_H_
