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
  std::vector<Function> functions;
  const auto compile = [&] {
    std::vector<KernelText> kernels;
    for (int way = 0; way < ways; ++way) {
      launches.push_back(launch_of(way));
      kernels.push_back(launches.back().kernel);
    }
    (void)code.Prepare(kernels);  // where that fails, each is compiled by itself, or is no way
    for (const KernelText& kernel : kernels) functions.push_back(code.GetText(kernel).value_or(nullptr));
  };
  return FastestOf(code, key, ways, scratch, [&](int way, std::span<char* const> memory) -> Status {
    if (functions.empty()) compile();
    FusedLaunch& launch = launches[static_cast<size_t>(way)];
    const Function function = functions[static_cast<size_t>(way)];
    if (function == nullptr) return Internal("{} does not compile", launch.kernel.name);
    std::memcpy(launch.params.data(), memory.data(), memory.size_bytes());
    std::memcpy(launch.params.data() + memory.size_bytes(), &code.device().reporter(), sizeof(opw::Reporter));
    return code.device().Launch(function, {.grid_x = static_cast<unsigned>(launch.blocks), .threads = static_cast<unsigned>(launch.threads)}, launch.params.data(), launch.params.size());
  });
}

}  // namespace opwire::gpu
