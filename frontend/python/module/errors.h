// Statuses as Python exceptions of the builtin type that fits, with what the status says of the
// place in the program.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_ERRORS_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_ERRORS_H_

#include <nanobind/nanobind.h>

#include <string>

#include "ir/base/status.h"

namespace opwire::python {

// INVALID_ARGUMENT is ValueError (TypeError where an element type was expected), OUT_OF_RANGE
// IndexError, NOT_FOUND LookupError, UNAVAILABLE ConnectionError, RESOURCE_EXHAUSTED MemoryError,
// DEADLINE_EXCEEDED TimeoutError, PERMISSION_DENIED PermissionError, UNIMPLEMENTED
// NotImplementedError; all others RuntimeError. What a signal handler raised while something was
// waited for comes first. `where`: the user's line, "file.py:12"; may be empty.
[[noreturn]] void Raise(const Status& status, const std::string& where = "");

inline void Check(const Status& status) {
  if (!status.ok()) Raise(status);
}
template <typename T>
T Unwrap(StatusOr<T> value) {
  if (!value.ok()) Raise(value.status());
  return *std::move(value);
}

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_ERRORS_H_
