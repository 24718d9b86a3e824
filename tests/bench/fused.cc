// A chain of elementwise ops as one kernel, against a copy of the bytes that it must move.
#include "kernels/fused/fused.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/device/device.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/toolchain.h"
#include "tests/bench/bench.h"

namespace opwire::bench {
namespace {

constexpr int64_t kFloats = 16 << 20;  // 64 MiB

// min(relu(x + b) * s - b, s) for numbers b and s.
fused::ScalarProgram Chain() {
  fused::ScalarProgram p;
  int value = p.AddInput(DType::kF32);
  const int b = p.AddInput(DType::kF32), s = p.AddInput(DType::kF32);
  const auto append = [&](const char* row, std::vector<int> operands) {
    value = Must(p.Append(*Catalogue().Find(row), operands, {}, DType::kF32));
  };
  append("add", {value, b});
  append("relu", {value});
  append("mul", {value, s});
  append("sub", {value, b});
  append("minimum", {value, s});
  p.AddOutput(value);
  return p;
}

// A kernel of the chain on one large array.
class Runner {
 public:
  Runner(const opw_kernel& kernel, opw_runtime* runtime, const float* x, float* y) : kernel_(kernel) {
    in_[0] = {const_cast<float*>(x), shape_, strides_, kFloats, OPW_F32, 0, 1, 1};
    for (int i = 0; i < 2; ++i) in_[i + 1] = {&numbers_[i], nullptr, nullptr, 1, OPW_F32, 0, 0, 1};
    out_ = {y, shape_, strides_, kFloats, OPW_F32, 0, 1, 1};
    call_.operands = in_;
    call_.starts = starts_;
    call_.results = &out_;
    call_.runtime = runtime;
    call_.context = kernel.context;
    int64_t workspace = 0;
    kernel_.prepare(&call_, &call_.state, &workspace);
  }
  ~Runner() { kernel_.release(call_.state); }
  Runner(const Runner&) = delete;
  double Milliseconds() {
    const double begun = Seconds();
    kernel_.run(&call_);
    return (Seconds() - begun) * 1e3;
  }

 private:
  const opw_kernel kernel_;
  int64_t shape_[1] = {kFloats}, strides_[1] = {1};
  float numbers_[2] = {3.0f, 0.5f};
  opw_tensor in_[3], out_;
  uint32_t starts_[4] = {0, 1, 2, 3};
  opw_call call_{};
};

struct Copy {
  const float* from;
  float* to;
};

}  // namespace

void FusedRows(const Setup& setup, Device& device, std::vector<Row>& rows) {
  const auto cxx = jit::HostCompiler({});
  const auto cache = Must(jit::BuildCache::Open({.directory = setup.directory + "/fused"}));
  const fused::ScalarProgram program = Chain();
  fused::FusedKernel compiled(program);
  compiled.Compile(program, *cxx, *cache);
  Must(compiled.status());
  const fused::Interpreter interpreter(program);
  const size_t bytes = kFloats * sizeof(float);
  const std::unique_ptr<float[], void (*)(void*)> x(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free),
      y(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
  std::memset(x.get(), 0, bytes);
  std::memset(y.get(), 0, bytes);
  Runner fast(compiled.kernel(), device.runtime(), x.get(), y.get()),
      slow(interpreter.kernel(), device.runtime(), x.get(), y.get());
  const auto median = [](const auto& once) {
    std::vector<double> ms;
    for (int i = 0; i < 15; ++i) ms.push_back(once());
    return Percentile(ms, 0.5);
  };
  const auto chain = [&] { return median([&] { return fast.Milliseconds(); }); };
  const auto interpreted = [&] { return median([&] { return slow.Milliseconds(); }); };
  const auto copy = [&] {
    return median([&] {
      Copy c{x.get(), y.get()};
      const double begun = Seconds();
      opw_runtime* const runtime = device.runtime();
      runtime->parallel_for(
          runtime, kFloats, kFloats / std::max(1, runtime->threads),
          [](void* context, int64_t begin, int64_t end) {
            const Copy& one = *static_cast<const Copy*>(context);
            std::memcpy(one.to + begin, one.from + begin, (end - begin) * sizeof(float));
          },
          &c);
      return (Seconds() - begun) * 1e3;
    });
  };
  rows.push_back(Compare("fused", "ms", "a copy of as many bytes", chain, copy));
  rows.back().target = 1.15;
  rows.push_back(Compare("fused_interpreted", "ms", "the same compiled", interpreted, chain));
}

}  // namespace opwire::bench
