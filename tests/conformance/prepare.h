// Compiles the kernels of calls before they run, several in a unit. To start the host's compiler
// and to read the headers takes as long as to compile one kernel of an emulated device.
//
// A unit of several kernels has the shared variables of all of them. So the emulator does not check
// whether those of one kernel fit a block; the compilers of GPUs do (gpu_compile).
#ifndef OPWIRE_TESTS_CONFORMANCE_PREPARE_H_
#define OPWIRE_TESTS_CONFORMANCE_PREPARE_H_

#include <functional>
#include <span>

#include "tests/conformance/harness.h"

namespace opwire::conformance {

// Plans these cases of `row`, in all layouts and by all variants that `runs` accepts, and compiles
// their kernels in units of several, two units at a time. Units depend only on the cases, so the
// build cache has them in the next process. A kernel whose unit does not compile is compiled when
// its call runs, which reports the error. Does nothing if the target has no `code`.
void PrepareKernels(const Target& target, const OpDef& row, std::span<const Case> cases,
                    const std::function<bool(const Variant&)>& runs);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_PREPARE_H_
