// Ops over arrays: traced while a function is, else queued on the arrays' device.
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

// An op by its name in the catalogue, to be called.
//
//   softmax = Op("softmax")
//   y = softmax(x, dim=-1)
//
// Operands in the row's order: arrays, numbers (of the type that arrays beside them make the row's
// type variable), None for an absent one, lists for the row's lists. A tuple of ints is a 1-d int64
// array (not in a traced function). Attributes by name. An op of
// one result gives it as it is, and a tuple by Many. ValueError and TypeError are the row's own;
// arrays of several devices are a ValueError.
class PyOp {
 public:
  explicit PyOp(const std::string& name);
  // Of those that the session's executor has, `user.NAME` among them; of arrays there, and there
  // where it takes none.
  PyOp(std::shared_ptr<PySession> session, const std::string& name);
  nanobind::object Call(nanobind::args operands, nanobind::kwargs attrs) const;
  nanobind::object Many(nanobind::args operands, nanobind::kwargs attrs) const;
  // For rows of two operands: both are brought to one type first. TypeError where one is neither
  // array nor number.
  nanobind::object Two(nanobind::handle a, nanobind::handle b) const;
  // The same, but NotImplemented there, as operators have it.
  nanobind::object Operator(nanobind::handle a, nanobind::handle b) const;
  // The first operand, an array, becomes the op's one result: in place if its memory has no other
  // handle and no name. Waits: if it fails, that is as it was. REQUIRES: the row updates its first
  // operand; nothing is traced.
  void Update(nanobind::args operands, nanobind::kwargs attrs) const;

 private:
  // Arrays, numbers and None by operand of the row; few, so they take no memory of their own.
  using Operands = absl::InlinedVector<absl::InlinedVector<nanobind::handle, 1>, 4>;
  using Objects = absl::InlinedVector<nanobind::object, 2>;

  Objects Run(const Operands& operands, nanobind::handle attrs) const;
  Objects Traced(Trace& trace, const Operands& operands, nanobind::handle attrs) const;
  Objects Eager(const Operands& operands, nanobind::handle attrs) const;
  // An eager call: what is run, on what, and where.
  struct Bound {
    OpCall call;
    std::vector<Arg> args;
    std::shared_ptr<PySession> session;
    std::deque<opwire::Array> tuples;  // among the operands
  };
  // REQUIRES: `out` is empty.
  void Bind(const Operands& operands, nanobind::handle attrs, Bound& out) const;
  Operands OperandsOf(nanobind::args given) const;
  // What a number that is operand i is: what the signature says, by its letter as an array beside
  // it, else the number's own.
  DType TypeOfScalar(const Operands& operands, size_t i) const;

  void Expect(const OpCatalogue& ops, const std::string& name) const;

  const std::shared_ptr<PySession> session_;      // null: any
  const std::shared_ptr<const OpCatalogue> ops_;  // that has the row; null: the built-in ones
  const OpRow* row_;
};

// x becomes `with`, once that was computed. What was read of x before stays.
void Replace(Array& x, const Array& with);

// A Python number as an argument of type t. OverflowError where t does not hold it.
Arg NumberOf(DType t, nanobind::handle number);
// Python's exception for what is no float, or an int beyond all floats.
double RealOf(nanobind::handle number);

// Where ops without operands run when nothing is traced: Python's choice for this thread, made when
// first asked for.
void SetDefaultSession(nanobind::object chooser);
// Makes an array of a foreign object beside `like`'s; Python's.
void SetConverter(nanobind::object converter);

nanobind::object Cast(nanobind::handle array, DType to);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_CALL_H_
