// Elements of arrays as numbers, for output and input of the command line.
#ifndef OPWIRE_FRONTEND_CLI_ELEMENTS_H_
#define OPWIRE_FRONTEND_CLI_ELEMENTS_H_

#include <string>

#include "frontend/cpp/array.h"

namespace opwire::cli {

// Type, the first elements and the extremes, on one line.
std::string Summary(const Array& array);
// A 0-d array of this value, rounded as the element type asks.
Array ScalarArray(DType dtype, double value);

}  // namespace opwire::cli

#endif  // OPWIRE_FRONTEND_CLI_ELEMENTS_H_
