// An extent of a traced array that is not a number: an expression over symbols. Each symbol
// represents the extents of an argument's axis.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_EXTENT_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_EXTENT_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "frontend/python/module/array.h"
#include "ir/base/dim.h"

namespace opwire::python {

class Trace;

// The Python object of an extent: `?n`. It supports addition, multiplication, floor division and
// remainder with numbers and other extents. It also supports comparisons whose result is the same
// for all its values. Operations that need the number are a TypeError.
struct PyExtent {
  std::shared_ptr<Trace> trace;  // the owner of the module with the expression
  Dim dim;
};

// Array::shape of a traced array has numbers; a negative number encodes an expression.
inline int64_t CodeOf(Dim d) { return -1 - static_cast<int64_t>(d.index); }
inline Dim DimOf(int64_t code) { return Dim{static_cast<uint32_t>(-1 - code)}; }

// nullptr if it is not an extent.
const PyExtent* AsExtent(nanobind::handle h);
// Returns an int if the expression is a constant.
nanobind::object WrapExtent(std::shared_ptr<Trace> trace, Dim d);
nanobind::tuple ShapeOf(const Array& array);
// Returns the number of elements.
nanobind::object SizeOf(const Array& array);
// Returns the same expression in another table, with symbols of the same names. ValueError for an
// expression that comes from a value.
Dim Translate(const DimTable& from, Dim d, DimTable& to);

void BindExtents(nanobind::module_& m);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_EXTENT_H_
