// Ends of programs whose command line CLI11 does not accept.
#ifndef OPWIRE_IR_OPS_PARSE_EXIT_H_
#define OPWIRE_IR_OPS_PARSE_EXIT_H_

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <sstream>

#include "ir/ops/names.h"

namespace opwire {

// Prints the help or version that was asked for, or the error, which quotes the command line, fit
// for a terminal. Returns 0 for help and version, else `usage`. App: CLI::App; Error:
// CLI::ParseError.
template <typename App, typename Error>
int ExitOfParse(const App& app, const Error& error, int usage) {
  std::ostringstream message;
  const int code = app.exit(error, std::cout, message);
  fmt::print(stderr, "{}", Printable(message.str()));
  return code == 0 ? 0 : usage;
}

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_PARSE_EXIT_H_
