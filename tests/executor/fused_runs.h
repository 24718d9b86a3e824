// Common parts of tests of groups with reductions: runs with groups and without, the difference of
// their results, and the traffic of a group's kernel.
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

namespace opwire::executor {

// Returns the steps of a program with groups, without their variants.
std::vector<std::string> Fused(const std::string& text);

class FusedRunsTest : public CoreTest {
 protected:
  FusedRunsTest()
      : trace_(__FILE__, __LINE__, testing::Message() << "repeat with OPWIRE_SEED=" << Seed()) {}
  void Start(bool fuses);
  std::vector<std::string> Run(const Module& m, uint64_t seed, bool fuses, const FillParam& fill);
  // Expects of random programs of one type each: one kernel that moves at most 1.1 times the least
  // bytes, and has the results of the nodes run alone. OPWIRE_PROGRAMS: the number of programs; by
  // default there are fewer on GPUs, because each kernel is compiled.
  void ExpectOneKernelEach(const std::function<std::string(std::mt19937_64&)>& text,
                           const FillParam& fill);

  const testing::ScopedTrace trace_;
  std::shared_ptr<fused::Fuser> built_;
  Client c_;
};

// Writes values of about 1, of any type.
void FillSmall(const Param& p, std::string& bytes, std::mt19937_64& random);

std::vector<double> ValuesOf(DType type, const std::string& bytes);
// Returns the largest difference, relative to the larger value or to 1; infinite if only one of two
// values is a number.
double Difference(const std::vector<double>& a, const std::vector<double>& b);
double Tolerance(DType type);

// Returns the traffic of an instance of one group, relative to the least traffic, which is
// parameters and results. The traffic consists of the kernel's operands and results. Values that it
// keeps and that no cache holds count twice.
double TrafficOf(const Program& program, const Instance& instance);

}  // namespace opwire::executor

#endif  // OPWIRE_TESTS_EXECUTOR_FUSED_RUNS_H_
