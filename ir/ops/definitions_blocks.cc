// Ops on weights in GGUF's blocks, the encodings of model files.
//   https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

// What an element takes where its encoding is not known: of q4_1, whose 20 bytes hold 32.
constexpr double kBytesAnElement = 20.0 / 32;

Status InferQuantizedLinear(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, 2));
  const TensorType &x = c.In(0), &weight = c.In(1);
  OPWIRE_RETURN_IF_ERROR(c.RequireEqual(x.shape.back(), weight.shape[1], "inner dimensions"));
  if (const TensorType* const bias = c.Operand(2)) {
    OPWIRE_RETURN_IF_ERROR(c.RequireRank(2, 1));
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqual(bias->shape[0], weight.shape[0], "extents of bias and weight"));
  }
  c.Result(0).shape = x.shape;
  c.Result(0).shape.back() = weight.shape[0];
  return absl::OkStatus();
}

Status InferQuantizedEmbedding(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(0, 2));
  c.Result(0).dtype = c.Attr<DType>(0);
  c.Result(0).shape = c.In(1).shape;
  c.Result(0).shape.push_back(c.In(0).shape[1]);
  return absl::OkStatus();
}

Status InferDequantizeBlocks(InferContext& c) {
  c.Result(0).dtype = c.Attr<DType>(0);
  c.Result(0).shape = c.In(0).shape;
  return absl::OkStatus();
}

OpCost QuantizedLinearCost(const CostArgs& a) {
  const Shape& x = a.operands[0];
  const double dense =
      (Elements(x) + Elements(a.results[0])) * static_cast<double>(a.element_bytes);
  return {x.empty() ? 0 : 2 * static_cast<double>(x.back()) * Elements(a.results[0]),
          dense + Elements(a.operands[1]) * kBytesAnElement};
}
// For blocks that are read and floats that are written.
OpCost ReadCost(const CostArgs& a) {
  const double elements = Elements(a.results[0]);
  return {2 * elements, elements * (static_cast<double>(a.element_bytes) + kBytesAnElement)};
}

}  // namespace

std::vector<OpDef> BlocksOps() {
  constexpr std::string_view kFamily = "blocks";
  const AttrSpec dtype = Optional("dtype", DType::kF32, "The result's element type.");
  return {
      Make({.name = "quantized_linear",
            .signature = "x: F, weight: blocks, bias?: F -> y: F",
            .infer = InferQuantizedLinear,
            .cost = QuantizedLinearCost,
            .family = kFamily,
            .doc = "x weight^T + bias of x [..., K], bias [N] and weight [N, K] in GGUF's blocks "
                   "along K, as ggml's mul_mat. Except for f64, x may be rounded to 8 bits. Each "
                   "32 neighbours along K are then rounded to multiples of their largest magnitude "
                   "over 127, or all to 0 if that magnitude is below 4e-37. So an element changes "
                   "by at most half a multiple. If one of them is not finite, every result that "
                   "uses the 32 is NaN. Accumulates in f32, of f64 in f64."}),
      Make({.name = "quantized_embedding",
            .signature = "weight: blocks, indices: I -> y: F",
            .attrs = {dtype},
            .domains = {{"indices", Domain::kIndex}},
            .infer = InferQuantizedEmbedding,
            .cost = ReadCost,
            .family = kFamily,
            .doc = "The rows of weight [V, D], in GGUF's blocks along D, that indices, in [-V, V), "
                   "name, as floats: ggml's get_rows. Elements are those of "
                   "dequantize_blocks; a row is zeros where its index is out of range."}),
      Make({.name = "dequantize_blocks",
            .signature = "x: blocks -> y: F",
            .attrs = {dtype},
            .infer = InferDequantizeBlocks,
            .cost = ReadCost,
            .family = kFamily,
            .doc = "The elements of x, which is in GGUF's blocks along its last axis, as floats. "
                   "q4_0: d (q - 8). q4_1: d q + m. q8_0: d q. q6_k: d (scale (q - 32)), with a "
                   "scale for each 16. Products and sums are rounded to f32 (for f64 not rounded), "
                   "and then to the type."}),
  };
}

}  // namespace opwire::definitions
