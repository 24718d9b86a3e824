// Compiles, loads and switches.
#include "kernels/fused/functions.h"

#include <utility>

#include "kernels/fused/source.h"
#include "kernels/select/isa.h"

namespace opwire::fused {

std::string UnitArch() {
  const Isa& isa = Isa::Detect();
  return isa.avx512 ? "x86-64-v4" : isa.avx2 ? "x86-64-v3" : "";
}

Functions::Functions(std::vector<ScalarProgram> programs, std::function<void()> worth_it)
    : programs_(std::move(programs)), worth_it_(std::move(worth_it)) {
  for (const ScalarProgram& program : programs_) {
    const Interpreter& one = interpreters_.emplace_back(program);
    interpreted_.push_back({one.function(), one.context()});
    instructions_ += static_cast<int64_t>(program.instructions().size());
  }
}

void Functions::Worked(int64_t elements) const {
  if (compiled() || !worth_it_) return;
  const int64_t work = elements * instructions_,
                before = interpreted_work_.fetch_add(work, std::memory_order_relaxed);
  if (before < kWorthCompiling && before + work >= kWorthCompiling) worth_it_();
}

void Functions::SetStatus(Status status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

Status Functions::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Functions::Compile(jit::Toolchain& toolchain, jit::BuildCache& cache) {
  const auto compile = [&]() -> Status {
    if (UnitArch().empty())
      return FailedPrecondition("fused code is compiled for processors with AVX2");
    std::vector<const ScalarProgram*> all;
    for (const ScalarProgram& program : programs_) all.push_back(&program);
    OPWIRE_ASSIGN_OR_RETURN(
        const jit::CacheEntry entry,
        cache.Get(toolchain, {.name = "fused", .text = HostSource(all), .arch = UnitArch()}));
    const int count = static_cast<int>(all.size());
    OPWIRE_ASSIGN_OR_RETURN(library_, jit::Library::Open(entry.object, count));
    for (int i = 0; i < count; ++i)
      compiled_.push_back({*static_cast<const RowFunction*>(library_->kernel(i).context), nullptr});
    is_compiled_.store(true, std::memory_order_release);
    return absl::OkStatus();
  };
  SetStatus(compile());
}

}  // namespace opwire::fused
