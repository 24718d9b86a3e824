// Ops between floats and few-bit integers, with parameters for each group of neighbours.
#include <fmt/format.h>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

// `extent` is a multiple of `of`, which is above 0.
Status RequireMultiple(InferContext& c, Dim extent, Dim of, std::string_view what) {
  DimTable& dims = c.dims();
  if (!dims.IsConstant(extent) || !dims.IsConstant(of)) {
    return c.RequireEqual(dims.Mod(extent, of), dims.Constant(0),
                          fmt::format("remainder of {} and 0", what));
  }
  if (dims.ConstantValue(of) > 0 && dims.ConstantValue(extent) % dims.ConstantValue(of) == 0)
    return absl::OkStatus();
  return c.Error(fmt::format("{}: {} is not a multiple of {}", what, dims.ToString(extent),
                             dims.ToString(of)));
}

// Attribute i is the number of bits; the type of values with that many bits.
StatusOr<DType> RequireBits(InferContext& c, int i) {
  const int64_t bits = c.Attr<int64_t>(i);
  if (bits == 8) return DType::kI8;
  if (bits == 4) return DType::kU8;
  return c.Error(fmt::format("bits: expected 4 or 8, got {}", bits));
}

Status InferQuantize(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  OPWIRE_ASSIGN_OR_RETURN(const DType type, RequireBits(c, 1));
  DimTable& dims = c.dims();
  const TensorType& x = c.In(0);
  const int64_t group = c.Attr<int64_t>(0);
  if (group < 0) return c.Error(fmt::format("group_size: expected 0 or more, got {}", group));
  if (type == DType::kU8 && group % 2 != 0)
    return c.Error(fmt::format("group_size: expected an even number for 4 bits, got {}", group));
  const Dim extent = x.shape.back();
  if (group > 0)
    OPWIRE_RETURN_IF_ERROR(
        RequireMultiple(c, extent, dims.Constant(group), "x's last extent by group_size"));
  else if (type == DType::kU8)
    OPWIRE_RETURN_IF_ERROR(RequireMultiple(c, extent, dims.Constant(2), "x's last extent by 2"));
  c.Result(0).dtype = type;
  c.Result(0).shape = x.shape;
  if (type == DType::kU8) c.Result(0).shape.back() = dims.FloorDiv(extent, dims.Constant(2));
  c.Result(1).dtype = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  c.Result(1).shape = x.shape;
  c.Result(1).shape.back() =
      group > 0 ? dims.FloorDiv(extent, dims.Constant(group)) : dims.Constant(1);
  c.Result(1).shape.push_back(dims.Constant(c.Attr<bool>(2) ? 1 : 2));
  return absl::OkStatus();
}

Status InferDequantize(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, c.In(0).rank() + 1));
  OPWIRE_ASSIGN_OR_RETURN(const DType type, RequireBits(c, 0));
  DimTable& dims = c.dims();
  const TensorType &values = c.In(0), &params = c.In(1);
  if (values.dtype != type)
    return c.Error(fmt::format("operand values: expected {} for {} bits, got {}", DTypeName(type),
                               c.Attr<int64_t>(0), c.Print(values)));
  const size_t last = values.shape.size() - 1;
  OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(std::span(values.shape).first(last),
                                              std::span(params.shape).first(last),
                                              "leading extents of values and params"));
  OPWIRE_RETURN_IF_ERROR(c.RequireEqual(params.shape[last + 1],
                                        dims.Constant(c.Attr<bool>(1) ? 1 : 2),
                                        "params' last extent and what a group has"));
  c.Result(0).dtype = c.Attr<DType>(2);
  c.Result(0).shape = values.shape;
  // Bytes of two elements are not shared by groups.
  OPWIRE_RETURN_IF_ERROR(RequireMultiple(c, values.shape[last], params.shape[last],
                                         "values' last extent by params' groups"));
  if (type == DType::kU8) c.Result(0).shape.back() = dims.Mul(values.shape[last], dims.Constant(2));
  return absl::OkStatus();
}

}  // namespace

std::vector<OpDef> QuantOps() {
  constexpr std::string_view kFamily = "quant";
  const AttrSpec bits = Optional("bits", Int(8), "8, or 4: then a byte has two elements.");
  const AttrSpec symmetric =
      Optional("symmetric", true, "Zero stands for zero; else a group has an offset, too.");
  return {
      Make({.name = "quantize",
            .signature = "x: F -> values: Q, params: W",
            .attrs = {Optional("group_size", Int(0),
                               "How many neighbours along the last axis share parameters, which "
                               "divides its extent; 0: all."),
                      bits, symmetric},
            .infer = InferQuantize,
            .cost = PerOperand(4),
            .family = kFamily,
            .doc = "Integers of b bits for groups of x [..., D]. Symmetric: s = 2^b / (2 max|x|) "
                   "of the group, and values = x s. Otherwise s = 2^b / (max x - min x), offset = "
                   "(max x + min x) / 2, and values = (x - offset) s. s is 1 if it would be "
                   "infinite. Values are rounded half to even and clamped to [-2^(b-1), 2^(b-1) - "
                   "1]; a NaN becomes 0. values are i8 [..., D], or for 4 bits u8 [..., D / 2] "
                   "with element 0 in the low nibble. params [..., D / group_size, 1] hold 1 / s. "
                   "If not symmetric, params [..., D / group_size, 2] hold 1 / s and the offset. "
                   "Math is in f32, of f64 in f64, each operation rounded once."}),
      Make(
          {.name = "dequantize",
           .signature = "values: Q, params: W -> y: F",
           .attrs = {bits, symmetric, Optional("dtype", DType::kF32, "The result's element type.")},
           .infer = InferDequantize,
           .cost = PerResult(2),
           .family = kFamily,
           .doc = "The inverse of quantize, up to its rounding: value / s, or value / s + offset. "
                  "params [..., G, 1 or 2] hold 1 / s and the offset of each group. values are i8 "
                  "[..., D], or for 4 bits u8 [..., D / 2]. Math is in the type of params, each "
                  "operation rounded once."}),
  };
}

}  // namespace opwire::definitions
