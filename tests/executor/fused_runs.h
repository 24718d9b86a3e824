// What tests of groups with folds share: runs with groups and without, how far their results are
// apart, and what a group's kernel moves.
#ifndef OPWIRE_TESTS_EXECUTOR_FUSED_RUNS_H_
#define OPWIRE_TESTS_EXECUTOR_FUSED_RUNS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "executor/plan/instance.h"
#include "executor/plan/program.h"
#include "kernels/fused/fuser.h"
#include "tests/executor/fixture.h"
#include "tests/seed.h"

namespace opwire {

// The steps of a program with groups, without their variants.
std::vector<std::string> Fused(const std::string& text);

class FusedRunsTest : public CoreTest {
 protected:
  FusedRunsTest()
      : trace_(__FILE__, __LINE__, testing::Message() << "repeat with OPWIRE_SEED=" << Seed()) {}
  void Start(bool fuses);
  std::vector<std::string> Run(const Module& m, uint64_t seed, bool fuses, const FillParam& fill);
  // Of random programs of one type each: one kernel, that moves at most 1.1 times what must be
  // moved, and gives what the nodes give alone. OPWIRE_PROGRAMS: how many; on GPUs fewer otherwise,
  // as each kernel is compiled.
  void ExpectOneKernelEach(const std::function<std::string(std::mt19937_64&)>& text,
                           const FillParam& fill);

  const testing::ScopedTrace trace_;
  std::shared_ptr<fused::Fuser> built_;
  Client c_;
};

// Values of about 1, of any type.
void FillSmall(const Param& p, std::string& bytes, std::mt19937_64& random);

std::vector<double> ValuesOf(DType type, const std::string& bytes);
// The largest difference, in parts of the larger one or of 1; infinite where one is no number and
// the other is.
double Difference(const std::vector<double>& a, const std::vector<double>& b);
double Tolerance(DType type);

// Of an instance of one group: what is moved, which is the kernel's operands and results, and what
// it keeps where no cache holds it, twice; in parts of what must be moved at least, which is
// parameters and results.
double TrafficOf(const Program& program, const Instance& instance);

}  // namespace opwire

#endif  // OPWIRE_TESTS_EXECUTOR_FUSED_RUNS_H_
