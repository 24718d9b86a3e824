// The models, as text.
#include "tests/passes/torch/models.h"

#include <string_view>

namespace opwire {
namespace {

constexpr std::string_view kMlp = R"(
dim ?b in [1, 64]
program @mlp(%x: f64[?b, 12], %w1: f64[12, 16], %b1: f64[16], %w2: f64[16, 16], %b2: f64[16], %w3: f64[10, 16], %b3: f64[10], %targets: i64[?b]) -> (loss: f64[]) {
  %m1 = matmul(%x, %w1)
  %a1 = add(%m1, %b1)
  %h1 = relu(%a1)
  %m2 = matmul(%h1, %w2)
  %a2 = add(%m2, %b2)
  %h2 = tanh(%a2)
  %y = linear(%h2, %w3, %b3)
  %loss = cross_entropy(%y, %targets)
  return %loss
})";

constexpr std::string_view kCnn = R"(
program @cnn(%x: f64[2, 3, 9, 8], %w1: f64[6, 3, 3, 3], %b1: f64[6], %w2: f64[8, 3, 3, 2], %b2: f64[8], %w3: f64[8, 8, 1, 3], %w4: f64[5, 8], %b4: f64[5],
             %targets: i64[2]) -> (loss: f64[]) {
  %c1 = convolution(%x, %w1, %b1) {padding = [1]}
  %h1 = relu(%c1)
  %c2 = convolution(%h1, %w2, %b2) {stride = [2, 1], padding = [1, 0], groups = 2}
  %h2 = relu(%c2)
  %c3 = convolution(%h2, %w3) {padding = [0, 2], dilation = [1, 2]}
  %h3 = silu(%c3)
  %space = mean(%h3) {dims = [2, 3]}
  %y = linear(%space, %w4, %b4)
  %loss = cross_entropy(%y, %targets)
  return %loss
})";

// Four heads of query share two of key and value.
constexpr std::string_view kSplitHeads = R"(
  %q4 = reshape(%q) {shape = [2, ?s, 4, 4]}
  %k4 = reshape(%k) {shape = [2, ?s, 2, 4]}
  %v4 = reshape(%v) {shape = [2, ?s, 2, 4]}
  %qh = permute(%q4) {dims = [0, 2, 1, 3]}
  %kh = permute(%k4) {dims = [0, 2, 1, 3]}
  %vh = permute(%v4) {dims = [0, 2, 1, 3]})";
constexpr std::string_view kJoinHeads = R"(
  %back = permute(%heads) {dims = [0, 2, 1, 3]}
  %joined = reshape(%back) {shape = [2, ?s, 16]})";
constexpr std::string_view kSquaredError = R"(
  %error = sub(%y, %target)
  %square = mul(%error, %error)
  %loss = mean(%square)
  return %loss
})";

std::string TransformerBlock() {
  return R"(
dim ?s in [2, 6]
program @block(%x: f64[2, ?s, 16], %target: f64[2, ?s, 16], %n1: f64[16], %o1: f64[16], %wq: f64[16, 16], %wk: f64[8, 16], %wv: f64[8, 16], %bv: f64[8], %wo: f64[16, 16], %n2: f64[16],
               %o2: f64[16], %w1: f64[64, 16], %b1: f64[64], %w2: f64[16, 64], %b2: f64[16]) -> (loss: f64[]) {
  %normal = layer_norm(%x, %n1, %o1)
  %q = linear(%normal, %wq)
  %k = linear(%normal, %wk)
  %v = linear(%normal, %wv, %bv))" +
         std::string(kSplitHeads) + R"(
  %heads, %sums = scaled_dot_product_attention(%qh, %kh, %vh) {causal = true})" +
         std::string(kJoinHeads) + R"(
  %attended = linear(%joined, %wo)
  %middle = add(%x, %attended)
  %normal2 = layer_norm(%middle, %n2, %o2)
  %wide = linear(%normal2, %w1, %b1)
  %active = gelu(%wide)
  %narrow = linear(%active, %w2, %b2)
  %y = add(%middle, %narrow))" +
         std::string(kSquaredError);
}

std::string LlamaBlock() {
  return R"(
dim ?s in [2, 6]
program @llama(%x: f64[2, ?s, 16], %target: f64[2, ?s, 16], %n1: f64[16], %wq: f64[16, 16], %wk: f64[8, 16], %wv: f64[8, 16], %wo: f64[16, 16], %n2: f64[16], %gate: f64[40, 16],
               %up: f64[40, 16], %down: f64[16, 40], %n3: f64[16]) -> (loss: f64[]) {
  %normal = rms_norm(%x, %n1) {eps = 1e-06}
  %q = linear(%normal, %wq)
  %k = linear(%normal, %wk)
  %v = linear(%normal, %wv))" +
         std::string(kSplitHeads) + R"(
  %qr = rotary_embedding(%qh)
  %kr = rotary_embedding(%kh)
  %heads, %sums = scaled_dot_product_attention(%qr, %kr, %vh) {causal = true, window = 4})" +
         std::string(kJoinHeads) + R"(
  %attended = linear(%joined, %wo)
  %middle = add(%attended, %x)
  %normal2 = rms_norm(%middle, %n2) {eps = 1e-06}
  %gates = linear(%normal2, %gate)
  %open = silu(%gates)
  %ups = linear(%normal2, %up)
  %passed = mul(%open, %ups)
  %narrow = linear(%passed, %down)
  %residual = add(%narrow, %middle)
  %y = rms_norm(%residual, %n3) {eps = 1e-06})" +
         std::string(kSquaredError);
}

// A recurrent network by a loop, with one step per iteration.
constexpr std::string_view kRecurrent = R"(
program @recurrent(%xs: f64[6, 3, 4], %h: f64[3, 8], %w: f64[8, 4], %u: f64[8, 8], %b: f64[8], %head: f64[7, 8], %targets: i64[3]) -> (loss: f64[]) {
  %steps = full() {value = 6.0, dtype = i64}
  %end = repeat(%steps, [%h], [%xs, %w, %u, %b]) calls(@step)
  %loss, %sums = linear_cross_entropy(%end, %head, %targets)
  return %loss
}
function @step(%iteration: i64[], %h: f64[3, 8], %xs: f64[6, 3, 4], %w: f64[8, 4], %u: f64[8, 8], %b: f64[8]) -> (h: f64[3, 8]) {
  %slice = slice(%xs, %iteration) {length = 1}
  %x = reshape(%slice) {shape = [3, 4]}
  %a = linear(%x, %w, %b)
  %r = linear(%h, %u)
  %sum = add(%a, %r)
  %next = tanh(%sum)
  return %next
})";

// A recurrent network that reads some of its inputs and skips others: a branch in a loop, and one
// after it.
std::string Gated() {
  return R"(
program @gated(%xs: f64[6, 3, 4], %h: f64[3, 8], %w: f64[8, 4], %u: f64[8, 8], %b: f64[8], %v: f64[8, 8], %target: f64[3, 8]) -> (loss: f64[]) {
  %steps = full() {value = 6.0, dtype = i64}
  %end = repeat(%steps, [%h], [%xs, %w, %u, %b, %v]) calls(@step)
  %level = mean(%end)
  %zero = full() {value = 0.0, dtype = f64}
  %high = gt(%level, %zero)
  %y = if(%high, [%end, %v]) calls(@damp, @pass) -> (f64[3, 8]))" +
         std::string(kSquaredError) + R"(
function @step(%iteration: i64[], %h: f64[3, 8], %xs: f64[6, 3, 4], %w: f64[8, 4], %u: f64[8, 8], %b: f64[8], %v: f64[8, 8]) -> (h: f64[3, 8]) {
  %slice = slice(%xs, %iteration) {length = 1}
  %x = reshape(%slice) {shape = [3, 4]}
  %all = sum(%x)
  %zero = full() {value = 0.0, dtype = f64}
  %reads = gt(%all, %zero)
  %next = if(%reads, [%x, %h, %w, %u, %b, %v]) calls(@read, @rest) -> (f64[3, 8])
  return %next
}
function @read(%x: f64[3, 4], %h: f64[3, 8], %w: f64[8, 4], %u: f64[8, 8], %b: f64[8], %v: f64[8, 8]) -> (h: f64[3, 8]) {
  %a = linear(%x, %w, %b)
  %r = linear(%h, %u)
  %sum = add(%a, %r)
  %next = tanh(%sum)
  return %next
}
function @rest(%x: f64[3, 4], %h: f64[3, 8], %w: f64[8, 4], %u: f64[8, 8], %b: f64[8], %v: f64[8, 8]) -> (h: f64[3, 8]) {
  %r = linear(%h, %v)
  %s = sigmoid(%r)
  %next = mul(%s, %h)
  return %next
}
function @damp(%h: f64[3, 8], %v: f64[8, 8]) -> (h: f64[3, 8]) {
  %r = linear(%h, %v)
  %y = tanh(%r)
  return %y
}
function @pass(%h: f64[3, 8], %v: f64[8, 8]) -> (h: f64[3, 8]) {
  return %h
})";
}

// GPT-2 with a width of 32: # is the layer, @ the next one. Its output weights are the embedding's.
constexpr std::string_view kGpt2Params = R"(
  , %h#.ln1.w: f64[32], %h#.ln1.b: f64[32], %h#.attn.w: f64[96, 32], %h#.attn.b: f64[96], %h#.proj.w: f64[32, 32], %h#.proj.b: f64[32]
  , %h#.ln2.w: f64[32], %h#.ln2.b: f64[32], %h#.fc.w: f64[128, 32], %h#.fc.b: f64[128], %h#.out.w: f64[32, 128], %h#.out.b: f64[32])";

constexpr std::string_view kGpt2Layer = R"(
  %a#.normal = layer_norm(%x#, %h#.ln1.w, %h#.ln1.b)
  %a#.qkv = linear(%a#.normal, %h#.attn.w, %h#.attn.b)
  %a#.heads = reshape(%a#.qkv) {shape = [2, 16, 6, 16]}
  %a#.first = permute(%a#.heads) {dims = [0, 2, 1, 3]}
  %a#.q = slice(%a#.first, %query) {dim = 1, length = 2}
  %a#.k = slice(%a#.first, %key) {dim = 1, length = 2}
  %a#.v = slice(%a#.first, %value) {dim = 1, length = 2}
  %a#.seen, %a#.sums = scaled_dot_product_attention(%a#.q, %a#.k, %a#.v) {causal = true}
  %a#.back = permute(%a#.seen) {dims = [0, 2, 1, 3]}
  %a#.joined = reshape(%a#.back) {shape = [2, 16, 32]}
  %a#.y = linear(%a#.joined, %h#.proj.w, %h#.proj.b)
  %m#.x = add(%x#, %a#.y)
  %m#.normal = layer_norm(%m#.x, %h#.ln2.w, %h#.ln2.b)
  %m#.wide = linear(%m#.normal, %h#.fc.w, %h#.fc.b)
  %m#.active = gelu_tanh(%m#.wide)
  %m#.y = linear(%m#.active, %h#.out.w, %h#.out.b)
  %x@ = add(%m#.x, %m#.y))";

std::string OfLayer(std::string_view text, int layer) {
  std::string out;
  for (const char c : text)
    out += c == '#'   ? std::to_string(layer)
           : c == '@' ? std::to_string(layer + 1)
                      : std::string(1, c);
  return out;
}

std::string Gpt2() {
  return "program @gpt2(%tokens: i64[2, 16], %targets: i64[32], %wte: f64[97, 32], %wpe: f64[16, "
         "32], %ln.w: f64[32], %ln.b: f64[32]" +
         OfLayer(kGpt2Params, 0) + OfLayer(kGpt2Params, 1) + R"() -> (loss: f64[]) {
  %query = full() {value = 0.0, dtype = i64}
  %key = full() {value = 2.0, dtype = i64}
  %value = full() {value = 4.0, dtype = i64}
  %words = embedding(%wte, %tokens)
  %x0 = add(%words, %wpe))" +
         OfLayer(kGpt2Layer, 0) + OfLayer(kGpt2Layer, 1) + R"(
  %normal = layer_norm(%x2, %ln.w, %ln.b)
  %rows = reshape(%normal) {shape = [32, 32]}
  %logits = linear(%rows, %wte)
  %loss = cross_entropy(%logits, %targets)
  return %loss
})";
}

}  // namespace

std::vector<Model> Models() {
  return {{"mlp", std::string(kMlp), -1, 1, 10},
          {"cnn", std::string(kCnn), -1, 1, 5},
          {"transformer_block", TransformerBlock()},
          {"llama_block", LlamaBlock()},
          {"recurrent", std::string(kRecurrent), -1, 1, 7},
          {"gated", Gated()},
          {"gpt2", Gpt2(), -0.5, 0.5, 97}};
}

}  // namespace opwire
