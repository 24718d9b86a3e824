// Programs whose gradients are compared: with central differences (gradient_test.cc) and with
// libtorch's (torch). All are in f64, and their result is `loss`.
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

// Returns cases of the ops that are one expression, with operands of equal shapes, and broadcast.
std::vector<GradientCase> BodyCases();
// Returns cases of every other op, except for loops and branches.
std::vector<GradientCase> RowCases();
// Returns cases with several uses of one value, chains, and values that the loss does not depend
// on.
std::vector<GradientCase> ProgramCases();

// Returns the parameters of the gradients: floats that are only read, except for one called
// `cotangent`.
std::vector<std::string> WantedOf(const Module& m);
// Returns the ops of the nodes between these parameters and the loss.
std::set<std::string> RowsOnTheWay(const Module& m);
// Returns all ops that have a gradient.
std::set<std::string> RowsWithGradients();

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_GRADIENT_CASES_H_
