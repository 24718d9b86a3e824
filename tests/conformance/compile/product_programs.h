// Products of a few rows as decoders have them, for their kernels.
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_PRODUCT_PROGRAMS_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_PRODUCT_PROGRAMS_H_

#include <functional>
#include <memory>
#include <string>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::conformance {

// Plans queries, keys and values that are turned and appended, a gated pair, and a product alone,
// of rows of several lengths, of f32, f16 and bf16 as far as `types` has them. `name` is told what
// is planned next. Nothing runs.
Status PlanProductPrograms(const std::shared_ptr<gpu::Code>& code, DTypeSet types,
                           const std::function<void(std::string)>& name);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_PRODUCT_PROGRAMS_H_
