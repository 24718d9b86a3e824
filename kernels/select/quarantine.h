// Variants in which executors died repeatedly are no longer chosen. For variants built into this
// program a file of the cache counts the deaths. For users' variants the count is stored next to
// their objects (kernels/jit/cache.h).
#ifndef OPWIRE_KERNELS_SELECT_QUARANTINE_H_
#define OPWIRE_KERNELS_SELECT_QUARANTINE_H_

#include <string>
#include <string_view>

#include "kernels/select/variant.h"

namespace opwire {

// A variant with this many deaths or more is not chosen.
inline constexpr int kQuarantineDeaths = 2;

// Notes one more death in `died` ("matmul@onednn"; empty, or a label that the set does not have: no
// death). Then withdraws all variants of the set that are to be quarantined. Their reason names the
// file; remove it to try them again. References stay: they are the fallback for the op, and their
// results define it. If executors died in fused groups, no groups are fused, and the file says why.
// Without a directory, or if it cannot be written, deaths are not remembered.
struct Quarantined {
  std::string why_not_fused;  // empty: groups are not quarantined
};
Quarantined Quarantine(KernelSet& set, const std::string& directory, std::string_view context,
                       std::string_view died);

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_QUARANTINE_H_
