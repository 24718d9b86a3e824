// Any bytes as declarations of ops: what is one makes a row, and reads the same when it is written
// again.
#include "ir/ops/declaration.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  const auto declarations = DeclarationsFromJson({reinterpret_cast<const char*>(data), size});
  if (!declarations.ok()) return 0;
  const std::string text = ToJson(*declarations);
  const auto again = DeclarationsFromJson(text);
  if (!again.ok() || ToJson(*again) != text) std::abort();
  for (const OpDeclaration& d : *declarations) {
    const auto row = RowOf(d);
    if (!row.ok()) continue;
    // Whatever shapes come: an answer.
    DimTable dims;
    const TensorType matrix{DType::kF32, Encoding::kDense, {dims.Constant(3), dims.Constant(4)}};
    std::vector<const TensorType*> operands;
    std::vector<uint32_t> segments;
    for (size_t i = 0; i < row->operands.size(); ++i) {
      operands.push_back(&matrix);
      segments.push_back(1);
    }
    const auto attrs = ResolveAttrs(*row, {}, dims);
    if (attrs.ok()) (void)InferTypes(*row, dims, operands, {}, *attrs);
    if (attrs.ok()) (void)InferTypes(*row, dims, operands, segments, *attrs);
  }
  return 0;
}
