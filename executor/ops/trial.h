// Checks a built kernel in a child process: whatever it does there, this process lives.
#ifndef OPWIRE_EXECUTOR_OPS_TRIAL_H_
#define OPWIRE_EXECUTOR_OPS_TRIAL_H_

#include <string>

#include "executor/ops/check.h"

namespace opwire::executor {

struct TrialOptions {
  std::string worker = "/proc/self/exe";  // the program whose `--try-op` is TrialMain
  std::string device = "cpu";             // where it runs, as OpenDevice takes it
  CheckOptions check;
  double seconds = 20;  // of wall time
};

// Loads `object`, which was built from the folder's variant, and checks it. FAILED_PRECONDITION
// with what is wrong with it: it does not load, crashes, does not end, leaves its tensors, or
// computes something else. INTERNAL where no child can be had.
StatusOr<CheckReport> TryKernel(const std::string& folder, const std::string& variant,
                                const std::string& object, const TrialOptions& options);

// `PROGRAM --try-op`: reads what to try from standard input, writes what came of it to standard
// output. The exit code.
int TrialMain();

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_TRIAL_H_
