// Which exception a status is.
#include "frontend/python/module/errors.h"

#include <fmt/format.h>

#include "ir/base/dtype.h"
#include "ir/ops/names.h"
#include "ir/wire/message.h"

namespace opwire::python {
namespace nb = nanobind;

namespace {

// "sqrt: operand x: expected f64, f32, f16, bf16, got i64[3]", "sqrt: operand x: expected a dense
// tensor, got i8:q4_1[32]": what was expected is an element type.
bool IsOfTypes(const std::string& message) {
  constexpr std::string_view kExpected = ": expected ";
  const size_t at = message.find(kExpected);
  if (at == std::string::npos) return false;
  const size_t begin = at + kExpected.size();
  if (std::string_view(message).substr(begin).starts_with("a dense tensor")) return true;
  return ParseDType(
             std::string_view(message).substr(begin, message.find_first_of(" ,[", begin) - begin))
      .has_value();
}

PyObject* TypeOf(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return IsOfTypes(MessageOf(status)) ? PyExc_TypeError : PyExc_ValueError;
    case absl::StatusCode::kOutOfRange:
      return PyExc_IndexError;
    case absl::StatusCode::kNotFound:
      return PyExc_LookupError;
    case absl::StatusCode::kUnavailable:
      return PyExc_ConnectionError;
    case absl::StatusCode::kResourceExhausted:
      return PyExc_MemoryError;
    case absl::StatusCode::kDeadlineExceeded:
      return PyExc_TimeoutError;
    case absl::StatusCode::kPermissionDenied:
      return PyExc_PermissionError;
    case absl::StatusCode::kUnimplemented:
      return PyExc_NotImplementedError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

void Raise(const Status& status, const std::string& where) {
  if (PyErr_Occurred()) throw nb::python_error();
  std::string text = MessageOf(status);
  const ErrorSite site = SiteOf(status);
  const std::string& place = site.location.empty() ? where : site.location;
  if (!site.op.empty() && text.find(site.op) == std::string::npos)
    text = fmt::format("{}: {}", site.op, text);
  if (!place.empty()) text += fmt::format(" (at {})", place);
  text = Printable(text);
  PyErr_SetString(TypeOf(status), text.c_str());
  throw nb::python_error();
}

}  // namespace opwire::python
