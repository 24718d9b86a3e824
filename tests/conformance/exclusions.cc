// The list of exclusions.
#include "tests/conformance/exclusions.h"

#include <span>

namespace opwire::conformance {
namespace {

struct Exclusion {
  std::string_view op, variant, reason;
};
// None today: every variant is checked for every row that it serves.
constexpr std::span<const Exclusion> kExclusions;

}  // namespace

std::string_view ExclusionOf(std::string_view op, std::string_view variant) {
  for (const Exclusion& e : kExclusions) {
    if (e.op == op && e.variant == variant) return e.reason;
  }
  return {};
}

}  // namespace opwire::conformance
