// Shape and type rules of the ops. Each is tested by nodes that it accepts and nodes that it
// refuses, with the errors.
#include <gtest/gtest.h>

#include <limits>

#include "ir/ops/catalogue.h"
#include "ir/text/text.h"
#include "ir/verify/verify.h"

namespace opwire {
namespace {

constexpr std::string_view kParams =
    "%x: f32[4, 8], %y: f32[8, 3], %s: f32[], %v: f32[8], %z: f32[0, 8], %a: f32[?a, 8], %b: "
    "f32[?b, 8], %bc: f32[?b, ?c], "
    "%i: i64[3], %j: i32[4, 2], %n: i64[], %t: bool[4, 8], %k: u64[2], %k3: u64[3], %h: f16[4, 8], "
    "%e: f8e4m3[4], %r4: f32[2, 1, "
    "4, 8], "
    "%q: i8:q8_0[4, 32], %q4: f32[2, 6, 5, 8], %k4: f32[2, 3, 7, 8], %v4: f32[2, 3, 7, 4], %q0: "
    "f32[2, 0, 5, 8], %k0: f32[2, 0, 7, 8], %v0: f32[2, 0, 7, 4], "
    "%qs: f32[?b, ?c, 5, 8], %ks: f32[?b, ?a, ?k, 8], %m: bool[6, 5, 7], %ms: bool[?a, 1, 5, 7], "
    "%r5: f32[2, 2, 6, 5, 7], %d4: f64[2, 3, 7, 8], %d2: f64[4, 8], %nb: bool[], "
    "%o4: f32[2, 6, 5, 4], %l4: f32[2, 6, 5], %l8: f64[2, 6, 5], "
    "%ci: f32[2, 4, 7, 9], %cw: f32[6, 4, 3, 3], %cb: f32[6], %cg: f32[6, 2, 3, 3], %ct: f32[4, 6, "
    "3, 3], %c0: f32[6, 4, 0, 3], %cs: f32[?b, 4, ?a, 7], %cz: f32[0, 4, 7, 9], "
    "%cd: f32[?a, ?c, ?b, 3], %co: f32[2, 6, 5, 7], %c6: f32[1, 1, 1, 1, 1, 1], %o3: f32[2, 3, "
    "12], %k8: f32[3, 3, 8], "
    "%i8: i8[4, 8], %u8: u8[4, 8], %p1: f32[4, 2, 1], %p2: f32[4, 2, 2], %p3: f32[4, 3, 1], %p5: "
    "f32[5, 2, 1], %k1: f32[2, 3, 1, 8], %p: i32[2], %f4: f32[4], %g4: f64[4], %i4: i64[4], %w0: "
    "f32[4, 0], %kp: f32[9, 3, 4, 8], %bt: i32[2, 5], %e8: f8e4m3[4, 8], %e5: f8e5m2[5, 8], %f5: "
    "f32[5], %qw: i8:q4_1[5, 64], %q6: i8:q6_k[2, 3, 256], %qf: f32:q8_0[5, 64], %qi: i8:i4[5, "
    "64], %x64: bf16[2, 3, 64], %b5: bf16[5], %qs2: i8:q8_0[?b, ?c]";

// Returns the type of %0, or the error without its position.
std::string Infer(std::string_view node) {
  const auto m = Parse("program @f(" + std::string(kParams) +
                           ") -> (out) {\n%0 = " + std::string(node) + "\nreturn %0\n}",
                       "t");
  if (m.ok()) return ToString(m->functions[0].nodes[0].results[0], m->dims);
  const std::string message = MessageOf(m.status());
  return message.substr(message.find(": ") + 2);
}

// Returns the types of a node's several results, or the error without its position.
std::string InferAll(std::string_view node, int results) {
  std::string names, values;
  for (int i = 0; i < results; ++i) {
    names += (i ? ", r" : "r") + std::to_string(i);
    values += (i ? ", %" : "%") + std::to_string(i);
  }
  const auto m = Parse("program @f(" + std::string(kParams) + ") -> (" + names + ") {\n" + values +
                           " = " + std::string(node) + "\nreturn " + values + "\n}",
                       "t");
  if (!m.ok()) return MessageOf(m.status()).substr(MessageOf(m.status()).find(": ") + 2);
  std::string types;
  for (const TensorType& t : m->functions[0].nodes[0].results)
    types += (types.empty() ? "" : " ") + ToString(t, m->dims);
  return types;
}
std::string InferTwo(std::string_view node) { return InferAll(node, 2); }

// Returns the constraints of the node, "?a == ?b: broadcast shapes".
std::string Constraints(std::string_view node, std::string_view results = "%0") {
  auto m = Parse("program @f(" + std::string(kParams) + ") -> (out) {\n" + std::string(results) +
                     " = " + std::string(node) + "\nreturn %0\n}",
                 "t");
  if (!m.ok()) return MessageOf(m.status());
  const auto typing = VerifyModule(*m);
  if (!typing.ok()) return MessageOf(typing.status());
  std::string out;
  for (const DimConstraint& c : typing->functions[0].constraints) {
    EXPECT_EQ(c.node, 0u);
    out += (out.empty() ? "" : "; ") + m->dims.ToString(c.a) + " == " + m->dims.ToString(c.b) +
           ": " + c.what;
  }
  return out;
}

struct Case {
  std::string_view node, want;
};

void Check(std::initializer_list<Case> cases) {
  for (const Case& c : cases) EXPECT_EQ(Infer(c.node), c.want) << c.node;
}

TEST(Infer, Elementwise) {
  Check({{"add(%x, %x)", "f32[4, 8]"},
         {"add(%x, %s)", "f32[4, 8]"},
         {"add(%v, %x)", "f32[4, 8]"},
         {"add(%r4, %x)", "f32[2, 1, 4, 8]"},
         {"add(%z, %z)", "f32[0, 8]"},
         {"add(%a, %v)", "f32[?a, 8]"},
         {"add(%a, %b)", "f32[?a, 8]"},
         {"add(%x, %a)", "f32[4, 8]"},
         {"add(%a, %x)", "f32[4, 8]"},
         {"add(%x, %z)", "add: broadcast shapes differ: [4, 8] x [0, 8] (4 and 0)"},
         {"add(%x, %y)", "add: broadcast shapes differ: [4, 8] x [8, 3] (4 and 8)"},
         {"add(%x, %h)", "add: operand y: expected f32 as in x, got f16[4, 8]"},
         {"add(%t, %t)",
          "add: operand x: expected f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, got "
          "bool[4, 8]"},
         {"add(%q, %q)", "add: operand x: expected a dense tensor, got i8:q8_0[4, 32]"},
         {"add(%x, _)", "add: operand y is absent; it is add(x: A, y: A) -> z: A"},
         {"lt(%x, %s)", "bool[4, 8]"},
         {"eq(%t, %t)", "bool[4, 8]"},
         {"where(%t, %h, %h)", "f16[4, 8]"},
         {"where(%x, %x, %x)", "where: operand condition: expected bool, got f32[4, 8]"},
         {"clamp(%x, %s, %v)", "f32[4, 8]"},
         {"isnan(%h)", "bool[4, 8]"},
         {"copy(%e)", "f8e4m3[4]"},
         {"cast(%t) {dtype = f8e5m2}", "f8e5m2[4, 8]"},
         {"neg(%k)", "neg: operand x: expected f64, f32, f16, bf16, i64, i32, i16, i8, got u64[2]"},
         {"bitwise_not(%t)", "bool[4, 8]"}});
  EXPECT_EQ(Constraints("add(%a, %b)"), "?a == ?b: broadcast shapes");
  EXPECT_EQ(Constraints("add(%x, %a)"), "4 == ?a: broadcast shapes");
  EXPECT_EQ(Constraints("add(%a, %v)"), "");
}

TEST(Infer, Shapes) {
  Check(
      {{"reshape(%x) {shape = [32]}", "f32[32]"},
       // clang-format off
         {"reshape(%x) {shape = []}", "reshape: element counts differ: f32[4, 8] has 32, f32[] has 1"},
         {"reshape(%s) {shape = [1, 1]}", "f32[1, 1]"},
         {"reshape(%a) {shape = [4, 2*?a]}", "f32[4, 2*?a]"},
         {"reshape(%bc) {shape = [?c, ?b]}", "f32[?c, ?b]"},
         {"reshape(%bc) {shape = [?c*?b]}", "f32[?b*?c]"},
         {"permute(%r4) {dims = [3, 0, -2, 1]}", "f32[8, 2, 4, 1]"},
         {"permute(%x) {dims = [0]}", "permute: dims: expected 2 axes for f32[4, 8], got 1"},
         {"permute(%x) {dims = [0, 0]}", "permute: dims: axis 0 is named twice"},
         {"permute(%x) {dims = [0, 2]}", "permute: dims: expected -2 to 1, got 2 for [4, 8]"},
         {"permute(%x) {dims = [1, -9223372036854775808]}", "permute: dims: expected -2 to 1, got -9223372036854775808 for [4, 8]"},
         {"expand(%r4) {shape = [2, 5, 4, 8]}", "f32[2, 5, 4, 8]"},
         {"expand(%s) {shape = [2, ?b]}", "f32[2, ?b]"},
         {"expand(%x) {shape = [8]}", "expand: shape: expected 2 extents or more for f32[4, 8], got 1"},
         {"expand(%x) {shape = [4, 9]}", "expand: extents that are not 1 differ: [4, 8] (8 and 9)"},
         {"cat([%x, %a, %x])", "f32[?a+8, 8]"},
         {"cat([%x, %x]) {dim = -1}", "f32[4, 16]"},
         {"cat([])", "cat: expected at least one operand"},
         {"cat([%x, %v])", "cat: expected operands of one rank, got f32[4, 8] and f32[8]"},
         {"cat([%x, %y]) {dim = 1}", "cat: extents of axes that are not joined differ: [4, 8] x [8, 3] (4 and 8)"},
         {"cat([%s])", "cat: dim: expected no axis for rank 0, got 0 for []"},
         {"tile(%x) {repeats = [2]}", "f32[4, 16]"},
         {"tile(%v) {repeats = [3, 0, 2]}", "f32[3, 0, 16]"},
         {"tile(%v) {repeats = [-1]}", "tile: repeats: expected 0 or more, got -1"},
         {"slice(%x, %n) {length = 3}", "f32[3, 8]"},
         {"slice(%x, %n) {dim = 1, length = 4, step = 2}", "f32[4, 4]"},
         {"slice(%x, %n) {length = 5}", "slice: length 5 at step 1 does not fit into 4 of f32[4, 8]"},
         {"slice(%x, %n) {dim = 1, length = 5, step = 2}", "slice: length 5 at step 2 does not fit into 8 of f32[4, 8]"},
       // clang-format on
       {"slice(%x, %n) {length = 2, step = 9223372036854775807}",
        "slice: length 2 at step 9223372036854775807 does not fit into 4 of f32[4, 8]"},
       {"slice(%z, %n) {length = 0}", "f32[0, 8]"},
       {"slice(%x, %n) {length = 1, step = 0}", "slice: step: expected 1 or more, got 0"},
       {"slice_update(%x, %x, %p)", "f32[4, 8]"},
       {"slice_update(%x, %x, %i)",
        "slice_update: starts and the axes of x differ: [4, 8] x [4, 8] x [3] (3 and 2)"},
       {"index_put(%f4, %f4, [%i4])", "f32[4]"},
       {"index_put(%x, %f4, [%i4, %i4])", "f32[4, 8]"},
       {"index_put(%x, %x, [])", "index_put: expected at least one index"},
       {"index_put(%x, %f4, [%i4, %n])",
        "index_put: shapes of index differ: [4, 8] x [4] x [4] x [] (ranks 0 and 1)"},
       {"index_put(%x, %f4, [%i4, %i4, %i4])",
        "index_put: 3 axes from dim 0 on: expected at most 2, those of f32[4, 8]"},
       {"index_put(%x, %x, [%i])",
        "index_put: shapes of src and of what index names differ: [4, 8] x [4, 8] x [3] (4 and "
        "3)"},
       {"slice(%x, %i) {length = 1}", "slice: operand start: expected rank 0, got i64[3]"}});
  EXPECT_EQ(Constraints("reshape(%a) {shape = [4, 2*?a]}"), "");
  EXPECT_EQ(Constraints("reshape(%bc) {shape = [?c, ?b]}"), "");
  EXPECT_EQ(Constraints("reshape(%a) {shape = [32]}"), "8*?a == 32: element counts");
}

TEST(Infer, Indexing) {
  Check({{"index_select(%x, %j)", "f32[4, 2, 8]"},
         // clang-format off
         {"index_select(%x, %n) {dim = 1}", "f32[4]"},
         {"index_select(%x, %i) {dim = -1}", "f32[4, 3]"},
         {"index_select(%x, %x)", "index_select: operand index: expected i64, i32, got f32[4, 8]"},
         {"index_select(%s, %i)", "index_select: dim: expected no axis for rank 0, got 0 for [] x [3]"},
         {"gather(%x, %j) {dim = 1}", "f32[4, 2]"},
         {"gather(%y, %j) {dim = 0}", "f32[4, 2]"},
         {"gather(%x, %i)", "gather: operand index: expected rank 2, got i64[3]"},
         {"gather(%r4, %j)", "gather: operand index: expected rank 4, got i32[4, 2]"},
         {"scatter_add(%x, %j, %x) {dim = 1}", "f32[4, 8]"},
         {"choose(%i, [%i, %i])", "i64[3]"},
         {"choose(%i, [])", "choose: expected at least one operand to choose from"},
         {"choose(%i, [%v])", "choose: shapes of case and xs differ: [3] x [8] (3 and 8)"},
         {"choose(%i, [%x])", "choose: shapes of case and xs differ: [3] x [4, 8] (ranks 1 and 2)"},
         {"one_hot(%j) {classes = ?c, dtype = bool}", "bool[4, 2, ?c]"},
         {"one_hot(%n) {classes = 3}", "f32[3]"},
         {"embedding(%x, %j)", "f32[4, 2, 8]"},
         {"embedding(%v, %j)", "embedding: operand weight: expected rank 2, got f32[8]"},
         {"embedding_backward(%x, %i) {rows = 9}", "embedding_backward: extents of grad before its last and of indices differ: [4, 8] x [3] (4 and 3)"},
         {"embedding_backward(%v, %n) {rows = ?b}", "f32[?b, 8]"},
         {"embedding_backward(%x, %n) {rows = 9}", "embedding_backward: operand grad: expected rank 1, got f32[4, 8]"},
         {"embedding_backward(%x, %x) {rows = 9}", "embedding_backward: operand indices: expected i64, i32, got f32[4, 8]"},
         {"embedding_backward(%i, %i) {rows = 9}", "embedding_backward: operand grad: expected f64, f32, f16, bf16, got i64[3]"},
         {"embedding_backward(%a, %i)", "embedding_backward: attribute rows (dim) is missing"},
         // clang-format on
         {"embedding_backward(%a, %i) {rows = 9}", "f32[9, 8]"}});
  EXPECT_EQ(Constraints("embedding_backward(%a, %i) {rows = 9}"),
            "?a == 3: extents of grad before its last and of indices");
  EXPECT_EQ(Infer("gather(%y, %j) {dim = 1}"), "f32[4, 2]");
  EXPECT_EQ(Infer("scatter_add(%y, %j, %y) {dim = 0}"), "f32[8, 3]");
  EXPECT_EQ(Infer("gather(%z, %j) {dim = 1}"),
            "gather: index's extents beside dim: expected at most 0, got 4 in [0, 8] x [4, 2]");
  // Indices may exceed the extents of the indexed tensor only along dim. Extents that are not known
  // yet are checked when they are bound.
  EXPECT_EQ(Constraints("gather(%bc, %j) {dim = 1}"),
            "min(4, ?b) == 4: index's extents beside dim");
}

TEST(Infer, Creation) {
  Check({{"zeros()", "f32[]"},
         // clang-format off
         {"zeros() {shape = [?b, 2], dtype = i8}", "i8[?b, 2]"},
         {"full() {value = 1}", "f32[]"},
         {"full() {shape = [2]}", "full: attribute value (float) is missing"},
         {"values() {value = [1, 2.5], dtype = f16}", "f16[2]"},
         {"values() {value = []}", "f32[0]"},
         {"constant() {type = u8[2, 3], value = #0}", "u8[2, 3]"},
         {"constant() {type = u8[?b], value = #0}", "constant: type: expected constant extents, got u8[?b]"},
         {"arange(%s, %s) {length = ?b}", "f32[?b]"},
         {"arange(%v, %s) {length = 3}", "arange: operand start: expected rank 0, got f32[8]"},
         {"uniform(%k, %s, %s) {shape = [4, ?b]}", "f32[4, ?b]"},
         {"uniform(%k3, %s, %s) {shape = []}", "uniform: key's extent and 2 differ: [3] x [] x [] (3 and 2)"},
         {"normal(%k, %s, %v) {shape = []}", "normal: operand std: expected rank 0, got f32[8]"},
         {"dropout(%h, %s, %k)", "f16[4, 8]"},
         // clang-format on
         {"dropout(%x, %v, %k)", "dropout: operand p: expected rank 0, got f32[8]"}});
}

TEST(Infer, Reductions) {
  Check({{"sum(%r4)", "f32[]"},
         {"sum(%r4) {keepdim = true}", "f32[1, 1, 1, 1]"},
         {"sum(%r4) {dims = [1, -1]}", "f32[2, 4]"},
         {"mean(%a) {dims = [0], keepdim = true}", "f32[1, 8]"},
         {"amax(%t)", "bool[]"},
         {"any(%t) {dims = [1]}", "bool[4]"},
         {"any(%x)", "any: operand x: expected bool, got f32[4, 8]"},
         {"sum(%x) {dims = [0, -2]}", "sum: dims: axis -2 is named twice"},
         {"sum(%x) {dims = [2]}", "sum: dims: expected -2 to 1, got 2 for [4, 8]"},
         {"sum(%s)", "f32[]"},
         {"argmax(%x) {dim = 1}", "i64[4]"},
         {"argmin(%x) {dim = -2, keepdim = true}", "i64[1, 8]"},
         {"argmax(%x)", "argmax: attribute dim (int) is missing"},
         {"cumsum(%a) {dim = 0}", "f32[?a, 8]"},
         {"cumsum(%s) {dim = 0}", "cumsum: dim: expected no axis for rank 0, got 0 for []"}});
}

TEST(Infer, Order) {
  const Case cases[] = {
      {"sort(%a)", "f32[?a, 8] i64[?a, 8]"},
      {"sort(%t) {dim = 0, descending = true}", "bool[4, 8] i64[4, 8]"},
      {"sort(%x) {dim = 2}", "sort: dim: expected -2 to 1, got 2 for [4, 8]"},
      {"sort(%e)",
       "sort: operand x: expected f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, bool, "
       "got f8e4m3[4]"},
      {"topk(%x) {k = 3}", "f32[4, 3] i64[4, 3]"},
      {"topk(%a) {k = ?k, dim = 0}", "f32[?k, 8] i64[?k, 8]"},
      {"topk(%x)", "topk: attribute k (dim) is missing"},
      {"topk(%x) {k = 9}", "topk: k: expected at most 8, got 9 in [4, 8]"},
      {"topk(%x) {k = 9, dim = 5}", "topk: dim: expected -2 to 1, got 5 for [4, 8]"}};
  for (const Case& c : cases) EXPECT_EQ(InferTwo(c.node), c.want) << c.node;
  Check({{"argsort(%x)", "i64[4, 8]"},
         {"argsort(%s)", "argsort: dim: expected no axis for rank 0, got -1 for []"}});
  EXPECT_EQ(Constraints("topk(%a) {k = 3, dim = 0}", "%0, %1"), "min(3, ?a) == 3: k");
}

TEST(Infer, Quantisation) {
  const Case cases[] = {
      {"quantize(%x)", "i8[4, 8] f32[4, 1, 1]"},
      {"quantize(%d2) {group_size = 4, symmetric = false}", "i8[4, 8] f64[4, 2, 2]"},
      {"quantize(%h) {bits = 4, group_size = 2}", "u8[4, 4] f32[4, 4, 1]"},
      {"quantize(%bc) {bits = 4, group_size = 32}", "u8[?b, ?c//2] f32[?b, ?c//32, 1]"},
      {"quantize(%s)", "quantize: operand x: expected rank 1 or more, got f32[]"},
      {"quantize(%x) {bits = 6}", "quantize: bits: expected 4 or 8, got 6"},
      {"quantize(%x) {group_size = -1}", "quantize: group_size: expected 0 or more, got -1"},
      {"quantize(%x) {group_size = 3}",
       "quantize: x's last extent by group_size: 8 is not a multiple of 3"},
      {"quantize(%x) {group_size = 1, bits = 4}",
       "quantize: group_size: expected an even number for 4 bits, got 1"},
      {"quantize(%y) {bits = 4}", "quantize: x's last extent by 2: 3 is not a multiple of 2"}};
  for (const Case& c : cases) EXPECT_EQ(InferTwo(c.node), c.want) << c.node;
  EXPECT_EQ(Constraints("quantize(%bc) {group_size = 32}", "%0, %1"),
            "?c%32 == 0: remainder of x's last extent by group_size and 0");
  Check(
      {{"dequantize(%i8, %p1)", "f32[4, 8]"},
       // clang-format off
         {"dequantize(%u8, %p2) {bits = 4, symmetric = false, dtype = bf16}", "bf16[4, 16]"},
         {"dequantize(%i8, %x)", "dequantize: operand params: expected rank 3, got f32[4, 8]"},
         {"quantized_linear(%x64, %qw)", "bf16[2, 3, 5]"},
         {"quantized_linear(%x64, %qw, %b5)", "bf16[2, 3, 5]"},
         {"quantized_linear(%x64, %qs2)", "bf16[2, 3, ?b]"},
         {"quantized_linear(%x64, %qw, %f5)", "quantized_linear: operand bias: expected bf16 as in x, got f32[5]"},
         {"quantized_linear(%x64, %q)", "quantized_linear: inner dimensions differ: [2, 3, 64] x [4, 32] (64 and 32)"},
         {"quantized_linear(%x64, %q6)", "quantized_linear: operand weight: expected rank 2, got i8:q6_k[2, 3, 256]"},
         {"quantized_linear(%x, %y)", "quantized_linear: operand weight: expected i8 in blocks of q4_0, q4_1, q8_0 or q6_k, got f32[8, 3]"},
         {"quantized_linear(%x, %qf)", "quantized_linear: operand weight: expected i8 in blocks of q4_0, q4_1, q8_0 or q6_k, got f32:q8_0[5, 64]"},
         {"quantized_linear(%x, %qi)", "quantized_linear: operand weight: expected i8 in blocks of q4_0, q4_1, q8_0 or q6_k, got i8:i4[5, 64]"},
         {"quantized_embedding(%qw, %j)", "f32[4, 2, 64]"},
         {"quantized_embedding(%qw, %n) {dtype = f16}", "f16[64]"},
         {"quantized_embedding(%q6, %j)", "quantized_embedding: operand weight: expected rank 2, got i8:q6_k[2, 3, 256]"},
         {"quantized_embedding(%qw, %j) {dtype = i32}", "quantized_embedding: result y: expected f64, f32, f16, bf16, got i32"},
         {"dequantize_blocks(%q6)", "f32[2, 3, 256]"},
         {"dequantize_blocks(%q6) {dtype = f64}", "f64[2, 3, 256]"},
         {"dequantize_blocks(%i8)", "dequantize_blocks: operand x: expected i8 in blocks of q4_0, q4_1, q8_0 or q6_k, got i8[4, 8]"},
         {"linear(%x, %qw)", "linear: operand weight: expected a dense tensor, got i8:q4_1[5, 64]"},
         {"dequantize(%i8, %p1) {bits = 5}", "dequantize: bits: expected 4 or 8, got 5"},
         {"dequantize(%i8, %p1) {bits = 4}", "dequantize: operand values: expected u8 for 4 bits, got i8[4, 8]"},
         {"dequantize(%i8, %p2)", "dequantize: params' last extent and what a group has differ: [4, 8] x [4, 2, 2] (2 and 1)"},
         {"dequantize(%i8, %p1) {dtype = i32}", "dequantize: result y: expected f64, f32, f16, bf16, got i32"},
         {"dequantize(%i8, %p3)", "dequantize: values' last extent by params' groups: 8 is not a multiple of 3"},
       // clang-format on
       {"dequantize(%i8, %p5)",
        "dequantize: leading extents of values and params differ: [4, 8] x [5, 2, 1] (4 and 5)"}});
}

TEST(Infer, Networks) {
  Check({{"matmul(%x, %y)", "f32[4, 3]"},
         // clang-format off
         {"matmul(%a, %y)", "f32[?a, 3]"},
         {"matmul(%r4, %y)", "f32[2, 1, 4, 3]"},
         {"matmul(%x, %x) {transpose_x = true}", "f32[8, 8]"},
         {"matmul(%x, %x) {transpose_y = true}", "f32[4, 4]"},
         {"matmul(%x, %x)", "matmul: inner dimensions differ: [4, 8] x [4, 8] (8 and 4)"},
         {"matmul(%x, %v)", "matmul: operand y: expected rank 2 or more, got f32[8]"},
         {"matmul(%x, %y) {precision = \"fast\"}", "matmul: precision: expected \"ieee\" or \"tf32\""},
         {"scaled_matmul(%e8, %e5, %s, %s) {transpose_y = true}", "bf16[4, 5]"},
         {"scaled_matmul(%e8, %e5, %f4, %f5) {transpose_y = true, dtype = f32}", "f32[4, 5]"},
         {"scaled_matmul(%e8, %e8, %s, %s) {transpose_x = true, dtype = f16}", "f16[8, 8]"},
         {"scaled_matmul(%e8, %e5, %s, %s)", "scaled_matmul: inner dimensions differ: [4, 8] x [5, 8] x [] x [] (8 and 5)"},
         {"scaled_matmul(%x, %e8, %s, %s)", "scaled_matmul: operand x: expected f8e4m3, f8e5m2, got f32[4, 8]"},
         {"scaled_matmul(%e8, %e5, %v, %s) {transpose_y = true}", "scaled_matmul: scale_x and rows of z differ: [4, 8] x [5, 8] x [8] x [] (8 and 4)"},
         {"scaled_matmul(%e8, %e5, %s, %f4) {transpose_y = true}", "scaled_matmul: scale_y and columns of z differ: [4, 8] x [5, 8] x [] x [4] (4 and 5)"},
         {"scaled_matmul(%e8, %e5, %s, %x) {transpose_y = true}", "scaled_matmul: operand scale_y: expected rank 1, got f32[4, 8]"},
         {"scaled_matmul(%e8, %e5, %s, %s) {transpose_y = true, dtype = f64}", "scaled_matmul: dtype: expected f32, f16 or bf16, got f64"},
         {"scaled_matmul(%e8, %e5, %s, %s) {transpose_y = true, dtype = i8}", "scaled_matmul: result z: expected f64, f32, f16, bf16, got i8"},
         {"linear(%a, %x)", "f32[?a, 4]"},
         {"linear(%v, %x)", "f32[4]"},
         {"linear(%r4, %x) {activation = \"gelu\"}", "f32[2, 1, 4, 4]"},
         {"linear(%s, %x)", "linear: operand x: expected rank 1 or more, got f32[]"},
         {"linear(%x, %v)", "linear: operand weight: expected rank 2, got f32[8]"},
         {"linear(%x, %y)", "linear: inner dimensions differ: [4, 8] x [8, 3] (8 and 3)"},
         {"linear(%x, %x, %x)", "linear: operand bias: expected rank 1, got f32[4, 8]"},
         {"linear(%x, %x, %v)", "linear: extents of bias and weight differ: [4, 8] x [4, 8] x [8] (8 and 4)"},
         {"linear(%x, %x) {activation = \"tanh\"}", "linear: activation: expected \"none\", \"relu\", \"gelu\", \"gelu_tanh\" or \"silu\""},
         {"linear(%x, %x) {precision = \"fast\"}", "linear: precision: expected \"ieee\" or \"tf32\""},
         {"rms_norm_linear(%a, %v, %x)", "f32[?a, 4]"},
         {"rms_norm_linear(%r4, _, %x, %f4) {activation = \"silu\", eps = 0}", "f32[2, 1, 4, 4]"},
         {"rms_norm_linear(%x, %f4, %x)", "rms_norm_linear: extents of norm_weight and x's last differ: [4, 8] x [4] x [4, 8] (4 and 8)"},
         {"rms_norm_linear(%x, %x, %x)", "rms_norm_linear: extents of norm_weight and x's last differ: [4, 8] x [4, 8] x [4, 8] (ranks 2 and 1)"},
         {"rms_norm_linear(%s, _, %x)", "rms_norm_linear: operand x: expected rank 1 or more, got f32[]"},
         {"rms_norm_linear(%x, _, %y)", "rms_norm_linear: inner dimensions differ: [4, 8] x [8, 3] (8 and 3)"},
         {"rms_norm_linear(%x, _, %x, %v)", "rms_norm_linear: extents of bias and weight differ: [4, 8] x [4, 8] x [8] (8 and 4)"},
         {"rms_norm_linear(%x, _, %x) {eps = nan}", "rms_norm_linear: eps: expected 0 or more, got nan"},
         {"rms_norm_linear(%x, _, %x) {activation = \"exp\"}", "rms_norm_linear: activation: expected \"none\", \"relu\", \"gelu\", \"gelu_tanh\" or \"silu\""},
         {"softmax(%a)", "f32[?a, 8]"},
         {"log_softmax(%x) {dim = 2}", "log_softmax: dim: expected -2 to 1, got 2 for [4, 8]"},
         {"layer_norm(%x)", "f32[4, 8]"},
         {"layer_norm(%x, %v, _)", "f32[4, 8]"},
         {"layer_norm(%x, _, %v)", "f32[4, 8]"},
         {"layer_norm(%x, %x, %x) {dims = 2}", "f32[4, 8]"},
         {"layer_norm(%x, %x)", "layer_norm: normalised extents differ: [4, 8] x [4, 8] (ranks 1 and 2)"},
         {"layer_norm(%x) {dims = 3}", "layer_norm: dims: expected 1 to 2 trailing axes for f32[4, 8], got 3"},
         {"layer_norm(%x) {eps = nan}", "layer_norm: eps: expected 0 or more, got nan"},
         {"rms_norm(%x, %v)", "f32[4, 8]"},
         {"cross_entropy(%x, %i)", "cross_entropy: rows of logits and target differ: [4, 8] x [3] (4 and 3)"},
         {"cross_entropy(%a, %i)", "f32[]"},
         {"cross_entropy(%a, %i) {reduction = \"none\"}", "f32[?a]"},
         {"cross_entropy(%a, %i) {reduction = \"max\"}", "cross_entropy: reduction: expected \"mean\", \"sum\" or \"none\""},
         {"cross_entropy_backward(%s, %a, %i)", "f32[?a, 8]"},
         // clang-format on
         {"cross_entropy_backward(%v, %a, %i)",
          "cross_entropy_backward: shapes of grad and the loss differ: [8] x [?a, 8] x [3] (ranks "
          "1 and 0)"}});
  EXPECT_EQ(Constraints("cross_entropy(%a, %i)"), "?a == 3: rows of logits and target");
  EXPECT_EQ(Constraints("matmul(%bc, %y)"), "?c == 8: inner dimensions");
  EXPECT_EQ(Constraints("linear(%bc, %x)"), "?c == 8: inner dimensions");
}

TEST(Infer, NormsOfSums) {
  Check({{"add_rms_norm(%x, %v)",
          "add_rms_norm: shapes of x and residual differ: [4, 8] x [8] (ranks 2 and 1)"},
         // clang-format off
         {"add_rms_norm(%x, %y)", "add_rms_norm: shapes of x and residual differ: [4, 8] x [8, 3] (4 and 8)"},
         {"add_rms_norm(%x, %h)", "add_rms_norm: operand residual: expected f32 as in x, got f16[4, 8]"},
         {"add_rms_norm(%x, %x, %i)", "add_rms_norm: operand weight: expected f64, f32, f16, bf16, got i64[3]"},
         {"add_rms_norm(%x, %x, %x)", "add_rms_norm: normalised extents differ: [4, 8] x [4, 8] x [4, 8] (ranks 1 and 2)"},
         {"add_rms_norm(%x, %x) {dims = 0}", "add_rms_norm: dims: expected 1 to 2 trailing axes for f32[4, 8], got 0"},
         {"add_layer_norm(%x, %x, _, %x)", "add_layer_norm: normalised extents differ: [4, 8] x [4, 8] x [4, 8] (ranks 1 and 2)"},
         // clang-format on
         {"add_layer_norm(%x, %x) {eps = -1}", "add_layer_norm: eps: expected 0 or more, got -1"}});
  for (const std::string op : {"add_rms_norm", "add_layer_norm"}) {
    EXPECT_EQ(InferTwo(op + "(%x, %x, %v)"), "f32[4, 8] f32[4, 8]");
    EXPECT_EQ(InferTwo(op + "(%a, %x)"), "f32[?a, 8] f32[?a, 8]");
    EXPECT_EQ(Constraints(op + "(%a, %x)", "%0, %1"), "?a == 4: shapes of x and residual");
  }
  EXPECT_EQ(InferTwo("add_layer_norm(%h, %h, _, _) {dims = 2}"), "f16[4, 8] f16[4, 8]");
}

TEST(Infer, LinearLosses) {
  const Case cases[] = {
      {"cross_entropy_with_gradient(%s, %a, %i)", "f32[] f32[?a, 8]"},
      {"cross_entropy_with_gradient(%s, %a, %i) {reduction = \"none\"}",
       "cross_entropy_with_gradient: shapes of grad and the loss differ: [] x [?a, 8] x [3] (ranks "
       "0 and 1)"},
      // clang-format off
                        {"linear_cross_entropy(%a, %x, %i)", "f32[] f32[?a]"},
                        {"linear_cross_entropy(%h, %h, %i4) {reduction = \"none\", chunk_size = 2}", "f16[4] f32[4]"},
                        {"linear_cross_entropy(%d2, %d2, %i4)", "f64[] f64[4]"},
                        {"linear_cross_entropy(%v, %x, %i)", "linear_cross_entropy: operand input: expected rank 2, got f32[8]"},
                        {"linear_cross_entropy(%x, %v, %i4)", "linear_cross_entropy: operand weight: expected rank 2, got f32[8]"},
                        {"linear_cross_entropy(%x, %x, %i)", "linear_cross_entropy: rows of input and target differ: [4, 8] x [4, 8] x [3] (4 and 3)"},
                        {"linear_cross_entropy(%x, %y, %i4)", "linear_cross_entropy: inner dimensions differ: [4, 8] x [8, 3] x [4] (8 and 3)"},
                        {"linear_cross_entropy(%x, %x, %i4) {chunk_size = -1}", "linear_cross_entropy: chunk_size: expected 0 or more, got -1"},
                        {"linear_cross_entropy(%x, %x, %i4) {reduction = \"max\"}", "linear_cross_entropy: reduction: expected \"mean\", \"sum\" or \"none\""},
                        {"linear_cross_entropy_backward(%s, %x, %x, %i4, %f4)", "f32[4, 8] f32[4, 8]"},
      // clang-format on
      {"linear_cross_entropy_backward(%f4, %x, %x, %i4, %f4)",
       "linear_cross_entropy_backward: shapes of grad and the loss differ: [4] x [4, 8] x [4, 8] x "
       "[4] x ... (ranks 1 and 0)"},
      {"linear_cross_entropy_backward(%s, %x, %x, %i4, %v)",
       "linear_cross_entropy_backward: logsumexp and rows of input differ: [] x [4, 8] x [4, 8] x "
       "[4] x ... (8 and 4)"},
      {"linear_cross_entropy_backward(%s, %x, %x, %i4, %g4)",
       "linear_cross_entropy_backward: operand logsumexp: expected f32, got f64[4]"}};
  for (const Case& c : cases) EXPECT_EQ(InferTwo(c.node), c.want) << c.node;
  EXPECT_EQ(Constraints("linear_cross_entropy(%a, %x, %i)", "%0, %1"),
            "?a == 3: rows of input and target");
}

TEST(Infer, GradientsOfNorms) {
  Check({{"rms_norm_backward(%x, %v)",
          "rms_norm_backward: shapes of grad and x differ: [4, 8] x [8] (ranks 2 and 1)"},
         // clang-format off
         {"rms_norm_backward(%z, %x)", "rms_norm_backward: shapes of grad and x differ: [0, 8] x [4, 8] (0 and 4)"},
         {"rms_norm_backward(%h, %x)", "rms_norm_backward: operand x: expected f16 as in grad, got f32[4, 8]"},
         {"rms_norm_backward(%x, %x, %x)", "rms_norm_backward: normalised extents differ: [4, 8] x [4, 8] x [4, 8] (ranks 1 and 2)"},
         {"layer_norm_backward(%x, %x) {dims = 3}", "layer_norm_backward: dims: expected 1 to 2 trailing axes for f32[4, 8], got 3"},
         // clang-format on
         {"layer_norm_backward(%x, %x) {eps = nan}",
          "layer_norm_backward: eps: expected 0 or more, got nan"}});
  EXPECT_EQ(InferAll("rms_norm_backward(%x, %x, %v)", 2), "f32[4, 8] f32[8]");
  EXPECT_EQ(InferAll("layer_norm_backward(%a, %x)", 3), "f32[?a, 8] f32[8] f32[8]");
  EXPECT_EQ(InferAll("layer_norm_backward(%h, %h) {dims = 2}", 3), "f16[4, 8] f16[4, 8] f16[4, 8]");
  EXPECT_EQ(Constraints("rms_norm_backward(%a, %x)", "%0, %1"), "?a == 4: shapes of grad and x");
}

TEST(Infer, GradientsOfSoftmax) {
  for (const std::string op : {"softmax_backward", "log_softmax_backward"}) {
    EXPECT_EQ(Infer(op + "(%x, %x)"), "f32[4, 8]");
    EXPECT_EQ(Infer(op + "(%a, %x) {dim = 0}"), "f32[?a, 8]");
    EXPECT_EQ(Constraints(op + "(%a, %x)"), "?a == 4: shapes of grad and y");
    EXPECT_EQ(Infer(op + "(%x, %y)"),
              op + ": shapes of grad and y differ: [4, 8] x [8, 3] (4 and 8)");
    EXPECT_EQ(Infer(op + "(%x, %v)"),
              op + ": shapes of grad and y differ: [4, 8] x [8] (ranks 2 and 1)");
    EXPECT_EQ(Infer(op + "(%x, %h)"), op + ": operand y: expected f32 as in grad, got f16[4, 8]");
    EXPECT_EQ(Infer(op + "(%x, %x) {dim = -3}"),
              op + ": dim: expected -2 to 1, got -3 for [4, 8] x [4, 8]");
    EXPECT_EQ(Infer(op + "(%s, %s)"),
              op + ": dim: expected no axis for rank 0, got -1 for [] x []");
  }
}

TEST(Infer, Rotary) {
  const std::string op = "rotary_embedding";
  Check({{"rotary_embedding(%q4)", "f32[2, 6, 5, 8]"},
         // clang-format off
         {"rotary_embedding(%q4, %n)", "f32[2, 6, 5, 8]"},
         {"rotary_embedding(%q4, _) {dim = 4, theta = 500000, interleaved = true, scale = 0.25, inverse = true}", "f32[2, 6, 5, 8]"},
         {"rotary_embedding(%y) {dim = 2}", "f32[8, 3]"},
         {"rotary_embedding(%z)", "f32[0, 8]"},
         // clang-format on
         {"rotary_embedding(%bc)", "f32[?b, ?c]"}});
  for (const auto& [node, want] :
       {std::pair<std::string, std::string>{"(%v)",
                                            "operand x: expected rank 2 or more, got f32[8]"},
        // clang-format off
                                   {"(%x, %x)", "operand positions: expected i64, i32, got f32[4, 8]"},
                                   {"(%x, %j)", "operand positions: expected at most rank 1, got i32[4, 2]"},
                                   {"(%x, %i)", "extents of positions and of x before its last differ: [4, 8] x [3] (3 and 4)"},
                                   {"(%x) {dim = 3}", "dim: expected an even number of 0 or more, got 3"},
                                   {"(%x) {dim = -2}", "dim: expected an even number of 0 or more, got -2"},
                                   {"(%x) {dim = 10}", "dim: expected at most 8, got 10 in [4, 8]"},
                                   {"(%y)", "dim: expected a number, as x's last extent is odd: f32[8, 3]"},
                                   {"(%x) {theta = 0}", "theta: expected a finite number above 0, got 0"},
                                   {"(%x) {theta = inf}", "theta: expected a finite number above 0, got inf"},
        // clang-format on
        {"(%x) {scale = nan}", "scale: expected a finite number, got nan"}}) {
    EXPECT_EQ(Infer(op + node), op + ": " + want) << node;
  }
  EXPECT_EQ(Constraints("rotary_embedding(%bc)"),
            "?c%2 == 0: remainder of x's last extent by 2 and 0");
  EXPECT_EQ(Constraints("rotary_embedding(%bc) {dim = 4}"), "min(4, ?c) == 4: dim");
  EXPECT_EQ(Constraints("rotary_embedding(%a, %i)"),
            "3 == ?a: extents of positions and of x before its last");
}

TEST(Infer, Attention) {
  constexpr std::string_view kOp = "scaled_dot_product_attention";
  const Case cases[] = {
      {"%q4, %k4, %v4)", "f32[2, 6, 5, 4] f32[2, 6, 5]"},
      {"%q4, %k4, %v4, %m)", "f32[2, 6, 5, 4] f32[2, 6, 5]"},
      {"%q4, %k4, %v4, %ms)", "f32[2, 6, 5, 4] f32[2, 6, 5]"},
      {"%q4, %k4, %v4, %s) {causal = true, window = 3, scale = -2}",
       "f32[2, 6, 5, 4] f32[2, 6, 5]"},
      {"%d4, %d4, %d4)", "f64[2, 3, 7, 8] f64[2, 3, 7]"},
      {"%q0, %k0, %v0)", "f32[2, 0, 5, 4] f32[2, 0, 5]"},
      {"%q0, %k4, %v4)", "f32[2, 0, 5, 4] f32[2, 0, 5]"},
      {"%qs, %ks, %ks)", "f32[?b, ?c, 5, 8] f32[?b, ?c, 5]"},
      {"%x, %x, %x)", "operand query: expected rank 3 or more, got f32[4, 8]"},
      {"%q4, %x, %x)", "operand key: expected rank 4, got f32[4, 8]"},
      {"%q4, %k4, %x)", "operand value: expected rank 4, got f32[4, 8]"},
      {"%q4, %d4, %v4)", "operand key: expected f32 as in query, got f64[2, 3, 7, 8]"},
      {"%q4, %k4, %q4)",
       "heads of key and value differ: [2, 6, 5, 8] x [2, 3, 7, 8] x [2, 6, 5, 8] (3 and 6)"},
      {"%q4, %q4, %k4)",
       "heads of key and value differ: [2, 6, 5, 8] x [2, 6, 5, 8] x [2, 3, 7, 8] (6 and 3)"},
      {"%k4, %q4, %q4)",
       "heads: expected a multiple of key's 6 for query, got 3 in [2, 3, 7, 8] x [2, 6, 5, 8] x "
       "[2, 6, 5, 8]"},
      {"%q4, %k0, %v0)",
       "heads: expected a multiple of key's 0 for query, got 6 in [2, 6, 5, 8] x [2, 0, 7, 8] x "
       "[2, 0, 7, 4]"},
      {"%r5, %r5, %r5, %r5)",
       "extents of mask and the scores differ: [2, 2, 6, 5, 7] x [2, 2, 6, 5, 7] x [2, 2, 6, 5, 7] "
       "x [2, 2, 6, 5, 7] (7 and 5)"},
      {"%q4, %v4, %v4)",
       "head sizes of query and key differ: [2, 6, 5, 8] x [2, 3, 7, 4] x [2, 3, 7, 4] (8 and 4)"},
      {"%r4, %k4, %v4)",
       "heads: expected a multiple of key's 3 for query, got 1 in [2, 1, 4, 8] x [2, 3, 7, 8] x "
       "[2, 3, 7, 4]"},
      {"%q4, %k4, %v4, %t)",
       "extents of mask and the scores differ: [2, 6, 5, 8] x [2, 3, 7, 8] x [2, 3, 7, 4] x [4, 8] "
       "(4 and 5)"},
      {"%q4, %k4, %v4, %h)", "operand mask: expected bool or f32 as in query, got f16[4, 8]"},
      {"%q4, %k4, %v4, %i)", "operand mask: expected f64, f32, f16, bf16, bool, got i64[3]"},
      {"%q4, %k4, %v4, %r5)", "operand mask: expected at most rank 4, got f32[2, 2, 6, 5, 7]"},
      {"%q4, %k4, %v4) {window = -1}", "window: expected 0 or more, got -1"},
      {"%q4, %k4, %v4) {scale = inf}", "scale: expected a finite number, got inf"},
      {"%q4, %k4, %v4) {scale = nan}", "scale: expected a finite number, got nan"}};
  for (const Case& c : cases) {
    std::string got = InferTwo(std::string(kOp) + "(" + std::string(c.node));
    if (got.starts_with(kOp)) got.erase(0, kOp.size() + 2);
    EXPECT_EQ(got, c.want) << c.node;
  }
  const std::string backward = "scaled_dot_product_attention_backward";
  for (const Case& c :
       {Case{"(%o4, %q4, %k4, %v4, %o4, %l4)", "f32[2, 6, 5, 8] f32[2, 3, 7, 8] f32[2, 3, 7, 4]"},
        // clang-format off
                        {"(%o4, %q4, %k4, %v4, %o4, %l4, %m)", "f32[2, 6, 5, 8] f32[2, 3, 7, 8] f32[2, 3, 7, 4]"},
                        {"(%q4, %q4, %k4, %v4, %o4, %l4)", ": grad and what attention gives differ: [2, 6, 5, 8] x [2, 6, 5, 8] x [2, 3, 7, 8] x [2, 3, 7, 4] x ... (8 and 4)"},
                        {"(%o4, %q4, %k4, %v4, %q4, %l4)", ": output and what attention gives differ: [2, 6, 5, 4] x [2, 6, 5, 8] x [2, 3, 7, 8] x [2, 3, 7, 4] x ... (8 and 4)"},
                        {"(%o4, %q4, %k4, %v4, %o4, %x)", ": logsumexp and query before its last extent differ: [2, 6, 5, 4] x [2, 6, 5, 8] x [2, 3, 7, 8] x [2, 3, 7, 4] x ... (ranks 2 and 3)"},
                        {"(%o4, %q4, %k4, %v4, %o4, %l8)", ": operand logsumexp: expected f32, got f64[2, 6, 5]"},
        // clang-format on
        {"(%o4, %q4, %k4, %v4, %o4, %l4, %h)",
         ": operand mask: expected bool or f32 as in query, got f16[4, 8]"}}) {
    const std::string got = InferAll(backward + std::string(c.node), 3);
    EXPECT_EQ(got.starts_with(backward) ? got.substr(backward.size()) : got, c.want) << c.node;
  }
  EXPECT_EQ(Constraints("scaled_dot_product_attention(%q4, %k4, %v4, %ms)", "%0, %1"),
            "?a == 2: extents of mask and the scores");
  EXPECT_EQ(Constraints("scaled_dot_product_attention(%qs, %ks, %ks)", "%0, %1"),
            "?c%?a == 0: remainder of query's heads by key's and 0");
}

TEST(Infer, Convolution) {
  Check(
      {{"convolution(%ci, %cw)", "f32[2, 6, 5, 7]"},
       // clang-format off
         {"convolution(%ci, %cw, %cb) {padding = [1]}", "f32[2, 6, 7, 9]"},
         {"convolution(%ci, %cw, %cb) {stride = [2, 3], padding = [1, 2], dilation = [3, 1]}", "f32[2, 6, 2, 4]"},
         {"convolution(%ci, %cg) {groups = 2}", "f32[2, 6, 5, 7]"},
         {"convolution(%cs, %cw) {stride = [2], padding = [1]}", "f32[?b, 6, (?a+-1)//2+1, 4]"},
         {"convolution(%cs, %cw) {transposed = false, dilation = [2]}", "f32[?b, 6, ?a+-4, 3]"},
         {"convolution(%cz, %cw)", "f32[0, 6, 5, 7]"},
         {"convolution(%o3, %k8)", "f32[2, 3, 5]"},
         {"convolution(%ci, %ct) {transposed = true}", "f32[2, 6, 9, 11]"},
         {"convolution(%ci, %ct, %cb) {transposed = true, stride = [2, 3], padding = [1], output_padding = [1, 2]}", "f32[2, 6, 14, 27]"},
         {"convolution(%ci, %ct) {transposed = true, groups = 2, dilation = [2]}", "f32[2, 12, 11, 13]"},
         {"convolution(%cs, %ct) {transposed = true, stride = [2]}", "f32[?b, 6, 2*(?a+-1)+3, 15]"},
         {"convolution(%x, %x)", "convolution: operand input: expected rank 3, 4 or 5, got f32[4, 8]"},
         {"convolution(%c6, %c6)", "convolution: operand input: expected rank 3, 4 or 5, got f32[1, 1, 1, 1, 1, 1]"},
         {"convolution(%ci, %o3)", "convolution: operand weight: expected rank 4, got f32[2, 3, 12]"},
         {"convolution(%ci, %d4)", "convolution: operand weight: expected f32 as in input, got f64[2, 3, 7, 8]"},
         {"convolution(%i8, %i8)", "convolution: operand input: expected f64, f32, f16, bf16, got i8[4, 8]"},
         {"convolution(%ci, %cw) {stride = [1, 1, 1]}", "convolution: stride: expected none, 1 or 2 numbers, got 3 for [2, 4, 7, 9] x [6, 4, 3, 3]"},
         {"convolution(%ci, %cw) {stride = [1, 0]}", "convolution: stride: expected 1 to 2147483647, got 0"},
         {"convolution(%ci, %cw) {padding = [-1]}", "convolution: padding: expected 0 to 2147483647, got -1"},
         {"convolution(%ci, %cw) {dilation = [2147483648]}", "convolution: dilation: expected 1 to 2147483647, got 2147483648"},
         {"convolution(%ci, %cw) {output_padding = [-1]}", "convolution: output_padding: expected 0 to 2147483647, got -1"},
         {"convolution(%ci, %cw) {output_padding = [0, 1]}", "convolution: output_padding: expected 0 where transposed is false, got 1"},
         {"convolution(%ci, %ct) {transposed = true, output_padding = [1]}", "convolution: output_padding: expected less than stride or dilation, 1, got 1"},
         {"convolution(%ci, %cw) {groups = 0}", "convolution: groups: expected 1 to 281474976710656, got 0"},
         {"convolution(%ci, %cg) {groups = 4}", "convolution: groups: expected a divisor of weight's first extent 6, got 4"},
         {"convolution(%ci, %cg)", "convolution: channels of input and groups of weight's differ: [2, 4, 7, 9] x [6, 2, 3, 3] (4 and 2)"},
         {"convolution(%ci, %cw) {transposed = true}", "convolution: channels of input and weight differ: [2, 4, 7, 9] x [6, 4, 3, 3] (4 and 6)"},
         {"convolution(%ci, %c0)", "convolution: extents of a kernel: expected 1 or more, got 0 in [2, 4, 7, 9] x [6, 4, 0, 3]"},
       // clang-format on
       {"convolution(%ci, %cw) {dilation = [4, 1]}",
        "convolution: what a dilated kernel covers of the padded input: expected at most 7, got 9 "
        "in [2, 4, 7, 9] x [6, 4, 3, 3]"},
       {"convolution(%ci, %ct) {transposed = true, padding = [5]}",
        "convolution: extents of the result: expected 1 or more, got -1 in [2, 4, 7, 9] x [4, 6, "
        "3, 3]"},
       {"convolution(%ci, %cw, %v)",
        "convolution: extents of bias and the result's channels differ: [2, 4, 7, 9] x [6, 4, 3, "
        "3] x [8] (8 and 6)"},
       {"convolution(%ci, %cw, %x)", "convolution: operand bias: expected rank 1, got f32[4, 8]"}});
  EXPECT_EQ(Constraints("convolution(%cs, %cw)"),
            "min(3, ?a) == 3: what a dilated kernel covers of the padded input");
  EXPECT_EQ(Constraints("convolution(%ci, %cd)"),
            "4 == ?c: channels of input and groups of weight's; min(?b, 1) == 1: extents of a "
            "kernel; min(?b, 7) == ?b: what a dilated kernel covers of the padded input");
  EXPECT_EQ(InferTwo("convolution_backward(%co, %ci, %cw)"), "f32[2, 4, 7, 9] f32[6, 4, 3, 3]");
  EXPECT_EQ(InferTwo("convolution_backward(%ci, %ci, %cw)"),
            "convolution_backward: grad and what convolution gives differ: [2, 4, 7, 9] x [2, 4, "
            "7, 9] x [6, 4, 3, 3] (4 and 6)");
  EXPECT_EQ(InferTwo("convolution_backward(%co, %x, %cw)"),
            "convolution_backward: operand input: expected rank 3, 4 or 5, got f32[4, 8]");
}

// Returns the types of a node of any number of results, or the error without its position.
std::string InferAll(std::string_view names, std::string_view node) {
  const auto m = Parse("program @f(" + std::string(kParams) + ") -> (a) {\n" + std::string(names) +
                           " = " + std::string(node) + "\nreturn %0\n}",
                       "t");
  if (!m.ok()) return MessageOf(m.status()).substr(MessageOf(m.status()).find(": ") + 2);
  std::string out;
  for (const TensorType& t : m->functions[0].nodes[0].results)
    out += (out.empty() ? "" : " ") + ToString(t, m->dims);
  return out;
}

TEST(Infer, Sampling) {
  Check({{"sample(%x, %k)", "i64[4]"},
         // clang-format off
         {"sample(%bc, %k, %s, %n, %s)", "i64[?b]"},
         {"sample(%d2, %k, %f4, _, %f4) {site = 3}", "i64[4]"},
         {"sample(%v, %k)", "sample: operand logits: expected rank 2, got f32[8]"},
         {"sample(%x, %k3)", "sample: key's extent and 2 differ: [4, 8] x [3] (3 and 2)"},
         {"sample(%x, %k, %x)", "sample: operand temperature: expected rank 1, got f32[4, 8]"},
         {"sample(%x, %k, %v)", "sample: rows of temperature and logits differ: [4, 8] x [2] x [8] (8 and 4)"},
         {"sample(%x, %k, _, %i)", "sample: rows of top_k and logits differ: [4, 8] x [2] x [3] (3 and 4)"},
         {"sample(%x, %k, _, _, %v)", "sample: rows of top_p and logits differ: [4, 8] x [2] x [8] (8 and 4)"},
         {"sample(%x, %k, %n)", "sample: operand temperature: expected f32, got i64[]"},
         // clang-format on
         {"sample(%w0, %k)",
          "sample: 1 and logits' last extent: expected at most 0, got 1 in [4, 0] x [2]"}});
  EXPECT_EQ(
      Constraints("sample(%bc, %k)"),
      "min(?c, 1) == 1: 1 and logits' last extent; min(?c, 134217728) == ?c: logits' last extent");
}

TEST(Infer, KvAppend) {
  Check(
      {{"kv_append(%q4, %q4, %n)", "f32[2, 6, 5, 8]"},
       // clang-format off
         {"kv_append(%k4, %k1, %p)", "f32[2, 3, 7, 8]"},
         {"kv_append(%kp, %k1, %p, %bt)", "f32[9, 3, 4, 8]"},
         {"kv_append(%kp, %k1, %p)", "kv_append: extents of new and cache differ: [9, 3, 4, 8] x [2, 3, 1, 8] x [2] (2 and 9)"},
         {"kv_append(%kp, %k1, %p, %j)", "kv_append: batches of block_table and new differ: [9, 3, 4, 8] x [2, 3, 1, 8] x [2] x [4, 2] (4 and 2)"},
         {"kv_append(%kp, %k1, %p, %p)", "kv_append: operand block_table: expected rank 2, got i32[2]"},
         {"kv_append(%k1, %k4, %p, %bt)", "kv_append: new's positions, of cache: expected at most 5, got 7 in [2, 3, 1, 8] x [2, 3, 7, 8] x [2] x [2, 5]"},
         {"kv_append(%x, %x, %n)", "kv_append: operand cache: expected rank 3 or more, got f32[4, 8]"},
         {"kv_append(%k4, %x, %n)", "kv_append: operand new: expected rank 4, got f32[4, 8]"},
         {"kv_append(%k4, %q4, %n)", "kv_append: extents of new and cache differ: [2, 3, 7, 8] x [2, 6, 5, 8] x [] (6 and 3)"},
         {"kv_append(%k1, %k4, %n)", "kv_append: new's positions, of cache: expected at most 1, got 7 in [2, 3, 1, 8] x [2, 3, 7, 8] x []"},
         {"kv_append(%k4, %k1, %i)", "kv_append: extents of position and of new before its heads differ: [2, 3, 7, 8] x [2, 3, 1, 8] x [3] (3 and 2)"},
         {"kv_append(%k4, %k1, %j)", "kv_append: extents of position and of new before its heads differ: [2, 3, 7, 8] x [2, 3, 1, 8] x [4, 2] (ranks 2 and 1)"},
       // clang-format on
       {"kv_append(%k4, %d4, %n)",
        "kv_append: operand new: expected f32 as in cache, got f64[2, 3, 7, 8]"}});
  EXPECT_EQ(Constraints("kv_append(%ks, %ks, %n)"), "");
}

TEST(Infer, KvAttention) {
  for (const Case& c :
       {Case{"(%q4, %k4, %v4, %n)", "f32[2, 6, 5, 4] f32[2, 6, 5]"},
        // clang-format off
                        {"(%q4, %k4, %k4, %p)", "f32[2, 6, 5, 8] f32[2, 6, 5]"},
                        {"(%q4, %kp, %kp, %p, %bt)", "f32[2, 6, 5, 8] f32[2, 6, 5]"},
                        {"(%x, %x, %x, %n)", ": operand query: expected rank 3 or more, got f32[4, 8]"},
                        {"(%q4, %kp, %kp, %p)", ": batch extents of query and key differ: [2, 6, 5, 8] x [9, 3, 4, 8] x [9, 3, 4, 8] x [2] (2 and 9)"},
                        {"(%k4, %q4, %q4, %n)", ": heads: expected a multiple of key's 6 for query, got 3 in [2, 3, 7, 8] x [2, 6, 5, 8] x [2, 6, 5, 8] x []"},
                        {"(%q4, %k4, %k1, %n)", ": positions of key and value differ: [2, 6, 5, 8] x [2, 3, 7, 8] x [2, 3, 1, 8] x [] (7 and 1)"},
                        {"(%q4, %kp, %k4, %p, %bt)", ": batch extents of key and value differ: [2, 6, 5, 8] x [9, 3, 4, 8] x [2, 3, 7, 8] x [2] x ... (9 and 2)"},
                        {"(%q4, %k4, %k4, %i)", ": extents of length and of query before its heads differ: [2, 6, 5, 8] x [2, 3, 7, 8] x [2, 3, 7, 8] x [3] (3 and 2)"},
                        {"(%r5, %r5, %r5, %p, %bt)", ": operand query: expected rank 4, got f32[2, 2, 6, 5, 7]"},
                        {"(%q4, %kp, %kp, %p, %p)", ": operand block_table: expected rank 2, got i32[2]"},
                        {"(%q4, %kp, %kp, %p, %j)", ": batches of block_table and query differ: [2, 6, 5, 8] x [9, 3, 4, 8] x [9, 3, 4, 8] x [2] x ... (4 and 2)"},
                        {"(%q4, %kp, %kp, %n, %bt)", ": operand block_table: expected i64 as in length, got i32[2, 5]"},
        // clang-format on
        {"(%q4, %k4, %k4, %n) {window = -1}", ": window: expected 0 or more, got -1"}}) {
    const std::string got = InferTwo("kv_attention" + std::string(c.node));
    EXPECT_EQ(got.starts_with("kv_attention") ? got.substr(12) : got, c.want) << c.node;
  }
}

TEST(Infer, Optimisers) {
  struct Node {
    std::string_view names, node, want;
  };
  constexpr std::string_view kThree = "%0, %1, %2";
  const Node nodes[] = {
      {kThree, "adamw([%x], [%x], [%x], [%x], %s, %n)", "f32[4, 8] f32[4, 8] f32[4, 8]"},
      {kThree, "adamw([%h], [%h], [%x], [%x], %s, %n, %s, %nb)", "f16[4, 8] f32[4, 8] f32[4, 8]"},
      {"%0, %1, %2, %3, %4, %5", "adamw([%x, %v], [%x, %v], [%x, %v], [%x, %v], %s, %n)",
       "f32[4, 8] f32[8] f32[4, 8] f32[8] f32[4, 8] f32[8]"},
      {kThree, "adamw([], [], [], [], %s, %n)",
       "adamw: operand params: expected a value at least, for there is a result for each; it is "
       "adamw(params...: F, grads...: F, exp_avgs...: G, exp_avg_sqs...: G, lr: "
       "f32, step: i64, grad_scale?: f32, skip?: bool) -> (params...: F, exp_avgs...: G, "
       "exp_avg_sqs...: G)"},
      {kThree, "adamw([%x], [%x, %x], [%x], [%x], %s, %n)",
       "adamw: lists: expected 1 tensors in each, as in params, got 2 in grads"},
      {kThree, "adamw([%x], [%x], [%x], [], %s, %n)",
       "adamw: lists: expected 1 tensors in each, as in params, got 0 in exp_avg_sqs"},
      {kThree, "adamw([%x], [%x], [%x], [%y], %s, %n)",
       "adamw: shapes of params and exp_avg_sqs, place 0, differ: [4, 8] x [4, 8] x [4, 8] x [8, "
       "3] x ... (4 and 8)"},
      // clang-format off
      {kThree, "adamw([%x], [%h], [%x], [%x], %s, %n)", "adamw: operand grads: expected f32 as in params, got f16[4, 8]"},
      {kThree, "adamw([%x], [%x], [%h], [%h], %s, %n)", "adamw: operand exp_avgs: expected f32 for params of f32, got f16[4, 8]"},
      {kThree, "adamw([%h], [%h], [%d2], [%d2], %s, %n)", "adamw: operand exp_avgs: expected f16 or f32 for params of f16, got f64[4, 8]"},
      {"%0, %1, %2, %3", "adamw_copy([%x], [%x], [%x], [%x], %s, %n)", "f32[4, 8] f32[4, 8] f32[4, 8] bf16[4, 8]"},
      {"%0, %1, %2, %3", "adamw_copy([%x], [%x], [%x], [%x], %s, %n) {dtype = f16}", "f32[4, 8] f32[4, 8] f32[4, 8] f16[4, 8]"},
      {"%0, %1, %2, %3", "adamw_copy([%x], [%x], [%x], [%x], %s, %n) {dtype = i32}", "adamw_copy: dtype: expected f64, f32, f16 or bf16, got i32"},
      {"%0, %1, %2, %3", "adamw_copy([%x], [%x], [%x], [], %s, %n)", "adamw_copy: lists: expected 1 tensors in each, as in params, got 0 in exp_avg_sqs"},
      {kThree, "adamw([%x], [%x], [%x], [%x], %v, %n)", "adamw: operand lr: expected rank 0, got f32[8]"},
      {kThree, "adamw([%x], [%x], [%x], [%x], %s, %i)", "adamw: operand step: expected rank 0, got i64[3]"},
      {kThree, "adamw([%x], [%x], [%x], [%x], %s, %n, _, %t)", "adamw: operand skip: expected rank 0, got bool[4, 8]"},
      {kThree, "adamw([%x], [%x], [%x], [%x], %s, %n) {beta1 = 1.0}", "adamw: beta1: expected 0 or more and less than 1, got 1"},
      {kThree, "adamw([%x], [%x], [%x], [%x], %s, %n) {beta2 = nan}", "adamw: beta2: expected 0 or more and less than 1, got nan"},
      {kThree, "adamw([%x], [%x], [%x], [%x], %s, %n) {eps = -1.0}", "adamw: eps: expected a finite number, 0 or more, got -1"},
      {kThree, "adamw([%x], [%x], [%x], [%x], %s, %n) {weight_decay = inf}", "adamw: weight_decay: expected a finite number, 0 or more, got inf"},
      {"%0", "sgd([%x], [%x], [], %s, %n)", "f32[4, 8]"},
      {"%0, %1", "sgd([%h], [%h], [%x], %s, %n) {momentum = 0.9}", "f16[4, 8] f32[4, 8]"},
      {"%0, %1", "sgd([%x], [%x], [], %s, %n) {momentum = 0.9}", "sgd: lists: expected 1 tensors in each, as in params, got 0 in momentum_buffers"},
      {"%0, %1", "sgd([%x], [%x], [%x], %s, %n)", "sgd: momentum_buffers: expected none for a momentum of 0, got 1"},
      {"%0", "sgd([%x], [%x], [], %s, %n) {nesterov = true}", "sgd: nesterov: expected a momentum and no dampening"},
      {"%0", "sgd([%x], [%x], [%x], %s, %n) {momentum = 0.9, dampening = 0.1, nesterov = true}", "sgd: nesterov: expected a momentum and no dampening"},
      {"%0", "sgd([%x], [%x], [], %s, %n) {momentum = -1.0}", "sgd: momentum: expected a finite number, 0 or more, got -1"},
      {"%0", "sgd([%x], [%x], [], %s, %n) {dampening = nan}", "sgd: dampening: expected a finite number, got nan"},
      {"%0, %1", "lion([%x], [%x], [%x], %s)", "f32[4, 8] f32[4, 8]"},
      {"%0, %1", "lion([%x], [%x], [%x], %s) {beta2 = 2.0}", "lion: beta2: expected 0 or more and less than 1, got 2"},
      {"%0, %1", "adagrad([%x], [%x], [%x], %s)", "f32[4, 8] f32[4, 8]"},
      {"%0, %1", "adagrad([%x], [%x], [%x], %s) {eps = nan}", "adagrad: eps: expected a finite number, 0 or more, got nan"},
      {"%0, %1, %2, %3", "lamb([%h], [%h], [%x], [%x], %s, %n)", "f16[4, 8] f32[4, 8] f32[4, 8] f32[1]"},
      {"%0, %1, %2, %3", "lamb([%d2], [%d2], [%d2], [%d2], %s, %n)", "f64[4, 8] f64[4, 8] f64[4, 8] f64[1]"},
      {"%0, %1, %2, %3", "lamb([%x], [%x], [%x], [], %s, %n)", "lamb: lists: expected 1 tensors in each, as in params, got 0 in exp_avg_sqs"},
      {"%0, %1, %2, %3", "lamb([%x], [%x], [%x], [%x], %s, %n) {beta1 = 1.0}", "lamb: beta1: expected 0 or more and less than 1, got 1"},
      {"%0, %1, %2, %3", "lamb([%x], [%x], [%x], [%x], %s, %n) {beta2 = nan}", "lamb: beta2: expected 0 or more and less than 1, got nan"},
      {"%0, %1, %2, %3", "lamb([%x], [%x], [%x], [%x], %s, %n) {eps = nan}", "lamb: eps: expected a finite number, 0 or more, got nan"},
      {"%0, %1, %2, %3", "lamb([%x], [%x], [%x], [%x], %s, %n) {weight_decay = -1.0}", "lamb: weight_decay: expected a finite number, 0 or more, got -1"},
      {"%0, %1, %2, %3", "lamb([%x], [%x], [%x], [%x], %s, %n) {min_coefficient = inf}", "lamb: min_coefficient: expected a finite number, 0 or more, got inf"},
      {"%0, %1, %2, %3", "lamb([%x], [%x], [%x], [%x], %s, %n) {max_coefficient = -2.0}", "lamb: max_coefficient: expected a finite number, 0 or more, got -2"},
      // clang-format on
      {"%0, %1, %2, %3",
       "lamb([%x], [%x], [%x], [%x], %s, %n) {min_coefficient = 2.0, max_coefficient = 1.0}",
       "lamb: max_coefficient: expected 2 or more, as min_coefficient is, got 1"},
      {"%0, %1", "l2_norm([%h, %h])", "f32[] f32[2]"},
      {"%0, %1", "l2_norm([%d2])", "f64[] f64[1]"},
      {"%0, %1", "l2_norm([])", "l2_norm: xs: expected a tensor at least"},
      {kThree, "scale([%x, %v], %s)", "f32[4, 8] f32[8] bool[]"},
      {kThree, "scale([%x, %v], %v)", "scale: operand factor: expected rank 0, got f32[8]"},
  };
  for (const Node& n : nodes) EXPECT_EQ(InferAll(n.names, n.node), n.want) << n.node;
  EXPECT_EQ(Constraints("lion([%a], [%b], [%a], %s)", "%0, %1"),
            "?a == ?b: shapes of params and grads, place 0,");
}

TEST(Infer, ArityAndSegmentsOfTheInterface) {
  DimTable dims;
  const TensorType x{DType::kF32, Encoding::kDense, {dims.Constant(2)}};
  const TensorType* const two[] = {&x, &x};
  const auto infer = [&](std::string_view op, std::span<const TensorType* const> operands,
                         std::vector<uint32_t> segments) {
    const OpDef& row = *Catalogue().Find(op);
    const auto attrs = ResolveAttrs(row, {}, dims);
    return MessageOf(InferTypes(row, dims, operands, segments, *attrs).status());
  };
  EXPECT_EQ(infer("add", two, {}), "");
  EXPECT_EQ(infer("add", two, {1, 1}),
            "add: expected no segments, for no operand is a list, got 2");
  EXPECT_EQ(infer("add", std::span(two).first(1), {}),
            "add: expected 2 operands, got 1; it is add(x: A, y: A) -> z: A");
  EXPECT_EQ(infer("cat", two, {2}), "");
  EXPECT_EQ(infer("cat", two, {}),
            "cat: expected 1 segments, one for each operand, got 0; it is cat(xs...: T) -> y: T");
  EXPECT_EQ(infer("cat", two, {3}), "cat: segments hold 3 operands, got 2");
  EXPECT_EQ(infer("choose", two, {2, 0}), "choose: operand case is one value, got a segment of 2");
  EXPECT_EQ(infer("choose", two, {1, UINT32_MAX}),
            "choose: segments hold 4294967296 operands, got 2");
  const TensorType none;
  const TensorType* const invalid[] = {&none, &x};
  EXPECT_EQ(infer("add", invalid, {}), "add: operand x has no element type");
  const TensorType* const absent[] = {&x, nullptr};
  EXPECT_EQ(infer("cat", absent, {2}), "cat: operand xs is absent; it is cat(xs...: T) -> y: T");
}

TEST(Infer, AttributesResolveAndConvert) {
  DimTable dims;
  const OpDef& full = *Catalogue().Find("full");
  const std::vector<NamedAttr> given = {{"value", int64_t{3}}, {"shape", Ints{2, 4}}};
  const auto resolved = ResolveAttrs(full, given, dims);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(*resolved,
            (std::vector<AttrValue>{Dims{dims.Constant(2), dims.Constant(4)}, 3.0, DType::kF32}));
  EXPECT_EQ(*CanonicalAttrs(full, given, dims),
            (std::vector<NamedAttr>{{"shape", Dims{dims.Constant(2), dims.Constant(4)}},
                                    {"value", 3.0}}));
  const auto error = [&](std::vector<NamedAttr> attrs) {
    return MessageOf(ResolveAttrs(full, attrs, dims).status());
  };
  EXPECT_EQ(error({}), "full: attribute value (float) is missing");
  EXPECT_EQ(error({{"value", true}}), "full: attribute value: expected float, got bool");
  EXPECT_EQ(error({{"value", 1.0}, {"value", 1.0}}), "full: attribute value is given twice");
  EXPECT_EQ(error({{"valeu", 1.0}}),
            "full: unknown attribute valeu; it takes shape, value, dtype, did you mean value?");
  EXPECT_EQ(error({{"value", 1.0}, {"shape", Dims{Dim{999}}}}),
            "full: attribute shape: dimension 999 does not exist");
  EXPECT_EQ(error({{"value", 1.0}, {"dtype", static_cast<DType>(77)}}),
            "full: attribute dtype: element type 77 does not exist");
  EXPECT_LT(error({{std::string(100000, 'x'), 1.0}}).size(), 300u);
}

}  // namespace
}  // namespace opwire
