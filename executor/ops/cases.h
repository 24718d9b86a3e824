// What a kernel is tried on: sizes, and values of operands.
#ifndef OPWIRE_EXECUTOR_OPS_CASES_H_
#define OPWIRE_EXECUTOR_OPS_CASES_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "ir/base/status.h"
#include "kernels/jit/manifest.h"

namespace opwire::executor {

// Those of the manifest, and some primes; where it is thorough also one, larger ones, and nothing
// at each extent in turn.
StatusOr<std::vector<jit::OpCase>> CasesOf(const jit::OpManifest& op, bool thorough);

enum class Values : uint8_t {
  kOrdinary,
  kSpecial,         // with NaN, infinities and zeros of both signs among floats
  kHostileIndices,  // with no index inside its extent
};
inline bool IsFloat(DType t) { return (kFloats | kFloat8s).Has(t); }

// An operand's bytes. Of an index operand `index_extent` is the extent that its values are
// positions in.
std::vector<uint8_t> RandomOperand(DType dtype, const Shape& shape,
                                   std::optional<int64_t> index_extent, Values values,
                                   std::mt19937_64& random);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_CASES_H_
