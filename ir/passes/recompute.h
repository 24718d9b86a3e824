// Rematerialises values that are needed late, instead of keeping them until then: less memory for
// more work.
//
//   StatusOr<RecomputeReport> report = Recompute(module, {.memory_bytes = int64_t{2} << 30, .sizes
//       = {{"b", 32}}});
//
// At the peak of a function, this tries the values that it keeps for later, one by one. Those that
// free the most bytes for the least work come first. A value is rematerialised if that lowers the
// peak, until the peak is low enough. The first later reader computes it again, together with all
// nodes on the way to it that are not kept either. One operand of such a chain is read through the
// op `recompute`, so that the pass `share` does not join the two.
//
// Bytes are those of values between nodes in the IR. Fusion and layout in an executor need less.
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
  int64_t memory_bytes = 0;  // the limit of values between nodes, without parameters and results:
                             // ProgramCost::peak_bytes
  std::vector<std::pair<std::string, int64_t>> sizes = {};  // as PipelineOptions::sizes
  Limits limits = {};
  const OpCatalogue& ops = Catalogue();
};

struct RecomputeReport {
  int64_t before_bytes = 0, after_bytes = 0;  // at the peak
  int64_t nodes = 0;                          // that compute a value again
};

// Processes every function that a run of the entry calls. RESOURCE_EXHAUSTED, with the lowest
// possible peak, if that exceeds the limit. UNIMPLEMENTED if extents are counts held in values. The
// module is then unchanged.
StatusOr<RecomputeReport> Recompute(Module& module, const RecomputeOptions& options);

// For a function with a backward pass starting with node `begin`: rematerialises there the operands
// of earlier nodes `recompute`, and removes these nodes.
void RecomputeMarked(Function& f, uint32_t begin, const OpCatalogue& ops);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_RECOMPUTE_H_
