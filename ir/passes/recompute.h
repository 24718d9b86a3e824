// Values that are computed again where they are needed late, instead of being kept until then: less
// memory for more work.
//
//   StatusOr<RecomputeReport> report = Recompute(module, {.memory_bytes = int64_t{2} << 30, .sizes
//       = {{"b", 32}}});
//
// Where a function needs most, what it keeps for later is tried value by value, those first that
// free the most bytes for the least work, and goes where that lowers the peak, until it is low
// enough. It is computed again when the first node behind asks for it, with all on the way to it
// that is not kept either. One operand of such a chain is read through the op `recompute`, so that
// the pass `share` does not take the two for one.
//
// Bytes are of values between nodes, as the IR has them: what an executor fuses or lays out takes
// less.
#ifndef OPWIRE_IR_PASSES_RECOMPUTE_H_
#define OPWIRE_IR_PASSES_RECOMPUTE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/ops/catalogue.h"
#include "ir/program/module.h"
#include "ir/verify/verify.h"

namespace opwire {

struct RecomputeOptions {
  int64_t memory_bytes = 0;  // the most that values between nodes may take, parameters and results
                             // apart: ProgramCost::peak_bytes
  std::vector<std::pair<std::string, int64_t>> sizes = {};  // as PipelineOptions::sizes
  Limits limits = {};
  const OpCatalogue& ops = Catalogue();
};

struct RecomputeReport {
  int64_t before_bytes = 0, after_bytes = 0;  // at the peak
  int64_t nodes = 0;                          // that compute something again
};

// Of every function that a run of the entry calls. RESOURCE_EXHAUSTED, with what could be reached,
// where that is more than allowed; UNIMPLEMENTED where extents are counts held in values. The
// module is then as it was.
StatusOr<RecomputeReport> Recompute(Module& module, const RecomputeOptions& options);

// Of a function with a way back from node `begin` on: what nodes `recompute` before it read is
// computed again there, and they go.
void RecomputeMarked(Function& f, uint32_t begin, const OpCatalogue& ops);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_RECOMPUTE_H_
