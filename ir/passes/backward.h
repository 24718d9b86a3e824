// The backward pass of a function: the state that gradient rules read and extend. Internal to
// ir/passes.
#ifndef OPWIRE_IR_PASSES_BACKWARD_H_
#define OPWIRE_IR_PASSES_BACKWARD_H_

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/passes/pattern.h"
#include "ir/passes/rewriter.h"

namespace opwire {

class Backward {
 public:
  // `r` kept every node. `wanted`: by its new values, so far.
  Backward(Rewriter& r, const std::vector<bool>& wanted)
      : r_(r), wanted_(wanted), gradients_(wanted.size(), kAbsent) {}

  Rewriter& rewriter() { return r_; }
  DimTable& dims() { return r_.dims(); }
  const TensorType& TypeOf(ValueId v) const { return r_.TypeOf(v); }
  // Whether a gradient by this value is needed; false for an absent one.
  bool Wants(ValueId v) const { return v != kAbsent && wanted_[static_cast<size_t>(v)]; }
  // Returns the gradient by a value of the function, after all its readers have added to it.
  // kAbsent: no node on the path to the loss reads it.
  ValueId GradientOf(ValueId v);
  // Removes and returns the sum that was added to the gradient by `v` so far. A node then adds it
  // to its own result. kAbsent: nothing.
  ValueId Take(ValueId v) {
    return Wants(v) ? std::exchange(gradients_[static_cast<size_t>(v)], kAbsent) : kAbsent;
  }
  // Adds to the gradient by `v`, if it is needed. `g` has its shape or broadcasts from it.
  void Add(ValueId v, ValueId g);
  // The same for elements [start, start + g's extent) along an axis. Ranges that do not overlap are
  // joined, not summed. REQUIRES: both extents along the axis are constants, and the range is
  // within v.
  void AddStretch(ValueId v, int64_t axis, int64_t start, ValueId g);

  // Add nodes of the backward pass. If one cannot be made, all later ones are kAbsent, and failed()
  // is true: a rule contradicts the catalogue.
  ValueId Op(std::string_view op, std::vector<ValueId> operands, std::vector<NamedAttr> attrs = {});
  std::vector<ValueId> Ops(std::string_view op, std::vector<ValueId> operands, size_t results,
                           std::vector<NamedAttr> attrs = {});
  // Adds a node that calls functions and has results of these types. It has the source location of
  // the current node. `lists`: by operand of its op definition.
  std::vector<ValueId> Call(std::string_view op,
                            std::initializer_list<std::span<const ValueId>> lists,
                            std::vector<uint32_t> functions, std::vector<TensorType> types,
                            const std::string& location);
  ValueId Reshape(ValueId v, const std::vector<Dim>& shape);
  ValueId Expand(ValueId v, const std::vector<Dim>& shape);
  ValueId Full(const TensorType& type, double value);
  // Evaluates `text` (a term of rules.h) with the named values. Numbers have the type of `like`.
  ValueId FromTerm(std::string_view text, const NamedValues& bindings, ValueId like);
  // Sums over the axes along which `v` was broadcast.
  ValueId SumTo(ValueId v, const TensorType& type);
  // Returns the number of elements of a shape as a 0-d f32 (f64 for `dtype` f64).
  ValueId Count(const std::vector<Dim>& shape, DType dtype);
  // Returns the number of NaN elements, as i64[1].
  ValueId CountNans(ValueId v);
  bool failed() const { return failed_; }
  // Returns the values that were added to gradients since the last call, in order.
  std::vector<ValueId> TakeAdded() { return std::exchange(added_, {}); }

 private:
  struct Stretch {
    int64_t axis, start, length;
    ValueId g;
  };
  int64_t ExtentOf(ValueId v, int64_t axis) {
    return dims().ConstantValue(TypeOf(v).shape[static_cast<size_t>(axis)]);
  }

  Rewriter& r_;
  const std::vector<bool>& wanted_;
  std::vector<ValueId> gradients_;
  std::unordered_map<ValueId, std::vector<Stretch>> stretches_;  // not yet part of gradients_
  std::vector<ValueId> added_;
  bool failed_ = false;
};

// Adds the node's gradients by its operands to `b`. Returns false if the op has none. `results` are
// the node's values.
bool AddGradients(Backward& b, const Node& node, std::span<const ValueId> results,
                  const std::vector<AttrValue>& attrs);

// Whether the op has a gradient rule of its own: all ops with a gradient do, except for `repeat`
// and `if`.
bool HasGradients(std::string_view op);

// By operand of an op definition with a body, the term of its gradient. Names are those of its
// operands, `out` for its result and `g` for the gradient by the result. Empty: it is 0.
std::optional<std::vector<std::string_view>> BodyGradients(std::string_view op);

// By value of a function.
using Marks = std::vector<bool>;

// Marks the floats that nodes compute from marked ones.
void MarkMade(const Function& f, const ValueTypes& values, Marks& made);

// Returns those of the `made` values that lead to one of `to`.
Marks Between(const Function& f, const ValueTypes& values, const Marks& made, Marks to);

// Returns the product of the extents.
Dim Product(DimTable& dims, std::span<const Dim> shape);

// Writes backward passes into the functions of a module: the function whose gradient is needed, and
// those that its loops and branches call (gradient_calls.cc).
class Differentiator {
 public:
  // The begin of a backward pass. The gradient by a value of the function is one of its parameters,
  // or kAbsent: 1.
  struct Seed {
    ValueId value;
    ValueId gradient;
  };
  // The user's original of a function: its name, and the number of the first value that a node
  // makes.
  struct Origin {
    std::string name;
    size_t first_value;
  };

  // NaNs of a function's gradients, by the node that made them.
  struct NanCounts {
    ValueId value;                     // i64[n], which gets longer; of the function's result
    std::vector<std::string> counted;  // labels of the counts after the n, as in GradientOptions
  };

  // For a verified module, with its typing.
  Differentiator(Module& module, Typing typing, const OpCatalogue& ops);

  // Adds the backward pass through the `wanted` values to the function. Loops in it then also carry
  // the values that it needs. Returns the gradients by the named values, zeros if there is none.
  // UNIMPLEMENTED, with the place, if a node on the path has no gradient. `nans`: if not null, the
  // backward pass also counts its NaNs.
  StatusOr<std::vector<ValueId>> AddWayBack(uint32_t function, const Marks& wanted,
                                            std::span<const Seed> seeds,
                                            std::span<const ValueId> by, const Origin& origin,
                                            NanCounts* nans = nullptr);
  // After all backward passes exist: rematerialises the marked values in them (recompute.h).
  void ComputeMarkedAgain();

 private:
  // A `repeat` in the forward pass.
  struct Loop {
    int64_t iterations = 0;
    std::vector<ValueId>
        kept;  // by carried value: its values at the begin of each iteration, with
               // the shape `[1, iterations, elements]`; kAbsent: the body does not read it
  };

  PassContext Context() {
    return {.module = module_, .typing = typing_, .ops = ops_, .limits = {.nodes = INT64_MAX}};
  }
  // Adds a new function, whose name begins with `name`.
  uint32_t AddFunction(Function f, std::string_view name);
  // For a function whose nodes come from verified ones.
  void AddTyping(uint32_t function);
  // Returns the function without its emits.
  uint32_t Silent(uint32_t function);
  // Returns the name of the original of a silent function.
  std::string WrittenName(uint32_t silent) const;
  // Adds the nodes of `from`, a silent function, to a backward function, as AppendNodes does.
  // Returns which of its values are the wanted ones of `from`.
  Marks AppendAgain(uint32_t back, const Function& from, const Marks& wanted,
                    std::vector<ValueId>& values);
  // Lets the current node, a `repeat`, also store its carried values in each iteration, and keeps
  // the node. Returns nothing if the number of iterations is not known.
  StatusOr<std::optional<Loop>> KeepCarried(Rewriter& r, Node& node, const std::string& place);
  uint32_t AddKeepingBody(uint32_t body, const std::vector<std::optional<TensorType>>& kept);
  Status AddLoopGradients(Backward& b, const Node& node, std::span<const ValueId> results,
                          const Loop& loop);
  StatusOr<uint32_t> AddBranchBack(uint32_t silent, const Marks& wanted,
                                   std::span<const size_t> from, std::span<const size_t> by);
  Status AddBranchGradients(Backward& b, const Node& node, std::span<const ValueId> results);

  Module& module_;
  Typing typing_;
  const OpCatalogue& ops_;
  std::vector<std::pair<uint32_t, uint32_t>>
      ways_;                               // functions, and the begins of their backward passes
  std::unordered_set<std::string> names_;  // of functions
  std::unordered_map<uint32_t, uint32_t> silent_;
  std::unordered_map<uint32_t, std::string> written_as_;  // by silent copy, the original's name
};

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_BACKWARD_H_
