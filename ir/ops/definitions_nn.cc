// Matmuls, attention, rotary embedding and losses.
#include <fmt/format.h>

#include <cmath>

#include "ir/ops/definitions.h"

namespace opwire::definitions {
namespace {

Status CheckPrecision(InferContext& c, int i) {
  const std::string& precision = c.Attr<std::string>(i);
  return precision == "ieee" || precision == "tf32"
             ? absl::OkStatus()
             : c.Error("precision: expected \"ieee\" or \"tf32\"");
}
Status CheckActivation(InferContext& c, int i) {
  for (const std::string_view name : {"none", "relu", "gelu", "gelu_tanh", "silu"}) {
    if (c.Attr<std::string>(i) == name) return absl::OkStatus();
  }
  return c.Error("activation: expected \"none\", \"relu\", \"gelu\", \"gelu_tanh\" or \"silu\"");
}

// The matmul of operands 0 and 1, which attributes 0 and 1 transpose.
Status SetProduct(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 2));
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(1, 2));
  const auto matrix = [](const TensorType& t, bool transpose) {
    const Dim rows = t.shape[t.rank() - 2], columns = t.shape[t.rank() - 1];
    return transpose ? std::pair(columns, rows) : std::pair(rows, columns);
  };
  const auto [m, k] = matrix(c.In(0), c.Attr<bool>(0));
  const auto [k2, n] = matrix(c.In(1), c.Attr<bool>(1));
  OPWIRE_RETURN_IF_ERROR(c.RequireEqual(k, k2, "inner dimensions"));
  TensorType batches[2];
  for (int i = 0; i < 2; ++i)
    batches[i].shape.assign(c.In(i).shape.begin(), c.In(i).shape.end() - 2);
  const TensorType* const both[] = {&batches[0], &batches[1]};
  OPWIRE_ASSIGN_OR_RETURN(std::vector<Dim> shape, c.Broadcast(both));
  shape.insert(shape.end(), {m, n});
  c.Result(0).shape = std::move(shape);
  return absl::OkStatus();
}

Status InferMatmul(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(CheckPrecision(c, 2));
  return SetProduct(c);
}

Status InferScaledMatmul(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(SetProduct(c));
  const DType type = c.Attr<DType>(2);
  if (type == DType::kF64) return c.Error("dtype: expected f32, f16 or bf16, got f64");
  TensorType& z = c.Result(0);
  z.dtype = type;
  for (int i = 0; i < 2; ++i) {
    const int scale = 2 + i;
    if (c.In(scale).rank() == 0) continue;
    OPWIRE_RETURN_IF_ERROR(c.RequireRank(scale, 1));
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqual(c.In(scale).shape[0], z.shape[z.shape.size() - 2 + static_cast<size_t>(i)],
                       i == 0 ? "scale_x and rows of z" : "scale_y and columns of z"));
  }
  return absl::OkStatus();
}

OpCost MatmulCost(const CostArgs& a) {
  const Shape &x = a.operands[0], &z = a.results[0];
  if (x.size() < 2 || z.size() < 2 || z[z.size() - 2] == 0) return {0, TrafficBytes(a)};
  // The last two extents of x are m and k in either order.
  const double k = static_cast<double>(x[x.size() - 2]) * static_cast<double>(x[x.size() - 1]) /
                   static_cast<double>(z[z.size() - 2]);
  return {2 * k * Elements(z), TrafficBytes(a)};
}

// x [..., K], weight [N, K] and bias [N]: operand 0, operand `weight_at` and the one after it.
Status SetLinear(InferContext& c, int weight_at) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(weight_at, 2));
  const TensorType& weight = c.In(weight_at);
  OPWIRE_RETURN_IF_ERROR(c.RequireEqual(c.In(0).shape.back(), weight.shape[1], "inner dimensions"));
  if (const TensorType* const bias = c.Operand(weight_at + 1)) {
    OPWIRE_RETURN_IF_ERROR(c.RequireRank(weight_at + 1, 1));
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqual(bias->shape[0], weight.shape[0], "extents of bias and weight"));
  }
  c.Result(0).shape = c.In(0).shape;
  c.Result(0).shape.back() = weight.shape[0];
  return absl::OkStatus();
}

Status InferLinear(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(CheckActivation(c, 0));
  OPWIRE_RETURN_IF_ERROR(CheckPrecision(c, 1));
  return SetLinear(c, 1);
}

Status InferRmsNormLinear(InferContext& c) {
  const double eps = c.Attr<double>(0);
  if (!(eps >= 0)) return c.Error(fmt::format("eps: expected 0 or more, got {}", eps));
  OPWIRE_RETURN_IF_ERROR(CheckActivation(c, 1));
  OPWIRE_RETURN_IF_ERROR(CheckPrecision(c, 2));
  OPWIRE_RETURN_IF_ERROR(SetLinear(c, 2));
  const TensorType* const norm_weight = c.Operand(1);
  if (norm_weight == nullptr) return absl::OkStatus();
  return c.RequireEqualShapes(norm_weight->shape, std::span(c.In(0).shape).last(1),
                              "extents of norm_weight and x's last");
}

// A matmul of x [..., K] with an operand [N, K].
OpCost LinearCost(const CostArgs& a) {
  const Shape& x = a.operands[0];
  return {x.empty() ? 0 : 2 * static_cast<double>(x.back()) * Elements(a.results[0]),
          TrafficBytes(a)};
}

// query [..., Hq, Sq, D], key [..., Hkv, Skv, D] and value [..., Hkv, Skv, Dv]: the operands
// starting with `first`. `pooled`: batches share key and value as pools, whose first extent is
// their own.
Status CheckAttended(InferContext& c, int first, bool pooled = false) {
  const TensorType &query = c.In(first), &key = c.In(first + 1), &value = c.In(first + 2);
  const int rank = query.rank(), heads = rank - 3, rows = rank - 2, columns = rank - 1;
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(first, 3));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(first + 1, rank));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(first + 2, rank));
  for (int a = 0; a < heads; ++a) {
    if (!pooled)
      OPWIRE_RETURN_IF_ERROR(
          c.RequireEqual(query.shape[a], key.shape[a], "batch extents of query and key"));
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqual(key.shape[a], value.shape[a], "batch extents of key and value"));
  }
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqual(key.shape[heads], value.shape[heads], "heads of key and value"));
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqual(key.shape[rows], value.shape[rows], "positions of key and value"));
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqual(query.shape[columns], key.shape[columns], "head sizes of query and key"));
  DimTable& dims = c.dims();
  const Dim hq = query.shape[heads], hkv = key.shape[heads];
  if (hq !=
      hkv) {  // if the key has no heads, the remainder has no value, which refuses the binding
    const bool known = dims.IsConstant(hq) && dims.IsConstant(hkv);
    if (known &&
        (dims.ConstantValue(hkv) == 0 || dims.ConstantValue(hq) % dims.ConstantValue(hkv) != 0)) {
      return c.Error(fmt::format("heads: expected a multiple of key's {} for query, got {} in {}",
                                 dims.ToString(hkv), dims.ToString(hq), c.OperandShapes()));
    }
    if (!known)
      OPWIRE_RETURN_IF_ERROR(c.RequireEqual(dims.Mod(hq, hkv), dims.Constant(0),
                                            "remainder of query's heads by key's and 0"));
  }
  if (c.Attr<int64_t>(1) < 0)
    return c.Error(fmt::format("window: expected 0 or more, got {}", c.Attr<int64_t>(1)));
  if (!std::isfinite(c.Attr<double>(2)))
    return c.Error(fmt::format("scale: expected a finite number, got {}", c.Attr<double>(2)));
  return absl::OkStatus();
}

// The same, and a mask that broadcasts to [..., Hq, Sq, Skv].
Status CheckAttention(InferContext& c, int first, int mask_at) {
  OPWIRE_RETURN_IF_ERROR(CheckAttended(c, first));
  const TensorType &query = c.In(first), &key = c.In(first + 1);
  const int rank = query.rank();
  DimTable& dims = c.dims();
  if (const TensorType* const mask = c.Operand(mask_at)) {
    if (mask->dtype != DType::kBool && mask->dtype != query.dtype) {
      return c.Error(fmt::format("operand mask: expected bool or {} as in query, got {}",
                                 DTypeName(query.dtype), c.Print(*mask)));
    }
    if (mask->rank() > rank)
      return c.Error(
          fmt::format("operand mask: expected at most rank {}, got {}", rank, c.Print(*mask)));
    std::vector<Dim> scores(query.shape.begin(), query.shape.end() - 1);
    scores.push_back(key.shape[rank - 2]);
    for (int a = 0; a < mask->rank(); ++a) {
      if (mask->shape[a] == dims.Constant(1)) continue;
      OPWIRE_RETURN_IF_ERROR(c.RequireEqual(mask->shape[a], scores[a + rank - mask->rank()],
                                            "extents of mask and the scores"));
    }
  }
  return absl::OkStatus();
}

DType LogSumExpType(DType type) { return type == DType::kF64 ? DType::kF64 : DType::kF32; }

// output and logsumexp of query and value, the operands 0 and 2.
Status AttentionResults(InferContext& c) {
  c.Result(0).shape = c.In(0).shape;
  c.Result(0).shape.back() = c.In(2).shape.back();
  c.Result(1).shape.assign(c.In(0).shape.begin(), c.In(0).shape.end() - 1);
  c.Result(1).dtype = LogSumExpType(c.In(0).dtype);
  return absl::OkStatus();
}

Status InferAttention(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(CheckAttention(c, 0, 3));
  return AttentionResults(c);
}

// grad and output [..., Hq, Sq, Dv], query, key, value, logsumexp [..., Hq, Sq] and a mask.
Status InferAttentionBackward(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(CheckAttention(c, 1, 6));
  const TensorType &query = c.In(1), &log_sum = c.In(5);
  std::vector<Dim> output = query.shape;
  output.back() = c.In(3).shape.back();
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(c.In(0).shape, output, "grad and what attention gives"));
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(c.In(4).shape, output, "output and what attention gives"));
  output.pop_back();
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(log_sum.shape, output, "logsumexp and query before its last extent"));
  if (log_sum.dtype != LogSumExpType(query.dtype)) {
    return c.Error(fmt::format("operand logsumexp: expected {}, got {}",
                               DTypeName(LogSumExpType(query.dtype)), c.Print(log_sum)));
  }
  for (int r = 0; r < 3; ++r) c.Result(r).shape = c.In(r + 1).shape;
  return absl::OkStatus();
}

// The two matmuls, as if no key were masked.
OpCost AttentionCost(const CostArgs& a) {
  const Shape &query = a.operands[0], &key = a.operands[1], &value = a.operands[2];
  if (query.size() < 3) return {0, TrafficBytes(a)};
  const double queries = Elements({query.data(), query.size() - 1});
  return {2 * queries * static_cast<double>(key[key.size() - 2]) *
              static_cast<double>(query.back() + value.back()),
          TrafficBytes(a)};
}

// Five matmuls, as if no key were masked.
OpCost AttentionBackwardCost(const CostArgs& a) {
  const Shape &query = a.operands[1], &key = a.operands[2], &value = a.operands[3];
  if (query.size() < 3) return {0, TrafficBytes(a)};
  const double queries = Elements({query.data(), query.size() - 1});
  return {2 * queries * static_cast<double>(key[key.size() - 2]) *
              static_cast<double>(3 * query.back() + 2 * value.back()),
          TrafficBytes(a)};
}

// Either cache [..., H, S, D], new [..., H, Snew, D] and position [] or [...]. Or a pool [P, H, S,
// D], new [B, H, Snew, D], position and block_table [B, N].
Status InferKvAppend(InferContext& c) {
  const TensorType &cache = c.In(0), &added = c.In(1), &position = c.In(2);
  const TensorType* const table = c.Operand(3);
  const int rank = cache.rank(), batch = rank - 3, rows = rank - 2;
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 3));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(1, rank));
  if (table) {
    OPWIRE_RETURN_IF_ERROR(c.RequireRank(0, 4));
    OPWIRE_RETURN_IF_ERROR(c.RequireRank(3, 2));
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqual(table->shape[0], added.shape[0], "batches of block_table and new"));
  }
  for (int a = table ? 1 : 0; a < rank; ++a) {
    const Dim positions =
        table ? c.dims().Mul(table->shape[1], cache.shape[rows]) : cache.shape[rows];
    if (a == rows)
      OPWIRE_RETURN_IF_ERROR(
          c.RequireAtMost(added.shape[a], positions, "new's positions, of cache"));
    else
      OPWIRE_RETURN_IF_ERROR(
          c.RequireEqual(added.shape[a], cache.shape[a], "extents of new and cache"));
  }
  if (position.rank() != 0) {
    OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(
        position.shape, std::span(added.shape).first(static_cast<size_t>(batch)),
        "extents of position and of new before its heads"));
  }
  return SameAsFirst(c);
}

// Either query [..., Hq, Sq, D], caches [..., Hkv, S, D or Dv] and length [] or [...]. Or query [B,
// Hq, Sq, D], pools [P, Hkv, S, D or Dv] of pages, length and block_table [B, N].
Status InferKvAttention(InferContext& c) {
  const TensorType &query = c.In(0), &length = c.In(3);
  const TensorType* const table = c.Operand(4);
  if (table) OPWIRE_RETURN_IF_ERROR(c.RequireRank(0, 4));
  OPWIRE_RETURN_IF_ERROR(CheckAttended(c, 0, table != nullptr));
  if (length.rank() != 0) {
    OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(
        length.shape, std::span(query.shape).first(static_cast<size_t>(query.rank() - 3)),
        "extents of length and of query before its heads"));
  }
  if (table) {
    OPWIRE_RETURN_IF_ERROR(c.RequireRank(4, 2));
    OPWIRE_RETURN_IF_ERROR(
        c.RequireEqual(table->shape[0], query.shape[0], "batches of block_table and query"));
  }
  return AttentionResults(c);
}

// As if all positions were used.
OpCost KvAttentionCost(const CostArgs& a) {
  const Shape &query = a.operands[0], &key = a.operands[1], &value = a.operands[2];
  if (query.size() < 3) return {0, TrafficBytes(a)};
  const bool paged = a.operands.size() > 4 && !a.operands[4].empty();
  const double positions = static_cast<double>(key[key.size() - 2]) *
                           (paged ? static_cast<double>(a.operands[4].back()) : 1);
  return {2 * Elements({query.data(), query.size() - 1}) * positions *
              static_cast<double>(query.back() + value.back()),
          TrafficBytes(a)};
}

// x [..., S, D], and positions that broadcast to [..., S].
Status InferRotary(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 2));
  DimTable& dims = c.dims();
  const TensorType& x = c.In(0);
  const int rows = x.rank() - 1;
  const Dim depth = x.shape.back();
  const int64_t dim = c.Attr<int64_t>(0);
  if (dim < 0 || dim % 2 != 0)
    return c.Error(fmt::format("dim: expected an even number of 0 or more, got {}", dim));
  if (dim > 0) {
    OPWIRE_RETURN_IF_ERROR(c.RequireAtMost(dims.Constant(dim), depth, "dim"));
  } else if (!dims.IsConstant(depth)) {
    OPWIRE_RETURN_IF_ERROR(c.RequireEqual(dims.Mod(depth, dims.Constant(2)), dims.Constant(0),
                                          "remainder of x's last extent by 2 and 0"));
  } else if (dims.ConstantValue(depth) % 2 != 0) {
    return c.Error(
        fmt::format("dim: expected a number, as x's last extent is odd: {}", c.Print(x)));
  }
  const double theta = c.Attr<double>(1), scale = c.Attr<double>(3);
  if (!std::isfinite(theta) || theta <= 0)
    return c.Error(fmt::format("theta: expected a finite number above 0, got {}", theta));
  if (!std::isfinite(scale))
    return c.Error(fmt::format("scale: expected a finite number, got {}", scale));
  if (const TensorType* const positions = c.Operand(1)) {
    if (positions->rank() > rows)
      return c.Error(fmt::format("operand positions: expected at most rank {}, got {}", rows,
                                 c.Print(*positions)));
    for (int a = 0; a < positions->rank(); ++a) {
      if (positions->shape[a] == dims.Constant(1)) continue;
      OPWIRE_RETURN_IF_ERROR(c.RequireEqual(positions->shape[a],
                                            x.shape[a + rows - positions->rank()],
                                            "extents of positions and of x before its last"));
    }
  }
  return SameAsFirst(c);
}

// Sets `loss` to the shape of a loss of these logits, or of the input for logits, and targets.
Status InferLoss(InferContext& c, int logits, int target, std::vector<Dim>* loss,
                 std::string_view name = "logits") {
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(logits, 2));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(target, 1));
  OPWIRE_RETURN_IF_ERROR(c.RequireEqual(c.In(logits).shape[0], c.In(target).shape[0],
                                        fmt::format("rows of {} and target", name)));
  const std::string& reduction = c.Attr<std::string>(0);
  if (reduction == "none") {
    *loss = {c.In(logits).shape[0]};
  } else if (reduction == "mean" || reduction == "sum") {
    loss->clear();
  } else {
    return c.Error("reduction: expected \"mean\", \"sum\" or \"none\"");
  }
  return absl::OkStatus();
}

Status InferCrossEntropyBackward(InferContext& c) {
  std::vector<Dim> loss;
  OPWIRE_RETURN_IF_ERROR(InferLoss(c, 1, 2, &loss));
  OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(c.In(0).shape, loss, "shapes of grad and the loss"));
  c.Result(0).shape = c.In(1).shape;
  return absl::OkStatus();
}

Status InferCrossEntropyWithGradient(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(InferLoss(c, 1, 2, &c.Result(0).shape));
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqualShapes(c.In(0).shape, c.Result(0).shape, "shapes of grad and the loss"));
  c.Result(1).shape = c.In(1).shape;
  return absl::OkStatus();
}

// input [N, D], weight [C, D] and target [N]: the operands starting with `first`.
Status CheckLinearLoss(InferContext& c, int first, std::vector<Dim>* loss) {
  OPWIRE_RETURN_IF_ERROR(InferLoss(c, first, first + 2, loss, "input"));
  OPWIRE_RETURN_IF_ERROR(c.RequireRank(first + 1, 2));
  OPWIRE_RETURN_IF_ERROR(
      c.RequireEqual(c.In(first).shape[1], c.In(first + 1).shape[1], "inner dimensions"));
  return c.Attr<int64_t>(2) >= 0
             ? absl::OkStatus()
             : c.Error(fmt::format("chunk_size: expected 0 or more, got {}", c.Attr<int64_t>(2)));
}

Status InferLinearCrossEntropy(InferContext& c) {
  OPWIRE_RETURN_IF_ERROR(CheckLinearLoss(c, 0, &c.Result(0).shape));
  c.Result(1).shape = {c.In(0).shape[0]};
  c.Result(1).dtype = LogSumExpType(c.In(0).dtype);
  return absl::OkStatus();
}

Status InferLinearCrossEntropyBackward(InferContext& c) {
  std::vector<Dim> loss;
  OPWIRE_RETURN_IF_ERROR(CheckLinearLoss(c, 1, &loss));
  OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(c.In(0).shape, loss, "shapes of grad and the loss"));
  const TensorType &input = c.In(1), &log_sum = c.In(4);
  OPWIRE_RETURN_IF_ERROR(c.RequireEqualShapes(log_sum.shape, std::span(input.shape).first(1),
                                              "logsumexp and rows of input"));
  if (log_sum.dtype != LogSumExpType(input.dtype)) {
    return c.Error(fmt::format("operand logsumexp: expected {}, got {}",
                               DTypeName(LogSumExpType(input.dtype)), c.Print(log_sum)));
  }
  c.Result(0).shape = input.shape;
  c.Result(1).shape = c.In(2).shape;
  return absl::OkStatus();
}

// `products`: the number of matmuls of input and weight, which is the operand after it.
CostRule LinearLossCost(size_t input, double products) {
  return [input, products](const CostArgs& a) {
    const Shape &x = a.operands[input], &weight = a.operands[input + 1];
    return OpCost{x.size() < 2 || weight.size() < 2
                      ? 0
                      : 2 * products * Elements(x) * static_cast<double>(weight[0]),
                  TrafficBytes(a)};
  };
}

}  // namespace

std::vector<OpDef> NnOps() {
  const std::vector<AttrSpec> loss = {
      Optional("reduction", std::string("mean"),
               "\"mean\" over the targets not ignored, \"sum\", or \"none\"."),
      Optional("ignore_index", Int(-100), "A target of this value counts for nothing.")};
  std::vector<AttrSpec> chunked = loss;
  chunked.push_back(
      Optional("chunk_size", Int(0),
               "The number of rows whose logits are computed at a time. 0: as many as fit into 256 "
               "MiB, but in whole multiples of 128 if that is more than 128."));
  const std::vector<AttrSpec> attention = {
      Optional("causal", false,
               "Query i sees key j where j <= i + Skv - Sq: aligned to the lower right."),
      Optional("window", Int(0),
               "Query i sees key j where j > i + Skv - Sq - window: its own position and those to "
               "the left of it, window in all; 0: no such bound."),
      Optional("scale", 0.0, "The factor of the products of query and key; 0: 1 / sqrt(D).")};
  std::vector<AttrSpec> cached = attention;
  cached[0] = Optional("causal", true, "Query i sees position j where j <= i + length - Sq.");
  cached[1].doc =
      "Query i sees position j where j > i + length - Sq - window: its own and those to the left "
      "of it, window in all; 0: no such bound.";
  const AttrSpec precision =
      Optional("precision", std::string("ieee"),
               "\"ieee\", or \"tf32\" where f32 may round its operands to 10 bits.");
  const AttrSpec activation = Optional(
      "activation", std::string("none"),
      "\"relu\", \"gelu\", \"gelu_tanh\" or \"silu\", the ops of these names, or \"none\".");
  const std::vector<std::pair<std::string_view, Domain>> target = {
      {"target", Domain::kIndexOrIgnore}};
  return {
      Make({.name = "matmul",
            .signature = "x: A, y: A -> z: A",
            .attrs = {Optional("transpose_x", false, "Swaps x's last two axes first."),
                      Optional("transpose_y", false, "Swaps y's last two axes first."), precision},
            .infer = InferMatmul,
            .cost = MatmulCost,
            .family = "matmul",
            .doc = "The matrix product of the last two axes; those before broadcast. f16 and bf16 "
                   "accumulate in f32; integers wrap."}),
      Make({.name = "scaled_matmul",
            .signature = "x: D, y: E, scale_x: f32, scale_y: f32 -> z: F",
            .attrs = {Optional("transpose_x", false, "Swaps x's last two axes first."),
                      Optional("transpose_y", false, "Swaps y's last two axes first."),
                      Optional("dtype", DType::kBF16,
                               "The result's element type: f32, f16 or bf16.")},
            .infer = InferScaledMatmul,
            .cost = MatmulCost,
            .family = "matmul",
            .doc = "The matrix product of 8-bit floats, times scale_x and scale_y. scale_x is 0-d "
                   "or [rows of z], scale_y 0-d or [columns of z], so that it scales by tensor or "
                   "by row, as torch.nn.functional.scaled_mm does. Products accumulate and are "
                   "scaled in f32."}),
      Make({.name = "linear",
            .signature = "x: F, weight: F, bias?: F -> y: F",
            .attrs = {activation, precision},
            .infer = InferLinear,
            .cost = LinearCost,
            .family = "matmul",
            .doc =
                "activation(x weight^T + bias) of x [..., K], weight [N, K] and bias [N], as "
                "torch.nn.functional.linear. f16 and bf16 accumulate in f32, where "
                "bias and activation are computed too; sums may be rounded to the type before."}),
      Make({.name = "rms_norm_linear",
            .signature = "x: F, norm_weight?: F, weight: F, bias?: F -> y: F",
            .attrs = {Optional("eps", 1e-5, "Added to the mean square."), activation, precision},
            .infer = InferRmsNormLinear,
            .cost = LinearCost,
            .family = "matmul",
            .doc = "linear(rms_norm(x, norm_weight), weight, bias) of x [..., K], norm_weight [K], "
                   "weight [N, K] and bias [N]. The normalised x may be rounded to the type "
                   "before it meets weight."}),
      Make({.name = "scaled_dot_product_attention",
            .signature = "query: F, key: F, value: F, mask?: M -> output: F, logsumexp: W",
            .attrs = attention,
            .infer = InferAttention,
            .cost = AttentionCost,
            .family = "attention",
            .doc = "softmax(scale * query key^T + mask) value, and the logarithm of the softmax's "
                   "denominator. query is [..., Hq, Sq, D], key [..., Hkv, Skv, D] and value [..., "
                   "Hkv, Skv, Dv]. logsumexp is [..., Hq, Sq], in f32, of f64 in f64. Head h of "
                   "query uses head h / (Hq / Hkv) of key and value. The mask broadcasts to [..., "
                   "Hq, Sq, Skv]. A bool says which keys take part; a number is added. A query "
                   "without keys gives zeros and -inf. Values must be finite at keys that take no "
                   "part, too. f16 and bf16 accumulate in f32. Their weights may be rounded to the "
                   "type before they are multiplied by value. PyTorch's is_causal is aligned to "
                   "the upper left, which differs if Sq is not Skv."}),
      Make({.name = "scaled_dot_product_attention_backward",
            .signature = "grad: F, query: F, key: F, value: F, output: F, logsumexp: W, mask?: M "
                         "-> grad_query: F, grad_key: F, grad_value: F",
            .attrs = attention,
            .infer = InferAttentionBackward,
            .cost = AttentionBackwardCost,
            .family = "attention",
            .doc =
                "The gradients of scaled_dot_product_attention's output with respect to query, key "
                "and value. output and logsumexp are its results. P = exp(scale * query key^T + "
                "mask - logsumexp) are the weights, and dS = P * (grad value^T - sum(grad * "
                "output, -1)). Then grad_value = P^T grad, grad_query = scale * dS key and "
                "grad_key = scale * dS^T query. grad_key and grad_value are sums over the heads of "
                "query that share a head of key. Keys that take no part get 0. All four operands "
                "must be finite there, too. f16 and bf16 accumulate in f32. Their P, their dS and "
                "the terms of each head may be rounded to the type before they are used further."}),
      Make({.name = "kv_append",
            .signature = "cache: T, new: T, position: I, block_table?: I -> y: T",
            .domains = {{"position", Domain::kIndex}, {"block_table", Domain::kIndex}},
            .infer = InferKvAppend,
            .aliasing = Aliasing::kElementwise,
            .cost = MoveCost,
            .family = "attention",
            .doc = "cache [..., H, S, D] with new [..., H, Snew, D] written to the positions from "
                   "`position` on. position is 0-d, or [...], one for each batch, in [-n, n) with "
                   "n = S - Snew + 1. If it is out of range, nothing is written for that batch. "
                   "With block_table [B, N] the cache is a pool of pages, [P, H, S, D], and n = N "
                   "* S - Snew + 1. Page block_table[b, i], in [-P, P), holds batch b's S "
                   "positions from i * S on. What goes to a page that is out of range is not "
                   "written. If two batches write to one place, either value may stay. If the "
                   "result takes the cache's memory, only the new positions are touched."}),
      Make({.name = "kv_attention",
            .signature =
                "query: F, key: F, value: F, length: I, block_table?: I -> output: F, logsumexp: W",
            .attrs = cached,
            .domains = {{"length", Domain::kIndex}, {"block_table", Domain::kIndex}},
            .infer = InferKvAttention,
            .cost = KvAttentionCost,
            .family = "attention",
            .doc = "scaled_dot_product_attention of query [..., Hq, Sq, D] with the first `length` "
                   "positions of caches that kv_append wrote: key [..., Hkv, S, D] and value [..., "
                   "Hkv, S, Dv]. The queries are the last Sq of these positions. length is 0-d, or "
                   "[...], one for each batch, in [-n, n) with n = S + 1; -1 is all positions. "
                   "Positions from `length` on are not read. With block_table [B, N] query is [B, "
                   "Hq, Sq, D], the caches are pools of pages, [P, Hkv, S, D or Dv], and n = N * S "
                   "+ 1. Page block_table[b, i], in [-P, P), holds batch b's S positions from i * "
                   "S on. Entries of the table from `length` on are not read. A length that is out "
                   "of range is taken as 0, and the positions of a page that is out of range take "
                   "no part. Positions that no query sees are not read; what some queries see must "
                   "be finite for the others, too. A query without keys gives zeros and -inf."}),
      Make({.name = "rotary_embedding",
            .signature = "x: F, positions?: I -> y: F",
            .attrs =
                {Optional(
                     "dim", Int(0),
                     "How many of the leading elements of D are rotated: an even number; 0: all."),
                 Optional("theta", 10000.0, "The base of the frequencies."),
                 Optional("interleaved", false,
                          "Pairs are neighbours, as in GPT-J; otherwise element i is paired with i "
                          "+ dim / 2, as in Llama and GPT-NeoX."),
                 Optional("scale", 1.0, "Positions are multiplied by it."),
                 Optional("inverse", false,
                          "Rotates back, which undoes the rotation and is its gradient.")},
            .infer = InferRotary,
            .cost = PerResult(3),
            .family = "rotary",
            .doc = "x [..., S, D] with each pair (a, b) of a row's elements rotated to (a cos - b "
                   "sin, b cos + a sin). The angle of pair i is position * scale * theta^(-2i / "
                   "dim), computed in f32, of f64 in f64. Its relative error is at most 2^-22, of "
                   "f64 2^-50. positions, any integers, broadcast to [..., S]; absent they are 0 "
                   "to S - 1 along S. Elements beyond dim are copied."}),
      Make({.name = "cross_entropy",
            .signature = "logits: F, target: I -> loss: F",
            .attrs = loss,
            .domains = target,
            .infer = [](InferContext& c) { return InferLoss(c, 0, 1, &c.Result(0).shape); },
            .cost = PerOperand(5),
            .family = "loss",
            .doc = "-log_softmax(logits)[i, target[i]] of logits [N, C]; target [N] in [0, C) or "
                   "ignore_index: other negative ones "
                   "are out of range."}),
      Make({.name = "cross_entropy_backward",
            .signature = "grad: F, logits: F, target: I -> dlogits: F",
            .attrs = loss,
            .domains = target,
            .infer = InferCrossEntropyBackward,
            .cost =
                [](const CostArgs& a) {
                  return OpCost{6 * Elements(a.results[0]), TrafficBytes(a)};
                },
            .family = "loss",
            .doc = "The gradient of cross_entropy by its logits, times grad, which has the shape "
                   "of the loss."}),
      Make({.name = "cross_entropy_with_gradient",
            .signature = "grad: F, logits: F, target: I -> loss: F, dlogits: F",
            .attrs = loss,
            .domains = target,
            .infer = InferCrossEntropyWithGradient,
            .cost =
                [](const CostArgs& a) {
                  return OpCost{7 * Elements(a.results[1]), TrafficBytes(a)};
                },
            .family = "loss",
            .doc = "What cross_entropy and cross_entropy_backward give of the same logits, which "
                   "are read once."}),
      Make({.name = "linear_cross_entropy",
            .signature = "input: F, weight: F, target: I -> loss: F, logsumexp: W",
            .attrs = chunked,
            .domains = target,
            .infer = InferLinearCrossEntropy,
            .cost = LinearLossCost(0, 1),
            .family = "loss",
            .doc = "cross_entropy(input weight^T, target) of input [N, D], weight [C, D] and "
                   "target [N], and the logarithm of each row's sum of exponentials, [N]. The "
                   "logits are never in memory as a whole: those of some rows are computed, "
                   "reduced and dropped. logsumexp and the logits are in f32, of f64 in f64."}),
      Make({.name = "linear_cross_entropy_backward",
            .signature = "grad: F, input: F, weight: F, target: I, logsumexp: W -> grad_input: F, "
                         "grad_weight: F",
            .attrs = chunked,
            .domains = target,
            .infer = InferLinearCrossEntropyBackward,
            .cost = LinearLossCost(1, 3),
            .family = "loss",
            .doc =
                "The gradients of linear_cross_entropy's loss with respect to input and weight, "
                "times grad, which has the shape of the loss. logsumexp is its second result. d = "
                "(exp(input weight^T - logsumexp) - onehot(target)) * grad, divided by the count "
                "of targets for a mean. d is 0 for a row without target. Then grad_input = d "
                "weight and grad_weight = d^T input. Logits are computed again, for some rows at a "
                "time. f16 and bf16 accumulate in f32; their d may be rounded to the type first."}),
  };
}

}  // namespace opwire::definitions
