// Runs one call of one variant in memory that ends at a page which may not be touched.
#ifndef OPWIRE_TESTS_CONFORMANCE_HARNESS_H_
#define OPWIRE_TESTS_CONFORMANCE_HARNESS_H_

#include <string>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/select/variant.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/oracle.h"

namespace opwire::conformance {

// How operands lie in memory.
enum class Layout {
  kDense,
  kReversed,  // axes stored in reverse order, as the view of a transposed tensor
  kGapped,    // every second element, as the view of a column
};

// `bytes` bytes, the last of them before an inaccessible page, with marks before the first.
class GuardedMemory {
 public:
  explicit GuardedMemory(int64_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  char* data() const { return data_; }
  bool MarksIntact() const;

 private:
  char* base_;
  int64_t mapped_;
  char* data_;
};

// A case with its attributes resolved and its result's type known.
struct BoundCase {
  const OpRow* row;
  const Case* c;
  std::vector<AttrValue> attrs;
  std::vector<uint32_t> starts;
  DType result_type;
  Extents result_shape;
};
StatusOr<BoundCase> Bind(const OpRow& row, const Case& c);
Expected ExpectedOf(const BoundCase& b);

struct Outcome {
  std::string skipped;  // the variant's reason against the call
  std::string failure;  // what the kernel did wrong beside its numbers
  Tensor result;
  RunFlags flags;
  std::string bytes;  // of the result
};
// `in_place`: the result is operand 0's memory. REQUIRES then: equal types and shapes.
Outcome RunCase(const Variant& v, const BoundCase& b, Layout layout, bool in_place, Device& device);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_HARNESS_H_
