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
    const auto compiled = Of(c).run_.load(std::memory_order_acquire);
    return compiled ? compiled(c) : Of(c).Interpret(c);
  };
  return k;
}

int FusedKernel::Interpret(const opw_call* c) const {
  const opw_call inner = Inner(c);
  const int code = interpreted_.run(&inner);
  const int64_t work = c->results[0].elements * instructions_;
  const int64_t before = interpreted_work_.fetch_add(work, std::memory_order_relaxed);
  if (before < kWorthCompiling && before + work >= kWorthCompiling && worth_it_) worth_it_();
  return code;
}

void FusedKernel::SetStatus(Status status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
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
  SetStatus(compile());
}

}  // namespace opwire::fused
