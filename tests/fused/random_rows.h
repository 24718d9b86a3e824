// Random programs of rows, tensors for them, and the expected results: by reductions in f64 between
// whole tensors.
#ifndef OPWIRE_TESTS_FUSED_RANDOM_ROWS_H_
#define OPWIRE_TESTS_FUSED_RANDOM_ROWS_H_

#include <random>
#include <vector>

#include "ir/base/dtype.h"
#include "kernels/fused/row_program.h"
#include "tests/fused/fixture.h"

namespace opwire::fused {

using Shape = std::vector<int64_t>;
inline constexpr auto kAtElements = RowProgram::kElements;
inline constexpr auto kAtRow = RowProgram::kRow;
inline constexpr auto kAtShort = RowProgram::kShort;

int Append(RowProgram& p, const char* row, std::vector<int> operands, DType type);
// Returns a program whose operands and results have one type: that of a mean, of products that are
// exact in f64, or bool.
RowProgram RandomRows(std::mt19937_64& random, DType type);

struct RowTensors {
  std::vector<TestTensor> operands, results;
};
// Returns operands of any strides, and results. The first operand has the rows' shape.
RowTensors TensorsFor(const RowProgram& p, const Shape& shape, std::mt19937_64& random);
// Writes values of about 1, and below 5.
void FillMild(TestTensor& t, std::mt19937_64& random);
// Returns the results of a program, one tensor operation after the other: floats in f64, others
// exactly.
std::vector<std::vector<double>> Expected(const RowProgram& p,
                                          const std::vector<TestTensor>& operands,
                                          const Shape& shape);
// Returns a tensor's values in their order.
std::vector<double> InOrder(const TestTensor& t);
// Fails the test if the results are not those of the program: f32 and f64 in f64, others exactly.
void ExpectNear(const RowProgram& p, const RowTensors& t, const Shape& shape);

inline const std::vector<Shape> kShapes = {{3, 10},     {2, 5, 127},   {40, 128}, {7, 1000},
                                           {2, 70'001}, {17, 20'000},  {1, 1},    {300, 3},
                                           {6},         {3, 1, 4, 33}, {2000, 9}};

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_FUSED_RANDOM_ROWS_H_
