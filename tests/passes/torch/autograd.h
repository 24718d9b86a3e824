// What libtorch makes of a program: its results, and by autograd their gradients. An independent
// judge: each row is an op of ATen's, or is composed of such, and no kernel, body or rule of ours
// is used.
#ifndef OPWIRE_TESTS_PASSES_TORCH_AUTOGRAD_H_
#define OPWIRE_TESTS_PASSES_TORCH_AUTOGRAD_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/module.h"

namespace opwire {

// The results of a verified module's entry, and as grad.NAME the gradients of the result `loss` by
// the parameters named; all floats are computed in f64. `inputs` are the parameters by name,
// `symbols` what the dimensions are. UNIMPLEMENTED where a row is none of those that it knows;
// INTERNAL with ATen's words where it refuses.
StatusOr<std::map<std::string, std::vector<double>>> TorchGradients(
    const Module& m, std::span<const int64_t> symbols,
    const std::map<std::string, std::vector<double>>& inputs, std::span<const std::string> wrt);

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_TORCH_AUTOGRAD_H_
