// The way back through a function: what rules of gradients see and add to. Internal to ir/passes.
#ifndef OPWIRE_IR_PASSES_BACKWARD_H_
#define OPWIRE_IR_PASSES_BACKWARD_H_

#include <optional>
#include <string_view>
#include <vector>

#include "ir/passes/pattern.h"
#include "ir/passes/rewriter.h"

namespace opwire {

class Backward {
 public:
  // `r` kept every node, so that its values have their old numbers.
  Backward(Rewriter& r, const std::vector<bool>& wanted) : r_(r), wanted_(wanted), gradients_(wanted.size(), kAbsent) {}

  Rewriter& rewriter() { return r_; }
  DimTable& dims() { return r_.dims(); }
  const TensorType& TypeOf(ValueId v) const { return r_.TypeOf(v); }
  // Whether a gradient by this value is asked for; false for an absent one.
  bool Wants(ValueId v) const { return v != kAbsent && wanted_[static_cast<size_t>(v)]; }
  // The gradient by a value of the function; kAbsent: nothing reads it on the way to the loss.
  ValueId GradientOf(ValueId v) const { return gradients_[static_cast<size_t>(v)]; }
  // Adds to the gradient by `v`, where that is wanted: `g` broadcasts from it or has its shape.
  void Add(ValueId v, ValueId g);

  // Nodes of the backward pass. Once one cannot be made, all that follow are kAbsent, and failed() says so: a rule that contradicts the catalogue.
  ValueId Op(std::string_view op, std::vector<ValueId> operands, std::vector<NamedAttr> attrs = {});
  std::vector<ValueId> Ops(std::string_view op, std::vector<ValueId> operands, size_t results, std::vector<NamedAttr> attrs = {});
  ValueId Reshape(ValueId v, const std::vector<Dim>& shape);
  ValueId Expand(ValueId v, const std::vector<Dim>& shape);
  ValueId Full(const TensorType& type, double value);
  // What `text` (a term of rules.h) makes of the values named; numbers are of the type of `like`.
  ValueId FromTerm(std::string_view text, const NamedValues& bindings, ValueId like);
  // Sums what broadcast to `v`'s shape added.
  ValueId SumTo(ValueId v, const TensorType& type);
  // As a 0-d f32 (f64 for `dtype` f64), how many elements a shape has.
  ValueId Count(const std::vector<Dim>& shape, DType dtype);
  bool failed() const { return failed_; }

 private:
  Rewriter& r_;
  const std::vector<bool>& wanted_;
  std::vector<ValueId> gradients_;
  bool failed_ = false;
};

// Adds the node's gradients by its operands to `b`; false where the row has none. `results` are its values.
bool AddGradients(Backward& b, const Node& node, std::span<const ValueId> results, const std::vector<AttrValue>& attrs);

// By operand of a row with a body, the term of its gradient: names are those of the row's operands, `out` for its result and `g` for the gradient by that. Empty: it is 0.
std::optional<std::vector<std::string_view>> BodyGradients(std::string_view op);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_BACKWARD_H_
