// The programs' builder.
#include "examples/03_gpt2/model.h"

#include <fmt/format.h>

#include <cmath>

#include "ir/passes/gradient.h"
#include "ir/program/builder.h"

namespace opwire::examples {
namespace {

constexpr double kEps = 1e-5, kDecay = 0.1, kBeta1 = 0.9, kBeta2 = 0.95;

// The model's layers over a function that is being built.
class Model {
 public:
  Model(const Gpt2Config& config, FunctionBuilder& f, const std::vector<Value>& weights)
      : c_(config), f_(f), weights_(weights), names_(Gpt2Weights(config)) {}

  // [batch, positions, width]
  Value Layers(Value tokens) {
    Value x = f_.Op("add", {f_.Op("embedding", {W("wte"), tokens}), W("wpe")});
    for (int64_t i = 0; i < c_.layers; ++i) {
      layer_ = fmt::format("h{}.", i);
      x = f_.Op("add", {x, Linear(Attention(Norm(x, "ln_1")), "attn.proj")});
      x = f_.Op("add",
                {x, Linear(f_.Op("gelu_tanh", {Linear(Norm(x, "ln_2"), "mlp.fc")}), "mlp.proj")});
    }
    layer_.clear();
    return Norm(x, "ln_f");
  }
  Value W(std::string_view name) const {
    const std::string whole = layer_ + std::string(name);
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].name == whole) return weights_[i];
    }
    return {};
  }

 private:
  Value Norm(Value x, const std::string& name) {
    return f_.Op("layer_norm", {x, W(name + ".weight"), W(name + ".bias")}, {{"eps", kEps}});
  }
  Value Linear(Value x, const std::string& name) {
    return f_.Op("linear", {x, W(name + ".weight"), W(name + ".bias")});
  }
  Value Shaped(std::string_view op, Value x, std::string_view attr, AttrValue value) {
    return f_.Op(op, {x}, {{attr, std::move(value)}});
  }

  Value Attention(Value x) {
    const int64_t depth = c_.width / c_.heads;
    const Value qkv = Linear(x, "attn.qkv");
    std::vector<Value> heads;
    for (int64_t i = 0; i < 3; ++i) {
      const Value part =
          f_.Op("slice", {qkv, f_.Scalar(DType::kI64, static_cast<double>(i * c_.width))},
                {{"dim", 2}, {"length", Const(c_.width)}});
      heads.push_back(
          Shaped("permute",
                 Shaped("reshape", part, "shape",
                        Dims{Const(c_.batch), Const(c_.positions), Const(c_.heads), Const(depth)}),
                 "dims", Ints{0, 2, 1, 3}));
    }
    const Value y = f_.Ops("scaled_dot_product_attention", heads, {{"causal", true}})[0];
    return Shaped("reshape", Shaped("permute", y, "dims", Ints{0, 2, 1, 3}), "shape",
                  Dims{Const(c_.batch), Const(c_.positions), Const(c_.width)});
  }
  Dim Const(int64_t n) { return f_.dims().Constant(n); }

  const Gpt2Config& c_;
  FunctionBuilder& f_;
  const std::vector<Value>& weights_;
  const std::vector<Gpt2Weight> names_;
  std::string layer_;
};

}  // namespace

std::vector<Gpt2Weight> Gpt2Weights(const Gpt2Config& c) {
  const float deviation = 0.02f, residual = deviation / std::sqrt(2 * static_cast<float>(c.layers));
  std::vector<Gpt2Weight> out = {{"wte", {c.vocabulary, c.width}, 0, deviation, true},
                                 {"wpe", {c.positions, c.width}, 0, deviation, true}};
  const auto norm = [&](const std::string& name) {
    out.push_back({name + ".weight", {c.width}, 1, 0, false});
    out.push_back({name + ".bias", {c.width}, 0, 0, false});
  };
  const auto linear = [&](const std::string& name, int64_t to, int64_t from, float spread) {
    out.push_back({name + ".weight", {to, from}, 0, spread, true});
    out.push_back({name + ".bias", {to}, 0, 0, false});
  };
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string h = fmt::format("h{}.", i);
    norm(h + "ln_1");
    linear(h + "attn.qkv", 3 * c.width, c.width, deviation);
    linear(h + "attn.proj", c.width, c.width, residual);
    norm(h + "ln_2");
    linear(h + "mlp.fc", 4 * c.width, c.width, deviation);
    linear(h + "mlp.proj", c.width, 4 * c.width, residual);
  }
  norm("ln_f");
  return out;
}

StatusOr<Module> Gpt2Loss(const Gpt2Config& c) {
  ModuleBuilder m;
  FunctionBuilder f = m.Function("loss");
  const Value tokens = f.In("tokens", DType::kI32, {c.batch, c.positions}),
              targets = f.In("targets", DType::kI32, {c.batch * c.positions});
  std::vector<Value> weights;
  for (const Gpt2Weight& w : Gpt2Weights(c))
    weights.push_back(f.In(w.name, c.dtype, {w.shape.begin(), w.shape.end()}));
  Model model(c, f, weights);
  const Dim rows = f.dims().Constant(c.batch * c.positions), width = f.dims().Constant(c.width);
  const Value x =
      f.Op("reshape", {model.Layers(tokens)}, {{"shape", AttrValue(Dims{rows, width})}});
  const Value lost = f.Op("cross_entropy", {f.Op("linear", {x, model.W("wte")}), targets},
                          {{"reduction", "none"}});
  f.Return("loss", f.Op("mean", {f.Op("cast", {lost}, {{"dtype", AttrValue(DType::kF32)}})}));
  return m.Finish();
}

std::vector<Gpt2StateTensor> Gpt2State(const Gpt2Config& c) {
  const std::vector<Gpt2Weight> weights = Gpt2Weights(c);
  const DType kept = c.masters ? DType::kF32 : c.dtype;
  std::vector<Gpt2StateTensor> out;
  for (const std::string kind : {"w.", "master.", "mean.", "square."}) {
    if (kind == "master." && !c.masters) continue;
    for (size_t i = 0; i < weights.size(); ++i)
      out.push_back({kind + weights[i].name, i, kind == "w." ? c.dtype : kept,
                     kind == "w." || kind == "master."});
  }
  return out;
}

StatusOr<Module> Gpt2Training(const Gpt2Config& c) {
  OPWIRE_ASSIGN_OR_RETURN(const Module loss, Gpt2Loss(c));
  const std::vector<Gpt2Weight> weights = Gpt2Weights(c);
  const std::vector<Gpt2StateTensor> state = Gpt2State(c);
  std::vector<std::string> wrt;
  for (const Gpt2Weight& w : weights) wrt.push_back(w.name);
  OPWIRE_ASSIGN_OR_RETURN(const Module both, Gradient(loss, wrt));

  ModuleBuilder m;
  FunctionBuilder train = m.Function("train"), step = m.Function("step");
  struct Values {
    std::vector<Value> state;
    Value tokens, rates, first, windows;
  };
  const auto declare = [&](FunctionBuilder& f) {
    Values v;
    for (const Gpt2StateTensor& t : state)
      v.state.push_back(f.Inout(t.name, t.dtype,
                                {weights[t.weight].shape.begin(), weights[t.weight].shape.end()}));
    v.tokens = f.In("tokens", DType::kI32, {f.Symbol("n", c.batch * c.positions + 1)});
    v.rates = f.In("rates", DType::kF32, {f.Symbol("s", 1)});
    v.first = f.In("first", DType::kI64, {});
    v.windows = f.In("windows", DType::kI64, {});
    return v;
  };

  const Value iteration = step.In("iteration", DType::kI64, {});
  const Values in = declare(step);
  const int64_t window = c.batch * c.positions;
  const auto dims = [&](std::initializer_list<int64_t> extents) {
    Dims out;
    for (const int64_t e : extents) out.push_back(step.dims().Constant(e));
    return AttrValue(std::move(out));
  };
  const Value number = step.Op("add", {in.first, iteration});
  const Value begin = step.Op("mul", {step.Op("fmod", {number, in.windows}),
                                      step.Scalar(DType::kI64, static_cast<double>(window))});
  const Value x = step.Op("slice", {in.tokens, begin}, {{"length", window}});
  const Value y =
      step.Op("slice", {in.tokens, step.Op("add", {begin, step.Scalar(DType::kI64, 1)})},
              {{"length", window}});
  std::vector<Value> arguments = {
      step.Op("reshape", {x}, {{"shape", dims({c.batch, c.positions})}}), y};
  arguments.insert(arguments.end(), in.state.begin(),
                   in.state.begin() + static_cast<ptrdiff_t>(weights.size()));
  const std::vector<Value> lost = step.Inline(both, arguments);  // the loss, then the gradients
  step.Emit("loss", lost[0]);

  const Value rate = step.Op("reshape", {step.Op("slice", {in.rates, number}, {{"length", 1}})},
                             {{"shape", dims({})}});
  const Value next_number = step.Op("add", {number, step.Scalar(DType::kI64, 1)});
  std::vector<Value> next(state.size());
  const size_t kinds = state.size() / weights.size();
  for (const bool decays : {true, false}) {
    std::vector<size_t> chosen;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i].decays == decays) chosen.push_back(i);
    }
    // The list of a kind's tensors; with masters the copies that the model computes with come last.
    const auto of_kind = [&](size_t kind) {
      std::vector<Value> list;
      for (const size_t i : chosen) list.push_back(in.state[kind * weights.size() + i]);
      return list;
    };
    std::vector<Value> grads;
    for (const size_t i : chosen)
      grads.push_back(c.masters
                          ? step.Op("cast", {lost[1 + i]}, {{"dtype", AttrValue(DType::kF32)}})
                          : lost[1 + i]);
    const size_t first = c.masters ? 1 : 0;
    std::vector<AttrArg> attrs = {
        {"beta1", kBeta1}, {"beta2", kBeta2}, {"weight_decay", decays ? kDecay : 0.0}};
    if (c.masters) attrs.push_back({"dtype", AttrValue(c.dtype)});
    const std::vector<Value> stepped = step.OpsWithLists(
        c.masters ? "adamw_copy" : "adamw",
        {of_kind(first), grads, of_kind(first + 1), of_kind(first + 2), {rate}, {next_number}},
        attrs);
    for (size_t k = 0; k < kinds; ++k) {
      for (size_t i = 0; i < chosen.size(); ++i)
        next[((first + k) % kinds) * weights.size() + chosen[i]] = stepped[k * chosen.size() + i];
    }
  }
  for (size_t i = 0; i < state.size(); ++i) step.Return(state[i].name, next[i]);

  const Value steps = train.In("steps", DType::kI64, {});
  const Values whole = declare(train);
  const std::vector<Value> trained = train.Repeat(
      steps, whole.state, {whole.tokens, whole.rates, whole.first, whole.windows}, step);
  for (size_t i = 0; i < state.size(); ++i) train.Return(state[i].name, trained[i]);
  return m.Finish();
}

}  // namespace opwire::examples
