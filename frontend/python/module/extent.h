// An extent of a traced array that is no number: an expression over symbols, each of which stands
// for the extents of an argument's axis.
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

// What Python sees of one: `?n`, which adds, multiplies, divides to the floor and takes remainders
// with numbers and others, and compares where the answer is the same for all that it stands for.
// What needs the number is a TypeError.
struct PyExtent {
  std::shared_ptr<Trace> trace;  // whose module's expression it is
  Dim dim;
};

// Array::shape of a traced array holds numbers, and below zero which expression it is.
inline int64_t CodeOf(Dim d) { return -1 - static_cast<int64_t>(d.index); }
inline Dim DimOf(int64_t code) { return Dim{static_cast<uint32_t>(-1 - code)}; }

// nullptr: it is none.
const PyExtent* AsExtent(nanobind::handle h);
// An int where the expression is a constant.
nanobind::object WrapExtent(std::shared_ptr<Trace> trace, Dim d);
nanobind::tuple ShapeOf(const Array& array);
// The number of elements.
nanobind::object SizeOf(const Array& array);
// The same expression in another table, of symbols of these names. ValueError for one that comes
// from a value.
Dim Translate(const DimTable& from, Dim d, DimTable& to);

void BindExtents(nanobind::module_& m);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_EXTENT_H_
