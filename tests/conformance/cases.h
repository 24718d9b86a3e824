// Calls to check: for an op definition and an element type, fresh random operands over shapes and
// attributes.
#ifndef OPWIRE_TESTS_CONFORMANCE_CASES_H_
#define OPWIRE_TESTS_CONFORMANCE_CASES_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ir/ops/catalogue.h"
#include "tests/conformance/tensor.h"

namespace opwire::conformance {

struct Random : std::mt19937_64 {
  using std::mt19937_64::mt19937_64;
  bool zeros =
      false;  // Make and MakeBlocks fill tensors with zeros: for calls that are only planned
};

struct Case {
  std::string name;
  std::vector<Tensor> operands;    // lists are flattened; an absent one has no dtype
  std::vector<uint32_t> segments;  // in the form that InferTypes takes
  std::vector<NamedAttr> attrs;
  std::shared_ptr<DimTable> dims = std::make_shared<DimTable>();
  std::string blob;
  bool large = false;  // takes an emulated device seconds
};

// Returns the cases of an op definition. `type` is the type of its first type variable. Shapes and
// attributes are the same for all seeds, so that the kernels of the cases are, too; only elements
// are random.
std::vector<Case> CasesOf(const OpDef& row, DType type, Random& random);
// Returns cases with too many elements for devices other than GPUs: forms that GPUs use only for
// long rows and large matmuls.
std::vector<Case> LongCasesOf(const OpDef& row, DType type, Random& random);

// Random elements of a type:
enum class Values {
  kPlain,    // moderate numbers of both signs
  kSpecial,  // the same with NaN, infinities, zeros of both signs, subnormals and the extremes
             // among them
  kUnit,     // near 1
};
Tensor Make(DType type, Extents shape, Values values, Random& random);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_CASES_H_
