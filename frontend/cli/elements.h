// Elements of arrays as numbers, for output and input of the command line.
#ifndef OPWIRE_FRONTEND_CLI_ELEMENTS_H_
#define OPWIRE_FRONTEND_CLI_ELEMENTS_H_

#include <string>
#include <string_view>

#include "frontend/cpp/array.h"

namespace opwire::cli {
using namespace client;

// Type, the first elements and the extremes, on one line.
std::string Summary(const Array& array);
// Returns a 0-d array of the number in the text. INVALID_ARGUMENT if it is not a number, or not one
// of that integer type.
StatusOr<Array> ScalarArray(DType dtype, std::string_view text);

}  // namespace opwire::cli

#endif  // OPWIRE_FRONTEND_CLI_ELEMENTS_H_
