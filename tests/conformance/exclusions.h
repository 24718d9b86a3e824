// What the conformance suite does not ask of a variant, each with its reason.
#ifndef OPWIRE_TESTS_CONFORMANCE_EXCLUSIONS_H_
#define OPWIRE_TESTS_CONFORMANCE_EXCLUSIONS_H_

#include <string_view>

namespace opwire::conformance {

// The reason why `op` is not checked for `variant`; empty: it is.
std::string_view ExclusionOf(std::string_view op, std::string_view variant);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_EXCLUSIONS_H_
