// Printing and sizing of tensor types.
#include "ir/base/type.h"

#include <array>

namespace opwire {

std::string ToString(const TensorType& type, const DimTable& dims) {
  std::string out(DTypeName(type.dtype));
  if (type.encoding != Encoding::kDense) {
    out += ':';
    out += EncodingName(type.encoding);
  }
  out += '[';
  for (size_t i = 0; i < type.shape.size(); ++i) {
    if (i) out += ", ";
    out += dims.ToString(type.shape[i]);
  }
  return out + ']';
}

std::optional<int64_t> TensorBytes(DType dtype, Encoding encoding, std::span<const int64_t> shape) {
  for (int64_t d : shape) {
    if (d < 0) return std::nullopt;
  }
  const auto elements = CheckedElements(shape);
  if (!elements) return std::nullopt;
  const BlockLayout block = LayoutOf(dtype, encoding);
  if (block.elements > 1) {
    const int64_t row = shape.empty() ? 1 : shape.back();
    if (row % block.elements != 0) return std::nullopt;
  }
  return CheckedMul(*elements / block.elements, block.bytes);
}

std::string ShapeToString(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

std::string_view AttrKindName(AttrKind kind) {
  static constexpr std::array<std::string_view, kAttrKindCount> kNames = {
      "int",  "float", "bool",   "string", "dtype",   "dim",    "type",
      "blob", "ints",  "floats", "bools",  "strings", "dtypes", "dims"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace opwire
