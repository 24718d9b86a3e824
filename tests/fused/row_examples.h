// Programs of rows and of columns as users write them.
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
  std::vector<bool> whole;  // by operand: whether it has the rows' shape, not one row's
};
// Returns "softmax", "softmax_backward", "layer_norm" (whose argument is added to the variance),
// "loss" (one for each row), and "functions", which has many functions.
std::vector<RowExample> RowExamples(DType type);

struct ColumnExample {
  std::string_view name;
  ColumnProgram columns;    // of rows as one axis
  std::vector<bool> whole;  // by operand: whether it has the whole shape, not one row's
};
// Returns "bias_gradient", after relu; "norm_gradient", of a norm's weight and bias;
// "activation_gradient", which is a result too; and "extremes", also of one row's operand.
std::vector<ColumnExample> ColumnExamples(DType type);

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_FUSED_ROW_EXAMPLES_H_
