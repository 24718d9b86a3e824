// What kernels take of a multiprocessor, as their compilers tell.
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_RESOURCES_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_RESOURCES_H_

#include <map>
#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace opwire::conformance {

// Of one kernel; bytes are a thread's, shared memory a block's.
struct Resources {
  int registers = 0;
  int spill_stores = 0, spill_loads = 0;  // bytes; a code object tells one number for both
  int stack = 0;                          // bytes of local memory, spills included
  int shared = 0;                         // bytes, static
  int spilled() const { return spill_stores > spill_loads ? spill_stores : spill_loads; }
};
using ResourcesByKernel = std::map<std::string, Resources>;

// From the log of NVRTC with kPtxasFlag.
inline constexpr const char* kPtxasFlag = "--ptxas-options=-v";
ResourcesByKernel FromPtxasLog(const std::string& log);
// From the metadata in an ELF file that hipRTC made. INVALID_ARGUMENT: it has none.
StatusOr<ResourcesByKernel> FromCodeObject(std::string_view object);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_RESOURCES_H_
