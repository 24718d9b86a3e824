// Printing tensors.
#include "executor/serve/print.h"

#include <fmt/format.h>

#include "ir/base/checked.h"
#include "ir/base/element.h"
#include "ir/base/type.h"

namespace opwire::executor {
namespace {

struct Printer {
  DType dtype;
  std::span<const int64_t> shape;
  const void* data;
  bool summarise;
  std::string out;

  void Axis(size_t axis, int64_t at, int64_t elements) {
    if (axis == shape.size()) {
      out += ElementText(dtype, static_cast<const char*>(data) + at * DTypeBytes(dtype));
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

std::string PrintTensorText(DType dtype, Encoding encoding, std::span<const int64_t> shape,
                            const void* data, uint32_t max_elements) {
  const int64_t elements = CheckedElements(shape).value_or(0);
  std::string head = fmt::format("{}{}", DTypeName(dtype), ShapeToString(shape));
  if (encoding != Encoding::kDense)
    return head + " encoded as " + std::string(EncodingName(encoding));
  Printer p{dtype, shape, data, elements > (max_elements ? max_elements : 1000), {}};
  p.Axis(0, 0, elements);
  return head + "\n" + p.out;
}

}  // namespace opwire::executor
