// Compiles, loads and switches.
#include "kernels/fused/fused.h"

#include <dlfcn.h>

#include <utility>

#include "kernels/fused/source.h"
#include "kernels/select/isa.h"

namespace opwire::fused {

std::string UnitArch() {
  const Isa& isa = Isa::Detect();
  return isa.avx512 ? "x86-64-v4" : isa.avx2 ? "x86-64-v3" : "";
}

FusedKernel::~FusedKernel() {
  if (library_ != nullptr) dlclose(library_);
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

Status FusedKernel::Load(const std::string& object) {
  library_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return Internal("{} cannot be loaded: {}", object, dlerror());
  const auto* const compiled = static_cast<const opw_kernel*>(dlsym(library_, KernelSymbol(0).c_str()));
  if (compiled == nullptr) return Internal("{} exports no {}", object, KernelSymbol(0));
  if (compiled->abi_version != OPW_ABI_VERSION)
    return Internal("{} is of ABI {}, not {}", object, compiled->abi_version, OPW_ABI_VERSION);
  run_.store(compiled->run, std::memory_order_release);
  return absl::OkStatus();
}

void FusedKernel::Compile(const ScalarProgram& program, jit::Toolchain& toolchain, jit::BuildCache& cache) {
  const auto compile = [&]() -> Status {
    if (UnitArch().empty()) return FailedPrecondition("fused code is compiled for processors with AVX2");
    const ScalarProgram* const programs[] = {&program};
    OPWIRE_ASSIGN_OR_RETURN(const jit::CacheEntry entry,
                            cache.Get(toolchain, {.name = "fused", .text = HostSource(programs), .arch = UnitArch()}));
    return Load(entry.object);
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
