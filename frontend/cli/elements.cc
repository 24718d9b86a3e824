// Reading and writing single elements.
#include "frontend/cli/elements.h"

#include <fmt/format.h>

#include <algorithm>

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
  for (int64_t i = 0; i < std::min(n, kShown); ++i) out += fmt::format(" {:.6g}", ElementOf(a, i));
  if (n > kShown) out += fmt::format(" ...  min {:.6g} max {:.6g} mean {:.6g}", low, high, sum / static_cast<double>(n));
  return out;
}

Array ScalarArray(DType dtype, double v) {
  Array a(dtype, {});
  switch (dtype) {
    case DType::kF64:
      a.values<double>()[0] = v;
      break;
    case DType::kF32:
      a.values<float>()[0] = static_cast<float>(v);
      break;
    case DType::kF16:
      a.values<uint16_t>()[0] = FloatToF16(static_cast<float>(v));
      break;
    case DType::kBF16:
      a.values<uint16_t>()[0] = FloatToBF16(static_cast<float>(v));
      break;
    case DType::kF8E4M3:
      a.bytes()[0] = FloatToF8E4M3(static_cast<float>(v));
      break;
    case DType::kF8E5M2:
      a.bytes()[0] = FloatToF8E5M2(static_cast<float>(v));
      break;
    case DType::kBool:
      a.bytes()[0] = v != 0;
      break;
    default: {
      const auto whole = static_cast<int64_t>(v);
      std::memcpy(a.bytes().data(), &whole, a.bytes().size());
    }
  }
  return a;
}

}  // namespace opwire::cli
