// Reverse-mode differentiation: makes a program that also returns the gradients of one of its
// results.
//
//   // results: those of the entry, then grad.w and grad.b
//   StatusOr<Module> both = Gradient(module, {"w", "b"});
//
// The rule of each op is in gradient_bodies.cc (ops with a body, as terms) or gradient_rows.cc;
// `repeat` and `if` are in gradient_calls.cc. Gradients have their parameter's type and are sums in
// a fixed order. If a function has no derivative, PyTorch's convention holds.
//   0            relu, abs and sign at 0; atan2 at the origin.
//   halves       equal operands of maximum and minimum.
//   equal parts  the largest elements of amax, the least of amin.
// Where PyTorch has NaN, hypot has 0 at the origin and logaddexp of equal infinities has halves. A
// loop stores its carried values at the begin of each iteration. The backward pass computes
// iterations again from these, and branches from their inputs.
#ifndef OPWIRE_IR_PASSES_GRADIENT_H_
#define OPWIRE_IR_PASSES_GRADIENT_H_

#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/ops/catalogue.h"
#include "ir/program/module.h"
#include "ir/verify/verify.h"

namespace opwire {

struct GradientOptions {
  std::string loss =
      {};  // the result to differentiate, a float of rank 0; empty: the only such result
  Limits limits = {};
  const OpCatalogue& ops = Catalogue();
  // A result i64[n]. It gets one more element for each gradient that a node of the entry makes: the
  // number of its NaNs. Empty: NaNs are not counted.
  std::string nans = {};
  // With `nans`, a label for each of these: "gradient of log f32[4] (train.py:12)".
  std::vector<std::string>* counted = nullptr;
};

// Differentiates the entry by the named parameters. INVALID_ARGUMENT if a parameter or result does
// not exist, is not a float, or is inout. Also if the backward pass would read an inout parameter
// after it was replaced. UNIMPLEMENTED, with the node's place, if the path to the loss has an op
// without a gradient. Also for a loop whose number of iterations is not constant, or that carries
// encoded tensors. Removes functions that lose their last caller; others stay.
StatusOr<Module> Gradient(Module module, std::span<const std::string> wrt,
                          const GradientOptions& options = {});

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_GRADIENT_H_
