// Reading and writing single elements.
#include "frontend/cli/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "ir/base/element.h"

namespace opwire::cli {
namespace {

constexpr int64_t kShown = 6;

const uint8_t* At(const Array& a, int64_t i) {
  return a.bytes().data() + i * DTypeBytes(a.dtype());
}

// Floating numbers with six digits.
std::string Shown(const Array& a, int64_t i) {
  return (kFloats | kFloat8s).Has(a.dtype())
             ? fmt::format("{:.6g}", ElementValue(a.dtype(), At(a, i)))
             : ElementText(a.dtype(), At(a, i));
}

template <typename T>
bool Parsed(std::string_view text, T& v) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string Summary(const Array& a) {
  const int64_t n = a.elements();
  std::string out = fmt::format("{}{}", DTypeName(a.dtype()), ShapeToString(a.shape()));
  if (n == 0) return out;
  double low = ElementValue(a.dtype(), At(a, 0)), high = low, sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double v = ElementValue(a.dtype(), At(a, i));
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
  }
  out += " =";
  for (int64_t i = 0; i < std::min(n, kShown); ++i) out += " " + Shown(a, i);
  if (n > kShown)
    out += fmt::format(" ...  min {:.6g} max {:.6g} mean {:.6g}", low, high,
                       sum / static_cast<double>(n));
  return out;
}

StatusOr<Array> ScalarArray(DType dtype, std::string_view text) {
  Array a(dtype, {});
  uint64_t bits = 0;
  if ((kFloats | kFloat8s).Has(dtype)) {
    double v = 0;
    if (!Parsed(text, v)) return InvalidArgument("expected a number, got '{}'", text);
    bits = ElementBits(dtype, v);
  } else if (dtype == DType::kU64) {
    if (!Parsed(text, bits))
      return InvalidArgument("expected a whole number of u64, got '{}'", text);
  } else {
    int64_t v = 0;
    const bool is_signed = kSigned.Has(dtype);
    const int width = dtype == DType::kBool ? 1 : static_cast<int>(8 * DTypeBytes(dtype));
    const int64_t high =
        width == 64 ? INT64_MAX : (int64_t{1} << (is_signed ? width - 1 : width)) - 1;
    const int64_t low = is_signed ? -high - 1 : 0;
    if (!Parsed(text, v) || v < low || v > high) {
      return InvalidArgument("expected a whole number of {} from {} to {}, got '{}'",
                             DTypeName(dtype), low, high, text);
    }
    bits = ElementBits(dtype, v);
  }
  std::memcpy(a.bytes().data(), &bits, a.bytes().size());
  return a;
}

}  // namespace opwire::cli
