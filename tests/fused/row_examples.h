// Programs of rows as people write them.
#ifndef OPWIRE_TESTS_FUSED_ROW_EXAMPLES_H_
#define OPWIRE_TESTS_FUSED_ROW_EXAMPLES_H_

#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "kernels/fused/row_program.h"

namespace opwire::fused {

struct RowExample {
  std::string_view name;
  RowProgram rows;          // of one result
  std::vector<bool> whole;  // by operand: of the rows' shape, not of one row's
};
// "softmax", "softmax_backward", "layer_norm" (whose argument is what is added to the variance), "loss" (one of each row), and "functions", of many.
std::vector<RowExample> RowExamples(DType type);

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_FUSED_ROW_EXAMPLES_H_
