// Programs run by ATen with autograd on: the only file here that includes libtorch's headers.
#include "tests/passes/torch/autograd.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <unordered_map>

#include "tests/conformance/philox.h"

namespace opwire {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// A node with its operands.
struct Call {
  const OpDef& row;
  const std::vector<AttrValue>& attrs;
  const DimValues& dims;
  const Tensors& operands;

  const Tensor& operator[](size_t i) const {
    static const Tensor absent;
    return i < operands.size() ? operands[i] : absent;
  }
  // Returns the operands starting with the i-th one.
  Tensors From(size_t i) const {
    return Tensors(operands.begin() + static_cast<ptrdiff_t>(i), operands.end());
  }
  template <typename T>
  const T& Attr(std::string_view name) const {
    return std::get<T>(attrs.at(static_cast<size_t>(row.FindAttr(name))));
  }
  int64_t Int(std::string_view name) const { return Attr<int64_t>(name); }
  int64_t Extent(std::string_view name) const { return dims.Get(Attr<Dim>(name)).value(); }
  std::vector<int64_t> Shape() const {
    std::vector<int64_t> out;
    for (const Dim d : Attr<Dims>("shape")) out.push_back(dims.Get(d).value());
    return out;
  }
  // Returns a number for each of `axes` axes.
  std::vector<int64_t> Along(std::string_view name, size_t axes, int64_t none) const {
    const Ints& given = Attr<Ints>(name);
    return given.size() > 1 ? given : std::vector<int64_t>(axes, given.empty() ? none : given[0]);
  }
};

at::TensorOptions TypeOf(DType dtype) {
  return kFloats.Has(dtype) ? at::kDouble : dtype == DType::kBool ? at::kBool : at::kLong;
}

// ---- Elementwise: ops of these names

using Rule = Tensors (*)(const Call&);

#define ROW_1(name, expression)          \
  {                                      \
    name, [](const Call& c) -> Tensors { \
      const Tensor& x = c[0];            \
      return {expression};               \
    }                                    \
  }
#define ROW_2(name, expression)          \
  {                                      \
    name, [](const Call& c) -> Tensors { \
      const Tensor &x = c[0], &y = c[1]; \
      return {expression};               \
    }                                    \
  }

const std::unordered_map<std::string_view, Rule> kElementwise = {
    ROW_2("add", at::add(x, y)),
    ROW_2("sub", at::sub(x, y)),
    ROW_2("mul", at::mul(x, y)),
    ROW_2("div", at::div(x, y)),
    ROW_2("fmod", at::fmod(x, y)),
    ROW_2("pow", at::pow(x, y)),
    ROW_2("maximum", at::maximum(x, y)),
    ROW_2("minimum", at::minimum(x, y)),
    ROW_2("atan2", at::atan2(x, y)),
    ROW_2("hypot", at::hypot(x, y)),
    ROW_2("logaddexp", at::logaddexp(x, y)),
    ROW_2("eq", at::eq(x, y)),
    ROW_2("gt", at::gt(x, y)),
    ROW_1("neg", at::neg(x)),
    ROW_1("abs", at::abs(x)),
    ROW_1("sign", at::sign(x)),
    ROW_1("sqrt", at::sqrt(x)),
    ROW_1("rsqrt", at::rsqrt(x)),
    ROW_1("reciprocal", at::reciprocal(x)),
    ROW_1("exp", at::exp(x)),
    ROW_1("expm1", at::expm1(x)),
    ROW_1("log", at::log(x)),
    ROW_1("log1p", at::log1p(x)),
    ROW_1("log2", at::log2(x)),
    ROW_1("log10", at::log10(x)),
    ROW_1("sin", at::sin(x)),
    ROW_1("cos", at::cos(x)),
    ROW_1("tan", at::tan(x)),
    ROW_1("tanh", at::tanh(x)),
    ROW_1("erf", at::erf(x)),
    ROW_1("asin", at::asin(x)),
    ROW_1("acos", at::acos(x)),
    ROW_1("sinh", at::sinh(x)),
    ROW_1("cosh", at::cosh(x)),
    ROW_1("asinh", at::asinh(x)),
    ROW_1("acosh", at::acosh(x)),
    ROW_1("atanh", at::atanh(x)),
    ROW_1("floor", at::floor(x)),
    ROW_1("ceil", at::ceil(x)),
    ROW_1("round", at::round(x)),
    ROW_1("trunc", at::trunc(x)),
    ROW_1("sigmoid", at::sigmoid(x)),
    ROW_1("gelu", at::gelu(x)),
    ROW_1("gelu_tanh", at::gelu(x, "tanh")),
    ROW_1("silu", at::silu(x)),
    ROW_1("relu", at::relu(x)),
    ROW_1("copy", at::clone(x)),
    ROW_1("bitwise_not", at::bitwise_not(x)),
    {"where", [](const Call& c) -> Tensors { return {at::where(c[0], c[1], c[2])}; }},
    {"clamp", [](const Call& c) -> Tensors { return {at::clamp(c[0], c[1], c[2])}; }},
};

#undef ROW_1
#undef ROW_2

// ---- Making, moving and indexing

Tensors Full(const Call& c) {
  return {at::full(c.Shape(), c.Attr<double>("value"), TypeOf(c.Attr<DType>("dtype")))};
}
Tensors Zeros(const Call& c) { return {at::zeros(c.Shape(), TypeOf(c.Attr<DType>("dtype")))}; }
Tensors ValuesOf(const Call& c) {
  return {
      at::tensor(c.Attr<Doubles>("value"), at::kDouble).to(TypeOf(c.Attr<DType>("dtype")).dtype())};
}
Tensors Cast(const Call& c) { return {c[0].to(TypeOf(c.Attr<DType>("dtype")).dtype())}; }
Tensors Same(const Call& c) { return {c[0]}; }
Tensors Reshape(const Call& c) { return {at::reshape(c[0], c.Shape())}; }
Tensors Expand(const Call& c) { return {c[0].expand(c.Shape())}; }
Tensors Permute(const Call& c) { return {at::permute(c[0], c.Attr<Ints>("dims"))}; }
Tensors Tile(const Call& c) { return {at::tile(c[0], c.Attr<Ints>("repeats"))}; }
Tensors Cat(const Call& c) { return {at::cat(c.From(0), c.Int("dim"))}; }

// Indices below 0 count from the end.
Tensor FromBegin(const Tensor& index, int64_t extent) {
  return at::where(at::lt(index, 0), at::add(index, extent), index);
}

Tensors Slice(const Call& c) {
  const int64_t dim = c.Int("dim"), step = c.Int("step"),
                start = FromBegin(c[1], c[0].size(dim)).item<int64_t>(),
                last = start + (c.Extent("length") - 1) * step;
  return {at::slice(c[0], dim, start, last + 1, step)};
}
Tensors SliceUpdate(const Call& c) {
  const Tensor y = c[0].clone();
  Tensor part = y;
  const std::vector<int64_t> steps = c.Along("steps", static_cast<size_t>(c[0].dim()), 1);
  for (int64_t a = 0; a < c[0].dim(); ++a) {
    const int64_t start = c[2].select(0, a).item<int64_t>(), step = steps[static_cast<size_t>(a)],
                  first = start < 0 ? start + c[0].size(a) : start;
    part = at::slice(part, a, first, first + (c[1].size(a) - 1) * step + 1, step);
  }
  part.copy_(c[1]);
  return {y};
}
Tensors Choose(const Call& c) {
  const Tensor all = at::stack(at::broadcast_tensors(c.From(1)));
  return {at::gather(all, 0, FromBegin(c[0], all.size(0)).expand(all.sizes().slice(1)).unsqueeze(0))
              .squeeze(0)};
}
Tensors Gather(const Call& c) {
  const int64_t dim = c.Int("dim");
  return {at::gather(c[0], dim, FromBegin(c[1], c[0].size(dim)))};
}
Tensors ScatterAdd(const Call& c) {
  const int64_t dim = c.Int("dim");
  return {at::scatter_add(c[0], dim, FromBegin(c[1], c[0].size(dim)), c[2])};
}
// ATen's gradients count all of several values for one position, so it gets only the last one.
Tensors IndexPut(const Call& c) {
  const int64_t dim = c.Int("dim");
  const std::vector<Tensor> index = c.From(2);
  const auto axes = static_cast<int64_t>(index.size());
  Tensor places = at::zeros({}, at::kLong);
  for (int64_t a = 0; a < axes; ++a) {
    const int64_t n = c[0].size(dim + a);
    places = places * n + FromBegin(index[static_cast<size_t>(a)], n);
  }
  const Tensor flat = places.flatten();
  std::map<int64_t, int64_t> last;
  for (int64_t i = 0; i < flat.numel(); ++i) last[flat[i].item<int64_t>()] = i;
  std::vector<int64_t> to, from;
  for (const auto& [place, i] : last) to.push_back(place), from.push_back(i);
  const Tensor src =
      index[0].dim() == 0 ? c[1].unsqueeze(dim) : c[1].flatten(dim, dim + index[0].dim() - 1);
  return {at::index_copy(c[0].flatten(dim, dim + axes - 1), dim, at::tensor(to, at::kLong),
                         at::index_select(src, dim, at::tensor(from, at::kLong)))
              .view(c[0].sizes())};
}
Tensors Embedding(const Call& c) { return {at::embedding(c[0], FromBegin(c[1], c[0].size(0)))}; }
Tensors IndexSelect(const Call& c) {
  const int64_t dim = c.Int("dim");
  const Tensor picked = at::index_select(c[0], dim, FromBegin(c[1], c[0].size(dim)).flatten());
  return {picked.unflatten(dim, c[1].sizes())};
}
Tensors Sort(const Call& c) {
  const auto [values, indices] =
      at::sort(c[0], /*stable=*/true, c.Int("dim"), c.Attr<bool>("descending"));
  return {values, indices};
}
Tensors TopK(const Call& c) {
  const auto [values, indices] =
      at::topk(c[0], c.Extent("k"), c.Int("dim"), c.Attr<bool>("largest"), /*sorted=*/true);
  return {values, indices};
}

// ---- Reductions

Tensors Sum(const Call& c) {
  return {at::sum(c[0], c.Attr<Ints>("dims"), c.Attr<bool>("keepdim"))};
}
Tensors Mean(const Call& c) {
  return {at::mean(c[0], c.Attr<Ints>("dims"), c.Attr<bool>("keepdim"))};
}
Tensors Product(const Call& c) {  // ATen's prod has one axis
  const Ints dims = c.Attr<Ints>("dims");
  if (dims.empty()) return {at::prod(c[0])};
  return {at::prod(c[0], dims[0], c.Attr<bool>("keepdim"))};
}
Tensors Largest(const Call& c) {
  return {at::amax(c[0], c.Attr<Ints>("dims"), c.Attr<bool>("keepdim"))};
}
Tensors Least(const Call& c) {
  return {at::amin(c[0], c.Attr<Ints>("dims"), c.Attr<bool>("keepdim"))};
}
Tensors CumulativeSum(const Call& c) { return {at::cumsum(c[0], c.Int("dim"))}; }

// ---- Products

Tensor Activated(const std::string& name, const Tensor& x) {
  return name == "relu"        ? at::relu(x)
         : name == "gelu"      ? at::gelu(x)
         : name == "gelu_tanh" ? at::gelu(x, "tanh")
         : name == "silu"      ? at::silu(x)
                               : x;
}
// Normalises over the trailing axes.
Tensor RmsNormed(const Tensor& x, int64_t axes, const Tensor& weight, double eps) {
  return at::rms_norm(x, x.sizes().slice(static_cast<size_t>(x.dim() - axes)),
                      weight.defined() ? std::optional(weight) : std::nullopt, eps);
}
Tensor LayerNormed(const Tensor& x, int64_t axes, const Tensor& weight, const Tensor& bias,
                   double eps) {
  return at::layer_norm(x, x.sizes().slice(static_cast<size_t>(x.dim() - axes)), weight, bias, eps);
}

Tensors MatMul(const Call& c) {
  return {at::matmul(c.Attr<bool>("transpose_x") ? c[0].mT() : c[0],
                     c.Attr<bool>("transpose_y") ? c[1].mT() : c[1])};
}
Tensors Linear(const Call& c) {
  return {Activated(c.Attr<std::string>("activation"), at::linear(c[0], c[1], c[2]))};
}
Tensors RmsNormLinear(const Call& c) {
  return {Activated(c.Attr<std::string>("activation"),
                    at::linear(RmsNormed(c[0], 1, c[1], c.Attr<double>("eps")), c[2], c[3]))};
}
Tensors Convolution(const Call& c) {
  const auto axes = static_cast<size_t>(c[0].dim() - 2);
  return {at::convolution(c[0], c[1], c[2], c.Along("stride", axes, 1), c.Along("padding", axes, 0),
                          c.Along("dilation", axes, 1), c.Attr<bool>("transposed"),
                          c.Along("output_padding", axes, 0), c.Int("groups"))};
}

// Returns whether query i sees key j, both aligned to the lower right; undefined: all see all.
Tensor Seen(const Call& c) {
  const int64_t queries = c[0].size(-2), keys = c[1].size(-2), window = c.Int("window");
  const Tensor distance = at::sub(at::arange(keys - queries, keys, at::kLong).unsqueeze(1),
                                  at::arange(keys, at::kLong));
  Tensor seen;
  if (c.Attr<bool>("causal")) seen = at::ge(distance, 0);
  if (window > 0)
    seen =
        seen.defined() ? at::logical_and(seen, at::lt(distance, window)) : at::lt(distance, window);
  return seen;
}
Tensors Attention(const Call& c) {
  Tensor mask = c[3];
  if (const Tensor seen = Seen(c); seen.defined()) {
    mask = !mask.defined() ? seen
           : mask.scalar_type() == at::kBool
               ? at::logical_and(mask, seen)
               : at::where(seen, mask, -std::numeric_limits<double>::infinity());
  }
  const double scale = c.Attr<double>("scale");
  const Tensor out = at::scaled_dot_product_attention(
      c[0], c[1], c[2], mask.defined() ? std::optional(mask) : std::nullopt, /*dropout_p=*/0,
      /*is_causal=*/false, scale != 0 ? std::optional(scale) : std::nullopt, /*enable_gqa=*/true);
  return {out, Tensor()};
}

// Rotates the pairs as complex numbers by their angles.
Tensors Rotary(const Call& c) {
  const Tensor& x = c[0];
  const int64_t length = x.size(-1), dim = c.Int("dim") == 0 ? length : c.Int("dim");
  const bool neighbours = c.Attr<bool>("interleaved");
  const Tensor positions =
      c[1].defined() ? c[1].to(at::kDouble) : at::arange(x.size(-2), at::kDouble);
  const Tensor frequencies =
      at::pow(c.Attr<double>("theta"),
              at::mul(at::arange(0, dim, 2, at::kDouble), -1.0 / static_cast<double>(dim)));
  Tensor angles = at::mul(at::mul(positions, c.Attr<double>("scale")).unsqueeze(-1), frequencies);
  if (c.Attr<bool>("inverse")) angles = at::neg(angles);
  const Tensor turned = at::slice(x, -1, 0, dim),
               pairs = neighbours ? turned.unflatten(-1, {dim / 2, 2})
                                  : turned.unflatten(-1, {2, dim / 2}).mT();
  const Tensor rotated = at::view_as_real(
      at::mul(at::view_as_complex(pairs.contiguous()), at::polar(at::ones_like(angles), angles)));
  return {at::cat(
      {(neighbours ? rotated : rotated.mT()).flatten(-2), at::slice(x, -1, dim, length)}, -1)};
}

// ---- Norms and losses

Tensors Softmax(const Call& c) { return {at::softmax(c[0], c.Int("dim"))}; }
Tensors LogSoftmax(const Call& c) { return {at::log_softmax(c[0], c.Int("dim"))}; }
Tensors LayerNorm(const Call& c) {
  return {LayerNormed(c[0], c.Int("dims"), c[1], c[2], c.Attr<double>("eps"))};
}
Tensors RmsNorm(const Call& c) {
  return {RmsNormed(c[0], c.Int("dims"), c[1], c.Attr<double>("eps"))};
}
Tensors AddLayerNorm(const Call& c) {
  const Tensor sum = at::add(c[0], c[1]);
  return {LayerNormed(sum, c.Int("dims"), c[2], c[3], c.Attr<double>("eps")), sum};
}
Tensors AddRmsNorm(const Call& c) {
  const Tensor sum = at::add(c[0], c[1]);
  return {RmsNormed(sum, c.Int("dims"), c[2], c.Attr<double>("eps")), sum};
}

Tensor CrossEntropyOf(const Call& c, const Tensor& logits, const Tensor& target) {
  const std::string& reduction = c.Attr<std::string>("reduction");
  return at::cross_entropy_loss(logits, target, {},
                                reduction == "none"  ? at::Reduction::None
                                : reduction == "sum" ? at::Reduction::Sum
                                                     : at::Reduction::Mean,
                                c.Int("ignore_index"));
}
Tensors CrossEntropy(const Call& c) { return {CrossEntropyOf(c, c[0], c[1])}; }
Tensors CrossEntropyWithGradient(const Call& c) {
  return {CrossEntropyOf(c, c[1], c[2]), Tensor()};
}
Tensors LinearCrossEntropy(const Call& c) {
  const Tensor logits = at::linear(c[0], c[1]);
  return {CrossEntropyOf(c, logits, c[2]), at::logsumexp(logits, {1})};
}

// Uses the mask that the op's documentation describes, of elements of f64.
Tensors Dropout(const Call& c) {
  const double p = c[1].item<double>();
  const auto word = [&](int64_t i) { return static_cast<uint64_t>(c[2][i].item<int64_t>()); };
  const Tensor kept = at::empty_like(c[0].detach());
  for (int64_t i = 0; i < kept.numel(); ++i) {
    const auto lanes = conformance::Philox(word(0), static_cast<uint64_t>(i) / 2,
                                           word(1) + static_cast<uint64_t>(c.Int("site")));
    const uint64_t bits = static_cast<uint64_t>(lanes[static_cast<size_t>(i % 2 * 2)]) << 32 |
                          lanes[static_cast<size_t>(i % 2 * 2 + 1)];
    kept.data_ptr<double>()[i] = static_cast<double>(bits >> 11) * 0x1p-53 >= p;
  }
  return {at::div(at::mul(c[0], kept), 1 - p)};
}

const std::unordered_map<std::string_view, Rule> kOthers = {
    {"full", Full},
    {"zeros", Zeros},
    {"values", ValuesOf},
    {"cast", Cast},
    {"reshape", Reshape},
    {"recompute", Same},
    {"expand", Expand},
    {"permute", Permute},
    {"tile", Tile},
    {"cat", Cat},
    {"slice", Slice},
    {"slice_update", SliceUpdate},
    {"choose", Choose},
    {"gather", Gather},
    {"scatter_add", ScatterAdd},
    {"index_put", IndexPut},
    {"embedding", Embedding},
    {"index_select", IndexSelect},
    {"sort", Sort},
    {"topk", TopK},
    {"sum", Sum},
    {"mean", Mean},
    {"prod", Product},
    {"amax", Largest},
    {"amin", Least},
    {"cumsum", CumulativeSum},
    {"matmul", MatMul},
    {"linear", Linear},
    {"rms_norm_linear", RmsNormLinear},
    {"convolution", Convolution},
    {"scaled_dot_product_attention", Attention},
    {"rotary_embedding", Rotary},
    {"softmax", Softmax},
    {"log_softmax", LogSoftmax},
    {"layer_norm", LayerNorm},
    {"rms_norm", RmsNorm},
    {"add_layer_norm", AddLayerNorm},
    {"add_rms_norm", AddRmsNorm},
    {"cross_entropy", CrossEntropy},
    {"cross_entropy_with_gradient", CrossEntropyWithGradient},
    {"linear_cross_entropy", LinearCrossEntropy},
    {"dropout", Dropout},
};

// ---- Functions

class Interpreter {
 public:
  Interpreter(const Module& m, std::span<const int64_t> symbols)
      : m_(m), symbols_(symbols), table_(m.dims) {}

  std::vector<int64_t> Shape(const TensorType& type) const {
    const DimValues dims(table_, symbols_);
    std::vector<int64_t> out;
    for (const Dim d : type.shape) out.push_back(dims.Get(d).value());
    return out;
  }

  StatusOr<Tensors> Run(const Function& f, Tensors values) {
    for (const Node& node : f.nodes) {
      Tensors operands;
      for (const ValueId v : node.operands)
        operands.push_back(v == kAbsent ? Tensor() : values[static_cast<size_t>(v)]);
      OPWIRE_ASSIGN_OR_RETURN(const Tensors results, RunNode(node, operands));
      values.insert(values.end(), results.begin(), results.end());
    }
    Tensors out;
    for (const Result& r : f.results) out.push_back(values[static_cast<size_t>(r.value)]);
    return out;
  }

 private:
  StatusOr<Tensors> RunNode(const Node& node, const Tensors& operands) {
    const OpDef& row = *Catalogue().Find(node.op);
    if (row.control == Control::kRepeat) return Repeat(node, operands);
    if (row.control == Control::kIf)
      return Run(m_.functions[node.calls[operands[0].item<bool>() ? 0 : 1]],
                 Tensors(operands.begin() + 1, operands.end()));
    const auto elementwise = kElementwise.find(node.op), other = kOthers.find(node.op);
    if (elementwise == kElementwise.end() && other == kOthers.end())
      return Unimplemented("libtorch: nothing is known of {}", node.op);
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<AttrValue> attrs,
                            ResolveAttrs(row, node.attrs, table_));
    const DimValues dims(table_, symbols_);
    return (elementwise != kElementwise.end() ? elementwise->second
                                              : other->second)(Call{row, attrs, dims, operands});
  }

  StatusOr<Tensors> Repeat(const Node& node, const Tensors& operands) {
    const auto inputs = operands.begin() + 1 + node.segments[1];
    Tensors carried(operands.begin() + 1, inputs);
    const int64_t iterations = operands[0].item<int64_t>();
    for (int64_t t = 0; t < iterations; ++t) {
      Tensors given = {at::full({}, t, at::kLong)};
      given.insert(given.end(), carried.begin(), carried.end());
      given.insert(given.end(), inputs, operands.end());
      OPWIRE_ASSIGN_OR_RETURN(carried, Run(m_.functions[node.calls[0]], std::move(given)));
    }
    return carried;
  }

  const Module& m_;
  const std::span<const int64_t> symbols_;
  DimTable table_;  // attributes may add to it
};

std::vector<double> Elements(const Tensor& t) {
  const Tensor flat = t.detach().to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

}  // namespace

StatusOr<std::map<std::string, std::vector<double>>> TorchGradients(
    const Module& m, std::span<const int64_t> symbols,
    const std::map<std::string, std::vector<double>>& inputs, std::span<const std::string> wrt) {
  try {
    at::set_num_threads(1);  // threads help small tensors little, and disturb other processes
    const Function& f = m.functions[0];
    Interpreter interpreter(m, symbols);
    Tensors params;
    for (const Param& p : f.params) {
      Tensor whole = at::empty(interpreter.Shape(p.type), at::kDouble);
      const std::vector<double>& values = inputs.at(p.name);
      if (!values.empty())
        std::memcpy(whole.data_ptr<double>(), values.data(), values.size() * sizeof(double));
      params.push_back(whole.to(TypeOf(p.type.dtype).dtype()));
      if (std::find(wrt.begin(), wrt.end(), p.name) != wrt.end()) params.back().requires_grad_();
    }
    OPWIRE_ASSIGN_OR_RETURN(const Tensors results, interpreter.Run(f, params));
    std::map<std::string, std::vector<double>> out;
    for (size_t i = 0; i < results.size(); ++i) {
      out[f.results[i].name] = Elements(results[i]);
      if (f.results[i].name == "loss" && results[i].requires_grad()) results[i].backward();
    }
    for (size_t i = 0; i < params.size(); ++i) {
      if (params[i].requires_grad())
        out["grad." + f.params[i].name] =
            Elements(params[i].grad().defined() ? params[i].grad() : at::zeros_like(params[i]));
    }
    return out;
  } catch (const std::exception& e) {
    return Internal("libtorch: {}", e.what());
  }
}

}  // namespace opwire
