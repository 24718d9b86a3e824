// Ops over arrays: traced during tracing, else queued on the arrays' device.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_CALL_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_CALL_H_

#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "frontend/python/module/array.h"
#include "frontend/python/module/op_cache.h"
#include "ir/ops/catalogue.h"

namespace opwire::python {

// An op by its name in the catalogue.
//
//   softmax = Op("softmax")
//   y = softmax(x, dim=-1)
//
// Operands are in the op definition's order: arrays, numbers, None for an absent one, lists for
// list operands. A number has the type that the arrays give to its type variable. A tuple of ints
// is a 1-d int64 array (not in a traced function). Attributes are given by name. An op with one
// result returns it directly, and as a tuple by Many. ValueError and TypeError are those of the op
// definition; arrays of several devices are a ValueError.
class PyOp {
 public:
  explicit PyOp(const std::string& name);
  // An op of the session's executor, including `user.NAME`. Its arrays must be there. It also runs
  // there if it has no operands.
  PyOp(std::shared_ptr<PySession> session, const std::string& name);
  nanobind::object Call(nanobind::args operands, nanobind::kwargs attrs) const;
  nanobind::object Many(nanobind::args operands, nanobind::kwargs attrs) const;
  // For ops of two operands: both are first converted to one type. TypeError if one is neither
  // array nor number.
  nanobind::object Two(nanobind::handle a, nanobind::handle b) const;
  // The same, but returns NotImplemented then, for operators.
  nanobind::object Operator(nanobind::handle a, nanobind::handle b) const;
  // The first operand, an array, becomes the op's only result: in place if its memory has no other
  // handle and no name. Waits. If the op fails, the array is unchanged. REQUIRES: the op updates
  // its first operand; nothing is traced.
  void Update(nanobind::args operands, nanobind::kwargs attrs) const;

 private:
  // Arrays, numbers and None by operand of the op definition. They are few, so they are stored
  // inline.
  using Operands = absl::InlinedVector<absl::InlinedVector<nanobind::handle, 1>, 4>;
  using Objects = absl::InlinedVector<nanobind::object, 2>;

  Objects Run(const Operands& operands, nanobind::handle attrs) const;
  Objects Traced(Trace& trace, const Operands& operands, nanobind::handle attrs) const;
  Objects Eager(const Operands& operands, nanobind::handle attrs) const;
  // An eager call: its op, arguments and session.
  struct Bound {
    OpCall call;
    std::vector<Arg> args;
    std::shared_ptr<PySession> session;
    std::deque<client::Array> tuples;  // among the operands
  };
  // REQUIRES: `out` is empty.
  void Bind(const Operands& operands, nanobind::handle attrs, Bound& out) const;
  Operands OperandsOf(nanobind::args given) const;
  // Returns the type of a number that is operand i. It is the type in the signature, or that of
  // arrays with the same type variable, else the number's own.
  DType TypeOfScalar(const Operands& operands, size_t i) const;

  void Expect(const OpCatalogue& ops, const std::string& name) const;

  const std::shared_ptr<PySession> session_;      // null: any
  const std::shared_ptr<const OpCatalogue> ops_;  // it has row_; null: the built-in ones
  const OpDef* row_;
};

// x becomes `with`, once that is computed. Earlier readers of x keep the old value.
void Replace(Array& x, const Array& with);

// Returns a Python number as an argument of type t. OverflowError if t cannot represent it.
Arg NumberOf(DType t, nanobind::handle number);
// Raises Python's exception for a value that is not a float, or an int beyond all floats.
double RealOf(nanobind::handle number);

// Sets the session for ops without operands when nothing is traced. Python chooses it for this
// thread at the first use.
void SetDefaultSession(nanobind::object chooser);
// Sets Python's function that makes an array of a foreign object, on the device of `like`.
void SetConverter(nanobind::object converter);

nanobind::object Cast(nanobind::handle array, DType to);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_CALL_H_
