// Fused rows and columns as programs write them, and steps over many tensors and over turned ones,
// for their kernels.
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_ROW_PROGRAMS_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_ROW_PROGRAMS_H_

#include <functional>
#include <memory>
#include <string>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::conformance {

// Plans a softmax and its gradient, a layer norm, a loss and a program of many functions of f32 and
// bf16, as far as `types` has them, for rows of each form; then gradients of biases and norms, and
// extremes, for columns of each form; and a step of many weights by one kernel. `name` is told what
// is planned next. Nothing runs.
Status PlanRowPrograms(const std::shared_ptr<gpu::Code>& code, DTypeSet types,
                       const std::function<void(std::string)>& name);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_ROW_PROGRAMS_H_
