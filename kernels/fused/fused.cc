// Compiles, loads and switches.
#include "kernels/fused/fused.h"

#include <utility>

#include "kernels/fused/source.h"
#include "kernels/select/isa.h"

namespace opwire::fused {

std::string UnitArch() {
  const Isa& isa = Isa::Detect();
  return isa.avx512 ? "x86-64-v4" : isa.avx2 ? "x86-64-v3" : "";
}

// The call as the interpreter's kernel takes it.
opw_call FusedKernel::Inner(const opw_call* c) {
  opw_call inner = *c;
  inner.context = Of(c).interpreted_.context;
  return inner;
}

opw_kernel FusedKernel::kernel() const {
  opw_kernel k = interpreted_;
  k.context = this;
  k.supports = [](const opw_call* c) {
    const opw_call inner = Inner(c);
    return Of(c).interpreted_.supports(&inner);
  };
  k.prepare = [](const opw_call* c, void** state, int64_t* workspace_bytes) {
    const opw_call inner = Inner(c);
    return Of(c).interpreted_.prepare(&inner, state, workspace_bytes);
  };
  k.run = [](const opw_call* c) {
    if (const auto compiled = Of(c).run_.load(std::memory_order_acquire)) return compiled(c);
    const opw_call inner = Inner(c);
    return Of(c).interpreted_.run(&inner);
  };
  return k;
}

Status FusedKernel::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void FusedKernel::Compile(const ScalarProgram& program, jit::Toolchain& toolchain, jit::BuildCache& cache) {
  const auto compile = [&]() -> Status {
    if (UnitArch().empty()) return FailedPrecondition("fused code is compiled for processors with AVX2");
    const ScalarProgram* const programs[] = {&program};
    OPWIRE_ASSIGN_OR_RETURN(const jit::CacheEntry entry,
                            cache.Get(toolchain, {.name = "fused", .text = HostSource(programs), .arch = UnitArch()}));
    OPWIRE_ASSIGN_OR_RETURN(library_, jit::Library::Open(entry.object));
    run_.store(library_->kernel().run, std::memory_order_release);
    return absl::OkStatus();
  };
  Status status = compile();
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

StatusOr<std::shared_ptr<FusedKernel>> CompileElementwise(const ScalarProgram& program, jit::Toolchain& toolchain,
                                                          jit::BuildCache& cache, const Submit& submit) {
  OPWIRE_RETURN_IF_ERROR(program.Check());
  auto kernel = std::make_shared<FusedKernel>(program);
  submit([kernel, program, &toolchain, &cache] { kernel->Compile(program, toolchain, cache); });
  return kernel;
}

}  // namespace opwire::fused
