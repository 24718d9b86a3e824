// Matmuls of a few rows as in decoders, for their kernels.
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_PRODUCT_PROGRAMS_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_PRODUCT_PROGRAMS_H_

#include <functional>
#include <memory>
#include <string>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::conformance {

// Plans queries, keys and values with rotary embedding and appending, a gated pair, and a matmul
// alone. Rows have several lengths. Their types are f32, f16 and bf16, if `types` has them. Before
// each plan `name` is called with its name. Nothing runs.
Status PlanProductPrograms(const std::shared_ptr<gpu::Code>& code, DTypeSet types,
                           const std::function<void(std::string)>& name);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_PRODUCT_PROGRAMS_H_
