// Random inputs of tests. Their seed is another one each time and printed with the failure that it
// causes; OPWIRE_SEED repeats a run.
//
//   std::mt19937_64 random(Seed());
//   OPWIRE_TRACE_SEED();
//   for (uint64_t i = 0; i < ProgramCount(500); ++i) ...
#ifndef OPWIRE_TESTS_SEED_H_
#define OPWIRE_TESTS_SEED_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>

#include "kernels/jit/sanitized.h"

namespace opwire {

inline uint64_t Seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("OPWIRE_SEED");
    return given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  }();
  return seed;
}

#define OPWIRE_TRACE_SEED() \
  SCOPED_TRACE(testing::Message() << "repeat with OPWIRE_SEED=" << ::opwire::Seed())

// How many random programs a case tries. A sanitizer's build, which looks for faults of memory and
// of threads rather than for wrong results, tries an eighth. OPWIRE_PROGRAMS sets another number.
inline uint64_t ProgramCount(uint64_t usual) {
  if (const char* given = std::getenv("OPWIRE_PROGRAMS")) return std::strtoull(given, nullptr, 10);
  return jit::kSanitized ? (usual + 7) / 8 : usual;
}

}  // namespace opwire

#endif  // OPWIRE_TESTS_SEED_H_
