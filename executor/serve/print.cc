// Printing tensors.
#include "executor/serve/print.h"

#include <fmt/format.h>

#include <cstring>

#include "ir/base/checked.h"
#include "ir/base/float.h"
#include "ir/base/type.h"

namespace opwire {
namespace {

template <typename T>
T Load(const void* data, int64_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

std::string Element(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kF64: return fmt::format("{}", Load<double>(data, i));
    case DType::kF32: return fmt::format("{}", Load<float>(data, i));
    case DType::kF16: return fmt::format("{:.4g}", F16ToFloat(Load<uint16_t>(data, i)));
    case DType::kBF16: return fmt::format("{:.3g}", BF16ToFloat(Load<uint16_t>(data, i)));
    case DType::kF8E4M3: return fmt::format("{:.3g}", F8E4M3ToFloat(Load<uint8_t>(data, i)));
    case DType::kF8E5M2: return fmt::format("{:.3g}", F8E5M2ToFloat(Load<uint8_t>(data, i)));
    case DType::kI64: return fmt::format("{}", Load<int64_t>(data, i));
    case DType::kI32: return fmt::format("{}", Load<int32_t>(data, i));
    case DType::kI16: return fmt::format("{}", Load<int16_t>(data, i));
    case DType::kI8: return fmt::format("{}", static_cast<int>(Load<int8_t>(data, i)));
    case DType::kU64: return fmt::format("{}", Load<uint64_t>(data, i));
    case DType::kU32: return fmt::format("{}", Load<uint32_t>(data, i));
    case DType::kU16: return fmt::format("{}", Load<uint16_t>(data, i));
    case DType::kU8: return fmt::format("{}", static_cast<unsigned>(Load<uint8_t>(data, i)));
    case DType::kBool: return Load<uint8_t>(data, i) ? "true" : "false";
    case DType::kInvalid: break;
  }
  return "?";
}

struct Printer {
  DType dtype;
  std::span<const int64_t> shape;
  const void* data;
  bool summarise;
  std::string out;

  void Axis(size_t axis, int64_t at, int64_t elements) {
    if (axis == shape.size()) {
      out += Element(dtype, data, at);
      return;
    }
    const int64_t extent = shape[axis], inner = extent ? elements / extent : 0;
    out += '[';
    for (int64_t i = 0; i < extent; ++i) {
      if (i > 0) {
        out += axis + 1 == shape.size() ? ", " : ",\n" + std::string(axis + 1, ' ');
      }
      if (summarise && extent > 6 && i == 3) {
        out += "...";
        i = extent - 4;
        continue;
      }
      Axis(axis + 1, at + i * inner, inner);
      if (out.size() > (1 << 19)) {  // a message's share
        out += "...";
        break;
      }
    }
    out += ']';
  }
};

}  // namespace

std::string PrintTensorText(DType dtype, Encoding encoding, std::span<const int64_t> shape, const void* data, uint32_t max_elements) {
  const int64_t elements = CheckedElements(shape).value_or(0);
  std::string head = fmt::format("{}{}", DTypeName(dtype), ShapeToString(shape));
  if (encoding != Encoding::kDense) return head + " encoded as " + std::string(EncodingName(encoding));
  Printer p{dtype, shape, data, elements > (max_elements ? max_elements : 1000), {}};
  p.Axis(0, 0, elements);
  return head + "\n" + p.out;
}

}  // namespace opwire
