// Values that are known before a program runs: read from the nodes that make them, computed with a
// body, and written back as nodes.
#ifndef OPWIRE_IR_PASSES_CONSTANTS_H_
#define OPWIRE_IR_PASSES_CONSTANTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/passes/rewriter.h"

namespace opwire {

// Beyond so many elements a constant that is not one value everywhere is left to kernels: it would
// only make the program larger.
inline constexpr int64_t kMaxFoldedElements = 4096;

struct Constant {
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;  // of `bytes`; empty for a splat, which stands for any shape
  bool splat = true;           // one element everywhere
  std::string bytes;           // dense
  // The element's bits. REQUIRES: splat.
  uint64_t bits() const;
};

// Of an integer. REQUIRES: splat.
int64_t SignedOf(const Constant& c);

// The value of `v` where zeros, full, values or constant make it; nothing for others and for what
// exceeds kMaxFoldedElements.
std::optional<Constant> ConstantOf(const Rewriter& r, ValueId v);

// Appends a node that makes `c` as `type`: full where one number says it, else constant. kAbsent
// where neither can, or the module's limits are reached.
ValueId AppendConstant(Rewriter& r, const TensorType& type, const Constant& c);

// The row's body of constants, element by element as the reference kernels compute it. Nothing
// where it divides an integer by zero, which a run would report, or where the result is larger than
// kMaxFoldedElements and not a splat. `shape`: of the result, where all its extents are known.
std::optional<Constant> Evaluate(const OpRow& row, std::span<const AttrValue> attrs,
                                 std::span<const Constant> operands, DType result,
                                 const std::optional<std::vector<int64_t>>& shape);

// The extents of a type where all are known.
std::optional<std::vector<int64_t>> KnownShape(const DimTable& dims, const TensorType& type);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_CONSTANTS_H_
