// Fused rows and columns as in programs, and steps over many tensors and over transposed ones, for
// their kernels.
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_ROW_PROGRAMS_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_ROW_PROGRAMS_H_

#include <functional>
#include <memory>
#include <string>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::conformance {

// Plans groups of f32 and bf16, if `types` has them. For rows of each form: a softmax and its
// gradient, a layer norm, a loss and a program of many functions. For columns of each form:
// gradients of biases and norms, and extremes. Also a step of many weights by one kernel. Before
// each plan `name` is called with its name. Nothing runs.
Status PlanRowPrograms(const std::shared_ptr<gpu::Code>& code, DTypeSet types,
                       const std::function<void(std::string)>& name);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_ROW_PROGRAMS_H_
