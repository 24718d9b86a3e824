// Values that are known before a program runs: read from the nodes that make them, computed by a
// body, and written as nodes.
#ifndef OPWIRE_IR_PASSES_CONSTANTS_H_
#define OPWIRE_IR_PASSES_CONSTANTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/passes/rewriter.h"

namespace opwire {

// The most elements of a constant whose elements differ. Larger ones are left to kernels, because
// they would only enlarge the program.
inline constexpr int64_t kMaxFoldedElements = 4096;

struct Constant {
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;  // of `bytes`; empty for a splat, which has any shape
  bool splat = true;           // one element everywhere
  std::string bytes;           // dense
  // The element's bits. REQUIRES: splat.
  uint64_t bits() const;
};

// Of an integer. REQUIRES: splat.
int64_t SignedOf(const Constant& c);

// Returns the value of `v` if zeros, full, values or constant make it. Returns nothing for others
// and for more than kMaxFoldedElements elements.
std::optional<Constant> ConstantOf(const Rewriter& r, ValueId v);

// Appends a node that makes `c` as `type`: full if one number is enough, else constant. kAbsent if
// neither is possible, or the module's limits are reached.
ValueId AppendConstant(Rewriter& r, const TensorType& type, const Constant& c);

// Evaluates the body of an op definition on constants, element by element like the reference
// kernels. Returns nothing if it divides an integer by zero, which a run would report. Nor if the
// result is larger than kMaxFoldedElements and not a splat. `shape`: of the result, if all its
// extents are known.
std::optional<Constant> Evaluate(const OpDef& row, std::span<const AttrValue> attrs,
                                 std::span<const Constant> operands, DType result,
                                 const std::optional<std::vector<int64_t>>& shape);

// Returns the extents of a type, if all are known.
std::optional<std::vector<int64_t>> KnownShape(const DimTable& dims, const TensorType& type);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_CONSTANTS_H_
