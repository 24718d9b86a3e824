// Single elements of any type.
#include "ir/base/element.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "ir/base/float.h"

namespace opwire {
namespace {

template <typename T>
T Load(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof(T));
  return v;
}

template <typename T, typename V>
T CastTo(V value) {
  if constexpr (std::is_floating_point_v<V> && std::is_integral_v<T>) {
    if (!(value == value)) return 0;
    if (value <= static_cast<V>(std::numeric_limits<T>::min()))
      return std::numeric_limits<T>::min();
    if (value >= static_cast<V>(std::numeric_limits<T>::max()))
      return std::numeric_limits<T>::max();
  }
  return static_cast<T>(value);
}

template <typename T, typename V>
uint64_t Bits(V value) {
  const T v = CastTo<T>(value);
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof(v));
  return bits;
}

template <typename V>
uint64_t BitsOf(DType dtype, V v) {
  switch (dtype) {
    case DType::kF64:
      return Bits<double>(v);
    case DType::kF32:
      return Bits<float>(v);
    case DType::kF16:
      return FloatToF16(static_cast<float>(v));
    case DType::kBF16:
      return FloatToBF16(static_cast<float>(v));
    case DType::kF8E4M3:
      return FloatToF8E4M3(static_cast<float>(v));
    case DType::kF8E5M2:
      return FloatToF8E5M2(static_cast<float>(v));
    case DType::kI64:
      return Bits<int64_t>(v);
    case DType::kI32:
      return Bits<int32_t>(v);
    case DType::kI16:
      return Bits<int16_t>(v);
    case DType::kI8:
      return Bits<int8_t>(v);
    case DType::kU64:
      return Bits<uint64_t>(v);
    case DType::kU32:
      return Bits<uint32_t>(v);
    case DType::kU16:
      return Bits<uint16_t>(v);
    case DType::kU8:
      return Bits<uint8_t>(v);
    case DType::kBool:
      return v != 0;
    case DType::kInvalid:
      break;
  }
  return 0;
}

}  // namespace

double ElementValue(DType dtype, const void* at) {
  switch (dtype) {
    case DType::kF64:
      return Load<double>(at);
    case DType::kF32:
      return Load<float>(at);
    case DType::kF16:
      return F16ToFloat(Load<uint16_t>(at));
    case DType::kBF16:
      return BF16ToFloat(Load<uint16_t>(at));
    case DType::kF8E4M3:
      return F8E4M3ToFloat(Load<uint8_t>(at));
    case DType::kF8E5M2:
      return F8E5M2ToFloat(Load<uint8_t>(at));
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(at));
    case DType::kI32:
      return Load<int32_t>(at);
    case DType::kI16:
      return Load<int16_t>(at);
    case DType::kI8:
      return Load<int8_t>(at);
    case DType::kU64:
      return static_cast<double>(Load<uint64_t>(at));
    case DType::kU32:
      return Load<uint32_t>(at);
    case DType::kU16:
      return Load<uint16_t>(at);
    case DType::kU8:
      return Load<uint8_t>(at);
    case DType::kBool:
      return Load<uint8_t>(at) != 0;
    case DType::kInvalid:
      break;
  }
  return 0;
}

uint64_t ElementBits(DType dtype, double value) { return BitsOf(dtype, value); }
uint64_t ElementBits(DType dtype, int64_t value) { return BitsOf(dtype, value); }

std::string ElementText(DType dtype, const void* at) {
  switch (dtype) {
    case DType::kF64:
      return fmt::format("{}", Load<double>(at));
    case DType::kF32:
      return fmt::format("{}", Load<float>(at));
    case DType::kF16:
      return fmt::format("{:.4g}", ElementValue(dtype, at));
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return fmt::format("{:.3g}", ElementValue(dtype, at));
    case DType::kU64:
      return fmt::format("{}", Load<uint64_t>(at));
    case DType::kI64:
      return fmt::format("{}", Load<int64_t>(at));
    case DType::kBool:
      return Load<uint8_t>(at) ? "true" : "false";
    case DType::kInvalid:
      return "?";
    default:
      return fmt::format("{}", static_cast<int64_t>(ElementValue(dtype, at)));
  }
}

}  // namespace opwire
