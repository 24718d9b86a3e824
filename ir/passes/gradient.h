// Reverse-mode differentiation: a program, and one that also gives the gradients of one of its
// results.
//
//   // results: those of the entry, then grad.w and grad.b
//   StatusOr<Module> both = Gradient(module, {"w", "b"});
//
// Each row has its rule in gradient_bodies.cc (ops with a body, as terms) or gradient_rows.cc;
// `repeat` and `if` in gradient_calls.cc. Gradients have their parameter's type and are sums in a
// fixed order. If a function has no derivative, PyTorch's convention holds.
//   0            relu, abs and sign at 0; atan2 at the origin.
//   halves       equal operands of maximum and minimum.
//   equal parts  the largest elements of amax, the least of amin.
// Where PyTorch has NaN, hypot has 0 at the origin and logaddexp of equal infinities has halves.
// A loop keeps its carried values as they were at the beginning of each iteration. The way back
// computes iterations again from these, and branches from what they were given.
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
  // A result i64[n], which gets one element more for each gradient that a node of the entry makes:
  // the number of its NaNs. Empty: they are not counted.
  std::string nans = {};
  // With `nans`, what each of these is: "gradient of log f32[4] (train.py:12)".
  std::vector<std::string>* counted = nullptr;
};

// Of the entry by the parameters named. INVALID_ARGUMENT where there is no such parameter or
// result, or it is no float, or inout, or where the way back would read an inout parameter behind
// its end; UNIMPLEMENTED, with the node's place, where the way to the loss leads through an op that
// has no gradient, or through a loop whose number of trips no constant makes, or that carries
// encoded tensors. Functions that lose their last caller go, others stay.
StatusOr<Module> Gradient(Module module, std::span<const std::string> wrt,
                          const GradientOptions& options = {});

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_GRADIENT_H_
