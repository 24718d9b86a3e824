// Dimension expressions: the extents of tensors before a program is bound to sizes.
//
//   DimTable t;
//   Dim b = *t.Symbol("b", 1, 4096);
//   Dim n = t.Add(t.Mul(b, t.Constant(2)), t.Constant(1));   // prints as 2*?b+1
//   DimValues v(t, symbol_values);  // one value a symbol, in order of declaration
//   v.Get(n);  // 2 * symbol_values[0] + 1, or why not
//
// Expressions are simplified and hash-consed, so equal handles mean equal extents. All extents are
// >= 0.
#ifndef OPWIRE_IR_BASE_DIM_H_
#define OPWIRE_IR_BASE_DIM_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ir/base/status.h"

namespace opwire {

// A handle into one DimTable.
struct Dim {
  uint32_t index = 0;
  bool operator==(const Dim&) const = default;
};

enum class DimKind : uint8_t {
  kConstant = 0,
  kSymbol = 1,
  kAdd = 2,
  kMul = 3,
  kFloorDiv = 4,  // by zero: an error when evaluated
  kMod = 5,
  kMin = 6,
  kMax = 7,
  kFromValue =
      8,  // the count in a 0-d i64 value, at most an upper bound; memory is allocated for the bound
};
inline constexpr int kDimKindCount = 9;

struct DimNode {
  DimKind kind = DimKind::kConstant;
  int64_t value = 0;  // the constant, the symbol's number, or the value id of kFromValue
  Dim a, b;           // operands; kFromValue: `a` is the upper bound
  bool operator==(const DimNode&) const = default;
};

inline constexpr int64_t kMaxExtent = int64_t{1} << 48;

// A named extent that is bound at run time: in [lower, upper] and a multiple of `multiple`.
struct DimSymbol {
  std::string name;  // without the '?'
  int64_t lower = 0;
  int64_t upper = kMaxExtent;
  int64_t multiple = 1;
  bool operator==(const DimSymbol&) const = default;
};

struct DimBounds {
  int64_t lower, upper;
};

inline constexpr int64_t kMaxTreeSize = 256;

enum class DimOrder { kEqual, kDifferent, kUnknown };

class DimTable {
 public:
  Dim Constant(int64_t value);
  // An equal name is the same symbol. INVALID_ARGUMENT if its bounds differ.
  StatusOr<Dim> Symbol(std::string_view name, int64_t lower = 0, int64_t upper = kMaxExtent,
                       int64_t multiple = 1);
  Dim Add(Dim a, Dim b);
  Dim Mul(Dim a, Dim b);
  Dim FloorDiv(Dim a, Dim b);
  Dim Mod(Dim a, Dim b);
  Dim Min(Dim a, Dim b);
  Dim Max(Dim a, Dim b);
  Dim FromValue(int64_t value_id, Dim upper_bound);
  // The general form of these. INVALID_ARGUMENT for handles or kinds that do not exist and for
  // trees beyond kMaxTreeSize.
  StatusOr<Dim> Make(const DimNode& node);

  bool Has(Dim d) const { return d.index < nodes_.size(); }
  const DimNode& node(Dim d) const { return nodes_[d.index]; }
  const std::vector<DimNode>& nodes() const { return nodes_; }
  const std::vector<DimSymbol>& symbols() const { return symbols_; }

  bool IsConstant(Dim d) const { return node(d).kind == DimKind::kConstant; }
  // REQUIRES: IsConstant(d).
  int64_t ConstantValue(Dim d) const { return node(d).value; }

  // The bounds of an extent that are known before binding. Saturates at kMaxExtent.
  DimBounds Bounds(Dim d) const { return facts_[d.index].bounds; }
  // Nodes of the expression written out as a tree; saturates.
  int64_t TreeSize(Dim d) const { return facts_[d.index].tree_size; }
  // kDifferent if bounds and constant differences show that the two are equal for no binding.
  DimOrder Compare(Dim a, Dim b) const;

  // INVALID_ARGUMENT when `value` violates the symbol's bounds or multiple.
  Status CheckSymbol(size_t symbol, int64_t value) const;

  // "?b", "64", "2*?b+1", "min(?b, 8)", "?b//2", "?b%4", "from(%3, 128)"; "(...)" beyond
  // kMaxTreeSize.
  std::string ToString(Dim d) const;

 private:
  struct Facts {
    DimBounds bounds;
    int64_t tree_size;
  };

  Dim Intern(const DimNode& node);
  Facts FactsOf(const DimNode& node) const;

  std::vector<DimNode> nodes_;
  std::vector<Facts> facts_;  // parallel to nodes_
  std::vector<DimSymbol> symbols_;
  std::map<std::tuple<uint8_t, int64_t, uint32_t, uint32_t>, uint32_t> index_;
};

// The values of all expressions of a table for one binding of its symbols, computed in one pass.
class DimValues {
 public:
  // REQUIRES: symbol_values has one entry for each symbol of the table; kFromValue takes its upper
  // bound.
  DimValues(const DimTable& table, std::span<const int64_t> symbol_values);
  // OUT_OF_RANGE when the expression overflows, divides by zero, is negative, or is beyond
  // kMaxExtent.
  StatusOr<int64_t> Get(Dim d) const;

 private:
  const DimTable& table_;
  std::vector<int64_t> values_;  // kUndefined if there is no value
};

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_DIM_H_
