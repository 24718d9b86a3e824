// Fused code: the interpreter and the compiled unit give equal bits for every primitive, type and shape, and what the reference gives.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/device/device.h"
#include "kernels/fused/interpreter.h"
#include "kernels/fused/source.h"
#include "kernels/ops/scalar.h"
#include "kernels/select/variant.h"
#include "tests/kernels/fused_fixture.h"

namespace opwire::fused {
namespace {

constexpr int64_t kElements = 4099;  // ranges, whole vectors, and some left over

std::vector<DType> TypesIn(DTypeSet set) {
  std::vector<DType> out;
  for (int t = 1; t < kDTypeCount; ++t) {
    if (set.Has(static_cast<DType>(t))) out.push_back(static_cast<DType>(t));
  }
  return out;
}

// A program and what its outputs are, for messages.
struct Case {
  ScalarProgram program;
  std::vector<std::string> outputs;
};

// Every primitive on one type, as many a program as it may have outputs.
std::vector<Case> PrimitivesOf(DType type) {
  std::vector<Case> out;
  for (int p = 0; p < kPrimCount; ++p) {
    const Prim prim = static_cast<Prim>(p);
    const int arity = InfoOf(prim).arity;
    if (arity == 0 || prim == Prim::kCast || !TypesOf(prim).Has(type)) continue;
    if (out.empty() || out.back().outputs.size() == kMaxOutputs) {
      out.emplace_back();
      out.back().program.AddInput(DType::kBool);
      for (int i = 0; i < 2; ++i) out.back().program.AddInput(type);
    }
    Instruction one{.prim = prim, .type = IsTest(prim) ? DType::kBool : type};
    for (int i = 0; i < arity; ++i) one.operands[i] = prim == Prim::kSelect ? i : i + 1;
    out.back().program.AddOutput(out.back().program.Append(one));
    out.back().outputs.push_back(fmt::format("{} of {}", InfoOf(prim).name, DTypeName(type)));
  }
  return out;
}

// Casts of one type to every type, with and without saturation.
Case CastsOf(DType from) {
  Case c;
  c.program.AddInput(from);
  for (const DType to : TypesIn(kAll)) {
    c.program.AddOutput(c.program.Append({.prim = Prim::kCast, .type = to, .operands = {0, -1, -1}, .saturate = to == DType::kF8E5M2}));
    c.outputs.push_back(fmt::format("cast of {} to {}", DTypeName(from), DTypeName(to)));
  }
  return c;
}

std::vector<TestTensor> Inputs(const ScalarProgram& p, std::vector<int64_t> shape, std::mt19937_64& random) {
  std::vector<TestTensor> out;
  for (const DType type : p.inputs()) {
    out.emplace_back(type, shape);
    FillHard(out.back(), random);
  }
  return out;
}
std::vector<TestTensor> Outputs(const ScalarProgram& p, const std::vector<int64_t>& shape) {
  std::vector<TestTensor> out;
  for (size_t i = 0; i < p.outputs().size(); ++i) out.emplace_back(p.OutputType(static_cast<int>(i)), shape);
  return out;
}

// Interpreted and compiled on equal inputs: equal bits and flags.
void ExpectEqualBits(const Case& c, const opw_kernel& compiled, const std::vector<TestTensor>& inputs, const std::vector<int64_t>& shape,
                     const std::vector<opw_attr>& arguments = {}) {
  const Interpreter interpreter(c.program);
  std::vector<TestTensor> a = Outputs(c.program, shape), b = a;
  const uint32_t raised = Call(interpreter.kernel(), inputs, a, arguments);
  EXPECT_EQ(Call(compiled, inputs, b, arguments), raised);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(FirstDifference(a[i], b[i]), "") << c.outputs[i] << ", seed " << Seed();
}

void ExpectAllEqualBits(const std::vector<Case>& cases) {
  if (TestArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  std::vector<ScalarProgram> programs;
  for (const Case& c : cases) {
    ASSERT_TRUE(c.program.Check().ok()) << c.program.Check();
    programs.push_back(c.program);
  }
  const CompiledPrograms compiled(programs);
  ASSERT_TRUE(compiled.ok());
  std::mt19937_64 random(Seed());
  for (size_t i = 0; i < cases.size(); ++i) {
    ExpectEqualBits(cases[i], compiled.kernel(static_cast<int>(i)), Inputs(cases[i].program, {kElements}, random), {kElements});
  }
}

TEST(Fused, FloatPrimitivesHaveEqualBits) {
  std::vector<Case> cases;
  for (const DType type : TypesIn(kFloats)) {
    for (Case& c : PrimitivesOf(type)) cases.push_back(std::move(c));
  }
  ExpectAllEqualBits(cases);
}

TEST(Fused, IntegerPrimitivesHaveEqualBits) {
  std::vector<Case> cases;
  for (const DType type : TypesIn(kAll - kFloats)) {
    for (Case& c : PrimitivesOf(type)) cases.push_back(std::move(c));
  }
  ExpectAllEqualBits(cases);
}

TEST(Fused, CastsHaveEqualBits) {
  std::vector<Case> cases;
  for (const DType type : TypesIn(kAll)) cases.push_back(CastsOf(type));
  ExpectAllEqualBits(cases);
}

}  // namespace
}  // namespace opwire::fused
