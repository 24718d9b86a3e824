// Dispatches ops: types of scalars, attributes, one run or one node.
#include "frontend/python/module/call.h"

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "frontend/python/module/dtypes.h"
#include "frontend/python/module/errors.h"
#include "frontend/python/module/op_cache.h"
#include "frontend/python/module/trace.h"
#include "ir/ops/names.h"

namespace opwire::python {
namespace nb = nanobind;

namespace {

PyObject* default_session = nullptr;
PyObject* converter = nullptr;

bool IsNumber(nb::handle h) { return PyFloat_Check(h.ptr()) || PyLong_Check(h.ptr()); }

// Returns the type of a Python number, if nothing else decides it.
DType TypeOfNumber(nb::handle h) {
  return PyBool_Check(h.ptr()) ? DType::kBool : PyFloat_Check(h.ptr()) ? DType::kF32 : DType::kI64;
}

// Returns the type of a number, whose own type is `own`, when combined with an array of type t. It
// is of the same kind or is converted: a float combined with integers makes them float32.
DType PromoteNumber(DType t, DType own) {
  if (own == DType::kBool || t == own) return t;
  if (IsFloat(own)) return IsFloat(t) ? t : DType::kF32;
  return t == DType::kBool ? DType::kI64 : t;
}

// Whether an integer type can represent a whole number; other types can always.
bool Fits(DType t, nb::handle number) {
  if (!IsInteger(t) || PyFloat_Check(number.ptr())) return true;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  const int bits = static_cast<int>(8 * DTypeBytes(t));
  bool fits = overflow == 0;
  if (fits && kSigned.Has(t) && bits < 64)
    fits = value >= -(1LL << (bits - 1)) && value < (1LL << (bits - 1));
  if (fits && kUnsigned.Has(t)) fits = value >= 0 && (bits == 64 || value < (1LL << bits));
  if (overflow > 0 && t == DType::kU64) {
    (void)PyLong_AsUnsignedLongLong(number.ptr());
    fits = !PyErr_Occurred();
    PyErr_Clear();
  }
  return fits;
}

void CheckFits(DType t, nb::handle number) {
  if (Fits(t, number)) return;
  PyErr_SetString(
      PyExc_OverflowError,
      fmt::format("{} is out of bounds for {}", nb::repr(number).c_str(), PythonName(t)).c_str());
  throw nb::python_error();
}

[[noreturn]] void RaiseNoOperand(const OpDef& row, size_t i, nb::handle h) {
  throw nb::type_error(fmt::format("{}: operand {}: expected an array or a number, got {}",
                                   row.name, row.operands[i].name, nb::type_name(h.type()).c_str())
                           .c_str());
}

void CheckValid(const OpDef& row, const Array& a) {
  if (!a.tensor.valid())
    throw nb::value_error(
        fmt::format("{}: this array was given away (donated) or freed", row.name).c_str());
}

template <typename T, typename F>
std::vector<T> ListOf(nb::handle h, F&& each) {
  std::vector<T> out;
  for (const nb::handle e : h) out.push_back(each(e));
  return out;
}

int64_t WholeOf(nb::handle h) {
  const nb::object n = nb::steal(PyNumber_Index(h.ptr()));
  if (!n.is_valid()) throw nb::python_error();
  const long long value = PyLong_AsLongLong(n.ptr());
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return static_cast<int64_t>(value);
}

// Accepts a bool, also NumPy's, or a whole number that is 0 or 1, as NumPy's functions do.
bool BoolOf(const OpDef& row, const AttrSpec& spec, nb::handle h) {
  if (PyBool_Check(h.ptr())) return h.ptr() == Py_True;
  if (std::string_view(Py_TYPE(h.ptr())->tp_name).starts_with("numpy.bool"))
    return PyObject_IsTrue(h.ptr()) == 1;
  if (!PyIndex_Check(h.ptr()))
    throw nb::type_error(fmt::format("{}: {}: expected a bool, got {}", row.name, spec.name,
                                     nb::type_name(h.type()).c_str())
                             .c_str());
  const int64_t n = WholeOf(h);
  if (n != 0 && n != 1)
    throw nb::value_error(
        fmt::format("{}: {}: expected a bool, got {}", row.name, spec.name, n).c_str());
  return n == 1;
}

std::string StringOf(const OpDef& row, const AttrSpec& spec, nb::handle h) {
  std::string value;
  if (nb::try_cast(h, value)) return value;
  throw nb::type_error(fmt::format("{}: {}: expected a string, got {}", row.name, spec.name,
                                   nb::type_name(h.type()).c_str())
                           .c_str());
}

// trace: the owner of `dims`, so that extents among the attributes may be expressions; null: an
// eager call, with numbers only.
AttrValue ValueOf(const OpDef& row, const AttrSpec& spec, nb::handle h, DimTable& dims,
                  Trace* trace) {
  const auto extent = [&](nb::handle e) {
    const PyExtent* const symbolic = trace ? AsExtent(e) : nullptr;
    if (symbolic) return trace->Adopt(*symbolic);
    const int64_t n = WholeOf(e);
    if (n < 0)
      throw nb::value_error(
          fmt::format("{}: {}: expected an extent, got {}", row.name, spec.name, n).c_str());
    return dims.Constant(n);
  };
  switch (spec.kind) {
    case AttrKind::kInt:
      return WholeOf(h);
    case AttrKind::kFloat:
      return RealOf(h);
    case AttrKind::kBool:
      return BoolOf(row, spec, h);
    case AttrKind::kString:
      return StringOf(row, spec, h);
    case AttrKind::kDType:
      return DTypeOf(h);
    case AttrKind::kDim:
      return extent(h);
    case AttrKind::kInts:
      return ListOf<int64_t>(h, WholeOf);
    case AttrKind::kFloats:
      return ListOf<double>(h, RealOf);
    case AttrKind::kDims:
      return ListOf<Dim>(h, extent);
    default:
      throw nb::type_error(
          fmt::format("{}: attribute {} is not for Python", row.name, spec.name).c_str());
  }
}

std::vector<NamedAttr> AttrsOf(const OpDef& row, nb::handle given, DimTable& dims, Trace* trace) {
  std::vector<NamedAttr> out;
  for (const AttrSpec& spec : row.attrs) {
    PyObject* const value = PyDict_GetItemString(given.ptr(), spec.name.c_str());
    if (value != nullptr) out.push_back({spec.name, ValueOf(row, spec, value, dims, trace)});
  }
  if (out.size() == static_cast<size_t>(PyDict_GET_SIZE(given.ptr()))) return out;
  for (const auto& [name, value] : nb::borrow<nb::dict>(given)) {
    const std::string key = nb::cast<std::string>(name);
    if (row.FindAttr(key) < 0)
      throw nb::type_error(fmt::format("{}: there is no attribute {}", row.name, key).c_str());
  }
  return out;
}

std::shared_ptr<PySession> DefaultSession() {
  nb::object s = nb::steal(PyObject_CallNoArgs(default_session));
  if (!s.is_valid()) throw nb::python_error();
  return nb::cast<std::shared_ptr<PySession>>(s);
}

}  // namespace

Arg NumberOf(DType t, nb::handle number) {
  CheckFits(t, number);
  if (IsFloat(t)) return RealOf(number);
  if (PyFloat_Check(number.ptr())) return PyFloat_AS_DOUBLE(number.ptr());
  return static_cast<int64_t>(PyLong_AsUnsignedLongLongMask(number.ptr()));
}

double RealOf(nb::handle number) {
  const double value = PyFloat_AsDouble(number.ptr());
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

void SetDefaultSession(nb::object chooser) { default_session = chooser.release().ptr(); }
void SetConverter(nb::object c) { converter = c.release().ptr(); }

DType PyOp::TypeOfScalar(const Operands& operands, size_t i) const {
  const std::string& letter = row_->operands[i].type;
  if (const auto fixed = ParseDType(letter)) return *fixed;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (row_->operands[k].type != letter) continue;
    for (const nb::handle h : operands[k]) {
      if (const Array* a = h.is_none() ? nullptr : AsArray(h)) return a->dtype;
    }
  }
  return TypeOfNumber(operands[i][0]);
}

PyOp::Objects PyOp::Traced(Trace& trace, const Operands& operands, nb::handle attrs) const {
  const OpDef& row = *row_;
  std::vector<std::vector<Value>> values;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::vector<Value>& list = values.emplace_back();
    for (const nb::handle h : operands[i]) {
      if (h.is_none()) {
        list.emplace_back();
      } else if (AsArray(h) != nullptr) {
        list.push_back(trace.Of(h));
      } else if (IsNumber(h)) {
        const DType t = TypeOfScalar(operands, i);
        CheckFits(t, h);
        list.push_back(trace.Scalar(t, h));
      } else {
        RaiseNoOperand(row, i, h);
      }
    }
  }
  std::vector<AttrArg> given;
  const bool has_attrs = attrs.is_valid() && PyDict_GET_SIZE(attrs.ptr()) > 0;
  if (has_attrs) {
    for (NamedAttr& a : AttrsOf(row, attrs, trace.dims(), &trace))
      given.emplace_back(a.name, std::move(a.value));
  }
  trace.UseOps(ops_);
  std::vector<nb::object> made = trace.Ops(row.name, values, row.HasLists(), given);
  // The result of Python's operators on such numbers is one, too.
  const bool of_numbers = std::ranges::all_of(operands, [](const auto& list) {
    return std::ranges::all_of(
        list, [](nb::handle h) { return AsArray(h) != nullptr ? AsArray(h)->weak : IsNumber(h); });
  });
  static const std::unordered_set<std::string_view> operators = {
      "add",        "sub",         "mul",         "div", "fmod", "pow", "neg", "abs", "bitwise_and",
      "bitwise_or", "bitwise_xor", "bitwise_not", "eq",  "ne",   "lt",  "le",  "gt",  "ge"};
  if (of_numbers && operators.contains(row.name)) AsArray(made[0])->weak = true;
  return {std::make_move_iterator(made.begin()), std::make_move_iterator(made.end())};
}

void PyOp::Bind(const Operands& operands, nb::handle attrs, Bound& out) const {
  const OpDef& row = *row_;
  OpCall& call = out.call;
  call.row = &row;
  call.ops = ops_;
  if (attrs.is_valid() && PyDict_GET_SIZE(attrs.ptr()) > 0)
    call.attrs = AttrsOf(row, attrs, call.dims, nullptr);
  std::vector<Arg>& args = out.args;
  args.reserve(operands.size());
  std::shared_ptr<PySession>& session = out.session;
  const bool lists = row.HasLists();
  for (size_t i = 0; i < row.operands.size(); ++i) {
    const size_t n = i < operands.size() ? operands[i].size() : 0;
    if (lists) call.segments.push_back(static_cast<uint32_t>(row.operands[i].variadic ? n : 1));
    if (n == 0 && !row.operands[i].variadic) call.given.emplace_back();
    for (size_t k = 0; k < n; ++k) {
      const nb::handle h = operands[i][k];
      if (h.is_none()) {
        call.given.emplace_back();
      } else if (const Array* a = AsArray(h)) {
        if (a->trace)
          throw nb::value_error(fmt::format("{}: this array is a value of a function that was "
                                            "traced and has ended: return what you need of it",
                                            row.name)
                                    .c_str());
        CheckValid(row, *a);
        if (!session) session = a->session;
        if (session != a->session) {
          const bool alike = session->place == a->session->place;
          throw nb::value_error(
              (alike
                   ? fmt::format("{}: arrays of two sessions on {}, which share nothing: move one "
                                 "by to_device, or let one session take it from the other by grant",
                                 row.name, session->place)
                   : fmt::format("{}: arrays of two devices, {} and {}: move one by to_device",
                                 row.name, session->place, a->session->place))
                  .c_str());
        }
        call.given.push_back({a->dtype, false, &a->shape, a->encoding});
        args.emplace_back(a->tensor);
      } else if (IsNumber(h)) {
        const DType t = TypeOfScalar(operands, i);
        call.given.push_back({t, true, nullptr});
        args.push_back(NumberOf(t, h));
      } else if (PyTuple_Check(h.ptr())) {
        const Ints values = ListOf<int64_t>(h, WholeOf);
        const client::Array& tuple = out.tuples.emplace_back(
            client::Array::Of<int64_t>(DType::kI64, {std::ssize(values)}, values));
        call.given.push_back({DType::kI64, false, &tuple.shape()});
        args.emplace_back(tuple);
      } else {
        RaiseNoOperand(row, i, h);
      }
    }
  }
  if (!session) session = session_ ? session_ : DefaultSession();
}

PyOp::Objects PyOp::Eager(const Operands& operands, nb::handle attrs) const {
  Bound bound;
  Bind(operands, attrs, bound);
  auto& [call, args, session, tuples] = bound;
  const Use use(*session);
  const OpCache::Entry* const entry = use.Unwrap(session->ops->Find(*use, call));
  for (const int64_t n : entry->extents) args.emplace_back(n);
  const uint64_t mark = session->sources.Add();
  std::vector<Tensor> made = use.Unwrap(use->Enqueue(entry->program(), args, entry->results, mark));
  Objects out;
  for (size_t r = 0; r < made.size(); ++r)
    out.push_back(
        Wrap(Array(session, std::move(made[r]), entry->results[r].dtype, entry->results[r].shape)));
  return out;
}

void PyOp::Update(nb::args given, nb::kwargs attrs) const {
  const Operands operands = OperandsOf(given);
  Array& x = nb::cast<Array&>(operands[0][0]);
  const bool alone =
      x.stored.empty() && x.tensor.unique() &&
      std::none_of(operands.begin() + 1, operands.end(), [&](const auto& list) {
        return std::ranges::any_of(list, [&](nb::handle h) { return h.is(operands[0][0]); });
      });
  Bound bound;
  Bind(operands, attrs, bound);
  auto& [call, args, session, tuples] = bound;
  call.in_place = alone;
  const Use use(*session);
  const OpCache::Entry* const entry = use.Unwrap(session->ops->Find(*use, call));
  for (const int64_t n : entry->extents) args.emplace_back(n);
  RunOptions options;
  if (call.in_place) options.wants = {Want::kNothing};
  RunResult result = use.Unwrap(Waiting([&] { return entry->program().Run(args, options); }));
  if (call.in_place) return;
  x.session->Drop(std::exchange(x.tensor, std::move(result.outputs[0].tensor)));
  x.stored.clear();
}

void Replace(Array& x, const Array& with) {
  if (x.trace != with.trace)
    throw nb::value_error(
        "x[key] = value of an array of outside the function that is traced: it would be set once, "
        "while that is traced. Copy it there first, and return what it becomes");
  if (!with.trace) {
    const Use use(*with.session);
    // Waits for the run that computes it, and fails like that run.
    use.Unwrap(Waiting([&] { return use->Print(with.tensor, 1); }));
  }
  const Array old = std::move(x);
  x = with;
}

PyOp::PyOp(const std::string& name) : row_(Catalogue().Find(name)) { Expect(Catalogue(), name); }
PyOp::PyOp(std::shared_ptr<PySession> session, const std::string& name)
    : session_(std::move(session)),
      ops_([&] {
        const Use use(*session_);
        return use.Unwrap(Waiting([&] { return use->Ops(); }));
      }()),
      row_(ops_->Find(name)) {
  Expect(*ops_, name);
}

void PyOp::Expect(const OpCatalogue& ops, const std::string& name) const {
  if (row_ == nullptr)
    throw nb::value_error(fmt::format("unknown op {}{}{}", Clip(name),
                                      session_ ? " on " + session_->place : "",
                                      DidYouMean(ops.Nearest(name)))
                              .c_str());
}

PyOp::Objects PyOp::Run(const Operands& operands, nb::handle attrs) const {
  if (const auto trace = Trace::Current()) return Traced(*trace, operands, attrs);
  return Eager(operands, attrs);
}

PyOp::Operands PyOp::OperandsOf(nb::args given) const {
  if (given.size() > row_->operands.size()) {
    throw nb::type_error(fmt::format("{}: expected {} operands, got {}", row_->name,
                                     row_->operands.size(), given.size())
                             .c_str());
  }
  Operands operands;
  for (size_t i = 0; i < given.size(); ++i) {
    auto& list = operands.emplace_back();
    const nb::handle h = PyTuple_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
    if (!row_->operands[i].variadic) {
      list.push_back(h);
      continue;
    }
    if (!PyList_Check(h.ptr()))
      throw nb::type_error(fmt::format("{}: operand {}: expected a list of arrays, got {}",
                                       row_->name, row_->operands[i].name,
                                       nb::type_name(h.type()).c_str())
                               .c_str());
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(h.ptr()); ++k)
      list.push_back(PyList_GET_ITEM(h.ptr(), k));  // borrowed from the list
  }
  return operands;
}

nb::object PyOp::Call(nb::args given, nb::kwargs attrs) const {
  Objects made = Run(OperandsOf(given), attrs);
  if (made.size() != 1)
    throw nb::type_error(
        fmt::format("{}: it has {} results: see many", row_->name, made.size()).c_str());
  return std::move(made[0]);
}

nb::object PyOp::Many(nb::args given, nb::kwargs attrs) const {
  Objects made = Run(OperandsOf(given), attrs);
  nb::object out = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(made.size())));
  for (size_t i = 0; i < made.size(); ++i)
    PyTuple_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), made[i].release().ptr());
  return out;
}

nb::object PyOp::Two(nb::handle a, nb::handle b) const {
  nb::object made = Operator(a, b);
  if (made.is(Py_NotImplemented)) {
    throw nb::type_error(fmt::format("{}: expected arrays and numbers, got {} and {}", row_->name,
                                     nb::type_name(a.type()).c_str(),
                                     nb::type_name(b.type()).c_str())
                             .c_str());
  }
  return made;
}

nb::object PyOp::Operator(nb::handle a, nb::handle b) const {
  const Array* x = AsArray(a);
  const Array* y = AsArray(b);
  nb::object held_a = nb::borrow(a), held_b = nb::borrow(b);
  const auto convert = [&](nb::object& foreign, nb::handle like) {
    foreign = nb::handle(converter)(foreign, like);
    return AsArray(foreign);
  };
  if (x == nullptr && y == nullptr)
    throw nb::type_error(
        fmt::format("{}: expected an array among its operands", row_->name).c_str());
  if (x == nullptr && !IsNumber(a)) x = convert(held_a, b);
  if (y == nullptr && !IsNumber(b)) y = convert(held_b, a);
  if ((x == nullptr && !IsNumber(a)) || (y == nullptr && !IsNumber(b)))
    return nb::borrow(Py_NotImplemented);
  for (const Array* const operand : {x, y}) {
    if (operand == nullptr || operand->encoding == Encoding::kDense) continue;
    throw nb::type_error(
        fmt::format("{}: expected dense elements, got blocks, {}{}: see dequantize_blocks",
                    row_->name, PythonName(operand->dtype, operand->encoding),
                    ShapeToString(operand->shape))
            .c_str());
  }
  DType t;
  if (x != nullptr && y != nullptr && x->weak != y->weak) {
    t = x->weak ? PromoteNumber(y->dtype, x->dtype) : PromoteNumber(x->dtype, y->dtype);
  } else if (x != nullptr && y != nullptr) {
    t = Promote(x->dtype, y->dtype);
    if (t == DType::kInvalid) {
      throw nb::type_error(fmt::format("{}: {} and {} have no common type: convert one by astype",
                                       row_->name, PythonName(x->dtype), PythonName(y->dtype))
                               .c_str());
    }
  } else {
    t = x != nullptr ? PromoteNumber(x->dtype, TypeOfNumber(b))
                     : PromoteNumber(y->dtype, TypeOfNumber(a));
  }
  static const std::unordered_set<std::string_view> arithmetic = {"add", "sub",  "mul",
                                                                  "div", "fmod", "pow"};
  static const std::unordered_set<std::string_view> comparisons = {"eq", "ne", "lt",
                                                                   "le", "gt", "ge"};
  if ((x == nullptr || y == nullptr) && comparisons.contains(row_->name)) {
    nb::object& number = x == nullptr ? held_a : held_b;
    if (!Fits(t, number)) {  // larger or smaller than all possible elements of the array
      const bool negative = PyObject_RichCompareBool(number.ptr(), nb::int_(0).ptr(), Py_LT) == 1;
      number = nb::float_(negative ? -std::numeric_limits<double>::infinity()
                                   : std::numeric_limits<double>::infinity());
      t = DType::kF64;
    }
  }
  const bool of_numbers = (x == nullptr || x->weak) && (y == nullptr || y->weak);
  if (t == DType::kBool && of_numbers && arithmetic.contains(row_->name))
    t = DType::kI64;  // as in Python's arithmetic with True and False
  // A number stays a number.
  const auto cast = [&](nb::object& held, const Array* of) {
    if (of == nullptr || of->dtype == t) return;
    const bool weak = of->weak;
    held = Cast(held, t);
    AsArray(held)->weak = weak;
  };
  cast(held_a, x);
  cast(held_b, y);
  return std::move(Run({{held_a}, {held_b}}, nb::handle())[0]);
}

nb::object Cast(nb::handle array, DType to) {
  static const PyOp* const cast = new PyOp("cast");
  nb::dict attrs;
  attrs["dtype"] = DTypeObject(to);
  return cast->Call(nb::borrow<nb::args>(nb::make_tuple(array)), nb::borrow<nb::kwargs>(attrs));
}

}  // namespace opwire::python
