// Measures a user's kernel against its op's reference and against a copy of the same number of
// bytes.
#ifndef OPWIRE_EXECUTOR_OPS_MEASURE_H_
#define OPWIRE_EXECUTOR_OPS_MEASURE_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "executor/ops/bound_op.h"
#include "ir/base/status.h"

namespace opwire::executor {

struct Measurement {
  std::string what;              // "f32 M=1024 N=1024"
  double seconds = 0;            // of the kernel, the median
  double reference_seconds = 0;  // of the reference program with the same types, on a CPU
  double copy_seconds = 0;       // of a copy of half as many bytes as the kernel reads and writes
  int64_t bytes = 0;             // that the kernel reads and writes
};

// Measures with the sizes of the manifest's "bench", or with 4 Mi elements if it has none. Returns
// nothing if the kernel refuses them.
StatusOr<std::optional<Measurement>> Measure(OpUnderTrial& trial, const TypeBinding& types,
                                             std::mt19937_64& random, FaultReporter& faults);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_MEASURE_H_
