// A user's array: a tensor on a device, or a value of a function that is being traced.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_ARRAY_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_ARRAY_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "frontend/python/module/session.h"
#include "ir/program/builder.h"

namespace opwire::python {

class Trace;

struct Array {
  DType dtype = DType::kInvalid;
  Encoding encoding = Encoding::kDense;
  std::vector<int64_t> shape;  // if traced, see extent.h
  // On a device:
  std::shared_ptr<PySession> session;
  Tensor tensor;
  std::string stored;  // its name in the store, or the name by which it was read
  // Traced:
  std::shared_ptr<Trace> trace;
  Value value;
  bool weak = false;  // computed from number arguments of the traced function: when combined with
                      // other arrays it takes their type, like a number

  Array() = default;
  Array(std::shared_ptr<PySession> s, Tensor t, DType dt, std::vector<int64_t> extents,
        Encoding e = Encoding::kDense)
      : dtype(dt),
        encoding(e),
        shape(std::move(extents)),
        session(std::move(s)),
        tensor(std::move(t)) {}
  Array(std::shared_ptr<Trace> t, Value v, DType dt, std::vector<int64_t> extents,
        Encoding e = Encoding::kDense)
      : dtype(dt), encoding(e), shape(std::move(extents)), trace(std::move(t)), value(v) {}
  Array(Array&&) = default;
  Array& operator=(Array&&) = default;
  Array(const Array&) = default;
  Array& operator=(const Array&) = default;
  ~Array() {
    if (session) session->Drop(std::move(tensor));
  }
  int64_t elements() const { return CheckedElements(shape).value_or(0); }
};

// Registers the class of the arrays that functions return: a Python subclass of the class that is
// bound here.
void SetArrayClass(nanobind::handle subclass);
nanobind::object Wrap(Array array);
// nullptr if it is not an array.
Array* AsArray(nanobind::handle h);

nanobind::tuple ShapeTuple(const std::vector<int64_t>& shape);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_ARRAY_H_
