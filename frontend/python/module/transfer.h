// Transfers of arrays' bytes to and from Python's memory.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_TRANSFER_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_TRANSFER_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "frontend/python/module/array.h"
#include "frontend/python/module/dtypes.h"

namespace opwire::python {

// Returns the array for a call that needs one on a device. Raises TypeError for other objects,
// ValueError for a traced array and for one that was given away.
Array& EagerArray(nanobind::handle h);

// Makes an array of the contiguous bytes of `buffer`, which are copied.
nanobind::object Put(std::shared_ptr<PySession> session, PyDType type, std::vector<int64_t> shape,
                     nanobind::handle buffer);
// Returns its bytes, after waiting for their computation: few ones as a bytearray, others as a
// read-only buffer in the memory that the session shares, without a copy. Later operations on the
// array change neither.
nanobind::object Fetch(nanobind::handle array);
void BindTransfer(nanobind::module_& m);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_TRANSFER_H_
