// Common parts of tests of fused code: tensors of any strides with hard values, one call of a
// kernel, compiled programs.
#ifndef OPWIRE_TESTS_FUSED_FIXTURE_H_
#define OPWIRE_TESTS_FUSED_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/fused/fused.h"
#include "kernels/fused/scalar_program.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/library.h"
#include "kernels/jit/toolchain.h"
#include "tests/folder.h"
#include "tests/seed.h"

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

// Returns a tensor that broadcasts to the shape: some axes have extent 1, some leading ones are
// left out.
TestTensor Broadcast(DType type, std::vector<int64_t> shape, std::mt19937_64& random);
// Returns a view with the last two axes swapped, or every other element.
TestTensor View(DType type, const std::vector<int64_t>& shape, std::mt19937_64& random);

// Writes NaNs, infinities, zeros, the lowest and largest values, small whole numbers, and random
// bits.
void FillHard(TestTensor& t, std::mt19937_64& random);

opw_attr IntArgument(int64_t v);
opw_attr FloatArgument(double v);

// Runs the first `ranges` ranges of a kernel once. Returns the flags that it raised. Fails the test
// if the kernel refuses, or needs a workspace although `takes_workspace` is false.
inline constexpr int64_t kAllRanges = int64_t{1} << 62;
uint32_t CallOn(const opw_kernel& kernel, std::span<const opw_tensor> inputs,
                std::span<const opw_tensor> outputs, std::span<const opw_attr> arguments = {},
                int64_t ranges = kAllRanges, bool takes_workspace = false);
uint32_t Call(const opw_kernel& kernel, const std::vector<TestTensor>& inputs,
              std::vector<TestTensor>& outputs, const std::vector<opw_attr>& arguments = {},
              int64_t ranges = kAllRanges, bool takes_workspace = false);

// The host's compiler and a cache of its objects.
class Builder {
 public:
  Builder();
  jit::Toolchain& toolchain() { return *toolchain_; }
  jit::BuildCache& cache() { return *cache_; }

 private:
  Folder folder_;
  std::unique_ptr<jit::Toolchain> toolchain_;
  std::unique_ptr<jit::BuildCache> cache_;
};

// Programs compiled into one library. Fails the test if it does not compile.
class CompiledPrograms {
 public:
  explicit CompiledPrograms(const std::vector<ScalarProgram>& programs,
                            const std::string& arch = UnitArch());
  const opw_kernel& kernel(int i) const { return library_->kernel(i); }
  bool ok() const { return library_ != nullptr; }

 private:
  Builder builder_;
  std::shared_ptr<const jit::Library> library_;
};

// Returns "value 17: 7fc00000 and ffc00000"; empty if all bits are equal.
std::string FirstDifference(const TestTensor& a, const TestTensor& b);

}  // namespace opwire::fused

#endif  // OPWIRE_TESTS_FUSED_FIXTURE_H_
