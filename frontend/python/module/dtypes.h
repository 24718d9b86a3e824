// Element types as Python objects, one for each: `opwire.float32`; those of GGUF's blocks, too:
// `opwire.q4_1`.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_DTYPES_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_DTYPES_H_

#include <nanobind/nanobind.h>

#include <string_view>

#include "ir/base/dtype.h"

namespace opwire::python {

struct PyDType {
  DType type;
  Encoding encoding = Encoding::kDense;
  bool operator==(const PyDType&) const = default;
};

// "float32", "bfloat16", "float8_e4m3fn", "bool": as the Array API and ml_dtypes have them.
std::string_view PythonName(DType type, Encoding encoding = Encoding::kDense);
// The object of a type.
nanobind::object DTypeObject(DType type, Encoding encoding = Encoding::kDense);
// From such an object of dense elements. Raises TypeError for anything else.
DType DTypeOf(nanobind::handle h);
// Of blocks, too.
PyDType StoredTypeOf(nanobind::handle h);
void BindDTypes(nanobind::module_& m);

// What two types make together: the Array API's table; f16 and bf16 make f32; integers and floats
// the float, as in PyTorch. kInvalid: u64 and a signed type.
DType Promote(DType a, DType b);
inline bool IsFloat(DType t) { return (kFloats | kFloat8s).Has(t); }
inline bool IsInteger(DType t) { return kIntegers.Has(t); }

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_DTYPES_H_
