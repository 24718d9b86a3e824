// Makes instances of the class that Python registered.
#include "frontend/python/module/array.h"

namespace opwire::python {
namespace nb = nanobind;

namespace {
PyObject* array_class = nullptr;
}

void SetArrayClass(nb::handle subclass) {
  Py_INCREF(subclass.ptr());
  array_class = subclass.ptr();
}

nb::object Wrap(Array array) {
  nb::object made = nb::inst_alloc(array_class);
  new (nb::inst_ptr<Array>(made)) Array(std::move(array));
  nb::inst_mark_ready(made);
  return made;
}

Array* AsArray(nb::handle h) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(h.ptr())) == array_class) return nb::inst_ptr<Array>(h);
  return nb::isinstance<Array>(h) ? nb::inst_ptr<Array>(h) : nullptr;
}

nb::tuple ShapeTuple(const std::vector<int64_t>& shape) {
  nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t i = 0; i < shape.size(); ++i)
    PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  return nb::borrow<nb::tuple>(made);
}

}  // namespace opwire::python
