// Products of many rows with what finishes them, strip by strip: what they compute, against f64; interpreted and compiled, with equal bits; what is refused.
#include "kernels/fused/product_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ir/base/element.h"
#include "kernels/select/isa.h"
#include "tests/fused/fixture.h"

namespace opwire::fused {
namespace {

int Append(ScalarProgram& p, const char* row, std::vector<int> operands, DType type) {
  return p.Append(*Catalogue().Find(row), operands, {}, type).value();
}

// a = relu(x w' + bias), a * z.
ProductProgram Layer(DType type, int64_t rows, int64_t terms, int64_t columns) {
  ProductProgram p{.type = type, .rows = rows, .terms = terms};
  ProductProgram::Section& s = p.sections.emplace_back();
  s.columns = columns;
  ScalarProgram& f = s.finish;
  const int sum = f.AddInput(DType::kF32), bias = f.AddInput(type), z = f.AddInput(type);
  s.by_row = {false, true};
  const int wide = f.Append({.prim = Prim::kCast, .type = DType::kF32, .operands = {bias, -1, -1}});
  const int biased = f.Append({.prim = Prim::kAdd, .type = DType::kF32, .operands = {sum, wide, -1}});
  const int rounded = f.Append({.prim = Prim::kCast, .type = type, .operands = {biased, -1, -1}});
  const int a = Append(f, "relu", {rounded}, type);
  f.AddOutput(a);
  f.AddOutput(Append(f, "mul", {a, z}, type));
  return p;
}

struct Tensors {
  std::vector<TestTensor> operands, results;  // x, w, bias, z; a, a * z

  Tensors(DType type, int64_t rows, int64_t terms, int64_t columns, std::mt19937_64& random)
      : operands{{type, {rows, terms}}, {type, {columns, terms}}, {type, {columns}}, {type, {rows, columns}}}, results(2, TestTensor(type, {rows, columns})) {
    std::uniform_real_distribution<double> mild(-1, 1);
    for (TestTensor& t : operands) {
      for (int64_t i = 0; i < t.elements(); ++i) {
        const uint64_t bits = ElementBits(type, mild(random));
        std::memcpy(&t.bytes[static_cast<size_t>(i * DTypeBytes(type))], &bits, static_cast<size_t>(DTypeBytes(type)));
      }
    }
  }
};
double At(const TestTensor& t, int64_t i) { return ElementValue(t.type, reinterpret_cast<const char*>(t.bytes.data()) + i * DTypeBytes(t.type)); }

uint32_t CallProduct(const ProductKernel& kernel, Tensors& t, int64_t ranges = kAllRanges) { return Call(kernel.kernel(), t.operands, t.results, {}, ranges, /*takes_workspace=*/true); }

struct Size {
  int64_t rows, terms, columns;
};
// One strip; a lower one at the end; two that are as high; columns of which the least height is more than a strip.
constexpr Size kSizes[] = {{300, 7, 300}, {700, 33, 1100}, {1024, 5, 1024}, {600, 3, 2500}};

std::vector<DType> Types() {
  std::vector<DType> types = {DType::kF32};
  if (Isa::Detect().avx512_bf16) types.push_back(DType::kBF16);
  return types;
}

TEST(ProductKernels, ComputeWhatTheySay) {
  std::mt19937_64 random(Seed());
  for (const DType type : Types()) {
    for (const auto& [rows, terms, columns] : kSizes) {
      SCOPED_TRACE(testing::Message() << DTypeName(type) << " " << rows << " x " << terms << " x " << columns << ", seed " << Seed());
      const auto kernel = ProductKernel::Make(Layer(type, rows, terms, columns));
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      Tensors t(type, rows, terms, columns, random);
      CallProduct(**kernel, t);
      const double tolerance = type == DType::kF32 ? 1e-5 : 2e-2;
      double worst = 0;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          double sum = At(t.operands[2], j);
          for (int64_t l = 0; l < terms; ++l) sum += At(t.operands[0], i * terms + l) * At(t.operands[1], j * terms + l);
          const int64_t at = i * columns + j;
          const double a = std::max(0.0, sum);
          worst = std::max({worst, std::fabs(At(t.results[0], at) - a) / (1 + std::fabs(sum)), std::fabs(At(t.results[1], at) - a * At(t.operands[3], at)) / (1 + std::fabs(sum))});
        }
      }
      EXPECT_LE(worst, tolerance);
    }
  }
}

TEST(ProductKernels, CompiledAndInterpretedHaveEqualBits) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  std::mt19937_64 random(Seed());
  Builder builder;
  for (const DType type : Types()) {
    const ProductProgram p = Layer(type, 700, 33, 1100);
    const auto interpreted = ProductKernel::Make(p).value(), compiled = ProductKernel::Make(p).value();
    compiled->functions().Compile(builder.toolchain(), builder.cache());
    ASSERT_TRUE(compiled->functions().compiled()) << compiled->functions().status();
    Tensors t(type, 700, 33, 1100, random), same = t;
    CallProduct(*interpreted, t);
    CallProduct(*compiled, same);
    for (size_t o = 0; o < 2; ++o) EXPECT_EQ(FirstDifference(t.results[o], same.results[o]), "") << DTypeName(type) << ", seed " << Seed();
  }
}

TEST(ProductKernels, StopBetweenStrips) {
  std::mt19937_64 random(Seed());
  Tensors t(DType::kF32, 700, 33, 1100, random);
  CallProduct(*ProductKernel::Make(Layer(DType::kF32, 700, 33, 1100)).value(), t, 1);
  EXPECT_EQ(At(t.results[0], t.results[0].elements() - 1), 0);
  EXPECT_EQ(At(t.results[1], t.results[1].elements() - 1), 0);
}

TEST(ProductKernels, RefuseWhatTheyDoNotHave) {
  const auto why = [](const ProductProgram& p) { return ProductKernel::Make(p).status().ToString(); };
  EXPECT_EQ(why(Layer(DType::kF32, 2, 8, 1 << 20)), "UNIMPLEMENTED: no product of many rows");
  EXPECT_EQ(why(Layer(DType::kF32, 256, 8, 256)), "UNIMPLEMENTED: 256 x 256 sums, which stay in the caches");
  EXPECT_EQ(why(Layer(DType::kF16, 300, 8, 300)), "UNIMPLEMENTED: rows of f16, which this processor does not multiply");
  ProductProgram two = Layer(DType::kF32, 300, 8, 300);
  two.sections.push_back(two.sections[0]);
  EXPECT_EQ(why(two), "UNIMPLEMENTED: no product of many rows");
}

}  // namespace
}  // namespace opwire::fused
