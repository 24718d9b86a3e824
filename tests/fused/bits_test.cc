// Fused code: the interpreter and the compiled unit give equal bits for every primitive, type and
// shape. Their values are those of the reference.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "ir/scalar/scalar.h"
#include "kernels/device/device.h"
#include "kernels/fused/interpreter.h"
#include "kernels/fused/source.h"
#include "kernels/select/variant.h"
#include "tests/fused/fixture.h"
#include "tests/fused/programs.h"

namespace opwire::fused {
namespace {

constexpr int64_t kElements = 4099;  // ranges, whole vectors, and some remaining elements

std::vector<TestTensor> Inputs(const ScalarProgram& p, std::vector<int64_t> shape,
                               std::mt19937_64& random) {
  std::vector<TestTensor> out;
  for (const DType type : p.inputs()) {
    out.emplace_back(type, shape);
    FillHard(out.back(), random);
  }
  return out;
}
std::vector<TestTensor> Outputs(const ScalarProgram& p, const std::vector<int64_t>& shape) {
  std::vector<TestTensor> out;
  for (size_t i = 0; i < p.outputs().size(); ++i)
    out.emplace_back(p.OutputType(static_cast<int>(i)), shape);
  return out;
}

// Interpreted and compiled on equal inputs: equal bits and flags.
void ExpectEqualBits(const Case& c, const Isa& isa, const opw_kernel& compiled,
                     const std::vector<TestTensor>& inputs, const std::vector<TestTensor>& outputs,
                     const std::vector<opw_attr>& arguments = {}) {
  const Interpreter interpreter(c.program, isa);
  std::vector<TestTensor> a = outputs, b = outputs;
  const uint32_t raised = Call(interpreter.kernel(), inputs, a, arguments);
  EXPECT_EQ(Call(compiled, inputs, b, arguments), raised);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(FirstDifference(a[i], b[i]), "")
        << c.outputs[i] << " in\n"
        << ProgramSource(c.program, 0) << "on " << isa.ToString() << ", seed " << Seed();
}

void ExpectAllEqualBits(const std::vector<Case>& cases) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  std::vector<ScalarProgram> programs;
  for (const Case& c : cases) {
    ASSERT_TRUE(c.program.Check().ok()) << c.program.Check();
    programs.push_back(c.program);
  }
  const CompiledPrograms compiled(programs);
  ASSERT_TRUE(compiled.ok());
  std::mt19937_64 random(Seed());
  for (size_t i = 0; i < cases.size(); ++i) {
    const ScalarProgram& p = cases[i].program;
    ExpectEqualBits(cases[i], Isa::Detect(), compiled.kernel(static_cast<int>(i)),
                    Inputs(p, {kElements}, random), Outputs(p, {kElements}));
  }
}

// Returns the distance of a value from the reference's, in units of the type's allowed error; a NaN
// equals a NaN. `scale` is the operand.
double Distance(DType type, double got, double reference, double scale) {
  if (std::isnan(got) || std::isnan(reference))
    return std::isnan(got) && std::isnan(reference) ? 0 : INFINITY;
  if (got == reference) return 0;
  const double ulp = type == DType::kF64   ? 0x1p-52
                     : type == DType::kF32 ? 0x1p-23
                     : type == DType::kF16 ? 0x1p-10
                                           : 0x1p-7;
  const double least = type == DType::kF64 ? 0x1p-1074 : type == DType::kF16 ? 0x1p-24 : 0x1p-149;
  const double bound =
      (ComputeType(type) == type ? 8 : 1) * ulp * std::max(std::abs(reference), scale) + 4 * least;
  return std::abs(got - reference) / bound;
}

// Returns a tensor's values as f64.
std::vector<double> Doubles(const TestTensor& t) {
  std::vector<double> out(t.elements());
  ops::VisitType(t.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<double>(ops::Load<T>(t.bytes.data(), static_cast<int64_t>(i)));
  });
  return out;
}

// Every elementwise op as a program of its own, against its reference kernel. The portable
// interpreter gives the same values. This processor's loops give the same within the primitives'
// bounds.
TEST(Fused, RowsGiveWhatTheirReferenceGives) {
  const VariantTable table = BuildVariantTable(**OpenDevice("cpu", {}));
  std::mt19937_64 random(Seed());
  for (const OpDef& row : Catalogue().rows()) {
    if (row.body.Empty() || row.name == "cast") continue;  // casts have a test of their own
    const bool selects = row.operands[0].type == "bool" && row.operands.size() == 3;
    for (const DType type : TypesIn(row.TypesOf(row.operands.back().type))) {
      ScalarProgram p;
      std::vector<int> operands;
      for (size_t i = 0; i < row.operands.size(); ++i)
        operands.push_back(p.AddInput(selects && i == 0 ? DType::kBool : type));
      const DType result = row.results[0].type == "bool" ? DType::kBool : type;
      const StatusOr<int> value = p.Append(row, operands, {}, result);
      ASSERT_TRUE(value.ok()) << value.status();
      p.AddOutput(*value);
      ASSERT_TRUE(p.Check().ok()) << row.name << ": " << p.Check();
      const std::vector<TestTensor> inputs = Inputs(p, {kElements}, random);
      std::vector<TestTensor> expected = Outputs(p, {kElements}), portable = expected,
                              fast = expected;
      opw_call call{};
      std::vector<opw_tensor> in;
      for (const TestTensor& t : inputs) in.push_back(t.abi());
      call.operands = in.data();
      const uint32_t starts[] = {0, 1, 2, 3};
      call.starts = starts;
      const opw_tensor out = expected[0].abi();
      call.results = &out;
      const uint32_t raised =
          Call((*table.Choose(row.name, type, call, "reference"))->kernel, inputs, expected);
      EXPECT_EQ(Call(Interpreter(p, Isa{}).kernel(), inputs, portable), raised);
      EXPECT_EQ(Call(Interpreter(p).kernel(), inputs, fast), raised);
      const std::vector<double> e = Doubles(expected[0]), a = Doubles(portable[0]),
                                b = Doubles(fast[0]), x = Doubles(inputs.back());
      const std::vector<double> base = Doubles(inputs.front());
      const bool sums = row.name == "logaddexp", power = row.name == "pow",
                 relative = row.name.starts_with("gelu") || sums;
      for (size_t i = 0; i < e.size(); ++i) {
        if (power && (std::isnan(base[i]) || std::isnan(x[i])))
          continue;  // C does not define whether the result is 1, or NaN, if one operand is
                     // signalling
        ASSERT_EQ(Distance(type, a[i], e[i], 0), 0)
            << row.name << " of " << DTypeName(type) << ": " << a[i] << " for " << e[i];
        const double beside = std::max(std::abs(x[i]), sums ? std::abs(base[i]) : 0);
        ASSERT_LE(Distance(type, b[i], e[i], relative ? beside : 0), 1)
            << row.name << " of " << DTypeName(type) << ": " << b[i] << " for " << e[i] << " at "
            << x[i] << ", seed " << Seed();
      }
    }
  }
}

// Portable casts are the reference's own conversions.
TEST(Fused, CastsGiveWhatTheReferenceGives) {
  std::mt19937_64 random(Seed());
  for (const DType type : TypesIn(kAll)) {
    const Case c = CastsOf(type);
    const std::vector<TestTensor> inputs = Inputs(c.program, {kElements}, random);
    std::vector<TestTensor> portable = Outputs(c.program, {kElements}), fast = portable;
    Call(Interpreter(c.program, Isa{}).kernel(), inputs, portable);
    Call(Interpreter(c.program).kernel(), inputs, fast);
    for (size_t i = 0; i < fast.size(); ++i) {
      const std::vector<double> a = Doubles(portable[i]), b = Doubles(fast[i]);
      for (size_t k = 0; k < a.size(); ++k) {
        ASSERT_TRUE(a[k] == b[k] || (std::isnan(a[k]) && std::isnan(b[k])))
            << c.outputs[i] << ": " << b[k] << " for " << a[k];
      }
    }
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

// The extremes of values and of operands that all elements share, in both orders: an input, an
// argument, a constant.
TEST(Fused, ExtremesOfWhatAllElementsShareHaveEqualBits) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  const std::vector<double> shared = {NAN, 0.0,  -0.0,     INFINITY,  -INFINITY,
                                      1.0, -2.5, 0x1p-149, -0x1p-149, 0.1};
  std::vector<Case> cases;
  std::vector<ScalarProgram> programs;
  const std::vector<DType> types = TypesIn(kFloats);
  for (const DType type : types) {
    for (const Prim from : {Prim::kIn, Prim::kAttr, Prim::kConst}) {
      Case c;
      ScalarProgram& p = c.program;
      const int x = p.AddInput(type);
      const double constant = -1.5;
      const uint64_t bits = type == DType::kF64
                                ? std::bit_cast<uint64_t>(constant)
                                : std::bit_cast<uint32_t>(static_cast<float>(constant));
      const int s = from == Prim::kIn ? p.AddInput(type)
                    : from == Prim::kAttr
                        ? p.AddArgument(type)
                        : p.Append({.prim = Prim::kConst, .type = type, .bits = bits});
      for (const char* row : {"minimum", "maximum"}) {
        for (const std::vector<int>& operands : {std::vector{x, s}, std::vector{s, x}}) {
          p.AddOutput(*p.Append(*Catalogue().Find(row), operands, {}, type));
          c.outputs.push_back(row);
        }
      }
      p.AddOutput(*p.Append(*Catalogue().Find("relu"), std::vector{x}, {}, type));
      c.outputs.push_back("relu");
      ASSERT_TRUE(p.Check().ok()) << p.Check();
      programs.push_back(p);
      cases.push_back(std::move(c));
    }
  }
  std::mt19937_64 random(Seed());
  std::vector<Isa> sets = {Isa::Detect()};
  if (sets[0].avx512) sets.push_back({.avx2 = true});
  for (const Isa& isa : sets) {
    const CompiledPrograms compiled(programs, isa.avx512 ? "x86-64-v4" : "x86-64-v3");
    ASSERT_TRUE(compiled.ok());
    for (size_t i = 0; i < cases.size(); ++i) {
      const ScalarProgram& p = cases[i].program;
      for (const double number : shared) {
        std::vector<TestTensor> inputs = Inputs(p, {kElements}, random);
        if (p.inputs().size() == 2) {
          inputs[1] = TestTensor(p.inputs()[1], {1});
          ops::VisitType(inputs[1].type, [&](auto tag) {
            const auto v = ops::Convert<typename decltype(tag)::Type>(number);
            std::memcpy(inputs[1].bytes.data(), &v, sizeof v);
          });
        }
        const std::vector<TestTensor> outputs = Outputs(p, {kElements});
        ExpectEqualBits(cases[i], isa, compiled.kernel(static_cast<int>(i)), inputs, outputs,
                        {FloatArgument(number)});
        // The bits also equal those of code without vectors.
        std::vector<TestTensor> portable = outputs, fast = outputs;
        Call(Interpreter(p, Isa{}).kernel(), inputs, portable, {FloatArgument(number)});
        Call(compiled.kernel(static_cast<int>(i)), inputs, fast, {FloatArgument(number)});
        for (size_t o = 0; o < fast.size(); ++o)
          EXPECT_EQ(FirstDifference(portable[o], fast[o]), "")
              << cases[i].outputs[o] << " with " << number << ", seed " << Seed();
      }
    }
  }
}

TEST(Fused, RandomProgramsHaveEqualBitsOnAnyShapes) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  std::mt19937_64 random(Seed());
  std::vector<Case> cases;
  std::vector<ScalarProgram> programs;
  for (const int nodes : {1, 3, 5, 8, 8, 12, 16, 24, 32, 64}) {
    cases.push_back(RandomProgram(random, nodes));
    ASSERT_TRUE(cases.back().program.Check().ok())
        << cases.back().program.Check() << ", seed " << Seed();
    programs.push_back(cases.back().program);
  }
  const std::vector<opw_attr> arguments = {FloatArgument(-2.5), IntArgument(7), IntArgument(1),
                                           FloatArgument(0.1)};
  std::vector<Isa> sets = {Isa::Detect()};
  if (sets[0].avx512) sets.push_back({.avx2 = true});  // that set's code too
  for (const Isa& isa : sets) {
    const CompiledPrograms compiled(programs, isa.avx512 ? "x86-64-v4" : "x86-64-v3");
    ASSERT_TRUE(compiled.ok());
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {}, {1}, {67}, {40000}, {0, 3}, {5, 3, 7}, {3, 130, 70}, {70, 1, 129}}) {
      for (size_t i = 0; i < cases.size(); ++i) {
        const ScalarProgram& p = cases[i].program;
        std::vector<TestTensor> inputs;
        for (const DType type : p.inputs()) {
          const uint64_t kind = random() % 4;
          inputs.push_back(kind == 0   ? Broadcast(type, shape, random)
                           : kind == 1 ? View(type, shape, random)
                                       : TestTensor(type, shape));
          FillHard(inputs.back(), random);
        }
        std::vector<TestTensor> outputs;
        for (const TestTensor& t : Outputs(p, shape))
          outputs.push_back(random() % 4 == 0 ? View(t.type, shape, random) : t);
        ExpectEqualBits(cases[i], isa, compiled.kernel(static_cast<int>(i)), inputs, outputs,
                        arguments);
      }
    }
  }
}

}  // namespace
}  // namespace opwire::fused
