// What tests of fused code share: tensors of any strides with hard values, one call of a kernel, compiled programs.
#ifndef OPWIRE_TESTS_KERNELS_FUSED_FIXTURE_H_
#define OPWIRE_TESTS_KERNELS_FUSED_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/fused/scalar_program.h"
#include "tests/kernels/host_library.h"

namespace opwire::fused {

// Elements of one type at any strides.
struct TestTensor {
  DType type = DType::kInvalid;
  std::vector<int64_t> shape, strides;
  std::vector<uint8_t> bytes;

  // Contiguous.
  TestTensor(DType t, std::vector<int64_t> extents);
  int64_t elements() const;
  opw_tensor abi() const;
};

// NaNs, infinities, zeros, the least and largest, small whole numbers, and random bits.
void FillHard(TestTensor& t, std::mt19937_64& random);

// Runs a kernel once over ranges of its own choice; the flags that it raised. Fails the test where the kernel refuses.
uint32_t Call(const opw_kernel& kernel, const std::vector<TestTensor>& inputs, std::vector<TestTensor>& outputs,
              const std::vector<opw_attr>& arguments = {});

// Programs compiled into one library. Fails the test where it does not compile.
class CompiledPrograms {
 public:
  explicit CompiledPrograms(const std::vector<ScalarProgram>& programs);
  ~CompiledPrograms();
  const opw_kernel& kernel(int i) const { return *kernels_[i]; }
  bool ok() const { return library_ != nullptr; }

 private:
  TestCache cache_;
  void* library_ = nullptr;
  std::vector<const opw_kernel*> kernels_;
};

// The seed of this run's random values, printed where a test fails.
uint64_t Seed();

// "value 17: 7fc00000 and ffc00000"; empty: all bits are equal.
std::string FirstDifference(const TestTensor& a, const TestTensor& b);

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_KERNELS_FUSED_FIXTURE_H_
