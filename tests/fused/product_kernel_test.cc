// Matmuls of many rows with their epilogues, tile by tile, against f64. They are interpreted and
// compiled, with equal bits. Also rejected programs.
#include "kernels/fused/product_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

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
  const int biased =
      f.Append({.prim = Prim::kAdd, .type = DType::kF32, .operands = {sum, wide, -1}});
  const int rounded = f.Append({.prim = Prim::kCast, .type = type, .operands = {biased, -1, -1}});
  const int a = Append(f, "relu", {rounded}, type);
  f.AddOutput(a);
  f.AddOutput(Append(f, "mul", {a, z}, type));
  return p;
}

struct Tensors {
  std::vector<TestTensor> operands, results;  // x, w, bias, z; a, a * z

  Tensors(int64_t rows, int64_t terms, int64_t columns, std::mt19937_64& random)
      : operands{{DType::kF32, {rows, terms}},
                 {DType::kF32, {columns, terms}},
                 {DType::kF32, {columns}},
                 {DType::kF32, {rows, columns}}},
        results(2, TestTensor(DType::kF32, {rows, columns})) {
    std::uniform_real_distribution<float> mild(-1, 1);
    for (TestTensor& t : operands) {
      for (float& x : Floats(t)) x = mild(random);
    }
  }
  static std::span<float> Floats(TestTensor& t) {
    return {reinterpret_cast<float*>(t.bytes.data()), t.bytes.size() / sizeof(float)};
  }
};

uint32_t CallProduct(const ProductKernel& kernel, Tensors& t, int64_t ranges = kAllRanges) {
  return Call(kernel.kernel(), t.operands, t.results, {}, ranges, /*takes_workspace=*/true);
}

struct Size {
  int64_t rows, terms, columns;
};
// Tiles of all columns, whose last one has fewer rows; equal tiles; last tiles with fewer rows,
// fewer columns, or both; few columns; few rows.
constexpr Size kSizes[] = {
    {520, 7, 520}, {512, 33, 1024}, {700, 33, 1100}, {2000, 9, 200}, {60, 5, 9001}};

TEST(ProductKernels, ComputeWhatTheySay) {
  std::mt19937_64 random(Seed());
  for (const auto& [rows, terms, columns] : kSizes) {
    SCOPED_TRACE(testing::Message()
                 << rows << " x " << terms << " x " << columns << ", seed " << Seed());
    const auto kernel = ProductKernel::Make(Layer(DType::kF32, rows, terms, columns));
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    Tensors t(rows, terms, columns, random);
    CallProduct(**kernel, t);
    const std::span<const float> x = t.Floats(t.operands[0]), w = t.Floats(t.operands[1]),
                                 bias = t.Floats(t.operands[2]), z = t.Floats(t.operands[3]),
                                 first = t.Floats(t.results[0]), second = t.Floats(t.results[1]);
    double worst = 0;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double sum = bias[static_cast<size_t>(j)];
        for (int64_t l = 0; l < terms; ++l)
          sum += static_cast<double>(x[static_cast<size_t>(i * terms + l)]) *
                 w[static_cast<size_t>(j * terms + l)];
        const auto at = static_cast<size_t>(i * columns + j);
        const double a = std::max(0.0, sum);
        worst = std::max({worst, std::fabs(first[at] - a) / (1 + std::fabs(sum)),
                          std::fabs(second[at] - a * z[at]) / (1 + std::fabs(sum))});
      }
    }
    EXPECT_LE(worst, 1e-5);
  }
}

TEST(ProductKernels, CompiledAndInterpretedHaveEqualBits) {
  if (UnitArch().empty()) GTEST_SKIP() << "without AVX2 nothing is compiled";
  std::mt19937_64 random(Seed());
  Builder builder;
  const ProductProgram p = Layer(DType::kF32, 700, 33, 1100);
  const auto interpreted = ProductKernel::Make(p).value(),
             compiled = ProductKernel::Make(p).value();
  compiled->functions().Compile(builder.toolchain(), builder.cache());
  ASSERT_TRUE(compiled->functions().compiled()) << compiled->functions().status();
  Tensors t(700, 33, 1100, random), same = t;
  CallProduct(*interpreted, t);
  CallProduct(*compiled, same);
  for (size_t o = 0; o < 2; ++o)
    EXPECT_EQ(FirstDifference(t.results[o], same.results[o]), "") << "seed " << Seed();
}

TEST(ProductKernels, StopBetweenTiles) {
  std::mt19937_64 random(Seed());
  Tensors t(700, 33, 1100, random);
  CallProduct(*ProductKernel::Make(Layer(DType::kF32, 700, 33, 1100)).value(), t, 1);
  for (TestTensor& r : t.results) EXPECT_EQ(t.Floats(r).back(), 0);
}

TEST(ProductKernels, RefuseWhatTheyDoNotHave) {
  const auto why = [](const ProductProgram& p) {
    return ProductKernel::Make(p).status().ToString();
  };
  EXPECT_EQ(why(Layer(DType::kF32, 2, 8, 1 << 20)), "UNIMPLEMENTED: no product of many rows");
  EXPECT_EQ(why(Layer(DType::kF32, 512, 8, 512)),
            "UNIMPLEMENTED: 512 x 512 sums, which stay in the caches");
  EXPECT_EQ(why(Layer(DType::kBF16, 700, 8, 700)), "UNIMPLEMENTED: rows of bf16, expected f32");
  ProductProgram two = Layer(DType::kF32, 700, 8, 700);
  two.sections.push_back(two.sections[0]);
  EXPECT_EQ(why(two), "UNIMPLEMENTED: no product of many rows");
}

}  // namespace
}  // namespace opwire::fused
