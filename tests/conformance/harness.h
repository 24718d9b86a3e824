// Runs one call of one variant: on the host in memory that ends at a page which may not be touched,
// on a device with memory of its own between bytes that must stay as they are.
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

// How operands lie in memory.
enum class Layout {
  kDense,
  kReversed,  // axes stored in reverse order, as the view of a transposed tensor
  kGapped,    // every second element, as the view of a column
};

// A device that is checked, and what runs on it. They stay until the process ends.
struct Target {
  std::string spec;
  Device* device;
  std::shared_ptr<gpu::Code> code;  // of an emulated device: compiles for `variants`; else null
  VariantTable variants;
};
// OPWIRE_DEVICES, specs with commas between, or the cpu. Opened at the first call; a device that
// cannot be opened ends the process.
const std::vector<std::unique_ptr<Target>>& Targets();
// OPWIRE_TYPES, names with commas between, or all. A name that is none ends the process.
DTypeSet TypesToCheck();

// Whether OPWIRE_SIZES is 'small': without the sizes of cases.h that only a device gets, as
// sanitizers want it. Another value than that and 'all', which is the usual one, ends the process.
bool OnlySmall();

// Whether OPWIRE_VARIANTS, names with commas between, has this one, or is not set.
bool IsChecked(std::string_view variant);

// A case with its attributes resolved and its results' types known.
struct BoundCase {
  const OpRow* row;
  const Case* c;
  std::vector<AttrValue> attrs;
  std::vector<uint32_t> starts;
  std::vector<Tensor> results;     // without values
  std::vector<std::string> bytes;  // of the operands, element after element, or as they are encoded
};
// `with_bytes`: BoundCase::bytes is set; PlanCase does without.
StatusOr<BoundCase> Bind(const OpRow& row, const Case& c, bool with_bytes = true);
// Of a device, whose kind says which bodies it has.
Expected ExpectedOf(const BoundCase& b, const Device& device);

// Prepares a call of these sizes, as an executor does before it has memory for it; operands need no
// values. OK, too, where the variant does not serve it.
Status PlanCase(const Variant& v, const BoundCase& b, Layout layout);

// The step of a program that each call is said to be.
inline constexpr uint32_t kStep = 321;

struct Outcome {
  std::string skipped;  // the variant's reason against the call
  std::string failure;  // what the kernel did wrong beside its numbers
  std::vector<Tensor> results;
  RunFlags flags;
  std::string bytes;  // of the results
};
// `in_place`: result 0 is operand 0's memory; where results are lists, those have that of the list
// that they are as long as. REQUIRES then: equal types and shapes.
Outcome RunCase(const Variant& v, const BoundCase& b, Layout layout, bool in_place, Device& device);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_HARNESS_H_
