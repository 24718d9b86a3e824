// The seed of a test's random inputs: another one each time, printed with the failure it causes;
// OPWIRE_SEED repeats a run.
//
//   std::mt19937_64 random(Seed());
//   OPWIRE_TRACE_SEED();
#ifndef OPWIRE_TESTS_SEED_H_
#define OPWIRE_TESTS_SEED_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>

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

}  // namespace opwire

#endif  // OPWIRE_TESTS_SEED_H_
