// Launching each form on memory of its own.
#include "kernels/ops/gpu/fused_forms.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kernels/jit/digest.h"
#include "kernels/ops/gpu/tune.h"

namespace opwire::gpu {
namespace {

constexpr int64_t kMostTuned = int64_t{4} << 30;  // bytes of memory to measure in

// From a tensor's first element to behind its last.
int64_t SpanOf(const opw_tensor& t) {
  int64_t last = 0;
  for (int a = 0; a < t.rank; ++a) last += (t.shape[a] - 1) * t.strides[a];
  return (last + 1) * DTypeBytes(static_cast<DType>(t.dtype));
}

}  // namespace

int FastestWay(Code& code, const fused::ScalarProgram& program, std::span<const opw_tensor* const> tensors, int ways, const std::function<FusedLaunch(int way)>& launch_of) {
  if (code.choices() == nullptr || fused::Raises(program)) return 0;
  std::vector<Scratch> scratch;
  std::string sizes;
  int64_t bytes = 0;
  for (const opw_tensor* t : tensors) {
    scratch.push_back({static_cast<DType>(t->dtype), SpanOf(*t)});
    bytes += scratch.back().bytes;
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ",", std::bit_width(static_cast<uint64_t>(t->elements)));
  }
  if (bytes < kLeastTuned || bytes > kMostTuned) return 0;
  // The text says all of the program and the form but sizes.
  const std::string key = fmt::format("fused {} [{}]", jit::Sha256(launch_of(0).kernel.text).substr(0, 32), sizes);
  std::vector<FusedLaunch> launches;
  std::vector<Kernel*> kernels;
  const auto compile = [&] {
    for (int way = 0; way < ways; ++way) {
      launches.push_back(launch_of(way));
      kernels.push_back(code.GetText(launches.back().kernel));
    }
  };
  return FastestOf(code, key, ways, scratch, [&](int way, std::span<char* const> memory) -> Status {
    if (kernels.empty()) compile();
    FusedLaunch& launch = launches[static_cast<size_t>(way)];
    OPWIRE_ASSIGN_OR_RETURN(const Function function, kernels[static_cast<size_t>(way)]->Load());  // what does not compile is no way
    std::memcpy(launch.params.data(), memory.data(), memory.size_bytes());
    std::memcpy(launch.params.data() + memory.size_bytes(), &code.device().reporter(), sizeof(opw::Reporter));
    return code.device().Launch(function, {.grid_x = static_cast<unsigned>(launch.blocks), .threads = static_cast<unsigned>(launch.threads)}, launch.params.data(), launch.params.size());
  });
}

}  // namespace opwire::gpu
