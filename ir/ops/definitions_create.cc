// Ops that make tensors from attributes, scalars and random keys.
//
// Randomness is Philox 4x32-10 under the 64-bit Philox key key[0]. The 128-bit counter has a
// block's number in its low half. Its high half is key[1] + site, wrapping. Up to f32 a block
// has four elements: element i is (lane >> 8) * 2^-24 of lane i mod 4 in block i/4 of the stream.
// With f64 a block has two elements: element i has lanes 2*(i mod 2) and 2*(i mod 2)+1 in block i/2
// of the stream. The first lane is the high half of 64 bits h. The element is (h >> 11) * 2^-53.
#include <fmt/format.h>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

Status InferFilled(InferContext& c) {
  c.Result(0).shape = c.Attr<Dims>(0);
  return absl::OkStatus();
}

Status InferConstant(InferContext& c) {
  const TensorType& type = c.Attr<TensorType>(0);
  for (Dim d : type.shape) {
    if (!c.dims().IsConstant(d))
      return c.Error(fmt::format("type: expected constant extents, got {}", c.Print(type)));
  }
  c.Result(0) = type;
  return absl::OkStatus();
}

Status InferArange(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(0, 0));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, 0));
  c.Result(0).shape = {c.Attr<Dim>(0)};
  return absl::OkStatus();
}

Status InferRandom(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(RequireKey(c, 0));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, 0));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(2, 0));
  return InferFilled(c);
}

Status InferDropout(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, 0));
  OPWIRE_RETURN_IF_ERROR(RequireKey(c, 2));
  return SameAsFirst(c);
}

}  // namespace

std::vector<OpDef> CreateOps() {
  constexpr std::string_view kFamily = "create";
  const AttrSpec shape = Optional("shape", Dims{}, "The result's extents.");
  const AttrSpec required_shape = Required("shape", AttrKind::kDims, "The result's extents.");
  const AttrSpec dtype = Optional("dtype", DType::kF32, "The result's element type.");
  const AttrSpec site = Optional("site", Int(0), "Tells apart the uses of one key.");
  return {
      Make({.name = "zeros",
            .signature = "-> y: U",
            .attrs = {shape, dtype},
            .infer =
                [](InferContext& c) {
                  c.Result(0).dtype = c.Attr<DType>(1);
                  return InferFilled(c);
                },
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "Zeros."}),
      Make({.name = "full",
            .signature = "-> y: U",
            .attrs = {shape,
                      Required("value", AttrKind::kFloat,
                               "Of every element, converted as cast does."),
                      dtype},
            .infer =
                [](InferContext& c) {
                  c.Result(0).dtype = c.Attr<DType>(2);
                  return InferFilled(c);
                },
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "One value everywhere; for integers beyond 2^53 use constant."}),
      Make({.name = "values",
            .signature = "-> y: U",
            .attrs = {Required("value", AttrKind::kFloats, "The elements, converted as cast does."),
                      dtype},
            .infer =
                [](InferContext& c) {
                  c.Result(0).dtype = c.Attr<DType>(1);
                  c.Result(0).shape = {
                      c.dims().Constant(static_cast<int64_t>(c.Attr<Doubles>(0).size()))};
                  return absl::OkStatus();
                },
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "A 1-d tensor of the values listed."}),
      Make({.name = "constant",
            .signature = "-> y: U",
            .attrs = {Required("type", AttrKind::kType, "The result's type, of constant extents."),
                      Required("value", AttrKind::kBlob,
                               "Its bytes: dense row-major, little-endian, exactly as many as the "
                               "type takes.")},
            .infer = InferConstant,
            .cost = PerResult(0),
            .family = kFamily,
            .doc = "A tensor whose bytes the program holds."}),
      Make({.name = "arange",
            .signature = "start: A, step: A -> y: A",
            .attrs = {Required("length", AttrKind::kDim, "The result's extent.")},
            .infer = InferArange,
            .cost = PerResult(2),
            .family = kFamily,
            .doc = "start + i * step of the 0-d start and step; integers wrap."}),
      Make({.name = "uniform",
            .signature = "key: u64, low: F, high: F -> y: F",
            .attrs = {required_shape, site},
            .infer = InferRandom,
            .cost = PerResult(20),
            .family = kFamily,
            .doc = "low + u * (high - low) with u in [0, 1) by Philox from key u64[2]; low and "
                   "high 0-d."}),
      Make({.name = "normal",
            .signature = "key: u64, mean: F, std: F -> y: F",
            .attrs = {required_shape, site},
            .infer = InferRandom,
            .cost = PerResult(40),
            .family = kFamily,
            .doc = "mean + std * n with n normal, by Box-Muller on pairs u, v of neighbouring "
                   "elements of Philox under key u64[2]. The first element of a pair is sqrt(-2 "
                   "log(1-u)) cos(2 pi v), the second the same with sin. mean and std are 0-d."}),
      Make({.name = "dropout",
            .signature = "x: F, p: f32, key: u64 -> y: F",
            .attrs = {site},
            .infer = InferDropout,
            .aliasing = Aliasing::kElementwise,
            .cost = PerResult(20),
            .family = kFamily,
            .doc = "x / (1-p) where u >= p, else 0, with u by Philox from key u64[2]; p 0-d; p >= "
                   "1 gives zeros."}),
  };
}

}  // namespace opwire::definitions
