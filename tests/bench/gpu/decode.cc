// Decoders of Llama's form that write one token after another: examples/05_chat/model.py with
// weights of one type, as one request that emits each token.
#include <fmt/format.h>

#include <utility>

#include "ir/program/builder.h"
#include "tests/bench/gpu/executors.h"

namespace opwire::bench {
namespace {

struct Decoder {
  std::string_view row;
  double target;  // of PyTorch
  int64_t layers, heads, kv_heads, head, width, inner, vocabulary;
  int64_t positions = 1024;          // of the caches
  int64_t past = 128, tokens = 256;  // of a round
  bool tied = false;                 // the logits' weight is the embedding's
};
constexpr DType kType = DType::kBF16;
constexpr double kEps = 1e-5, kTheta = 1e5;

struct Weight {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<Weight> WeightsOf(const Decoder& d) {
  std::vector<Weight> out = {{"embedding", {d.vocabulary, d.width}}, {"norm", {d.width}}};
  if (!d.tied) out.push_back({"head", {d.vocabulary, d.width}});
  for (int64_t i = 0; i < d.layers; ++i) {
    const auto add = [&](std::string_view name, std::vector<int64_t> shape) {
      out.push_back({fmt::format("layer{}.{}", i, name), std::move(shape)});
    };
    add("attn_norm", {d.width});
    add("q", {d.heads * d.head, d.width});
    add("k", {d.kv_heads * d.head, d.width});
    add("v", {d.kv_heads * d.head, d.width});
    add("o", {d.width, d.heads * d.head});
    add("ffn_norm", {d.width});
    add("gate", {d.inner, d.width});
    add("up", {d.inner, d.width});
    add("down", {d.width, d.inner});
  }
  return out;
}

// `write` draws the likeliest token, `tokens` times, behind `past` others.
StatusOr<Module> Writing(const Decoder& d) {
  const std::vector<Weight> weights = WeightsOf(d);
  ModuleBuilder m;
  FunctionBuilder write = m.Function("write"), step = m.Function("step");
  struct Values {
    Value token;
    std::vector<Value> caches, weights;
    Value past;
  };
  const auto declare = [&](FunctionBuilder& f) {
    Values v;
    v.token = f.Inout("token", DType::kI64, {1, 1});
    for (int64_t i = 0; i < 2 * d.layers; ++i)
      v.caches.push_back(
          f.Inout(fmt::format("cache{}", i), kType, {1, d.kv_heads, d.positions, d.head}));
    for (const Weight& w : weights)
      v.weights.push_back(f.In(w.name, kType, {w.shape.begin(), w.shape.end()}));
    v.past = f.In("past", DType::kI64, {});
    return v;
  };
  const Value iteration = step.In("iteration", DType::kI64, {});
  const Values in = declare(step);
  const auto weight = [&](const std::string& name) -> Value {
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i].name == name) return in.weights[i];
    }
    return {};
  };
  const auto dims = [&](std::initializer_list<int64_t> extents) {
    Dims out;
    for (const int64_t e : extents) out.push_back(step.dims().Constant(e));
    return AttrValue(std::move(out));
  };
  step.Emit("token", in.token);
  const Value at = step.Op("add", {in.past, iteration}),
              length = step.Op("add", {at, step.Scalar(DType::kI64, 1)});
  const Value positions = step.Op("reshape", {at}, {{"shape", dims({1})}});
  Value x = step.Op("embedding", {weight("embedding"), in.token});
  std::vector<Value> caches;
  for (int64_t i = 0; i < d.layers; ++i) {
    const auto of = [&](std::string_view name) {
      return weight(fmt::format("layer{}.{}", i, name));
    };
    const auto norm = [&](std::string_view name) {
      return step.Op("rms_norm", {x, of(name)}, {{"eps", kEps}});
    };
    const auto heads = [&](Value v, int64_t count) {
      return step.Op("permute", {step.Op("reshape", {v}, {{"shape", dims({1, 1, count, d.head})}})},
                     {{"dims", AttrValue(Ints{0, 2, 1, 3})}});
    };
    const auto turned = [&](Value v) {
      return step.Op("rotary_embedding", {v, positions}, {{"theta", kTheta}});
    };
    const Value h = norm("attn_norm");
    const Value q = turned(heads(step.Op("linear", {h, of("q")}), d.heads)),
                k = turned(heads(step.Op("linear", {h, of("k")}), d.kv_heads));
    const Value v = heads(step.Op("linear", {h, of("v")}), d.kv_heads);
    caches.push_back(step.Op("kv_append", {in.caches[static_cast<size_t>(2 * i)], k, at}));
    caches.push_back(step.Op("kv_append", {in.caches[static_cast<size_t>(2 * i + 1)], v, at}));
    const Value attended =
        step.Ops("kv_attention", {q, caches[caches.size() - 2], caches.back(), length},
                 {{"causal", true}})[0];
    const Value rows = step.Op(
        "reshape", {step.Op("permute", {attended}, {{"dims", AttrValue(Ints{0, 2, 1, 3})}})},
        {{"shape", dims({1, 1, d.heads * d.head})}});
    x = step.Op("add", {x, step.Op("linear", {rows, of("o")})});
    const Value g = norm("ffn_norm");
    const Value gated = step.Op("mul", {step.Op("silu", {step.Op("linear", {g, of("gate")})}),
                                        step.Op("linear", {g, of("up")})});
    x = step.Op("add", {x, step.Op("linear", {gated, of("down")})});
  }
  const Value logits = step.Op("linear", {step.Op("rms_norm", {x, weight("norm")}, {{"eps", kEps}}),
                                          weight(d.tied ? "embedding" : "head")});
  step.Return("token", step.Op("argmax", {logits}, {{"dim", -1}}));
  for (size_t i = 0; i < caches.size(); ++i) step.Return(fmt::format("cache{}", i), caches[i]);

  const Value tokens = write.In("tokens", DType::kI64, {});
  const Values whole = declare(write);
  std::vector<Value> carried = {whole.token}, inputs = whole.weights;
  carried.insert(carried.end(), whole.caches.begin(), whole.caches.end());
  inputs.push_back(whole.past);
  const std::vector<Value> made = write.Repeat(tokens, carried, inputs, step);
  write.Return("token", made[0]);
  for (size_t i = 1; i < made.size(); ++i) write.Return(fmt::format("cache{}", i - 1), made[i]);
  return m.Finish();
}

// Normal values of a shape, made on the device.
StatusOr<Tensor> Normal(Session& session, const std::vector<int64_t>& shape, double deviation,
                        uint64_t seed) {
  ModuleBuilder m;
  FunctionBuilder f = m.Function("normal");
  const Value key = f.In("key", DType::kU64, {2});
  Dims dims;
  for (const int64_t n : shape) dims.push_back(f.dims().Constant(n));
  f.Return("y", f.Op("normal", {key, f.Scalar(kType, 0), f.Scalar(kType, deviation)},
                     {{"shape", AttrValue(std::move(dims))}}));
  OPWIRE_ASSIGN_OR_RETURN(const Module module, m.Finish());
  OPWIRE_ASSIGN_OR_RETURN(const Program program, session.Load(module));
  Array of_key(DType::kU64, {2});
  of_key.values<uint64_t>()[0] = seed;
  OPWIRE_ASSIGN_OR_RETURN(RunResult made, program.Run({of_key}));
  return std::move(made.outputs.at(0).tensor);
}

struct Writer {
  static StatusOr<Writer> Open(const std::string& executor, const Decoder& d) {
    OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(executor));
    return On(std::move(session), d, true);
  }
  // `passes`: whether the passes change the program.
  static StatusOr<Writer> On(Session session, const Decoder& d, bool passes) {
    Writer w{.decoder = d, .session = std::move(session)};
    OPWIRE_ASSIGN_OR_RETURN(w.token, w.session.Put(Array(DType::kI64, {1, 1}).view()));
    const std::vector<int64_t> cache = {1, d.kv_heads, d.positions, d.head};
    uint64_t seed = 1;
    for (int64_t i = 0; i < 2 * d.layers; ++i) {
      OPWIRE_ASSIGN_OR_RETURN(w.caches.emplace_back(), Normal(w.session, cache, 1, seed++));
    }
    for (const Weight& weight : WeightsOf(d)) {
      OPWIRE_ASSIGN_OR_RETURN(w.weights.emplace_back(),
                              Normal(w.session, weight.shape, 0.02, seed++));
    }
    OPWIRE_ASSIGN_OR_RETURN(const Module module, Writing(d));
    LoadOptions options;
    if (!passes) options.passes = std::nullopt;
    OPWIRE_ASSIGN_OR_RETURN(w.program, w.session.Load(module, options));
    return w;
  }
  // Seconds a token.
  StatusOr<double> Tokens(int64_t count) {
    std::vector<Arg> args = {count, token};
    args.insert(args.end(), caches.begin(), caches.end());
    args.insert(args.end(), weights.begin(), weights.end());
    args.push_back(decoder.past);
    written.clear();
    const auto keep = [&](std::string_view, const Array& t) { written.push_back(t); };
    const double begun = Seconds();
    OPWIRE_RETURN_IF_ERROR(program.Run(args, {.on_emit = keep}).status());
    const double taken = Seconds() - begun;
    if (static_cast<int64_t>(written.size()) != count)
      return Internal("{} tokens were emitted, expected {}", written.size(), count);
    return taken / static_cast<double>(count);
  }

  const Decoder& decoder;
  Session session;
  Program program;
  Tensor token;
  std::vector<Tensor> caches, weights;
  std::vector<Array> written;  // by the last Tokens
};

// Compares the tokens that a fresh session writes with those of the reference kernels.
Status CheckTokens(const Setup& setup, const std::string& executor, const Decoder& d) {
  const auto tokens = [&](Session session, bool passes) -> StatusOr<std::vector<Array>> {
    OPWIRE_ASSIGN_OR_RETURN(Writer w, Writer::On(std::move(session), d, passes));
    OPWIRE_RETURN_IF_ERROR(w.Tokens(d.tokens).status());
    return w.written;
  };
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(executor));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<Array> got, tokens(std::move(session), true));
  return Attempt([&] {
    ReferenceExecutor reference(setup);
    MustAgree(got, Must(tokens(reference.Open(), false)), 0);
  });
}

Status Measure(Gpu& gpu, const Setup& setup, Baseline& baseline, const Decoder& d,
               std::vector<Row>& rows) {
  const std::string executor(d.row);
  Child child(ExecutorCommand(gpu, setup, executor, "off"));
  OPWIRE_ASSIGN_OR_RETURN(Writer w, Writer::Open(executor, d));
  OPWIRE_RETURN_IF_ERROR(w.Tokens(3).status());
  std::vector<Side> sides = {{"one request", [&] { return w.Tokens(d.tokens); },
                              [&] { return CheckTokens(setup, executor, d); }}};
  const bool compares = baseline.there() && !gpu.options().small;
  if (compares) {
    sides.push_back(baseline.For({.row = std::string(d.row),
                                  .op = "decode",
                                  .dtype = kType,
                                  .shape = {d.layers, d.heads, d.kv_heads, d.head, d.width, d.inner,
                                            d.vocabulary, d.positions, d.past, d.tokens, d.tied},
                                  .patience = 500}));
    (void)sides.back().measure();  // which compiles; what fails, fails again in its turn
  }
  std::vector<Series> series = TakeTurns(gpu, sides);
  if (compares) series.back().name = baseline.NameOf(std::string(d.row));
  rows.push_back(RateRow(std::string(d.row), "tokens/s", 1, series[0],
                         compares ? &series[1] : nullptr, compares ? d.target : 0));
  return absl::OkStatus();
}

}  // namespace

void DecodeRows(Gpu& gpu, const Setup& setup, Baseline& baseline, std::vector<Row>& rows) {
  const Decoder decoders[] = {
      {"smollm2_decode_gpu_call", 2.2, 30, 9, 3, 64, 576, 1536, 49152, 1024, 128, 256, true},
      {"llama8b_decode_gpu_call", 1.1, 32, 32, 8, 128, 4096, 14336, 128256, 1024, 128, 128, false},
  };
  Child registry({setup.build + "/bin/opwire-registry", "--log-level", "error"});
  for (Decoder d : decoders) {
    if (!gpu.Selected(d.row)) continue;
    if (gpu.options().small) d = {d.row, d.target, 2, 4, 2, 16, 64, 96, 128, 32, 4, 4, d.tied};
    gpu.Begin(d.row);
    if (const Status s = Measure(gpu, setup, baseline, d, rows); !s.ok())
      rows.push_back(FailedRow(std::string(d.row), s));
  }
}

}  // namespace opwire::bench
