// Element types that NumPy does not know, to and from other libraries by DLPack
// (dmlc.github.io/dlpack/latest/c_api.html: DLDataTypeCode), as their bits.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_DLPACK_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_DLPACK_H_

#include <nanobind/nanobind.h>

#include "frontend/python/module/dtypes.h"

namespace opwire::python {

// Returns the value of __dlpack__ for the elements in `bits`: NumPy's contiguous array of unsigned
// integers of the same width. It lives while the exported object does.
nanobind::object ToDLPack(nanobind::handle bits, PyDType type);
// Returns the type and the bits, as NumPy's view, of an object with DLPack: an array in the host's
// memory, with elements of bfloat16, float8_e4m3fn or float8_e5m2. None for others.
nanobind::object FromDLPack(nanobind::handle array);
void BindDLPack(nanobind::module_& m);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_DLPACK_H_
