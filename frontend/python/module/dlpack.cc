// By nanobind's arrays, which are DLPack's: the same memory under another type.
#include "frontend/python/module/dlpack.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace nb = nanobind;

namespace opwire::python {
namespace {

struct Known {
  DType type;
  nb::dlpack::dtype there;
};
constexpr Known kKnown[] = {
    {DType::kBF16, {static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1}},
    {DType::kF8E4M3, {static_cast<uint8_t>(nb::dlpack::dtype_code::Float8_E4M3FN), 8, 1}},
    {DType::kF8E5M2, {static_cast<uint8_t>(nb::dlpack::dtype_code::Float8_E5M2), 8, 1}},
};

// The array's memory as an array of another type, which keeps it.
template <typename Framework, typename From>
nb::object As(const From& a, nb::dlpack::dtype type) {
  const nb::capsule owner(new From(a),
                          [](void* held) noexcept { delete static_cast<From*>(held); });
  std::vector<size_t> shape;
  std::vector<int64_t> strides;
  for (size_t i = 0; i < a.ndim(); ++i) {
    shape.push_back(a.shape(i));
    strides.push_back(a.stride(i));
  }
  return nb::cast(nb::ndarray<Framework, nb::device::cpu>(
      const_cast<void*>(static_cast<const void*>(a.data())), shape.size(), shape.data(), owner,
      strides.data(), type));
}

}  // namespace

nb::object ToDLPack(nb::handle bits, PyDType type) {
  const auto known = std::ranges::find(kKnown, type.type, &Known::type);
  if (known == std::end(kKnown) || type.encoding != Encoding::kDense)
    throw nb::type_error("to DLPack by its bits: a type that NumPy knows");
  const auto a = nb::cast<nb::ndarray<nb::c_contig, nb::device::cpu>>(bits);
  if (a.dtype().bits != known->there.bits)
    throw nb::value_error(fmt::format("to DLPack by its bits: expected elements of {} bits, got {}",
                                      known->there.bits, a.dtype().bits)
                              .c_str());
  return As<nb::array_api>(a, known->there);
}

nb::object FromDLPack(nb::handle array) {
  nb::ndarray<nb::ro, nb::device::cpu> a;
  if (!nb::try_cast(array, a, /*convert=*/false)) return nb::none();
  const auto known =
      std::ranges::find_if(kKnown, [&](const Known& k) { return k.there == a.dtype(); });
  if (known == std::end(kKnown)) return nb::none();
  const nb::dlpack::dtype bits{static_cast<uint8_t>(nb::dlpack::dtype_code::UInt),
                               known->there.bits, 1};
  return nb::make_tuple(DTypeObject(known->type), As<nb::numpy>(a, bits));
}

void BindDLPack(nb::module_& m) {
  m.def("to_dlpack",
        [](nb::handle bits, nb::handle dtype) { return ToDLPack(bits, StoredTypeOf(dtype)); });
  m.def("from_dlpack", &FromDLPack);
}

}  // namespace opwire::python
