// Programs of rows and of columns as people write them.
#ifndef OPWIRE_TESTS_FUSED_ROW_EXAMPLES_H_
#define OPWIRE_TESTS_FUSED_ROW_EXAMPLES_H_

#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "kernels/fused/column_program.h"
#include "kernels/fused/row_program.h"

namespace opwire::fused {

struct RowExample {
  std::string_view name;
  RowProgram rows;          // of one result
  std::vector<bool> whole;  // by operand: of the rows' shape, not of one row's
};
// "softmax", "softmax_backward", "layer_norm" (whose argument is what is added to the variance),
// "loss" (one of each row), and "functions", of many.
std::vector<RowExample> RowExamples(DType type);

struct ColumnExample {
  std::string_view name;
  ColumnProgram columns;    // of rows as one axis
  std::vector<bool> whole;  // by operand: of the whole shape, not of one row's
};
// "bias_gradient", behind relu; "norm_gradient", of a norm's weight and bias;
// "activation_gradient", which is a result too; and "extremes", of one row's too.
std::vector<ColumnExample> ColumnExamples(DType type);

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_FUSED_ROW_EXAMPLES_H_
