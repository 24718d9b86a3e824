// Reading and writing single elements.
#include "frontend/cli/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ir/base/float.h"

namespace opwire::cli {
namespace {

constexpr int64_t kShown = 6;

double ElementOf(const Array& a, int64_t at) {
  const auto i = static_cast<size_t>(at);
  switch (a.dtype()) {
    case DType::kF64:
      return a.values<double>()[i];
    case DType::kF32:
      return a.values<float>()[i];
    case DType::kF16:
      return F16ToFloat(a.values<uint16_t>()[i]);
    case DType::kBF16:
      return BF16ToFloat(a.values<uint16_t>()[i]);
    case DType::kF8E4M3:
      return F8E4M3ToFloat(a.bytes()[i]);
    case DType::kF8E5M2:
      return F8E5M2ToFloat(a.bytes()[i]);
    case DType::kI64:
      return static_cast<double>(a.values<int64_t>()[i]);
    case DType::kI32:
      return a.values<int32_t>()[i];
    case DType::kI16:
      return a.values<int16_t>()[i];
    case DType::kI8:
      return a.values<int8_t>()[i];
    case DType::kU64:
      return static_cast<double>(a.values<uint64_t>()[i]);
    case DType::kU32:
      return a.values<uint32_t>()[i];
    case DType::kU16:
      return a.values<uint16_t>()[i];
    default:
      return a.bytes()[i];
  }
}

// Whole numbers as they are; others with six digits.
std::string Shown(const Array& a, int64_t at) {
  if (a.dtype() == DType::kI64) return fmt::format("{}", a.values<int64_t>()[static_cast<size_t>(at)]);
  if (a.dtype() == DType::kU64) return fmt::format("{}", a.values<uint64_t>()[static_cast<size_t>(at)]);
  const double v = ElementOf(a, at);
  const bool whole = kIntegers.Has(a.dtype()) || a.dtype() == DType::kBool;
  return whole ? fmt::format("{}", static_cast<int64_t>(v)) : fmt::format("{:.6g}", v);
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
  double low = ElementOf(a, 0), high = low, sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double v = ElementOf(a, i);
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
  }
  out += " =";
  for (int64_t i = 0; i < std::min(n, kShown); ++i) out += " " + Shown(a, i);
  if (n > kShown) out += fmt::format(" ...  min {:.6g} max {:.6g} mean {:.6g}", low, high, sum / static_cast<double>(n));
  return out;
}

StatusOr<Array> ScalarArray(DType dtype, std::string_view text) {
  Array a(dtype, {});
  const auto store = [&](auto value) { std::memcpy(a.bytes().data(), &value, a.bytes().size()); };
  switch (dtype) {
    case DType::kF64: case DType::kF32: case DType::kF16: case DType::kBF16: case DType::kF8E4M3: case DType::kF8E5M2: {
      double v = 0;
      if (!Parsed(text, v)) return InvalidArgument("expected a number, got '{}'", text);
      const auto f = static_cast<float>(v);
      if (dtype == DType::kF64) store(v);
      else if (dtype == DType::kF32) store(f);
      else if (dtype == DType::kF16) store(FloatToF16(f));
      else if (dtype == DType::kBF16) store(FloatToBF16(f));
      else if (dtype == DType::kF8E4M3) store(FloatToF8E4M3(f));
      else store(FloatToF8E5M2(f));
      return a;
    }
    case DType::kU64: {
      uint64_t v = 0;
      if (!Parsed(text, v)) return InvalidArgument("expected a whole number of u64, got '{}'", text);
      store(v);
      return a;
    }
    default: {
      int64_t v = 0;
      const bool is_signed = dtype == DType::kI64 || dtype == DType::kI32 || dtype == DType::kI16 || dtype == DType::kI8;
      const int bits = dtype == DType::kBool ? 1 : static_cast<int>(8 * a.bytes().size());
      const int64_t high = bits == 64 ? INT64_MAX : (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
      const int64_t low = is_signed ? -high - 1 : 0;
      if (!Parsed(text, v) || v < low || v > high) {
        return InvalidArgument("expected a whole number of {} from {} to {}, got '{}'", DTypeName(dtype), low, high, text);
      }
      store(v);
      return a;
    }
  }
}

}  // namespace opwire::cli
