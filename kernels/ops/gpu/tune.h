// Which of several ways to do a piece of a device's work is the fastest, measured once and kept, so
// that results keep their bits.
//
//   const int way = FastestOf(code, "cublaslt 130000 bf16 768x768x16384", 8, {{DType::kBF16,
//       bytes}, ...}, [&](int way, std::span<char* const> memory) { ... });
#ifndef OPWIRE_KERNELS_OPS_GPU_TUNE_H_
#define OPWIRE_KERNELS_OPS_GPU_TUNE_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops/gpu/code.h"

namespace opwire::gpu {

struct Scratch {
  DType dtype;  // of random numbers in [-1, 1) that it holds
  int64_t bytes;
};

// The result of an earlier FastestOf for this key, which it would return again. nullopt: it would
// measure, or use the first way. Any thread.
std::optional<int> KnownWay(const Code& code, const std::string& key, int ways);

// Returns a way, from 0 to `ways` - 1; 0 if the device's executor keeps no choices (Code::choices),
// or if there is no memory to measure in. `launch` puts a way's work on stream 0, with memory of
// the requested sizes; ways for which it fails are skipped. Way 0 stays unless another is notably
// faster. Blocks while each way runs a few times. On the device's thread, while nothing is
// recorded.
int FastestOf(Code& code, const std::string& key, int ways, const std::vector<Scratch>& scratch,
              const std::function<Status(int way, std::span<char* const> memory)>& launch);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_TUNE_H_
