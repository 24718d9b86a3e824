// Runs a program by libtorch: its results, and by autograd their gradients. This is an independent
// reference. Each op is one of ATen's, or a composition of such ops. It uses none of our kernels,
// bodies and rules.
#ifndef OPWIRE_TESTS_PASSES_TORCH_AUTOGRAD_H_
#define OPWIRE_TESTS_PASSES_TORCH_AUTOGRAD_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/module.h"

namespace opwire {

// Returns the results of a verified module's entry, and as grad.NAME the gradients of the result
// `loss` with respect to the named parameters. All floats are computed in f64. `inputs` are the
// parameters by name, `symbols` the values of the dimensions. UNIMPLEMENTED if it does not know an
// op; INTERNAL with ATen's message if ATen refuses.
StatusOr<std::map<std::string, std::vector<double>>> TorchGradients(
    const Module& m, std::span<const int64_t> symbols,
    const std::map<std::string, std::vector<double>>& inputs, std::span<const std::string> wrt);

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_TORCH_AUTOGRAD_H_
