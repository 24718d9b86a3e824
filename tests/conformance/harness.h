// Runs one call of one variant. On the host its memory ends at a page that must not be touched. On
// a device it has memory of its own between bytes that must not change.
#ifndef OPWIRE_TESTS_CONFORMANCE_HARNESS_H_
#define OPWIRE_TESTS_CONFORMANCE_HARNESS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/select/variant.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/oracle.h"

namespace opwire::gpu {
class Code;
}

namespace opwire::conformance {

// The layout of operands in memory.
enum class Layout {
  kDense,
  kReversed,  // axes stored in reverse order, as the view of a transposed tensor
  kGapped,    // every second element, as the view of a column
};

// A device under test, and its variants. They stay until the process ends.
struct Target {
  std::string spec;
  Device* device;
  std::shared_ptr<gpu::Code> code;  // of an emulated device: compiles for `variants`; else null
  VariantTable variants;
};
// Returns the devices of OPWIRE_DEVICES, specs with commas between, or the cpu. Opens them at the
// first call; a device that cannot be opened ends the process.
const std::vector<std::unique_ptr<Target>>& Targets();
// Returns the types of OPWIRE_TYPES, names with commas between, or all. An unknown name ends the
// process.
DTypeSet TypesToCheck();

// Returns whether OPWIRE_SIZES is 'small'. Then the sizes of cases.h that only devices get are left
// out, which sanitizers need. The other valid value is 'all', the default; another value ends the
// process.
bool OnlySmall();

// Returns whether OPWIRE_VARIANTS, names with commas between, has this one, or is not set.
bool IsChecked(std::string_view variant);

// A case with resolved attributes and known types of results.
struct BoundCase {
  const OpDef* row;
  const Case* c;
  std::vector<AttrValue> attrs;
  std::vector<uint32_t> starts;
  std::vector<Tensor> results;     // without values
  std::vector<std::string> bytes;  // of the operands, element after element, or as they are encoded
};
// `with_bytes`: BoundCase::bytes is set; PlanCase does without.
StatusOr<BoundCase> Bind(const OpDef& row, const Case& c, bool with_bytes = true);
// Returns the results of a device. Its kind determines the bodies of the ops.
Expected ExpectedOf(const BoundCase& b, const Device& device);

// Prepares a call of these sizes, as an executor does before it has memory for it. Operands need no
// values. Also returns OK if the variant does not support the call.
Status PlanCase(const Variant& v, const BoundCase& b, Layout layout);

// The step of a program that each call claims to be.
inline constexpr uint32_t kStep = 321;

struct Outcome {
  std::string skipped;  // the variant's reason to reject the call
  std::string failure;  // errors of the kernel other than in its numbers
  std::vector<Tensor> results;
  RunFlags flags;
  std::string bytes;  // of the results
};
// `in_place`: result 0 shares the memory of operand 0. If results are lists, they share the memory
// of the list of the same length. REQUIRES then: equal types and shapes.
Outcome RunCase(const Variant& v, const BoundCase& b, Layout layout, bool in_place, Device& device);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_HARNESS_H_
