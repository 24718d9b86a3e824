// Arguments of a run: each kind of binding once valid and invalid in every way; symbols and
// constraints.
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

constexpr const char* kScale = R"(
dim ?n in [1, 64] multiple 2
program @scale(%x: f32[?n], %s: f32[]) -> (y: f32[?n]) {
  %0 = mul(%x, %s)
  return %0
})";

using Floats = std::vector<float>;

class BindingsTest : public CoreTest {
 protected:
  BindingsTest() : c_(Hello()) {
    EXPECT_TRUE(Load(c_, 1, kScale).ok());
    EXPECT_TRUE(Put(c_, 1, {1, 2, 3, 4}).ok());
  }
  void Refused(const RunOf& run, absl::StatusCode code, const std::string& part) {
    const Answer a = Ask(c_, run);
    EXPECT_EQ(a.code(), code) << a.status;
    EXPECT_NE(MessageOf(a.status).find(part), std::string::npos) << a.status << "\nlacks: " << part;
    // No run has begun, and the session continues.
    const Answer good = Ask(c_, RunOf(1).Tensor(c_, 1).Scalar(2).Inline());
    EXPECT_TRUE(good.ok()) << good.status;
    EXPECT_EQ(good.Floats(0), (Floats{2, 4, 6, 8}));
  }
  Client c_;
};

TEST_F(BindingsTest, EveryKind) {
  const Answer tensor = Ask(c_, RunOf(1).Tensor(c_, 1).Scalar(3).Inline());
  ASSERT_TRUE(tensor.ok()) << tensor.status;
  EXPECT_EQ(tensor.Floats(0), (Floats{3, 6, 9, 12}));
  const Answer inline_bytes = Ask(c_, RunOf(1).Array({5, 6}).Scalar(2).Inline());
  ASSERT_TRUE(inline_bytes.ok()) << inline_bytes.status;
  EXPECT_EQ(inline_bytes.Floats(0), (Floats{10, 12}));
  EXPECT_EQ(inline_bytes.run().shapes, std::vector<int64_t>{2});
  const Answer both =
      Ask(c_, RunOf(1).Array({5, 6}).Array({4}, {}).Inline());  // a 0-d array is a scalar
  ASSERT_TRUE(both.ok()) << both.status;
  EXPECT_EQ(both.Floats(0), (Floats{20, 24}));
  ASSERT_TRUE(
      Load(c_, 2,
           "program @z(dim %n: ?n) -> (y: f32[?n]) { %0 = zeros() {shape = [?n]} return %0 }")
          .ok());
  const Answer dim = Ask(c_, RunOf(2).Dim(3).Inline());
  ASSERT_TRUE(dim.ok()) << dim.status;
  EXPECT_EQ(dim.Floats(0), (Floats{0, 0, 0}));
}

TEST_F(BindingsTest, WrongSlotFunctionAndArity) {
  Refused(RunOf(9).Tensor(c_, 1).Scalar(1).Inline(), absl::StatusCode::kNotFound, "slot 9");
  Refused(RunOf(1, 1).Tensor(c_, 1).Scalar(1).Inline(), kInvalid, "function 1");
  Refused(RunOf(1, UINT32_MAX).Tensor(c_, 1).Scalar(1).Inline(), kInvalid, "function");
  Refused(RunOf(1).Tensor(c_, 1).Inline(), kInvalid, "expected 2 bindings, got 1");
  Refused(RunOf(1).Tensor(c_, 1).Scalar(1).Scalar(1).Inline(), kInvalid, "got 3");
  Refused(RunOf(1).Inline(), kInvalid, "got 0");
  Refused(RunOf(1).Tensor(c_, 1).Scalar(1), kInvalid, "expected 1 result slots, got 0");
  Refused(RunOf(1).Tensor(c_, 1).Scalar(1).Inline().None(), kInvalid, "got 2");
  Refused(RunOf(1).Tensor(c_, 1).Scalar(1).Result(3, 0), kInvalid, "kind of result 3");
}

TEST_F(BindingsTest, WrongTensors) {
  Refused(RunOf(1).Tensor(c_, 77).Scalar(1).Inline(), absl::StatusCode::kNotFound,
          fmt::format("{}:77", c_.attachment));
  Refused(RunOf(1).Bind(0, 0, 0, 0, 1, 0).Scalar(1).Inline(), absl::StatusCode::kNotFound, "0:1");
  ASSERT_TRUE(PutTyped(c_, 2, DType::kI32, {2}, std::string(8, '\0')).ok());
  Refused(RunOf(1).Tensor(c_, 2).Scalar(1).Inline(), kInvalid, "expected f32[?n], got i32[2]");
  ASSERT_TRUE(Put(c_, 3, {1, 2, 3, 4}, {2, 2}).ok());
  Refused(RunOf(1).Tensor(c_, 3).Scalar(1).Inline(), kInvalid, "got f32[2, 2]");
  Refused(RunOf(1).Tensor(c_, 1).Tensor(c_, 1).Inline(), kInvalid, "got f32[4]");
  // A tensor that its client still fills.
  fb::PutT put;
  put.id = IdPtr(c_, 4);
  put.type = std::make_unique<fb::TensorTypeT>();
  put.type->dtype = static_cast<uint8_t>(DType::kF32);
  put.type->shape = {2};
  ASSERT_TRUE(Ask(c_, std::move(put)).ok());
  Refused(RunOf(1).Tensor(c_, 4).Scalar(1).Inline(), absl::StatusCode::kFailedPrecondition, "seal");
  // A tensor of another session: the key is unknown here.
  Client other = Hello("", "uid:2");
  ASSERT_TRUE(Put(other, 50, {1, 2}).ok());
  Refused(RunOf(1).Bind(0, 0, 0, other.attachment, 50, 0).Scalar(1).Inline(),
          absl::StatusCode::kNotFound, "50");
}

TEST_F(BindingsTest, WrongKinds) {
  Refused(RunOf(1).Dim(4).Scalar(1).Inline(), kInvalid, "%x: expected a tensor");
  Refused(RunOf(1).Tensor(c_, 1).Bind(4, 2, 0, 0, 0, 0).Inline(), kInvalid, "kind of binding 4");
  Refused(RunOf(1).Scalar(1).Scalar(1).Inline(), kInvalid, "expected f32[?n]");
  Refused(RunOf(1).Tensor(c_, 1).Bind(1, static_cast<uint8_t>(DType::kF64), 0, 0, 0, 0).Inline(),
          kInvalid, "got f64");
  Refused(RunOf(1).Tensor(c_, 1).Bind(1, 0, 0, 0, 0, 0).Inline(), kInvalid, "%s");
  Refused(RunOf(1).Tensor(c_, 1).Bind(1, 200, 0, 0, 0, 0).Inline(), kInvalid, "%s");
}

TEST_F(BindingsTest, WrongInlineBytes) {
  RunOf outside = RunOf(1).Array({1, 2}).Scalar(1).Inline();
  outside.run.bindings[0] = fb::Binding(fb::BindingKind::Inline, 2, 1, 0, 0, 4, 8);
  Refused(outside, kInvalid, "outside the payload");
  outside.run.bindings[0] = fb::Binding(fb::BindingKind::Inline, 2, 1, 0, 0, UINT64_MAX, 8);
  Refused(outside, kInvalid, "outside the payload");
  outside.run.bindings[0] = fb::Binding(fb::BindingKind::Inline, 2, 1, 0, 0, 8, UINT64_MAX - 4);
  Refused(outside, kInvalid, "outside the payload");
  RunOf sizes = RunOf(1).Array({1, 2}).Scalar(1).Inline();
  sizes.run.shapes = {4};
  Refused(sizes, kInvalid, "8 bytes are not a f32[4]");
  sizes.run.shapes = {-2};
  Refused(sizes, kInvalid, "%x");
  sizes.run.shapes = {INT64_MAX};
  Refused(sizes, kInvalid, "%x");
  sizes.run.shapes.clear();
  Refused(sizes, kInvalid, "extents are not in the message");
  sizes.run.shapes = {2};
  sizes.run.bindings[0] = fb::Binding(fb::BindingKind::Inline, 2, 255, 0, 0, 0, 8);
  Refused(sizes, kInvalid, "extents are not in the message");
  sizes.run.bindings[0] = fb::Binding(fb::BindingKind::Inline, 99, 1, 0, 0, 0, 8);
  Refused(sizes, kInvalid, "%x");
  RunOf no_payload(1);
  Refused(no_payload.Bind(3, 2, 1, 0, 0, 8).Scalar(1).Inline(), kInvalid, "outside the payload");
}

// A message without a payload, or without extents, has no such vector at all.
TEST_F(BindingsTest, EmptyInlineBytes) {
  ASSERT_TRUE(Load(c_, 1,
                   "program @f(%x: f32[?n], %s: f32[]) -> (y: f32[?n], z: f32[]) { %0 = neg(%x) %1 "
                   "= neg(%s) return %0, %1 }")
                  .ok());
  const Answer none = Ask(c_, RunOf(1).Array({}, {0}).Scalar(2).Inline().Inline());
  ASSERT_TRUE(none.ok()) << none.status;
  EXPECT_EQ(none.Floats(0), Floats{});
  ASSERT_TRUE(Load(c_, 2, "program @f(%s: f32[]) -> (z: f32[]) { %0 = neg(%s) return %0 }").ok());
  EXPECT_EQ(Ask(c_, RunOf(2).Array({3}, {}).Inline()).Floats(0), Floats{-3});
}

// A message cannot make the executor copy more than it carries: each of many bindings of the same
// bytes counts.
TEST_F(BindingsTest, InlineBytesAreBounded) {
  ASSERT_TRUE(Load(c_, 3, R"(program @many(%a: f32[?n], %b: f32[?n], %c: f32[?n]) -> (y: f32[?n]) {
    %0 = add(%a, %b)
    %1 = add(%0, %c)
    return %1
  })")
                  .ok());
  const auto shared = [&](int64_t n) {
    RunOf run(3);
    run.run.payload.resize(static_cast<size_t>(n) * 4);
    run.run.shapes = {n, n, n};
    for (int i = 0; i < 3; ++i) run.Bind(3, 2, 1, 0, 0, static_cast<uint64_t>(n) * 4);
    return run.None();
  };
  EXPECT_TRUE(Ask(c_, shared(5461)).ok());  // 65,532 bytes
  EXPECT_EQ(Ask(c_, shared(5462)).code(), kInvalid);
}

TEST_F(BindingsTest, Symbols) {
  Refused(RunOf(1).Array({1, 2, 3}).Scalar(1).Inline(), kInvalid, "multiple");
  Refused(RunOf(1).Array({}, {0}).Scalar(1).Inline(), kInvalid, "?n");
  EXPECT_TRUE(Ask(c_, RunOf(1).Array(Floats(64, 1)).Scalar(1).Inline()).ok());
  Refused(RunOf(1).Array(Floats(66, 1)).Scalar(1).Inline(), kInvalid, "?n");
  ASSERT_TRUE(Load(c_, 4,
                   "program @a(%x: f32[?n], %y: f32[?n], %z: f32[2*?n+1]) -> (s: f32[?n]) { %0 = "
                   "add(%x, %y) return %0 }")
                  .ok());
  EXPECT_TRUE(Ask(c_, RunOf(4).Array({1, 2}).Array({3, 4}).Array({1, 2, 3, 4, 5}).Inline()).ok());
  Refused(RunOf(4).Array({1, 2}).Array({3, 4, 5}).Array({1, 2, 3, 4, 5}).Inline(), kInvalid,
          "?n = 2");
  Refused(RunOf(4).Array({1, 2}).Array({3, 4}).Array({1, 2, 3, 4}).Inline(), kInvalid, "%z");
  ASSERT_TRUE(
      Load(c_, 5,
           "program @z(dim %n: ?n) -> (y: f32[?n]) { %0 = zeros() {shape = [?n]} return %0 }")
          .ok());
  Refused(RunOf(5).Scalar(3).Inline(), kInvalid, "expected a dimension");
  for (const int64_t n : {int64_t{-1}, INT64_MIN, INT64_MAX, kMaxExtent + 1}) {
    const Answer a = Ask(c_, RunOf(5).Dim(n).None());
    EXPECT_FALSE(a.ok()) << n;
  }
  EXPECT_EQ(Ask(c_, RunOf(5).Dim(kMaxExtent).None()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Ask(c_, RunOf(5).Dim(0).Inline()).ok());
}

// Two symbols that only the program requires to be equal: the error names the node that requires
// it.
TEST_F(BindingsTest, Constraints) {
  ASSERT_TRUE(Load(c_, 6,
                   "program @mm(%x: f32[2, ?k], %y: f32[?j, 2]) -> (z: f32[2, 2]) { %0 = "
                   "matmul(%x, %y) return %0 }")
                  .ok());
  const Answer good =
      Ask(c_, RunOf(6).Array({1, 0, 0, 1}, {2, 2}).Array({1, 2, 3, 4}, {2, 2}).Inline());
  ASSERT_TRUE(good.ok()) << good.status;
  EXPECT_EQ(good.Floats(0), (Floats{1, 2, 3, 4}));
  const Answer bad =
      Ask(c_, RunOf(6).Array({1, 0, 0, 1}, {2, 2}).Array({1, 2, 3, 4, 5, 6}, {3, 2}).Inline());
  EXPECT_EQ(bad.code(), kInvalid) << bad.status;
  const ErrorSite site = SiteOf(bad.status);
  EXPECT_EQ(site.program, "mm");
  EXPECT_EQ(site.node, 0);
  EXPECT_EQ(site.op, "matmul");
}

TEST_F(BindingsTest, InoutsNeedTensorsOfTheirOwn) {
  ASSERT_TRUE(Load(c_, 7,
                   "program @inc(inout %w: f32[4], %g: f32[4]) -> (w: f32[4]) { %0 = add(%w, %g) "
                   "return %0 }")
                  .ok());
  Refused(RunOf(7).Array({1, 2, 3, 4}).Tensor(c_, 1).None(), kInvalid, "inout");
  Refused(RunOf(7).Tensor(c_, 1).Tensor(c_, 1).None(), kInvalid, "bound to %w (inout) and to %g");
  ASSERT_TRUE(Put(c_, 2, {1, 1, 1, 1}).ok());
  Refused(RunOf(7).Tensor(c_, 2).Tensor(c_, 1).Keep(9), kInvalid, "inout");
  ASSERT_TRUE(
      Load(c_, 8, R"(program @two(inout %a: f32[4], inout %b: f32[4]) -> (a: f32[4], b: f32[4]) {
    %0 = neg(%a)
    %1 = neg(%b)
    return %0, %1
  })")
          .ok());
  Refused(RunOf(8).Tensor(c_, 2).Tensor(c_, 2).None().None(), kInvalid, "bound to");
  EXPECT_EQ(Get(c_, 2).BulkFloats(), Floats(4, 1));
}

// Fields for later versions are refused, not ignored.
TEST_F(BindingsTest, ReservedFieldsAreRefused) {
  const auto with = [&](auto set) {
    RunOf run = RunOf(1).Tensor(c_, 1).Scalar(1).Inline();
    set(run.run);
    return run;
  };
  Refused(with([](fb::RunT& r) { r.waits.emplace_back(1, 1); }), absl::StatusCode::kUnimplemented,
          "timelines");
  Refused(with([](fb::RunT& r) { r.signals.emplace_back(1, 1); }), absl::StatusCode::kUnimplemented,
          "timelines");
  Refused(with([](fb::RunT& r) { r.group = 1; }), absl::StatusCode::kUnimplemented, "groups");
}

TEST_F(BindingsTest, InlineResultsAreBounded) {
  ASSERT_TRUE(
      Load(c_, 9,
           "program @z(dim %n: ?n) -> (y: f32[?n]) { %0 = zeros() {shape = [?n]} return %0 }")
          .ok());
  EXPECT_TRUE(Ask(c_, RunOf(9).Dim(16384).Inline()).ok());
  Refused(RunOf(9).Dim(16385).Inline(), kInvalid, "keep it as a tensor");
}

}  // namespace
}  // namespace opwire::executor
