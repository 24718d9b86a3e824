// Random programs of columns, tensors for them, and a check of their results by reductions in f64
// between whole tensors.
#ifndef OPWIRE_TESTS_FUSED_RANDOM_COLUMNS_H_
#define OPWIRE_TESTS_FUSED_RANDOM_COLUMNS_H_

#include <random>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "kernels/fused/column_program.h"
#include "tests/fused/random_rows.h"

namespace opwire::fused {

// Returns a program whose operands and results have one type; the first operand has the whole
// shape. It has no products of floats.
ColumnProgram RandomColumns(std::mt19937_64& random, DType type, uint32_t axes);
// Returns operands of any strides, and results. The first operand has the whole shape.
RowTensors ColumnTensorsFor(const ColumnProgram& p, const Shape& shape, std::mt19937_64& random);
// Fails the test if the results are not those of the program: floats within some ulps of the
// largest intermediate sum, others exactly.
void ExpectNear(const ColumnProgram& p, const RowTensors& t, const Shape& shape);

// Returns whether a shape has no rows for extremes that the program needs.
bool LacksExtremes(const ColumnProgram& p, const Shape& shape);

// The reduced axes of a shape, as in a ColumnProgram, and the shape.
struct ColumnShape {
  uint32_t axes;
  Shape shape;
};
inline const std::vector<ColumnShape> kColumnShapes = {{1, {10, 3}},
                                                       {1, {127, 5}},
                                                       {1, {40, 128}},
                                                       {1, {1000, 7}},
                                                       {1, {70'001, 2}},
                                                       {1, {2000, 130}},
                                                       {1, {1, 1}},
                                                       {1, {1, 77}},
                                                       {1, {500, 1}},
                                                       {0b11, {3, 50, 1025}},
                                                       {1, {9, 2, 33}},
                                                       {0b11, {7, 1, 300}},
                                                       {1, {5, 4096}},
                                                       {1, {3, 20'001}},
                                                       {1, {0, 5}},
                                                       {1, {4, 0}},
                                                       {0b111, {2, 3, 4, 8}},
                                                       {1, {33, 5, 7, 11}},
                                                       {1, {300, 1, 1}},
                                                       {1, {300, 2049}},
                                                       {0b11, {0, 3, 130}},
                                                       {1, {6, 140, 1}},
                                                       {0b10, {3, 50, 1025}},
                                                       {0b10, {7, 90, 130}},
                                                       {0b10, {40, 33, 5}},
                                                       {0b101, {6, 3, 20, 140}},
                                                       {0b110, {5, 4, 3, 257}},
                                                       {0b10, {1, 30, 64}},
                                                       {0b10, {4, 1, 9}},
                                                       {0b10, {3, 0, 5}},
                                                       {0b10, {2, 1100, 128}},
                                                       {0b10, {2, 9, 4100}},
                                                       {0b1, {9, 3, 130}},
                                                       {0b100, {3, 2, 7, 200}}};

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_FUSED_RANDOM_COLUMNS_H_
