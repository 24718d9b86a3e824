// Nodes with the user's lines, captures, calls of traced functions.
#include "frontend/python/module/trace.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>

#include "frontend/python/module/call.h"
#include "frontend/python/module/dtypes.h"
#include "frontend/python/module/errors.h"
#include "frontend/python/module/source.h"
#include "ir/base/element.h"

namespace opwire::python {
namespace nb = nanobind;

namespace {

thread_local std::vector<std::shared_ptr<Trace>> active;

std::string LineOfCaller() {
  const SourceLine at = Here();
  std::string text = TextOf(at);
  Py_XDECREF(at.code);
  return text;
}

}  // namespace

Trace::Trace(const std::string& name, bool check_nan)
    : module_(std::make_shared<Building>()),
      names_(std::make_shared<Names>()),
      f_(module_->builder.Function(NameOf(name))),
      check_nan_(check_nan) {}
Trace::Trace(const Trace& outer, const std::string& name, bool apart)
    : module_(apart ? std::make_shared<Building>() : outer.module_),
      names_(apart ? std::make_shared<Names>() : outer.names_),
      f_(module_->builder.Function(NameOf(name))),
      check_nan_(false) {}

std::string Trace::NameOf(const std::string& name) {
  const int number = ++(*names_)[name];
  return number == 1 ? name : fmt::format("{}.{}", name, number);
}

Dim Trace::Adopt(const PyExtent& e) {
  return &e.trace->dims() == &dims() ? e.dim : Translate(e.trace->dims(), e.dim, dims());
}

std::vector<Extent> Trace::ExtentsOf(const Array& a) {
  std::vector<Extent> out;
  for (const int64_t n : a.shape)
    out.push_back(n < 0 ? Extent(Adopt({a.trace, DimOf(n)})) : Extent(n));
  return out;
}

nb::object Trace::Param(const std::string& name, PyDType type, nb::sequence shape, bool inout,
                        bool weak) {
  if (inout && type.encoding != Encoding::kDense)
    throw nb::type_error(
        fmt::format("donated argument {}: results are dense, it is of the blocks {}", name,
                    PythonName(type.type, type.encoding))
            .c_str());
  std::vector<Extent> extents;
  for (const nb::handle n : shape) {
    if (const PyExtent* e = AsExtent(n))
      extents.emplace_back(Adopt(*e));
    else if (nb::isinstance<nb::str>(n))
      extents.emplace_back(f_.Symbol(nb::cast<std::string>(n), 2));
    else
      extents.emplace_back(nb::cast<int64_t>(n));
  }
  const Value v =
      inout ? f_.Inout(name, type.type, extents) : f_.In(name, type.type, extents, type.encoding);
  ++params_;
  if (inout) inouts_[name] = v;
  nb::object array = WrapAll({v}).front();
  AsArray(array)->weak = weak;
  return array;
}

void Trace::Declare(nb::object array) {
  const Array& a = *AsArray(array);
  values_[array.ptr()] =
      f_.In(fmt::format("captured{}", declared_++), a.dtype, ExtentsOf(a), a.encoding);
  ++params_;
  captured_.push_back(std::move(array));
}

Value Trace::Of(nb::handle h) {
  const Array& a = *AsArray(h);
  if (a.trace.get() == this) return a.value;
  if (const auto it = values_.find(h.ptr()); it != values_.end()) return it->second;
  if (a.trace && std::ranges::find(active, a.trace) == active.end()) {
    throw nb::value_error(
        "this array is a value of a function that was traced and has ended: return what you need "
        "of it, instead of keeping it elsewhere");
  }
  // Stands for it until it is traced again.
  TensorType type{.dtype = a.dtype, .encoding = a.encoding};
  for (const Extent& n : ExtentsOf(a))
    type.shape.push_back(n.is_dim ? n.dim : dims().Constant(n.number));
  const Value v = f_.Outside(std::move(type));
  values_[h.ptr()] = v;
  captured_.push_back(nb::borrow(h));
  return v;
}

std::vector<Value> Trace::OfAll(const std::vector<nb::object>& arrays) {
  std::vector<Value> out;
  for (const nb::object& a : arrays) out.push_back(Of(a));
  return out;
}

Value Trace::Scalar(DType dtype, nb::handle number) {
  if (!PyFloat_Check(number.ptr()) && IsInteger(dtype)) {
    // Beyond 2^53 a float does not hold it.
    const auto bits = static_cast<uint64_t>(PyLong_AsUnsignedLongLongMask(number.ptr()));
    std::string bytes(reinterpret_cast<const char*>(&bits), static_cast<size_t>(DTypeBytes(dtype)));
    return f_.Op("constant", {},
                 {{"type", AttrValue(TensorType{.dtype = dtype})},
                  {"value", AttrValue(f_.Blob(std::move(bytes)))}});
  }
  return f_.Scalar(dtype, RealOf(number));
}

void Trace::Count(Value v, const std::string& op, const std::string& line) {
  const TensorType& type = f_.TypeOf(v);
  if (!kFloats.Has(type.dtype)) return;
  counted_.push_back(fmt::format("{} {}{}", op, ToString(type, f_.dims()),
                                 line.empty() ? "" : fmt::format(" ({})", line)));
  const Value count =
      f_.Op("sum", {f_.Op("cast", {f_.Op("isnan", {v})}, {{"dtype", AttrValue(DType::kI64)}})});
  counts_.push_back(f_.Op("reshape", {count}, {{"shape", AttrValue(Ints{1})}}));
}

std::pair<nb::object, std::vector<std::string>> Trace::Counts() {
  const std::vector<Value> counts = std::move(counts_);
  counts_.clear();
  return {WrapAll({f_.OpWithLists("cat", {counts})}).front(), counted_};
}

std::vector<nb::object> Trace::WrapAll(const std::vector<Value>& values, const std::string& op) {
  std::vector<nb::object> out;
  const std::string line = values.empty() ? "" : LineOfCaller();
  for (const Value v : values) {
    const TensorType& type = f_.TypeOf(v);
    if (type.dtype == DType::kInvalid) Raise(module_->builder.Finish().status(), line);
    std::vector<int64_t> shape;
    for (const Dim d : type.shape)
      shape.push_back(dims().IsConstant(d) ? dims().ConstantValue(d) : CodeOf(d));
    out.push_back(Wrap(Array(shared_from_this(), v, type.dtype, std::move(shape), type.encoding)));
  }
  f_.Location(line);
  if (check_nan_ && !op.empty()) {
    for (const Value v : values) Count(v, op, line);
  }
  return out;
}

std::vector<nb::object> Trace::Ops(const std::string& op,
                                   const std::vector<std::vector<Value>>& operands, bool lists,
                                   const std::vector<AttrArg>& attrs) {
  if (lists) return WrapAll(f_.OpsWithLists(op, operands, attrs), op);
  std::vector<Value> flat;
  for (const auto& one : operands) flat.push_back(one.empty() ? Value{} : one[0]);
  return WrapAll(f_.Ops(op, flat, attrs), op);
}

nb::object Trace::Constant(DType dtype, const std::vector<int64_t>& shape, std::string bytes) {
  TensorType type{.dtype = dtype};
  for (const int64_t n : shape) type.shape.push_back(f_.dims().Constant(n));
  return WrapAll({f_.Op("constant", {},
                        {{"type", AttrValue(std::move(type))},
                         {"value", AttrValue(f_.Blob(std::move(bytes)))}})})
      .front();
}

void Trace::UseOps(std::shared_ptr<const OpCatalogue> ops) {
  if (!ops || ops == module_->ops) return;
  module_->ops = ops;
  module_->builder.UseOps(std::move(ops));
}

std::vector<nb::object> Trace::Inline(const TracedModule& of,
                                      const std::vector<nb::object>& arguments, int counts,
                                      const std::vector<std::string>& counted) {
  UseOps(of.ops);
  const std::vector<Value> values = f_.Inline(of.module, OfAll(arguments));
  if (counts >= 0) {
    counts_.push_back(values[static_cast<size_t>(counts)]);
    counted_.insert(counted_.end(), counted.begin(), counted.end());
  }
  return WrapAll(values, "gradient");
}

std::vector<nb::object> Trace::If(nb::handle condition, const std::vector<nb::object>& inputs,
                                  const Trace& then, const Trace& otherwise) {
  return WrapAll(f_.If(Of(condition), OfAll(inputs), then.f_, otherwise.f_), "cond");
}

std::vector<nb::object> Trace::While(const std::vector<nb::object>& carried,
                                     const std::vector<nb::object>& inputs, const Trace& condition,
                                     const Trace& body, int64_t max_trips) {
  return WrapAll(f_.While(OfAll(carried), OfAll(inputs), condition.f_, body.f_, max_trips),
                 "while_loop");
}

std::vector<nb::object> Trace::Repeat(nb::handle times, const std::vector<nb::object>& carried,
                                      const std::vector<nb::object>& inputs, const Trace& body) {
  return WrapAll(f_.Repeat(Of(times), OfAll(carried), OfAll(inputs), body.f_), "for_loop");
}

void Trace::Emit(const std::string& name, nb::handle array) {
  f_.Emit(name, Of(array));
  f_.Location(LineOfCaller());
}

void Trace::Return(const std::string& name, nb::handle array) {
  Value v = Of(array);
  if (v.id < params_) v = f_.Op("copy", {v});
  f_.Return(name, v);
}

void Trace::ReturnAll(const std::vector<std::string>& names,
                      const std::vector<nb::object>& arrays) {
  std::vector<Value> values = OfAll(arrays);
  for (Value& v : values) {
    if (v.id < params_) v = f_.Op("copy", {v});
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto inout = inouts_.find(names[i]);
    if (inout == inouts_.end()) continue;
    const Value v = values[i];
    const bool again = std::ranges::count(values, v.id, &Value::id) > 1;
    if (again || f_.UsesBehind(v, inout->second)) values[i] = f_.Op("copy", {v});
  }
  for (size_t i = 0; i < values.size(); ++i) f_.Return(names[i], values[i]);
}

TracedModule Trace::Finish() { return {Unwrap(module_->builder.Finish()), module_->ops}; }

std::shared_ptr<Trace> Trace::Current() { return active.empty() ? nullptr : active.back(); }
void Trace::Enter() { active.push_back(shared_from_this()); }
void Trace::Leave() { active.pop_back(); }

}  // namespace opwire::python
