// Names, objects, promotion.
#include "frontend/python/module/dtypes.h"

#include <fmt/format.h>

#include <string>

namespace opwire::python {
namespace nb = nanobind;

namespace {

constexpr std::string_view kNames[kDTypeCount] = {
    "",      "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64",
    "int32", "int16",   "int8",    "uint64",  "uint32",   "uint16",        "uint8",       "bool"};
PyObject* objects[kDTypeCount];
constexpr Encoding kBlocks[] = {Encoding::kQ4_0, Encoding::kQ4_1, Encoding::kQ8_0, Encoding::kQ6_K};
PyObject* block_objects[kEncodingCount];

nb::str NameOf(const PyDType& d) {
  const std::string_view name = PythonName(d.type, d.encoding);
  return nb::str(name.data(), name.size());
}

}  // namespace

std::string_view PythonName(DType type, Encoding encoding) {
  return IsBlocks(encoding) ? EncodingName(encoding) : kNames[static_cast<size_t>(type)];
}

nb::object DTypeObject(DType type, Encoding encoding) {
  return nb::borrow(IsBlocks(encoding) ? block_objects[static_cast<size_t>(encoding)]
                                       : objects[static_cast<size_t>(type)]);
}

DType DTypeOf(nb::handle h) {
  const PyDType d = StoredTypeOf(h);
  if (d.encoding == Encoding::kDense) return d.type;
  throw nb::type_error(
      fmt::format("expected an element type such as opwire.float32, got the blocks {}",
                  nb::repr(h).c_str())
          .c_str());
}

PyDType StoredTypeOf(nb::handle h) {
  PyDType d{};
  if (nb::try_cast<PyDType>(h, d)) return d;
  throw nb::type_error(
      fmt::format("expected an element type such as opwire.float32, got {}", nb::repr(h).c_str())
          .c_str());
}

void BindDTypes(nb::module_& m) {
  nb::class_<PyDType>(m, "dtype", "The element type of an array.")
      .def_prop_ro(
          "name", [](const PyDType& d) { return NameOf(d); }, nb::sig("def name(self) -> str"))
      .def_prop_ro(
          "itemsize",
          [](const PyDType& d) {
            const BlockLayout layout = LayoutOf(d.type, d.encoding);
            if (layout.elements == 1) return layout.bytes;
            throw nb::type_error(
                fmt::format("{} has no bytes of an element: {} elements are a block of {} bytes",
                            PythonName(d.type, d.encoding), layout.elements, layout.bytes)
                    .c_str());
          },
          "Bytes of an element. TypeError for blocks.", nb::sig("def itemsize(self) -> int"))
      .def("__repr__",
           [](const PyDType& d) {
             return nb::str(fmt::format("opwire.{}", PythonName(d.type, d.encoding)).c_str());
           })
      .def("__hash__",
           [](const PyDType& d) {
             return static_cast<Py_ssize_t>(d.type) +
                    kDTypeCount * static_cast<Py_ssize_t>(d.encoding);
           })
      .def(
          "__eq__",
          [](const PyDType& a, nb::handle b) {
            PyDType other{};
            return nb::try_cast<PyDType>(b, other) && other == a;
          },
          nb::arg().none(), nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__reduce__", [](const PyDType& d) {
        return nb::make_tuple(nb::module_::import_("opwire").attr("_dtype_named"),
                              nb::make_tuple(NameOf(d)));
      });
  for (int t = 1; t < kDTypeCount; ++t) {
    nb::object object = nb::cast(PyDType{static_cast<DType>(t)});
    m.attr(std::string(kNames[t]).c_str()) = object;
    objects[t] = object.release().ptr();
  }
  for (const Encoding e : kBlocks) {
    nb::object object = nb::cast(PyDType{DType::kI8, e});
    m.attr(std::string(EncodingName(e)).c_str()) = object;
    block_objects[static_cast<size_t>(e)] = object.release().ptr();
  }
}

DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  const bool real_a = IsFloat(a), real_b = IsFloat(b);
  if (real_a != real_b) return real_a ? a : b;
  const int64_t bytes_a = DTypeBytes(a), bytes_b = DTypeBytes(b);
  if (real_a) {
    if (bytes_a != bytes_b) return bytes_a > bytes_b ? a : b;
    return bytes_a == 2 ? DType::kF32 : DType::kF16;  // f16 and bf16; the 8-bit types
  }
  const bool signed_a = kSigned.Has(a), signed_b = kSigned.Has(b);
  if (signed_a == signed_b) return bytes_a > bytes_b ? a : b;
  const int64_t of_signed = signed_a ? bytes_a : bytes_b,
                of_unsigned = signed_a ? bytes_b : bytes_a;
  if (of_signed > of_unsigned) return signed_a ? a : b;
  switch (of_unsigned) {
    case 1:
      return DType::kI16;
    case 2:
      return DType::kI32;
    case 4:
      return DType::kI64;
    default:
      return DType::kInvalid;
  }
}

}  // namespace opwire::python
