// Programs for tests of fused code: every primitive and cast, and random ones.
#ifndef OPWIRE_TESTS_FUSED_PROGRAMS_H_
#define OPWIRE_TESTS_FUSED_PROGRAMS_H_

#include <random>
#include <string>
#include <vector>

#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

// A program and what its outputs are, for messages.
struct Case {
  ScalarProgram program;
  std::vector<std::string> outputs;
};

std::vector<DType> TypesIn(DTypeSet set);

// Every primitive on one type, as many a program as it may have outputs.
std::vector<Case> PrimitivesOf(DType type);
// Casts of one type to every type, to f8e5m2 saturating.
Case CastsOf(DType from);
// Random instructions on up to 16 inputs of mixed types and on four arguments: f32, i32, bool and
// f16.
Case RandomProgram(std::mt19937_64& random, int nodes);

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_FUSED_PROGRAMS_H_
