// How fast a user's kernel is, against its op's reference and a copy of as many bytes.
#ifndef OPWIRE_EXECUTOR_OPS_MEASURE_H_
#define OPWIRE_EXECUTOR_OPS_MEASURE_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "executor/ops/bound_op.h"
#include "ir/base/status.h"

namespace opwire::ops {

struct Measurement {
  std::string what;              // "f32 M=1024 N=1024"
  double seconds = 0;            // of the kernel, the median,
  double reference_seconds = 0;  // of the reference program with the same types (a cpu's),
  double copy_seconds = 0;       // and of copying half as many bytes as it reads and writes
  int64_t bytes = 0;             // that it reads and writes
};

// At the sizes of the manifest's "bench", or of 4 Mi elements where it has none. Nothing where the
// kernel refuses them.
StatusOr<std::optional<Measurement>> Measure(OpUnderTrial& trial, const TypeBinding& types,
                                             std::mt19937_64& random, FaultReporter& faults);

}  // namespace opwire::ops

#endif  // OPWIRE_EXECUTOR_OPS_MEASURE_H_
