// Gradients of the ops that are more than one expression.
#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>

#include "ir/passes/backward.h"
#include "ir/passes/constants.h"

namespace opwire {
namespace {

// A node in the backward pass.
struct Call {
  Backward& b;
  const Node& node;
  std::span<const ValueId> results;
  const std::vector<AttrValue>& attrs;

  ValueId in(size_t i) const { return i < node.operands.size() ? node.operands[i] : kAbsent; }
  ValueId out(size_t i = 0) const { return results[i]; }
  ValueId g(size_t i = 0) const { return b.GradientOf(results[i]); }
  std::vector<Dim> shape(ValueId v) const { return b.TypeOf(v).shape; }
  DType dtype(ValueId v) const { return b.TypeOf(v).dtype; }
  int64_t axis(size_t attr, ValueId v) const {
    const int64_t a = std::get<int64_t>(attrs[attr]);
    return a < 0 ? a + b.TypeOf(v).rank() : a;
  }
};

// ---- Shapes
// -------------------------------------------------------------------------------------------------

bool Cast(const Call& c) {
  if (kFloats.Has(c.dtype(c.out())))
    c.b.Add(c.in(0), c.b.Op("cast", {c.g()}, {{"dtype", c.dtype(c.in(0))}}));
  return true;
}

bool Reshape(const Call& c) {
  c.b.Add(c.in(0), c.b.Reshape(c.g(), c.shape(c.in(0))));
  return true;
}

bool Expand(const Call& c) {
  c.b.Add(c.in(0), c.g());
  return true;
}

Ints Inverse(const Ints& order) {
  Ints out(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    out[static_cast<size_t>(order[i] < 0 ? order[i] + static_cast<int64_t>(order.size())
                                         : order[i])] = static_cast<int64_t>(i);
  return out;
}

bool Permute(const Call& c) {
  c.b.Add(c.in(0), c.b.Op("permute", {c.g()}, {{"dims", Inverse(std::get<Ints>(c.attrs[0]))}}));
  return true;
}

// [r0 * d0, ...] as [r0, d0, ...], summed over the repeats.
bool Tile(const Call& c) {
  const Ints& repeats = std::get<Ints>(c.attrs[0]);
  const std::vector<Dim>& from = c.shape(c.in(0));
  const size_t rank = std::max(repeats.size(), from.size());
  std::vector<Dim> shape;
  Ints reduced;
  for (size_t i = 0; i < rank; ++i) {
    reduced.push_back(static_cast<int64_t>(2 * i));
    shape.push_back(
        c.b.dims().Constant(i + repeats.size() < rank ? 1 : repeats[i + repeats.size() - rank]));
    shape.push_back(i + from.size() < rank ? c.b.dims().Constant(1) : from[i + from.size() - rank]);
  }
  if (shape.size() > kMaxRank) return false;
  c.b.Add(c.in(0),
          c.b.Reshape(
              rank == 0 ? c.g() : c.b.Op("sum", {c.b.Reshape(c.g(), shape)}, {{"dims", reduced}}),
              from));
  return true;
}

// Indices along an axis: positions from `start`, 0-d, that are `step` apart. Its shape is that of
// `like`.
ValueId Positions(Backward& b, ValueId start, int64_t step, int64_t axis, ValueId like) {
  const std::vector<Dim> shape = b.TypeOf(like).shape;
  const ValueId steps = b.Full({.dtype = b.TypeOf(start).dtype}, static_cast<double>(step));
  std::vector<Dim> along(shape.size(), b.dims().Constant(1));
  along[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)];
  const ValueId range =
      b.Op("arange", {start, steps}, {{"length", shape[static_cast<size_t>(axis)]}});
  return b.Expand(b.Reshape(range, along), shape);
}

bool Slice(const Call& c) {
  const int64_t axis = c.axis(0, c.in(0)), step = std::get<int64_t>(c.attrs[2]);
  const Dim from = c.shape(c.in(0))[static_cast<size_t>(axis)],
            length = c.shape(c.out())[static_cast<size_t>(axis)];
  const auto known = ConstantOf(c.b.rewriter(), c.in(1));
  if (known && step == 1 && c.b.dims().IsConstant(from) && c.b.dims().IsConstant(length)) {
    const int64_t extent = c.b.dims().ConstantValue(from), given = SignedOf(*known),
                  start = given < 0 ? given + extent : given;
    if (start >= 0 && start <= extent - c.b.dims().ConstantValue(length)) {
      c.b.AddStretch(c.in(0), axis, start, c.g());
      return true;
    }
  }
  const ValueId index = Positions(c.b, c.in(1), step, axis, c.out());
  c.b.Add(c.in(0),
          c.b.Op("scatter_add", {c.b.Full(c.b.TypeOf(c.in(0)), 0), index, c.g()}, {{"dim", axis}}));
  return true;
}

// Replaced elements do not affect the result.
bool SliceUpdate(const Call& c) {
  const Ints& steps = std::get<Ints>(c.attrs[0]);
  if (c.b.Wants(c.in(0)))
    c.b.Add(c.in(0), c.b.Op("slice_update", {c.g(), c.b.Full(c.b.TypeOf(c.in(1)), 0), c.in(2)},
                            c.node.attrs));
  if (!c.b.Wants(c.in(1))) return true;
  ValueId part = c.g();
  const std::vector<Dim> shape = c.shape(c.in(1));
  for (size_t a = 0; a < shape.size(); ++a) {
    const auto axis = static_cast<int64_t>(a);
    const ValueId start = c.b.Reshape(
        c.b.Op("slice", {c.in(2), c.b.Full({.dtype = DType::kI64}, static_cast<double>(a))},
               {{"length", c.b.dims().Constant(1)}}),
        {});
    part = c.b.Op(
        "slice", {part, start},
        {{"dim", axis}, {"length", shape[a]}, {"step", steps.empty() ? int64_t{1} : steps[a]}});
  }
  c.b.Add(c.in(1), part);
  return true;
}

bool Cat(const Call& c) {
  const int64_t axis = c.axis(0, c.out());
  ValueId offset = c.b.Full({.dtype = DType::kI64}, 0);
  for (size_t i = 0; i < c.node.operands.size(); ++i) {
    const Dim length = c.shape(c.in(i))[static_cast<size_t>(axis)];
    if (c.b.Wants(c.in(i)))
      c.b.Add(c.in(i), c.b.Op("slice", {c.g(), offset}, {{"dim", axis}, {"length", length}}));
    if (i + 1 == c.node.operands.size()) break;
    const ValueId ones = c.b.Full({.dtype = DType::kI64, .shape = {length}}, 1);
    offset = c.b.Op("add", {offset, c.b.Op("sum", {ones})});
  }
  return true;
}

bool Choose(const Call& c) {
  for (size_t i = 1; i < c.node.operands.size(); ++i) {
    if (!c.b.Wants(c.in(i))) continue;
    const auto is = [&](double number) {
      return c.b.Op("eq", {c.in(0), c.b.Full({.dtype = c.dtype(c.in(0))}, number)});
    };
    const auto number = static_cast<double>(i - 1),
               cases = static_cast<double>(c.node.operands.size() - 1);
    const ValueId chosen = c.b.Op(
        "bitwise_or", {is(number), is(number - cases)});  // negative numbers count from the end
    c.b.Add(c.in(i), c.b.Op("where", {chosen, c.g(), c.b.Full({.dtype = c.dtype(c.in(i))}, 0)}));
  }
  return true;
}

// ---- Indices
// -------------------------------------------------------------------------------------------------

bool Gather(const Call& c) {
  c.b.Add(c.in(0), c.b.Op("scatter_add", {c.b.Full(c.b.TypeOf(c.in(0)), 0), c.in(1), c.g()},
                          {{"dim", c.axis(0, c.in(0))}}));
  return true;
}

// If several elements have one position, only the last affects the result.
bool IndexPut(const Call& c) {
  const std::vector<ValueId> index(c.node.operands.begin() + 2, c.node.operands.end());
  const auto put = [&](ValueId x, ValueId src, std::vector<ValueId> places, int64_t dim) {
    places.insert(places.begin(), {x, src});
    return c.b.Op("index_put", std::move(places), {{"dim", dim}});
  };
  const int64_t dim = c.axis(0, c.in(0));
  if (c.b.Wants(c.in(0)))
    c.b.Add(c.in(0), put(c.g(), c.b.Full(c.b.TypeOf(c.in(1)), 0), index, dim));
  if (!c.b.Wants(c.in(1))) return true;
  // By position, the number of the element of src that was put there last, from 1; 0: it is an
  // element of x. Then the gradient of each position is put at that number.
  const std::vector<Dim> x = c.shape(c.in(0)), shape = c.shape(index[0]);
  const std::span<const Dim> all(x), places = all.subspan(static_cast<size_t>(dim), index.size());
  const Dim count = Product(c.b.dims(), shape), extent = Product(c.b.dims(), places),
            one = c.b.dims().Constant(1);
  const ValueId start = c.b.Full({.dtype = DType::kI64}, 1);
  const ValueId order = c.b.Reshape(c.b.Op("arange", {start, start}, {{"length", count}}), shape);
  const ValueId which =
      put(c.b.Full({.dtype = DType::kI64, .shape = {places.begin(), places.end()}}, 0), order,
          index, 0);
  const auto rows = [&](Dim n) {
    std::vector<Dim> flat(x.begin(), x.begin() + dim);
    flat.push_back(n);
    flat.insert(flat.end(), x.begin() + dim + std::ssize(index), x.end());
    return flat;
  };
  const ValueId parts =
      put(c.b.Full({.dtype = c.dtype(c.in(1)), .shape = rows(c.b.dims().Add(count, one))}, 0),
          c.b.Reshape(c.g(), rows(extent)), {c.b.Reshape(which, {extent})}, dim);
  c.b.Add(c.in(1), c.b.Reshape(c.b.Op("slice", {parts, start}, {{"dim", dim}, {"length", count}}),
                               c.shape(c.in(1))));
  return true;
}

bool ScatterAdd(const Call& c) {
  c.b.Add(c.in(0), c.g());
  if (c.b.Wants(c.in(2)))
    c.b.Add(c.in(2), c.b.Op("gather", {c.g(), c.in(1)}, {{"dim", c.axis(0, c.in(0))}}));
  return true;
}

bool Embedding(const Call& c) {
  c.b.Add(c.in(0), c.b.Op("embedding_backward", {c.g(), c.in(1)}, {{"rows", c.shape(c.in(0))[0]}}));
  return true;
}

// Like the gradient of an embedding whose rows are the slices.
bool IndexSelect(const Call& c) {
  const auto axis = static_cast<size_t>(c.axis(0, c.in(0)));
  const size_t picks = c.shape(c.in(1)).size();
  const std::vector<Dim> x = c.shape(c.in(0));
  Ints front(c.shape(c.out()).size()), back(x.size());
  std::iota(front.begin(), front.end(), 0);
  std::rotate(front.begin(), front.begin() + static_cast<ptrdiff_t>(axis),
              front.begin() + static_cast<ptrdiff_t>(axis + picks));
  std::vector<Dim> rest = x, flat = c.shape(c.in(1));
  rest.erase(rest.begin() + static_cast<ptrdiff_t>(axis));
  flat.push_back(Product(c.b.dims(), rest));
  const ValueId rows = c.b.Reshape(c.b.Op("permute", {c.g()}, {{"dims", front}}), flat);
  const ValueId dx = c.b.Op("embedding_backward", {rows, c.in(1)}, {{"rows", x[axis]}});
  rest.insert(rest.begin(), x[axis]);
  // Moves the axis of the slices from the front to its place.
  for (size_t i = 0; i < back.size(); ++i)
    back[i] = static_cast<int64_t>(i < axis ? i + 1 : i == axis ? 0 : i);
  c.b.Add(c.in(0), c.b.Op("permute", {c.b.Reshape(dx, rest)}, {{"dims", back}}));
  return true;
}

// values of sort and topk, whose second results are their positions.
bool Places(const Call& c) {
  if (c.g() == kAbsent) return true;
  const size_t dim = c.attrs.size() == 3 ? 1 : 0;
  c.b.Add(c.in(0), c.b.Op("scatter_add", {c.b.Full(c.b.TypeOf(c.in(0)), 0), c.out(1), c.g()},
                          {{"dim", c.axis(dim, c.in(0))}}));
  return true;
}

// ---- Reductions
// -------------------------------------------------------------------------------------------------

// The shape of x with extents of 1 for reduced axes, and the extents of these axes.
std::pair<std::vector<Dim>, std::vector<Dim>> Reduced(const Call& c) {
  const Ints& dims = std::get<Ints>(c.attrs[0]);
  std::vector<Dim> shape = c.shape(c.in(0)), extents;
  for (size_t a = 0; a < shape.size(); ++a) {
    const auto named = [&](int64_t d) {
      return d == static_cast<int64_t>(a) ||
             d + static_cast<int64_t>(shape.size()) == static_cast<int64_t>(a);
    };
    if (!dims.empty() && std::ranges::none_of(dims, named)) continue;
    extents.push_back(shape[a]);
    shape[a] = c.b.dims().Constant(1);
  }
  return {shape, extents};
}

bool Sum(const Call& c) {
  c.b.Add(c.in(0), c.b.Expand(c.b.Reshape(c.g(), Reduced(c).first), c.shape(c.in(0))));
  return true;
}

// A narrow float may not represent the part of one of many elements, but it can represent the
// product of that part and the gradient.
bool Mean(const Call& c) {
  const auto [kept, extents] = Reduced(c);
  const DType dtype = c.dtype(c.in(0)), wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto cast = [&](ValueId v, DType from, DType to) {
    return from == to ? v : c.b.Op("cast", {v}, {{"dtype", to}});
  };
  const ValueId part = c.b.Op("reciprocal", {c.b.Count(extents, dtype)});
  const ValueId each =
      cast(c.b.Op("mul", {c.b.Reshape(cast(c.g(), dtype, wide), kept), part}), wide, dtype);
  c.b.Add(c.in(0), c.b.Expand(each, c.shape(c.in(0))));
  return true;
}

// Equal parts for all largest elements. A narrow float may not represent their number.
bool Extreme(const Call& c) {
  const std::vector<Dim> kept = Reduced(c).first;
  const DType dtype = c.dtype(c.in(0)), wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto cast = [&](ValueId v, DType to) { return c.b.Op("cast", {v}, {{"dtype", to}}); };
  const ValueId is = c.b.Op("eq", {c.in(0), c.b.Reshape(c.out(), kept)});
  const ValueId count = c.b.SumTo(cast(is, wide), {.dtype = wide, .shape = kept});
  const ValueId part = c.b.Op("div", {c.b.Reshape(cast(c.g(), wide), kept), count});
  c.b.Add(c.in(0), c.b.Op("mul", {cast(is, dtype), cast(part, dtype)}));
  return true;
}

// The product of the other elements, by formulas whose own gradients are correct, too. For an
// element that is not zero: the whole product divided by it. For a single zero: the product of the
// rest. For one of two zeros: that of the rest times the other zero. In f32 for narrow floats,
// which may not represent these products.
bool Prod(const Call& c) {
  const std::vector<Dim> kept = Reduced(c).first;
  const DType dtype = c.dtype(c.in(0)), wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto cast = [&](ValueId v, DType to) { return c.b.Op("cast", {v}, {{"dtype", to}}); };
  const auto constant = [&](double v) { return c.b.Full({.dtype = wide}, v); };
  const auto equal = [&](ValueId a, ValueId b) { return c.b.Op("eq", {a, b}); };
  const auto where = [&](ValueId a, ValueId b, ValueId d) { return c.b.Op("where", {a, b, d}); };
  const auto product = [&](ValueId v) {
    return c.b.Op("prod", {v}, {{"dims", std::get<Ints>(c.attrs[0])}, {"keepdim", true}});
  };
  const auto sum = [&](ValueId v) { return c.b.SumTo(v, {.dtype = wide, .shape = kept}); };
  const ValueId zero = constant(0), one = constant(1), x = cast(c.in(0), wide);
  const ValueId is_zero = equal(x, zero), others = where(is_zero, one, x), rest = product(others);
  const ValueId whole = dtype == wide ? c.b.Reshape(c.out(), kept) : product(x);
  const ValueId count = sum(cast(is_zero, wide));
  const ValueId other_zero = c.b.Op("sub", {sum(where(is_zero, x, zero)), x});
  const ValueId of_two = where(equal(count, constant(2)), c.b.Op("mul", {other_zero, rest}), zero);
  const ValueId of_zero = where(equal(count, one), rest, of_two);
  // Infinity together with zeros has the gradient 0, though the whole is NaN.
  const ValueId quotient = c.b.Op("div", {whole, others});
  const ValueId finite = where(equal(c.b.Op("sub", {x, x}), zero), quotient, zero);
  const ValueId of_other = where(equal(count, zero), quotient, finite);
  const ValueId each = where(is_zero, of_zero, of_other);
  c.b.Add(c.in(0), cast(c.b.Op("mul", {c.b.Reshape(cast(c.g(), wide), kept), each}), dtype));
  return true;
}

// Each element is in its own sum and all later ones, so the gradient sums from the end. Differences
// of sums from the begin would lose small values next to large ones.
bool CumulativeSum(const Call& c) {
  const int64_t axis = c.axis(0, c.in(0));
  const Dim extent = c.shape(c.out())[static_cast<size_t>(axis)];
  const TensorType number = {.dtype = DType::kI64};
  const ValueId count =
      c.b.dims().IsConstant(extent)
          ? c.b.Full(number, static_cast<double>(c.b.dims().ConstantValue(extent)))
          : c.b.Op("sum", {c.b.Full({.dtype = DType::kI64, .shape = {extent}}, 1)});
  const ValueId back = c.b.Full(number, -1),
                places =
                    c.b.Op("arange", {c.b.Op("add", {count, back}), back}, {{"length", extent}});
  const auto reversed = [&](ValueId v) {
    return c.b.Op("index_select", {v, places}, {{"dim", axis}});
  };
  c.b.Add(c.in(0), reversed(c.b.Op("cumsum", {reversed(c.g())}, {{"dim", axis}})));
  return true;
}

// ---- Matmuls
// -------------------------------------------------------------------------------------------------

bool Matmul(const Call& c) {
  const bool tx = std::get<bool>(c.attrs[0]), ty = std::get<bool>(c.attrs[1]);
  const ValueId x = c.in(0), y = c.in(1);
  const auto product = [&](ValueId a, ValueId b, bool ta, bool tb) {
    return c.b.Op("matmul", {a, b},
                  {{"transpose_x", ta}, {"transpose_y", tb}, {"precision", c.attrs[2]}});
  };
  if (c.b.Wants(x)) c.b.Add(x, tx ? product(y, c.g(), ty, true) : product(c.g(), y, false, !ty));
  if (c.b.Wants(y)) c.b.Add(y, ty ? product(c.g(), x, true, tx) : product(x, c.g(), !tx, false));
  return true;
}

// Gradients of activation(x weight^T + bias). Returns the gradient by x, even if it is not wanted.
ValueId LinearGradients(const Call& c, ValueId x, ValueId weight, ValueId bias,
                        const std::string& activation, const AttrValue& precision) {
  ValueId g = c.g();
  if (activation == "relu") {
    g = c.b.FromTerm("where(le(out, 0), 0, g)", {{"out", c.out()}, {"g", g}}, g);
  } else if (activation != "none") {
    const ValueId before = c.b.Op("linear", {x, weight, bias}, {{"precision", precision}});
    g = c.b.FromTerm(BodyGradients(activation)->front(),
                     {{"x", before}, {"out", c.out()}, {"g", g}}, g);
  }
  const std::vector<Dim> from = c.shape(x);
  const Dim rows = Product(c.b.dims(), std::span(from).first(from.size() - 1));
  const ValueId g2 = c.b.Reshape(g, {rows, c.shape(weight)[0]}),
                x2 = c.b.Reshape(x, {rows, from.back()});
  if (c.b.Wants(weight))
    c.b.Add(weight, c.b.Op("matmul", {g2, x2}, {{"transpose_x", true}, {"precision", precision}}));
  if (c.b.Wants(bias)) {
    Ints reduced(from.size() - 1);
    std::iota(reduced.begin(), reduced.end(), 0);
    c.b.Add(bias, reduced.empty()
                      ? g
                      : c.b.Op("sum", {g}, {{"dims", reduced}}));  // of g with its original shape,
                                                                   // so that both can be one kernel
  }
  return c.b.Reshape(c.b.Op("matmul", {g2, weight}, {{"precision", precision}}), from);
}

bool Linear(const Call& c) {
  c.b.Add(c.in(0), LinearGradients(c, c.in(0), c.in(1), c.in(2), std::get<std::string>(c.attrs[0]),
                                   c.attrs[1]));
  return true;
}

bool RmsNormLinear(const Call& c) {
  const ValueId n = c.b.Op("rms_norm", {c.in(0), c.in(1)}, {{"eps", c.attrs[0]}});
  const ValueId g =
      LinearGradients(c, n, c.in(2), c.in(3), std::get<std::string>(c.attrs[1]), c.attrs[2]);
  const auto d = c.b.Ops("rms_norm_backward", {g, c.in(0), c.in(1)}, 2, {{"eps", c.attrs[0]}});
  c.b.Add(c.in(0), d[0]);
  c.b.Add(c.in(1), d[1]);
  return true;
}

bool Convolution(const Call& c) {
  const auto d = c.b.Ops("convolution_backward", {c.g(), c.in(0), c.in(1)}, 2, c.node.attrs);
  c.b.Add(c.in(0), d[0]);
  c.b.Add(c.in(1), d[1]);
  if (!c.b.Wants(c.in(2))) return true;
  Ints reduced(static_cast<size_t>(c.b.TypeOf(c.out()).rank()) - 1, 0);
  std::iota(reduced.begin() + 1, reduced.end(), 2);
  c.b.Add(c.in(2), c.b.Op("sum", {c.g()}, {{"dims", reduced}}));
  return true;
}

// Only of the output: training does not use the gradient by the logsumexp.
bool Attention(const Call& c) {
  if (c.g(1) != kAbsent) return false;
  if (c.b.Wants(c.in(3))) return false;
  const auto d =
      c.b.Ops("scaled_dot_product_attention_backward",
              {c.g(), c.in(0), c.in(1), c.in(2), c.out(), c.out(1), c.in(3)}, 3, c.node.attrs);
  for (size_t i = 0; i < 3; ++i) c.b.Add(c.in(i), d[i]);
  return true;
}

bool Rotary(const Call& c) {
  std::vector<NamedAttr> attrs = c.node.attrs;
  std::erase_if(attrs, [](const NamedAttr& a) { return a.name == "inverse"; });
  attrs.push_back({"inverse", !std::get<bool>(c.attrs[4])});
  c.b.Add(c.in(0), c.b.Op("rotary_embedding", {c.g(), c.in(1)}, attrs));
  return true;
}

// ---- Norms and losses
// -------------------------------------------------------------------------------------------------

bool Softmax(const Call& c) {
  c.b.Add(c.in(0), c.b.Op(c.node.op + "_backward", {c.g(), c.out()}, c.node.attrs));
  return true;
}

// The op of the norm adds the other gradients of its operand, as for a residual stream.
bool LayerNorm(const Call& c) {
  const auto d =
      c.b.Ops("layer_norm_backward", {c.g(), c.in(0), c.in(1), c.b.Take(c.in(0))}, 3, c.node.attrs);
  for (size_t i = 0; i < 3; ++i) c.b.Add(c.in(i), d[i]);
  return true;
}

bool RmsNorm(const Call& c) {
  const auto d =
      c.b.Ops("rms_norm_backward", {c.g(), c.in(0), c.in(1), c.b.Take(c.in(0))}, 2, c.node.attrs);
  for (size_t i = 0; i < 2; ++i) c.b.Add(c.in(i), d[i]);
  return true;
}

// (norm of sum, sum) of x + residual.
bool AddNorm(const Call& c) {
  const bool layer = c.node.op == "add_layer_norm";
  if (c.g(0) != kAbsent) {
    const auto d = c.b.Ops(layer ? "layer_norm_backward" : "rms_norm_backward",
                           {c.g(0), c.out(1), c.in(2), c.g(1)}, layer ? 3 : 2, c.node.attrs);
    for (size_t i = 0; i < 2; ++i) c.b.Add(c.in(i), d[0]);
    c.b.Add(c.in(2), d[1]);
    if (layer) c.b.Add(c.in(3), d[2]);
  } else if (c.g(1) != kAbsent) {
    for (size_t i = 0; i < 2; ++i) c.b.Add(c.in(i), c.g(1));
  }
  return true;
}

bool CrossEntropy(const Call& c) {
  c.b.Add(c.in(0), c.b.Op("cross_entropy_backward", {c.g(), c.in(0), c.in(1)}, c.node.attrs));
  return true;
}

// Only of the loss.
bool CrossEntropyWithGradient(const Call& c) {
  if (c.g(1) != kAbsent) return false;
  c.b.Add(c.in(1), c.b.Op("cross_entropy_backward", {c.g(0), c.in(1), c.in(2)}, c.node.attrs));
  return true;
}

bool LinearCrossEntropy(const Call& c) {
  if (c.g(1) != kAbsent) return false;
  const auto d = c.b.Ops("linear_cross_entropy_backward",
                         {c.g(), c.in(0), c.in(1), c.in(2), c.out(1)}, 2, c.node.attrs);
  for (size_t i = 0; i < 2; ++i) c.b.Add(c.in(i), d[i]);
  return true;
}

// Drops the same elements.
bool Dropout(const Call& c) {
  if (c.b.Wants(c.in(1))) return false;
  c.b.Add(c.in(0), c.b.Op("dropout", {c.g(), c.in(1), c.in(2)}, c.node.attrs));
  return true;
}

const std::unordered_map<std::string_view, bool (*)(const Call&)>& RowTable() {
  static const auto* const table = new std::unordered_map<std::string_view, bool (*)(const Call&)>{
      {"cast", Cast},
      {"reshape", Reshape},
      {"recompute", Reshape},
      {"expand", Expand},
      {"permute", Permute},
      {"tile", Tile},
      {"slice", Slice},
      {"slice_update", SliceUpdate},
      {"cat", Cat},
      {"choose", Choose},
      {"gather", Gather},
      {"scatter_add", ScatterAdd},
      {"index_put", IndexPut},
      {"embedding", Embedding},
      {"index_select", IndexSelect},
      {"sort", Places},
      {"topk", Places},
      {"sum", Sum},
      {"mean", Mean},
      {"prod", Prod},
      {"amax", Extreme},
      {"amin", Extreme},
      {"cumsum", CumulativeSum},
      {"matmul", Matmul},
      {"linear", Linear},
      {"rms_norm_linear", RmsNormLinear},
      {"convolution", Convolution},
      {"scaled_dot_product_attention", Attention},
      {"rotary_embedding", Rotary},
      {"softmax", Softmax},
      {"log_softmax", Softmax},
      {"layer_norm", LayerNorm},
      {"rms_norm", RmsNorm},
      {"add_layer_norm", AddNorm},
      {"add_rms_norm", AddNorm},
      {"cross_entropy", CrossEntropy},
      {"cross_entropy_with_gradient", CrossEntropyWithGradient},
      {"linear_cross_entropy", LinearCrossEntropy},
      {"dropout", Dropout},
  };
  return *table;
}

}  // namespace

Dim Product(DimTable& dims, std::span<const Dim> shape) {
  Dim out = dims.Constant(1);
  for (Dim d : shape) out = dims.Mul(out, d);
  return out;
}

bool HasGradients(std::string_view op) {
  return BodyGradients(op).has_value() || RowTable().contains(op);
}

bool AddGradients(Backward& b, const Node& node, std::span<const ValueId> results,
                  const std::vector<AttrValue>& attrs) {
  if (const auto terms = BodyGradients(node.op)) {
    const OpDef& row = *b.rewriter().FindRow(node.op);
    NamedValues bindings = {{"out", results[0]}, {"g", b.GradientOf(results[0])}};
    for (size_t i = 0; i < node.operands.size(); ++i)
      bindings.push_back({row.operands[i].name, node.operands[i]});
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (b.Wants(node.operands[i]) && !(*terms)[i].empty())
        b.Add(node.operands[i], b.FromTerm((*terms)[i], bindings, b.GradientOf(results[0])));
    }
    return true;
  }
  const auto rule = RowTable().find(node.op);
  return rule != RowTable().end() && rule->second({b, node, results, attrs});
}

}  // namespace opwire
