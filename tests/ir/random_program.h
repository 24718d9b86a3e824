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
  int nodes = 20;       // of each function, approximately
  int functions = 1;    // only the entry is used; no node calls the others
  int params = 4;       // tensors of each function, in addition to those that ops need
  bool symbols = true;  // extents may be symbols
  bool inouts = true;
  bool decorations = true;  // pins, locations
  bool control = false;     // loops and branches, whose functions come after the others; loops have
                            // at most three iterations
  bool encoded = false;     // each function has a parameter in blocks
  int64_t max_extent = 5;   // of a constant
  int64_t max_elements = 4096;        // of a value, with symbols at most kRandomSymbolUpper
  std::vector<DType> dtypes = {};     // of parameters; empty: all
  std::vector<std::string> ops = {};  // empty: all of the catalogue
};

inline constexpr int64_t kRandomSymbolUpper = 6;

// Returns the same module for the same seed. Never fails: if the rules refuse a node, it tries
// another one or leaves it out.
Module RandomModule(std::mt19937_64& rng, const RandomOptions& options);

}  // namespace opwire

#endif  // OPWIRE_TESTS_IR_RANDOM_PROGRAM_H_
