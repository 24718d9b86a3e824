// Choice from the variant table, and that every row has a reference for each of its element types.
#include "kernels/select/variant.h"

#include <gtest/gtest.h>

#include "ir/ops/catalogue.h"
#include "kernels/device/device.h"

namespace opwire {
namespace {

opw_kernel Kernel(const char* (*supports)(const opw_call*) = nullptr) {
  return {OPW_ABI_VERSION, 0, supports, nullptr, nullptr, nullptr};
}
const char* Never(const opw_call*) { return "never"; }

VariantTable Sample() {
  VariantTable t;
  t.Add({"add", "reference", Tier::kReference, 0, kArithmetic, "", "builtin", Kernel()});
  t.Add({"add", "slow", Tier::kProduction, 1, kFloats, "", "builtin", Kernel()});
  t.Add({"add", "fast", Tier::kProduction, 2, {DType::kF32}, "", "builtin", Kernel()});
  t.Add({"add", "picky", Tier::kProduction, 3, kFloats, "", "builtin", Kernel(Never)});
  t.Add({"add", "absent", Tier::kProduction, 4, kFloats, "needs a thing", "builtin", Kernel()});
  t.Add({"abs", "reference", Tier::kReference, 0, kFloats, "", "builtin", Kernel()});
  return t;
}

TEST(VariantTable, ChoosesByTierPriorityTypeAndSupport) {
  const VariantTable t = Sample();
  const opw_call call{};
  EXPECT_EQ((*t.Choose("add", DType::kF32, call, ""))->name, "fast");
  EXPECT_EQ((*t.Choose("add", DType::kF64, call, ""))->name, "slow");
  EXPECT_EQ((*t.Choose("add", DType::kI8, call, ""))->name, "reference");
  EXPECT_EQ((*t.Choose("add", DType::kF32, call, "slow"))->name, "slow");
  EXPECT_EQ(t.Of("add").size(), 5u);
  EXPECT_EQ(t.Of("abs").size(), 1u);
}

TEST(VariantTable, APinThatCannotRunNamesThoseThatCan) {
  const VariantTable t = Sample();
  const auto pinned = t.Choose("add", DType::kF32, opw_call{}, "absent");
  EXPECT_EQ(pinned.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MessageOf(pinned.status()),
            "add@absent cannot run: absent: needs a thing; these can: fast, slow, reference");
  EXPECT_EQ(t.Choose("add", DType::kF32, opw_call{}, "picky").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(t.Choose("abs", DType::kI8, opw_call{}, "").status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(VariantTable, SteeringNamesWhatIsThere) {
  const VariantTable t = Sample();
  for (const char* good : {"fast", "add@fast", "add@absent", "abs@reference"}) {
    EXPECT_TRUE(t.CheckSteering({{good}, {good}, false}, false).ok()) << good;
  }
  for (const char* wrong : {"fats", "add@fats", "abs@fast", "user.mine@fast", "", "@"}) {
    EXPECT_EQ(t.CheckSteering({{wrong}, {}, false}, false).code(),
              absl::StatusCode::kInvalidArgument)
        << wrong;
    EXPECT_EQ(t.CheckSteering({{}, {wrong}, false}, false).code(),
              absl::StatusCode::kInvalidArgument)
        << wrong;
  }
  EXPECT_EQ(MessageOf(t.CheckSteering({{}, {"add@fats"}, false}, false)),
            "--forbid add@fats: there is no such variant, did you mean add@fast?");
  // Users' ops may bring any name, but no variant of a built-in op.
  EXPECT_TRUE(t.CheckSteering({{"mine", "user.mine@fast"}, {}, false}, true).ok());
  EXPECT_FALSE(t.CheckSteering({{"add@mine"}, {}, false}, true).ok());
}

TEST(VariantTable, ExplainsEveryCandidate) {
  const VariantTable t = Sample();
  const std::vector<Candidate> c = t.Explain("add", DType::kF32);
  ASSERT_EQ(c.size(), 5u);
  EXPECT_EQ(c[0].variant->name, "absent");
  EXPECT_EQ(c[0].reason, "needs a thing");
  EXPECT_TRUE(c[1].chosen);
  EXPECT_FALSE(c[2].chosen);
  EXPECT_EQ(t.Explain("add", DType::kI8)[1].reason, "takes f64, f32, f16, bf16, not i8");
}

TEST(BuildVariantTable, ExplainsThatAVariantTakesSmallProductsOnly) {
  const VariantTable table = BuildVariantTable(**OpenDevice("cpu", {}));
  for (const Candidate& c : table.Explain("matmul", DType::kF32)) {
    if (!c.variant->unavailable.empty()) continue;
    const bool small = c.variant->name.starts_with("avx");
    EXPECT_EQ(c.reason.find("; for f32 only where m, n and k are at most 64") != std::string::npos,
              small)
        << c.variant->name << ": " << c.reason;
  }
}

TEST(BuildVariantTable, EveryRowHasAReferenceForAllItsTypes) {
  const VariantTable t = BuildVariantTable(**OpenDevice("cpu", {}));
  for (const OpDef& row : Catalogue().rows()) {
    if (row.control != Control::kNone) continue;
    const auto variants = t.Of(row.name);
    const auto reference = std::find_if(variants.begin(), variants.end(),
                                        [](const Variant& v) { return v.name == "reference"; });
    ASSERT_NE(reference, variants.end()) << row.name;
    EXPECT_TRUE(reference->unavailable.empty());
    if (!row.variables.empty()) {
      EXPECT_EQ(reference->dtypes, row.variables[0].types) << row.name;
      continue;
    }
    for (const OperandSpec& o : row.operands)
      EXPECT_EQ(reference->dtypes | row.TypesOf(o.type), reference->dtypes) << row.name;
    EXPECT_FALSE(reference->dtypes.Empty()) << row.name;
  }
}

}  // namespace
}  // namespace opwire
