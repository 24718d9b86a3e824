// Runs of programs by the reference kernels alone, so that what two programs give can be compared
// to the bit.
#ifndef OPWIRE_TESTS_PASSES_OUTCOME_H_
#define OPWIRE_TESTS_PASSES_OUTCOME_H_

#include <string>
#include <vector>

#include "ir/passes/pipeline.h"
#include "tests/executor/fixture.h"

namespace opwire {
using namespace executor;

class OutcomeTest : public executor::CoreTest {
 protected:
  OutcomeTest();

  // What differs between runs of the two on equal inputs; empty: nothing. They have the same
  // parameters and results. NaNs are equal whatever their bits; floats within `tolerance` of each
  // other, relative to the larger one, or to 1. Where the first fails nothing is compared: a node
  // that goes takes its checks with it; else `compared` counts.
  std::string Difference(const Module& before, const Module& after, uint64_t seed,
                         double tolerance = 0, const FillParam& fill = nullptr,
                         int* compared = nullptr);
};

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_OUTCOME_H_
