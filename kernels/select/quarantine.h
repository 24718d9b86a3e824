// Variants that took executors down are not chosen any more: those built into this program are
// counted here, in a file of the cache; those of users beside their objects (kernels/jit/cache.h).
#ifndef OPWIRE_KERNELS_SELECT_QUARANTINE_H_
#define OPWIRE_KERNELS_SELECT_QUARANTINE_H_

#include <string>
#include <string_view>

#include "kernels/select/variant.h"

namespace opwire {

// From so many deaths on a variant is not chosen.
inline constexpr int kQuarantineDeaths = 2;

// Notes one death more in `died` ("matmul@onednn"; empty: none, and a label that the set does not
// have is none), and withdraws all variants of the set that are to be quarantined; their reason
// names the file, which may be removed to try them again. References stay: they answer for the op,
// and what they compute is its meaning. Where executors died in fused groups nothing is fused, and
// the file is the answer. Without a directory, or where it cannot be written, deaths are not
// remembered.
struct Quarantined {
  std::string why_not_fused;  // empty: groups are not quarantined
};
Quarantined Quarantine(KernelSet& set, const std::string& directory, std::string_view context,
                       std::string_view died);

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_QUARANTINE_H_
