// A compiler whose object is a text: the resources of each kernel of a unit. With it the build
// cache (kernels/jit/cache.h) keeps that text instead of code, and only after a successful
// compilation.
//
//   const auto compiler = ResourceCompiler(jit::Nvrtc({}));
//   OPWIRE_ASSIGN_OR_RETURN(const jit::CacheEntry e, cache->Get(*compiler, request));
//   OPWIRE_ASSIGN_OR_RETURN(const ResourcesByKernel resources, ReadResources(e.object));
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_RESOURCE_COMPILER_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_RESOURCE_COMPILER_H_

#include <memory>
#include <string>

#include "kernels/jit/toolchain.h"
#include "tests/conformance/compile/resources.h"

namespace opwire::conformance {

// `compiler`: NVRTC, whose requests need the flag kPtxasFlag, or hipRTC. Errors are those of
// `compiler`, and INTERNAL if it reports no resources. Its cache keys differ from those of
// `compiler`.
std::unique_ptr<jit::Toolchain> ResourceCompiler(std::unique_ptr<jit::Toolchain> compiler);

// Reads an object of a ResourceCompiler. DATA_LOSS if the file holds no such text.
StatusOr<ResourcesByKernel> ReadResources(const std::string& file);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_RESOURCE_COMPILER_H_
