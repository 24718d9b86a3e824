// Random programs that the verifier accepts, for round trips and for runs against references.
//
//   std::mt19937_64 rng(seed);
//   Module m = RandomModule(rng, {.nodes = 30});
#ifndef OPWIRE_TESTS_IR_RANDOM_PROGRAM_H_
#define OPWIRE_TESTS_IR_RANDOM_PROGRAM_H_

#include <random>
#include <string>
#include <vector>

#include "ir/program/module.h"

namespace opwire {

struct RandomOptions {
  int nodes = 20;       // of each function, about
  int functions = 1;    // all but the entry are called by none
  int params = 4;       // tensors of each function, beside those that ops ask for
  bool symbols = true;  // extents may be symbols
  bool inouts = true;
  bool decorations = true;  // pins, locations
  bool control = false;     // loops and branches, whose functions come behind the others; loops go
                            // round three times at the most
  bool encoded = false;     // a parameter of each function is in blocks
  int64_t max_extent = 5;   // of a constant
  int64_t max_elements = 4096;        // of a value, with symbols at most kRandomSymbolUpper
  std::vector<DType> dtypes = {};     // of parameters; empty: all
  std::vector<std::string> ops = {};  // empty: all of the catalogue
};

inline constexpr int64_t kRandomSymbolUpper = 6;

// The same seed gives the same module. Never fails: what the rules refuse is tried otherwise or
// left out.
Module RandomModule(std::mt19937_64& rng, const RandomOptions& options);

}  // namespace opwire

#endif  // OPWIRE_TESTS_IR_RANDOM_PROGRAM_H_
