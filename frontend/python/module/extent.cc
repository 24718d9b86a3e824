// Arithmetic and comparisons of extents, in the table of the traced module.
#include "frontend/python/module/extent.h"

#include <fmt/format.h>
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "frontend/python/module/errors.h"
#include "frontend/python/module/trace.h"

namespace opwire::python {
namespace nb = nanobind;

namespace {

std::string Shown(const PyExtent& e) { return e.trace->dims().ToString(e.dim); }

[[noreturn]] void RaiseNeedsNumber(const PyExtent& e, const std::string& what) {
  throw nb::type_error(
      fmt::format("{} of the extent {}: the function is traced once for all extents that it stands "
                  "for, so it has no number. Compute with the extent itself (+, -, *, //, %), "
                  "or name an argument that decides what is traced in static_argnames",
                  what, Shown(e))
          .c_str());
}

// Returns the other operand in e's table; nothing if it is neither extent nor int.
std::optional<Dim> Other(const PyExtent& e, nb::handle h) {
  DimTable& dims = e.trace->dims();
  if (const PyExtent* o = AsExtent(h)) return e.trace->Adopt(*o);
  if (!PyLong_Check(h.ptr())) return std::nullopt;
  const long long n = PyLong_AsLongLong(h.ptr());
  if (n == -1 && PyErr_Occurred()) throw nb::python_error();
  return dims.Constant(n);
}

using Combine = Dim (DimTable::*)(Dim, Dim);

template <bool kReversed>
auto Arithmetic(Combine combine) {
  return [combine](const PyExtent& e, nb::handle h) -> nb::object {
    const std::optional<Dim> other = Other(e, h);
    if (!other) return nb::borrow(Py_NotImplemented);
    DimTable& dims = e.trace->dims();
    return WrapExtent(e.trace,
                      kReversed ? (dims.*combine)(*other, e.dim) : (dims.*combine)(e.dim, *other));
  };
}

nb::object Minus(const PyExtent& e, nb::handle h) {
  if (const PyExtent* o = AsExtent(h)) {
    if (e.trace->Adopt(*o) == e.dim) return nb::int_(0);
    RaiseNeedsNumber(e, "the difference");
  }
  const std::optional<Dim> other = Other(e, h);
  if (!other) return nb::borrow(Py_NotImplemented);
  DimTable& dims = e.trace->dims();
  return WrapExtent(e.trace, dims.Add(e.dim, dims.Constant(-dims.ConstantValue(*other))));
}

nb::object Equals(const PyExtent& e, nb::handle h, bool negated) {
  const std::optional<Dim> other = Other(e, h);
  if (!other) return nb::borrow(Py_NotImplemented);
  const DimOrder order = e.trace->dims().Compare(e.dim, *other);
  if (order == DimOrder::kUnknown)
    RaiseNeedsNumber(e, fmt::format("the comparison with {}", e.trace->dims().ToString(*other)));
  return nb::bool_((order == DimOrder::kEqual) != negated);
}

// e < h, or with `or_equal` e <= h; `swapped`: h < e, h <= e.
auto Less(bool or_equal, bool swapped) {
  return [or_equal, swapped](const PyExtent& e, nb::handle h) -> nb::object {
    const std::optional<Dim> other = Other(e, h);
    if (!other) return nb::borrow(Py_NotImplemented);
    const DimTable& dims = e.trace->dims();
    const Dim low = swapped ? *other : e.dim, high = swapped ? e.dim : *other;
    if (low == high) return nb::bool_(or_equal);
    const DimBounds a = dims.Bounds(low), b = dims.Bounds(high);
    if (or_equal ? a.upper <= b.lower : a.upper < b.lower) return nb::bool_(true);
    if (or_equal ? a.lower > b.upper : a.lower >= b.upper) return nb::bool_(false);
    RaiseNeedsNumber(e, fmt::format("the comparison with {}", dims.ToString(*other)));
  };
}

bool Holds(const PyExtent& e) {
  if (e.trace->dims().Bounds(e.dim).lower > 0) return true;
  RaiseNeedsNumber(e, "bool()");
}

}  // namespace

const PyExtent* AsExtent(nb::handle h) {
  return nb::isinstance<PyExtent>(h) ? nb::inst_ptr<PyExtent>(h) : nullptr;
}

nb::object WrapExtent(std::shared_ptr<Trace> trace, Dim d) {
  const DimTable& dims = trace->dims();
  if (dims.IsConstant(d)) return nb::int_(dims.ConstantValue(d));
  return nb::cast(PyExtent{std::move(trace), d});
}

nb::tuple ShapeOf(const Array& a) {
  if (!a.trace) return ShapeTuple(a.shape);
  nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(a.shape.size())));
  for (size_t i = 0; i < a.shape.size(); ++i) {
    nb::object extent =
        a.shape[i] < 0 ? WrapExtent(a.trace, DimOf(a.shape[i])) : nb::int_(a.shape[i]);
    PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), extent.release().ptr());
  }
  return nb::borrow<nb::tuple>(made);
}

nb::object SizeOf(const Array& a) {
  if (!a.trace) return nb::int_(a.elements());
  DimTable& dims = a.trace->dims();
  Dim size = dims.Constant(1);
  for (const int64_t n : a.shape) size = dims.Mul(size, n < 0 ? DimOf(n) : dims.Constant(n));
  return WrapExtent(a.trace, size);
}

Dim Translate(const DimTable& from, Dim d, DimTable& to) {
  const DimNode n = from.node(d);
  switch (n.kind) {
    case DimKind::kConstant:
      return to.Constant(n.value);
    case DimKind::kSymbol: {
      const DimSymbol& s = from.symbols()[static_cast<size_t>(n.value)];
      return Unwrap(to.Symbol(s.name, s.lower, s.upper, s.multiple));
    }
    case DimKind::kFromValue:
      throw nb::value_error("an extent that comes from a value is that of one function only");
    default: {
      const Dim a = Translate(from, n.a, to), b = Translate(from, n.b, to);
      return Unwrap(to.Make({.kind = n.kind, .a = a, .b = b}));
    }
  }
}

namespace {

// Returns the name of the function that computes an expression from two others, and these two; None
// for a symbol.
nb::object Parts(const PyExtent& e) {
  constexpr const char* kFunctions[kDimKindCount] = {
      nullptr, nullptr, "add", "mul", "floordiv", "mod", "minimum", "maximum", nullptr};
  const DimNode& node = e.trace->dims().node(e.dim);
  const char* const function = kFunctions[static_cast<size_t>(node.kind)];
  if (function == nullptr) return nb::none();
  return nb::make_tuple(function, WrapExtent(e.trace, node.a), WrapExtent(e.trace, node.b));
}

}  // namespace

void BindExtents(nb::module_& m) {
  nb::class_<PyExtent> extent(m, "Extent");
  const auto number = [](const char* what) {
    return [what](const PyExtent& e) -> nb::object { RaiseNeedsNumber(e, what); };
  };
  extent.def("__add__", Arithmetic<false>(&DimTable::Add), nb::is_operator())
      .def("__radd__", Arithmetic<false>(&DimTable::Add), nb::is_operator())
      .def("__sub__", Minus, nb::is_operator())
      .def("__mul__", Arithmetic<false>(&DimTable::Mul), nb::is_operator())
      .def("__rmul__", Arithmetic<false>(&DimTable::Mul), nb::is_operator())
      .def("__floordiv__", Arithmetic<false>(&DimTable::FloorDiv), nb::is_operator())
      .def("__rfloordiv__", Arithmetic<true>(&DimTable::FloorDiv), nb::is_operator())
      .def("__mod__", Arithmetic<false>(&DimTable::Mod), nb::is_operator())
      .def("__rmod__", Arithmetic<true>(&DimTable::Mod), nb::is_operator())
      .def(
          "__eq__", [](const PyExtent& e, nb::handle h) { return Equals(e, h, false); },
          nb::arg().none(), nb::is_operator())
      .def(
          "__ne__", [](const PyExtent& e, nb::handle h) { return Equals(e, h, true); },
          nb::arg().none(), nb::is_operator())
      .def("__lt__", Less(false, false), nb::is_operator())
      .def("__le__", Less(true, false), nb::is_operator())
      .def("__gt__", Less(false, true), nb::is_operator())
      .def("__ge__", Less(true, true), nb::is_operator())
      .def("__hash__", number("the hash"))
      .def("__bool__", Holds)
      .def("__index__", number("the index"))
      .def("__int__", number("int()"))
      .def("__float__", number("float()"))
      .def("__repr__", Shown)
      .def("parts", Parts);
}

}  // namespace opwire::python
