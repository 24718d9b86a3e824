// What an op must give of its operands, by the oracle of the conformance suite, which shares no
// code with kernels.
#ifndef OPWIRE_TESTS_BENCH_ORACLE_H_
#define OPWIRE_TESTS_BENCH_ORACLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "frontend/cpp/array.h"
#include "tests/conformance/harness.h"

namespace opwire::bench {
using namespace client;

using Operands = std::vector<conformance::Tensor>;  // in the op's order; lists laid flat

// The elements that these bytes hold. kInvalid: an absent operand.
conformance::Tensor DecodedOf(DType dtype, const std::vector<int64_t>& shape,
                              std::string_view bytes);
// Results in long double, with the error that each element may have on this device. Optional
// operands at the end may be left out.
StatusOr<conformance::Expected> OracleOf(const Device& device, const std::string& op,
                                         Operands operands, const std::vector<NamedAttr>& attrs,
                                         const std::vector<uint32_t>& segments = {});
// The same, rounded to the results' types.
StatusOr<std::vector<Array>> OracleArrays(const Device& device, const std::string& op,
                                          Operands operands, const std::vector<NamedAttr>& attrs,
                                          const std::vector<uint32_t>& segments = {});

}  // namespace opwire::bench

#endif  // OPWIRE_TESTS_BENCH_ORACLE_H_
