// Programs as kernels: which programs serve which types, which operand the error of a bad index
// names, and each way not to fit an op.
#include "executor/plan/reference.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "executor/plan/program.h"
#include "ir/base/element.h"
#include "kernels/device/device.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

// Calls a kernel outside of any plan.
struct Call {
  struct Tensor {
    DType dtype;
    Shape shape;
    std::vector<uint64_t> memory;  // of 8 bytes, so that all types are aligned
  };
  struct Runtime : opw_runtime {
    int operand = -1;
    int64_t position = -1;
    Runtime() {
      abi_version = OPW_ABI_VERSION;
      threads = 1;
      parallel_for = [](opw_runtime*, int64_t n, int64_t grain, opw_body body, void* context) {
        for (int64_t i = 0; i < n; i += grain) body(context, i, std::min(n, i + grain));
      };
      out_of_range = [](opw_runtime* r, int operand, int64_t position) {
        static_cast<Runtime*>(r)->operand = operand;
        static_cast<Runtime*>(r)->position = position;
      };
      raise = [](opw_runtime*, uint32_t) {};
    }
  };

  std::vector<Tensor> operands, results;
  std::vector<opw_attr> attrs;
  Runtime runtime;
  std::string refused;

  void Add(std::vector<Tensor>& to, DType dtype, Shape shape,
           const std::vector<double>& values = {}) {
    int64_t elements = 1;
    for (int64_t e : shape) elements *= e;
    Tensor t{dtype, std::move(shape), std::vector<uint64_t>(static_cast<size_t>(elements) + 1)};
    for (size_t i = 0; i < values.size(); ++i) {
      const uint64_t bits = ElementBits(dtype, values[i]);
      std::memcpy(
          reinterpret_cast<uint8_t*>(t.memory.data()) + i * static_cast<size_t>(DTypeBytes(dtype)),
          &bits, static_cast<size_t>(DTypeBytes(dtype)));
    }
    to.push_back(std::move(t));
  }
  Call& In(DType dtype, Shape shape, const std::vector<double>& values = {}) {
    Add(operands, dtype, std::move(shape), values);
    return *this;
  }
  Call& Out(DType dtype, Shape shape) {
    Add(results, dtype, std::move(shape));
    return *this;
  }
  Call& Int(int64_t value) {
    attrs.push_back({.kind = OPW_ATTR_INT, .reserved = 0, .count = 1, .value = {.i = value}});
    return *this;
  }
  Call& Float(double value) {
    attrs.push_back({.kind = OPW_ATTR_FLOAT, .reserved = 0, .count = 1, .value = {.f = value}});
    return *this;
  }

  // Returns whether the call succeeds; `refused` has the reason of `supports`.
  bool Run(const opw_kernel& kernel) {
    const auto views = [](std::vector<Tensor>& of) {
      std::vector<opw_tensor> out;
      for (Tensor& t : of) {
        int64_t elements = 1;
        for (int64_t e : t.shape) elements *= e;
        out.push_back({t.memory.data(), t.shape.data(), nullptr, elements,
                       static_cast<uint8_t>(t.dtype), 0, static_cast<uint8_t>(t.shape.size()), 1});
      }
      return out;
    };
    const std::vector<opw_tensor> in = views(operands), out = views(results);
    std::vector<uint32_t> starts;
    for (uint32_t i = 0; i <= operands.size(); ++i) starts.push_back(i);
    opw_call call{};
    call.operands = in.data();
    call.starts = starts.data();
    call.results = out.data();
    call.attrs = attrs.data();
    call.runtime = &runtime;
    call.context = kernel.context;
    refused.clear();
    if (const char* why = kernel.supports(&call)) {
      refused = why;
      return false;
    }
    if (kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) return false;
    std::vector<uint64_t> workspace(static_cast<size_t>(call.workspace_bytes) / 8 + 16);
    call.workspace =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    const int rc = kernel.run(&call);
    kernel.release(call.state);
    return rc == OPW_OK;
  }
  std::vector<double> Values(size_t result = 0) const {
    const Tensor& t = results[result];
    std::vector<double> out;
    int64_t elements = 1;
    for (int64_t e : t.shape) elements *= e;
    for (int64_t i = 0; i < elements; ++i)
      out.push_back(ElementValue(
          t.dtype, reinterpret_cast<const uint8_t*>(t.memory.data()) + i * DTypeBytes(t.dtype)));
    return out;
  }
};

class Reference : public ::testing::Test {
 protected:
  Reference() {
    auto device = OpenDevice("cpu", {});
    EXPECT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    builtin_ =
        std::make_shared<const KernelSet>(KernelSet{.variants = BuildVariantTable(*device_)});
  }
  using When = ReferenceProgram::When;
  StatusOr<std::shared_ptr<const ReferenceProgram>> Make(const OpDeclaration& d, std::string text,
                                                         When when = When::kNow,
                                                         bool wide = false) {
    const auto row = RowOf(d);
    EXPECT_TRUE(row.ok()) << row.status();
    if (!row.ok()) return row.status();
    return ReferenceProgram::Make(d, *row, std::move(text), "ref.opw", builtin_, when, wide);
  }
  void Fails(const OpDeclaration& d, const std::string& text, const std::vector<std::string>& says,
             absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const Status status = Make(d, text).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : says)
      EXPECT_NE(status.message().find(part), std::string::npos)
          << "expected '" << part << "' in: " << status;
    EXPECT_TRUE(MessageOf(status).starts_with("ref.opw")) << status;
  }

  std::unique_ptr<Device> device_;
  std::shared_ptr<const KernelSet> builtin_;
};

const OpDeclaration kSum{.name = "user.sum",
                         .signature = "x: T[M, N], w: T[N] -> y: T[M, N]",
                         .types = {{"T", kFloats}}};
constexpr const char* kSumText =
    "program @reference(%x: T[?M, ?N], %w: T[?N]) -> (y: T[?M, ?N]) { %0 = add(%x, %w) return %0 }";

TEST_F(Reference, ServesEveryTypeThatItIsDeclaredWith) {
  ASSERT_TRUE(Make(kSum, kSumText).ok());
  const auto sum = *Make(kSum, kSumText);
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(t));
    Call call;
    call.In(t, {2, 3}, {1, 2, 3, 4, 5, 6}).In(t, {3}, {10, 20, 30}).Out(t, {2, 3});
    ASSERT_TRUE(call.Run(sum->kernel())) << call.refused;
    EXPECT_EQ(call.Values(), (std::vector<double>{11, 22, 33, 14, 25, 36}));
  }
  Call other;
  other.In(DType::kI32, {2, 3}).In(DType::kI32, {3}).Out(DType::kI32, {2, 3});
  EXPECT_FALSE(other.Run(sum->kernel()));
  EXPECT_EQ(other.refused, "it has no such types");
  Call mixed;
  mixed.In(DType::kF32, {2, 3}).In(DType::kF64, {3}).Out(DType::kF32, {2, 3});
  EXPECT_FALSE(mixed.Run(sum->kernel()));
}

TEST_F(Reference, RandomSizesAgreeWithArithmetic) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  const auto sum = *Make(kSum, kSumText);
  for (int round = 0; round < 50; ++round) {
    const int64_t m = static_cast<int64_t>(random() % 9), n = static_cast<int64_t>(random() % 40);
    std::vector<double> x, w, expected;
    for (int64_t i = 0; i < m * n; ++i) x.push_back(static_cast<double>(random() % 1000));
    for (int64_t i = 0; i < n; ++i) w.push_back(static_cast<double>(random() % 1000));
    for (int64_t i = 0; i < m * n; ++i)
      expected.push_back(x[static_cast<size_t>(i)] + w[static_cast<size_t>(i % n)]);
    Call call;
    call.In(DType::kF32, {m, n}, x).In(DType::kF32, {n}, w).Out(DType::kF32, {m, n});
    ASSERT_TRUE(call.Run(sum->kernel())) << call.refused;
    ASSERT_EQ(call.Values(), expected) << m << " x " << n;
  }
}

TEST_F(Reference, ExtentsThatContradictEachOtherAreRefused) {
  const auto sum = *Make(kSum, kSumText);
  Call call;
  call.In(DType::kF32, {2, 3}).In(DType::kF32, {4}).Out(DType::kF32, {2, 3});
  EXPECT_FALSE(call.Run(sum->kernel()));
  EXPECT_EQ(call.refused, "its program does not take these extents");
  // Results whose sizes differ from the signature.
  const OpDeclaration d{.name = "user.half", .signature = "x: f32[N] -> y: f32[N / 2]"};
  const auto whole =
      Make(d, "program @reference(%x: f32[?N]) -> (y: f32[?N]) { %0 = add(%x, %x) return %0 }");
  ASSERT_TRUE(whole.ok()) << whole.status();
  Call half;
  half.In(DType::kF32, {6}).Out(DType::kF32, {3});
  EXPECT_FALSE(half.Run((*whole)->kernel()));
}

TEST_F(Reference, WideComputesInF64) {
  const auto wide = *Make(kSum, kSumText, When::kNow, /*wide=*/true);
  Call call;
  call.In(DType::kF64, {1, 1}, {1}).In(DType::kF64, {1}, {1e-12}).Out(DType::kF64, {1, 1});
  ASSERT_TRUE(call.Run(wide->kernel())) << call.refused;
  EXPECT_EQ(call.Values()[0], 1 + 1e-12);
  Call narrow;
  narrow.In(DType::kF32, {1, 1}).In(DType::kF32, {1}).Out(DType::kF32, {1, 1});
  EXPECT_FALSE(narrow.Run(wide->kernel()));
  // Integers stay unchanged.
  const OpDeclaration ints{.name = "user.ints",
                           .signature = "x: T[N] -> y: T[N]",
                           .types = {{"T", DTypeSet{DType::kF32, DType::kI32}}}};
  const auto both =
      *Make(ints, "program @reference(%x: T[?N]) -> (y: T[?N]) { %0 = add(%x, %x) return %0 }",
            When::kNow, true);
  Call i32;
  i32.In(DType::kI32, {2}, {3, -4}).Out(DType::kI32, {2});
  ASSERT_TRUE(i32.Run(both->kernel())) << i32.refused;
  EXPECT_EQ(i32.Values(), (std::vector<double>{6, -8}));
}

TEST_F(Reference, AttributesComeAsDimensionsAndScalars) {
  const OpDeclaration d{
      .name = "user.fill",
      .signature = "x: f64[N] -> y: f64[k, N]",
      .attrs = {{.name = "k", .kind = AttrKind::kInt, .fallback = int64_t{2}, .doc = "rows"},
                {.name = "by", .kind = AttrKind::kFloat, .fallback = 1.0, .doc = "factor"}}};
  const auto fill =
      Make(d, R"(program @reference(%x: f64[?N], dim %k: ?k, %by: f64[]) -> (y: f64[?k, ?N]) {
    %0 = mul(%x, %by)
    %1 = expand(%0) {shape = [?k, ?N]}
    return %1
  })");
  ASSERT_TRUE(fill.ok()) << fill.status();
  Call call;
  call.In(DType::kF64, {2}, {1, -2}).Int(3).Float(2.5).Out(DType::kF64, {3, 2});
  ASSERT_TRUE(call.Run((*fill)->kernel())) << call.refused;
  EXPECT_EQ(call.Values(), (std::vector<double>{2.5, -5, 2.5, -5, 2.5, -5}));
}

TEST_F(Reference, LeadingExtentsComeAsOne) {
  const OpDeclaration d{.name = "user.rows",
                        .signature = "x: f32[..., N], w: f32[N] -> y: f32[..., N]"};
  const auto rows = Make(d,
                         "program @reference(%x: f32[?R, ?N], %w: f32[?N]) -> (y: f32[?R, ?N]) { "
                         "%0 = mul(%x, %w) return %0 }");
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const Shape& leading : {Shape{}, Shape{4}, Shape{2, 2}, Shape{1, 4, 1}, Shape{0, 3}}) {
    Shape shape = leading;
    shape.push_back(2);
    Call call;
    int64_t count = 1;
    for (int64_t e : leading) count *= e;
    std::vector<double> x, expected;
    for (int64_t i = 0; i < 2 * count; ++i) {
      x.push_back(static_cast<double>(i));
      expected.push_back(static_cast<double>(i) * (i % 2 ? 5 : 3));
    }
    call.In(DType::kF32, shape, x).In(DType::kF32, {2}, {3, 5}).Out(DType::kF32, shape);
    ASSERT_TRUE(call.Run((*rows)->kernel())) << call.refused;
    EXPECT_EQ(call.Values(), expected);
  }
  Fails(d,
        "program @reference(%x: f32[?A, ?B, ?N], %w: f32[?N]) -> (y: f32[?A, ?B, ?N]) { %0 = "
        "mul(%x, %w) return %0 }",
        {"parameter %x", "rank 2", "the leading extents come as one", "got 3"});
}

TEST_F(Reference, AnIndexOutOfRangeIsToldOfTheOpsOwnOperand) {
  const OpDeclaration d{.name = "user.pick",
                        .signature = "bias: f32[], table: f32[V], ids: i64[B] -> y: f32[B]",
                        .indices = {{"ids", "V"}}};
  const auto pick =
      Make(d, R"(program @reference(%bias: f32[], %table: f32[?V], %ids: i64[?B]) -> (y: f32[?B]) {
    %0 = gather(%table, %ids) {dim = 0}
    %1 = add(%0, %bias)
    return %1
  })");
  ASSERT_TRUE(pick.ok()) << pick.status();
  Call good;
  good.In(DType::kF32, {}, {100})
      .In(DType::kF32, {4}, {1, 2, 3, 4})
      .In(DType::kI64, {3}, {0, 3, 1})
      .Out(DType::kF32, {3});
  ASSERT_TRUE(good.Run((*pick)->kernel())) << good.refused;
  EXPECT_EQ(good.Values(), (std::vector<double>{101, 104, 102}));
  EXPECT_EQ(good.runtime.operand, -1);
  Call bad;
  bad.In(DType::kF32, {}, {100})
      .In(DType::kF32, {4}, {1, 2, 3, 4})
      .In(DType::kI64, {3}, {0, 3, 4})
      .Out(DType::kF32, {3});
  ASSERT_TRUE(bad.Run((*pick)->kernel())) << bad.refused;
  EXPECT_EQ(bad.runtime.operand, 2) << "ids, which is operand 1 of gather";
  EXPECT_EQ(bad.runtime.position, 2);
}

TEST_F(Reference, ErrorsSayWhatDoesNotFit) {
  Fails(kSum, "", {"ref.opw:"});
  Fails(kSum, "no program", {"ref.opw:1:"});
  Fails(kSum,
        "program @r(%x: T[?M, ?N], %w: U[?N]) -> (y: T[?M, ?N]) { %0 = add(%x, %w) return %0 }",
        {"U"});
  Fails(kSum,
        "program @r(%x: T[?M, ?N], %w: T[?N]) -> (y: T[?M, ?N]) { %0 = adds(%x, %w) return %0 }",
        {"adds", "did you mean add"}, absl::StatusCode::kUnimplemented);
  Fails(kSum, "program @r(%x: T[?M, ?N]) -> (y: T[?M, ?N]) { %0 = add(%x, %x) return %0 }",
        {"a parameter for each operand", "got 1"});
  Fails(kSum,
        "program @r(%w: T[?N], %x: T[?M, ?N]) -> (y: T[?M, ?N]) { %0 = add(%x, %w) return %0 }",
        {"parameter 1", "%x", "got %w"});
  Fails(kSum,
        "program @r(%x: T[?M, ?N], %w: T[?N], %z: T[]) -> (y: T[?M, ?N]) { %0 = add(%x, %w) return "
        "%0 }",
        {"parameter %z", "no attribute of that name"});
  Fails(
      kSum,
      "program @r(%x: i32[?M, ?N], %w: i32[?N]) -> (y: i32[?M, ?N]) { %0 = add(%x, %w) return %0 }",
      {"parameter %x", "expected f64, got i32"});
  Fails(kSum, "program @r(%x: T[?M], %w: T[?M]) -> (y: T[?M]) { %0 = add(%x, %w) return %0 }",
        {"parameter %x", "expected rank 2, got 1"});
  Fails(kSum,
        "program @r(%x: T[?M, ?N], %w: T[?N]) -> (y: bool[?M, ?N]) { %0 = lt(%x, %w) return %0 }",
        {"result y", "got bool"});
  Fails(kSum,
        "program @r(%x: T[?M, ?N], %w: T[?N]) -> (y: T[?M, ?N], z: T[?M, ?N]) { %0 = add(%x, %w) "
        "%1 = add(%x, %w) return %0, %1 }",
        {"expected 1 results", "got 2"});
  Fails(
      kSum,
      "program @r(inout %x: T[?M, ?N], %w: T[?N]) -> (x: T[?M, ?N]) { %0 = add(%x, %w) return %0 }",
      {"parameter %x", "inout"});
  const OpDeclaration text{
      .name = "user.text",
      .signature = "x: f32[N] -> y: f32[N]",
      .attrs = {
          {.name = "how", .kind = AttrKind::kString, .fallback = std::string("a"), .doc = "how"}}};
  Fails(text, "program @r(%x: f32[?N], %how: f64[]) -> (y: f32[?N]) { %0 = add(%x, %x) return %0 }",
        {"parameter %how", "int, float or bool"});
  const OpDeclaration number{
      .name = "user.number",
      .signature = "x: f32[N] -> y: f32[N]",
      .attrs = {{.name = "by", .kind = AttrKind::kFloat, .fallback = 1.0, .doc = "by"}}};
  Fails(number,
        "program @r(%x: f32[?N], %by: f64[1]) -> (y: f32[?N]) { %0 = add(%x, %x) return %0 }",
        {"parameter %by", "a 0-d tensor"});
  Fails(number,
        "program @r(%x: f32[?N], dim %by: ?by) -> (y: f32[?N]) { %0 = add(%x, %x) return %0 }",
        {"by", "a 0-d tensor"});
  const OpDeclaration list{.name = "user.list", .signature = "xs...: f32[N] -> y: f32[3]"};
  Fails(list, kSumText, {"xs", "a list"});
  const OpDeclaration absent{.name = "user.absent",
                             .signature = "x: f32[N], w?: f32[N] -> y: f32[N]"};
  Fails(absent, kSumText, {"w", "may be absent"});
  // Ops of other users are not allowed.
  Fails(
      kSum,
      "program @r(%x: T[?M, ?N], %w: T[?N]) -> (y: T[?M, ?N]) { %0 = user.sum(%x, %w) return %0 }",
      {"user.sum"}, absl::StatusCode::kUnimplemented);
}

TEST_F(Reference, IsPlannedNowOrWhenItIsAsked) {
  // One served type is enough, and the other one reports why it is not served.
  const OpDeclaration d{.name = "user.some",
                        .signature = "x: T[N] -> y: T[N]",
                        .types = {{"T", DTypeSet{DType::kF32, DType::kBool}}}};
  constexpr const char* kText = "program @r(%x: T[?N]) -> (y: T[?N]) { %0 = exp(%x) return %0 }";
  for (const When when : {When::kNow, When::kAsked}) {
    const auto some = Make(d, kText, when);
    ASSERT_TRUE(some.ok()) << some.status();
    Call f32;
    f32.In(DType::kF32, {1}, {0}).Out(DType::kF32, {1});
    ASSERT_TRUE(f32.Run((*some)->kernel())) << f32.refused;
    EXPECT_EQ(f32.Values()[0], 1);
    Call boolean;
    boolean.In(DType::kBool, {1}).Out(DType::kBool, {1});
    EXPECT_FALSE(boolean.Run((*some)->kernel()));
    EXPECT_NE(boolean.refused.find("its program does not serve T = bool: "), std::string::npos)
        << boolean.refused;
  }
  // A program that serves no type is an error at once, or a refusal with the same reason when it is
  // planned later.
  EXPECT_FALSE(Make(kSum, "no program").ok());
  const auto none = Make(kSum, "no program", When::kAsked);
  ASSERT_TRUE(none.ok()) << none.status();
  Call call;
  call.In(DType::kF32, {1, 1}).In(DType::kF32, {1}).Out(DType::kF32, {1, 1});
  EXPECT_FALSE(call.Run((*none)->kernel()));
  EXPECT_NE(call.refused.find("ref.opw:1:"), std::string::npos) << call.refused;
}

TEST_F(Reference, CombinationsOfTypesAreBounded) {
  OpDeclaration d{.name = "user.many",
                  .signature = "a: A[N], b: B[N], c: C[N] -> y: A[N]",
                  .types = {{"A", kAll}, {"B", kAll}, {"C", kAll}}};
  const auto many =
      Make(d, "program @r(%a: A[?N], %b: B[?N], %c: C[?N]) -> (y: A[?N]) { return %a }");
  EXPECT_EQ(many.status().code(), absl::StatusCode::kResourceExhausted) << many.status();
}

}  // namespace
}  // namespace opwire::executor
