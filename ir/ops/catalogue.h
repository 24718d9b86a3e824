// The catalogue: the only list of ops. Verifier, text form, kernels, tests and the op reference
// derive from its op definitions.
//
//   const OpDef* row = Catalogue().Find("matmul");
//
// The signature of an op definition names operands and results with a type variable or an element
// type:
//
//   "x: T, y: T -> z: T"            two operands of one type
//   "x: F, weight?: F -> y: F"      an absent operand is allowed
//   "xs...: T -> y: T"              a list, one segment of the node
//   "xs...: T -> ys...: T"          a list of results, as long as the list operand of its name,
//                                   else as the first list operand
//   "i: I -> y: f32"                a result of a fixed type
//   "x: T -> y: U"                  U is set by the shape rule (from an attribute)
// each has its own type, also encoded ones
//   "w: blocks -> y: F"             i8, encoded in GGUF's blocks (q4_0, q4_1, q8_0, q6_k)
#ifndef OPWIRE_IR_OPS_CATALOGUE_H_
#define OPWIRE_IR_OPS_CATALOGUE_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/type.h"
#include "ir/ops/expr.h"

namespace opwire {

class InferContext;

enum class Effects : uint8_t { kPure = 0, kOrdered = 1, kCollective = 2, kEmit = 3 };
std::string_view EffectsName(Effects e);

// The allowed *values* of an operand. For another value a kernel reads 0 and skips the write, and
// the run ends with OUT_OF_RANGE.
enum class Domain : uint8_t {
  kAny = 0,
  kIndex,  // in [-n, n) of an extent n that the op's documentation names; negative counts from the
           // end
  kIndexOrIgnore,  // the same, or equal to the attribute ignore_index
};

// The type of operands and results that may have any type, each its own.
inline constexpr std::string_view kAnyType = "any";
// The type of operands that are encoded in GGUF's blocks.
inline constexpr std::string_view kBlocksType = "blocks";

struct OperandSpec {
  std::string name;
  std::string type;  // a type variable ("T"), an element type's name, kAnyType or kBlocksType
  bool optional = false;
  bool variadic = false;  // a list: one segment
  Domain domain = Domain::kAny;
};

struct ResultSpec {
  std::string name;
  std::string type;
  bool variadic = false;  // a list
};

// The letters of signatures: A arithmetic, F and G floats, S floats and signed integers, N
// integers. B integers and bool, C arithmetic and bool, I index types, M masks (floats and bool). W
// the floats for accumulators of sums, Q bytes of quantised values, D and E floats of 8 bits, T and
// U all.
struct TypeVariable {
  std::string name;
  DTypeSet types;
};

struct AttrSpec {
  std::string name;
  AttrKind kind;
  std::optional<AttrValue> fallback;  // none: the attribute is required
  std::string doc;
};

// Counts for one call, of concrete extents: an estimate for placement and scheduling.
struct OpCost {
  double flops = 0;
  double bytes = 0;
};
using Shape = std::vector<int64_t>;
struct CostArgs {
  std::span<const Shape> operands;  // absent ones are empty
  std::span<const Shape> results;
  int64_t element_bytes;  // of the first result
};

// How a result can share an operand's memory, for planners.
enum class Aliasing : uint8_t {
  kNone,
  kElementwise,  // a result may share storage with an operand of equal type that is not used
                 // afterwards; an element of a list, with the element at its place in a list
  kUpdate,   // the result is the first operand, changed in part; it may share its storage, if that
             // is not used afterwards; an index outside it changes nothing
  kReshape,  // the result is the first operand's bytes with another shape
};

// Ops that an executor runs itself, step by step, without kernels. A function that a node calls
// takes tensors only, of the types of its operands in this order, and captures nothing. It uses its
// callers' dimension symbols.
enum class Control : uint8_t {
  kNone,
  kIf,      // then, otherwise: take `inputs`, return the results
  kWhile,   // condition: takes `carried` and `inputs`, returns a bool[]; body: takes the same,
            // returns the next `carried`
  kRepeat,  // body: takes the iteration (i64[], from 0), `carried` and `inputs`, returns the next
            // `carried`
  kEmit,    // sends a value to the client while the run continues
};

struct OpDef {
  std::string name;
  uint16_t version = 1;
  std::vector<OperandSpec> operands;
  std::vector<ResultSpec> results;
  std::vector<TypeVariable> variables;
  std::vector<AttrSpec> attrs;
  // Sets the results' shapes, and types that the signature leaves open. Element types and arity are
  // already checked.
  std::function<Status(InferContext&)> infer;
  Expr body;  // of elementwise ops; the result type follows from the signature
  Effects effects = Effects::kPure;
  Aliasing aliasing = Aliasing::kNone;
  std::function<OpCost(const CostArgs&)> cost;
  Control control = Control::kNone;
  // The roles of the functions that a node calls ("body"), in the node's order.
  std::vector<std::string> calls;
  std::string family;  // the folder of kernels/ops that has it
  std::string doc;     // one line

  // Whether the results have the number and types of a called function's results. Then the node
  // stores their types, and they are not inferred.
  bool DeclaresResults() const { return control == Control::kIf; }
  int FindOperand(std::string_view operand) const;  // -1: none
  int FindAttr(std::string_view attr) const;        // -1: none
  bool HasLists() const;                            // whether an operand is a list
  // The operand whose length list result i has: the list of its name, else the first list.
  // REQUIRES: the result is a list.
  int LengthOf(int result) const;
  // The begin of each operand among a node's values, and one past the last, as opw_call::starts.
  // REQUIRES: one segment per operand, or none.
  std::vector<uint32_t> OperandStarts(std::span<const uint32_t> segments) const;
  // The same for its results, from the starts of its operands. REQUIRES: !DeclaresResults().
  std::vector<uint32_t> ResultStarts(std::span<const uint32_t> starts) const;
  // The number of results of a call.
  size_t CountResults(const uint32_t* starts) const {
    return ResultStarts({starts, operands.size() + 1}).back();
  }
  const DTypeSet* Variable(std::string_view name) const;
  // The element types of operand or result `type`: the variable's set, or the named type.
  DTypeSet TypesOf(std::string_view type) const;
  // "add(x: T, y: T) -> z: T", for messages and the reference.
  std::string Signature() const;
};

// Another name of an op when parsing: DeepX's names, with the order of operands if that differs.
struct OpAlias {
  std::string alias;
  std::string name;
  bool swap =
      false;  // the alias takes its two operands in reverse order: rsubscalar(x, s) is sub(s, x)
};

class OpCatalogue {
 public:
  // CHECK-fails on op definitions that contradict themselves: they are our own.
  explicit OpCatalogue(std::vector<OpDef> rows, std::vector<OpAlias> aliases);

  const OpDef* Find(std::string_view name) const;  // without aliases; nullptr: none
  const OpAlias* FindAlias(std::string_view name) const;
  // Op definitions by name.
  const std::vector<OpDef>& rows() const { return rows_; }
  const std::vector<OpAlias>& aliases() const { return aliases_; }
  // Up to three names near `name`, the nearest first.
  std::vector<std::string> Nearest(std::string_view name) const;

 private:
  std::vector<OpDef> rows_;
  std::vector<OpAlias> aliases_;
};

const OpCatalogue& Catalogue();

// The operands of a node for a shape rule, and the results that the rule sets.
class InferContext {
 public:
  struct Constraint {
    Dim a, b;          // they must be equal once bound
    std::string what;  // "inner dimensions"
  };

  InferContext(const OpDef& row, DimTable& dims, std::span<const TensorType* const> operands,
               std::span<const uint32_t> segments, std::span<const AttrValue> attrs);

  DimTable& dims() { return dims_; }
  // An operand by its index; nullptr if absent. REQUIRES: not a list.
  const TensorType* Operand(int i) const;
  const TensorType& In(int i) const { return *Operand(i); }
  // The elements of list operand i.
  std::span<const TensorType* const> List(int i) const;
  template <typename T>
  const T& Attr(int i) const {
    return std::get<T>(attrs_[i]);
  }

  // A result by its index. REQUIRES: not a list.
  TensorType& Result(int i) { return results_[result_starts_[i]]; }
  // The elements of list result i.
  std::span<TensorType> ResultList(int i) {
    return std::span(results_).subspan(result_starts_[i],
                                       result_starts_[i + 1] - result_starts_[i]);
  }
  std::vector<TensorType>& results() { return results_; }

  // Equal: OK. Provably different: an error that names both. Otherwise adds a constraint, checked
  // when dimensions are bound. `what` is part of the message: "inner dimensions".
  Status RequireEqual(Dim a, Dim b, std::string_view what);
  // The same for a <= b; the constraint is min(a, b) == a.
  Status RequireAtMost(Dim a, Dim b, std::string_view what);
  Status RequireEqualShapes(std::span<const Dim> a, std::span<const Dim> b, std::string_view what);
  Status RequireRank(int operand, int rank);
  Status RequireRankAtLeast(int operand, int rank);
  // Returns an axis attribute in [-rank, rank) as a non-negative axis. `extra` widens the rank (for
  // ops that insert an axis).
  StatusOr<int> Axis(int64_t axis, int rank, std::string_view attr);
  // Returns NumPy's broadcast of the shapes. A symbol is never 1 when combined with another extent.
  StatusOr<std::vector<Dim>> Broadcast(std::span<const TensorType* const> types);
  // "matmul: inner dimensions differ: ..." as INVALID_ARGUMENT.
  Status Error(std::string_view message) const;
  std::string Print(const TensorType& t) const { return ToString(t, dims_); }
  // "[4, 8] x [6, 2]": the shapes of the operands, for messages.
  std::string OperandShapes() const;

  // Each pair of extents once.
  const std::vector<Constraint>& constraints() const { return constraints_; }

 private:
  void Constrain(Dim a, Dim b, std::string_view what);

  const OpDef& row_;
  DimTable& dims_;
  std::span<const TensorType* const> operands_;
  std::span<const AttrValue> attrs_;
  std::vector<uint32_t> starts_,
      result_starts_;  // the begin of operand i among operands_; the last entry is one past the end
  std::vector<TensorType> results_;
  std::vector<Constraint> constraints_;
  std::unordered_set<uint64_t> constrained_;  // the pairs in constraints_
};

// The types of a node's results, from its operands' types. Checks arity, segments, element types
// and attributes against the op definition, then applies its shape rule. `attrs` has every
// attribute of the op definition, in its order (ResolveAttrs). INVALID_ARGUMENT names the op, the
// expectation and the operand.
struct Inferred {
  std::vector<TensorType> results;
  std::vector<InferContext::Constraint> constraints;
};
// `declared`: the results that a node stores, if its op definition declares results. They are used
// unchanged.
StatusOr<Inferred> InferTypes(const OpDef& row, DimTable& dims,
                              std::span<const TensorType* const> operands,
                              std::span<const uint32_t> segments, std::span<const AttrValue> attrs,
                              std::span<const TensorType> declared = {});

struct NamedAttr {
  std::string name;
  AttrValue value;
  bool operator==(const NamedAttr&) const = default;
};
// Returns attributes in the op definition's order, with defaults. INVALID_ARGUMENT for unknown,
// repeated, missing or mistyped ones. An int is accepted as a float, and a list of ints as dims.
StatusOr<std::vector<AttrValue>> ResolveAttrs(const OpDef& row, std::span<const NamedAttr> given,
                                              DimTable& dims);
// Returns the same attributes as written in a module: in the op definition's order and of its
// kinds, without the defaults.
StatusOr<std::vector<NamedAttr>> CanonicalAttrs(const OpDef& row, std::span<const NamedAttr> given,
                                                DimTable& dims);

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_CATALOGUE_H_
