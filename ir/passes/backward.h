// The way back through a function: what rules of gradients see and add to. Internal to ir/passes.
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
  // Whether a gradient by this value is asked for; false for an absent one.
  bool Wants(ValueId v) const { return v != kAbsent && wanted_[static_cast<size_t>(v)]; }
  // The gradient by a value of the function, once all that reads it has added to it; kAbsent:
  // nothing reads it on the way to the loss.
  ValueId GradientOf(ValueId v);
  // What was added to the gradient by `v` so far, which a node then adds to its own: it is taken
  // out. kAbsent: nothing.
  ValueId Take(ValueId v) {
    return Wants(v) ? std::exchange(gradients_[static_cast<size_t>(v)], kAbsent) : kAbsent;
  }
  // Adds to the gradient by `v`, where that is wanted: `g` broadcasts from it or has its shape.
  void Add(ValueId v, ValueId g);
  // The same of elements [start, start + g's extent) along an axis. Stretches that do not overlap
  // are joined, not summed. REQUIRES: both extents along the axis are constants, and it lies within
  // v.
  void AddStretch(ValueId v, int64_t axis, int64_t start, ValueId g);

  // Nodes of the backward pass. Once one cannot be made, all that follow are kAbsent, and failed()
  // says so: a rule that contradicts the catalogue.
  ValueId Op(std::string_view op, std::vector<ValueId> operands, std::vector<NamedAttr> attrs = {});
  std::vector<ValueId> Ops(std::string_view op, std::vector<ValueId> operands, size_t results,
                           std::vector<NamedAttr> attrs = {});
  // A node that calls functions and gives these types, with the place in the source of what was
  // begun. `lists`: by operand of its row.
  std::vector<ValueId> Call(std::string_view op,
                            std::initializer_list<std::span<const ValueId>> lists,
                            std::vector<uint32_t> functions, std::vector<TensorType> types,
                            const std::string& location);
  ValueId Reshape(ValueId v, const std::vector<Dim>& shape);
  ValueId Expand(ValueId v, const std::vector<Dim>& shape);
  ValueId Full(const TensorType& type, double value);
  // What `text` (a term of rules.h) makes of the values named; numbers are of the type of `like`.
  ValueId FromTerm(std::string_view text, const NamedValues& bindings, ValueId like);
  // Sums what broadcast to `v`'s shape added.
  ValueId SumTo(ValueId v, const TensorType& type);
  // As a 0-d f32 (f64 for `dtype` f64), how many elements a shape has.
  ValueId Count(const std::vector<Dim>& shape, DType dtype);
  // As i64[1], how many elements are NaN.
  ValueId CountNans(ValueId v);
  bool failed() const { return failed_; }
  // What was added to gradients since the last call, in order.
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
  std::unordered_map<ValueId, std::vector<Stretch>>
      stretches_;  // that are not yet part of gradients_
  std::vector<ValueId> added_;
  bool failed_ = false;
};

// Adds the node's gradients by its operands to `b`; false where the row has none. `results` are its
// values.
bool AddGradients(Backward& b, const Node& node, std::span<const ValueId> results,
                  const std::vector<AttrValue>& attrs);

// Whether the row has a rule of its own: all that have a gradient but `repeat` and `if`.
bool HasGradients(std::string_view op);

// By operand of a row with a body, the term of its gradient: names are those of the row's operands,
// `out` for its result and `g` for the gradient by that. Empty: it is 0.
std::optional<std::vector<std::string_view>> BodyGradients(std::string_view op);

// By value of a function.
using Marks = std::vector<bool>;

// Marks the floats that nodes make of marked ones.
void MarkMade(const Function& f, const ValueTypes& values, Marks& made);

// Of the `made` values those that lead to one of `to`.
Marks Between(const Function& f, const ValueTypes& values, const Marks& made, Marks to);

// Product of the extents.
Dim Product(DimTable& dims, std::span<const Dim> shape);

// Writes ways back into the functions of a module: the one that a gradient is asked of, and those
// that loops and branches on its way call (gradient_calls.cc).
class Differentiator {
 public:
  // Where the way back begins: the gradient by a value of the function is one of its parameters, or
  // kAbsent: 1.
  struct Seed {
    ValueId value;
    ValueId gradient;
  };
  // What the user wrote of a function: its name, and the number of the value that its first node
  // makes.
  struct Origin {
    std::string name;
    size_t first_value;
  };

  // NaNs of a function's gradients, by node that made them.
  struct NanCounts {
    ValueId value;                     // i64[n], which becomes longer; of the function's result
    std::vector<std::string> counted;  // labels of the counts behind the n, as in GradientOptions
  };

  // Of a verified module, with its typing.
  Differentiator(Module& module, Typing typing, const OpCatalogue& ops);

  // Adds the way back through the `wanted` values to the function, whose loops on that way then
  // also carry what it needs; the gradients by the values named, zeros where there is none.
  // UNIMPLEMENTED, with the place, where a node on the way has no gradient. `nans`: if not null,
  // the way back also counts its NaNs.
  StatusOr<std::vector<ValueId>> AddWayBack(uint32_t function, const Marks& wanted,
                                            std::span<const Seed> seeds,
                                            std::span<const ValueId> by, const Origin& origin,
                                            NanCounts* nans = nullptr);
  // Once all ways back are there: computes again on them what is marked so (recompute.h).
  void ComputeMarkedAgain();

 private:
  // A `repeat` on the way.
  struct Loop {
    int64_t trips = 0;
    std::vector<ValueId> kept;  // by carried value: what it was at the begin of each trip, [1,
                                // trips, elements]; kAbsent: the body does not read it
  };

  PassContext Context() {
    return {.module = module_, .typing = typing_, .ops = ops_, .limits = {.nodes = INT64_MAX}};
  }
  // A new function, whose name begins so.
  uint32_t AddFunction(Function f, std::string_view name);
  // Of a function whose nodes are of verified ones.
  void AddTyping(uint32_t function);
  // The function that does the same and emits nothing.
  uint32_t Silent(uint32_t function);
  // The name of the function that it does the same as.
  std::string WrittenName(uint32_t silent) const;
  // Adds the nodes of `from`, a silent function, to a function of the way back, as AppendNodes
  // does; which of its values are those of `from` that are wanted.
  Marks AppendAgain(uint32_t back, const Function& from, const Marks& wanted,
                    std::vector<ValueId>& values);
  // Lets the node that was begun, a `repeat`, keep what it carries, and keeps it. Nothing where the
  // number of trips is not known.
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
  std::vector<std::pair<uint32_t, uint32_t>> ways_;  // functions, and where their ways back begin
  std::unordered_set<std::string> names_;            // of functions
  std::unordered_map<uint32_t, uint32_t> silent_;
  std::unordered_map<uint32_t, std::string> written_as_;  // what silent copies are of
};

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_BACKWARD_H_
