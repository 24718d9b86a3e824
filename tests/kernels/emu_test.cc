// The emulator of GPUs: kernels as text, allowed actions, and each action that it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "kernels/ops/gpu/code.h"
#include "tests/assert_ok.h"
#include "tests/folder.h"

namespace opwire::gpu {
namespace {

struct Params {
  void* x;
  void* y;
  long long n;
};
constexpr const char* kParams = "struct Params { const void* x; void* y; long long n; };\n";

class EmuTest : public testing::TestWithParam<int> {  // the device's index
 protected:
  ~EmuTest() override { unsetenv("OPWIRE_EMU_ORDER"); }

  StatusOr<Function> Compile(const std::string& body, const std::string& before = "") {
    return code_
        ->GetText({"a test", "kernels/ops/gpu/device.cuh",
                   fmt::format("{}{}\nOPW_GLOBAL(512) OPW_KERNEL(const Params p) {{\n  using "
                               "namespace opw;\n  auto* const x = static_cast<const i32*>(p.x);\n"
                               "  auto* const y = static_cast<i32*>(p.y);\n{}\n}}\n",
                               kParams, before, body)})
        ->Load();
  }

  // Runs `blocks` of `threads` over x. Returns the contents of y, which begins as -1.
  StatusOr<std::vector<int>> Run(const std::string& body, unsigned blocks, unsigned threads,
                                 std::vector<int> x, size_t results, unsigned shared = 0,
                                 const std::string& before = "") {
    OPWIRE_ASSIGN_OR_RETURN(const Function f, Compile(body, before));
    OPWIRE_ASSIGN_OR_RETURN(void* const from, Place(x));
    std::vector<int> y(results, -1);
    OPWIRE_ASSIGN_OR_RETURN(void* const to, Place(y));
    const Params p{from, to, static_cast<long long>(x.size())};
    OPWIRE_RETURN_IF_ERROR(device().Launch(f, {blocks, 1, 1, threads, shared}, &p, sizeof p));
    OPWIRE_RETURN_IF_ERROR(device().Copy(y.data(), to, static_cast<int64_t>(4 * results), 0));
    OPWIRE_RETURN_IF_ERROR(device().Synchronize());
    return y;
  }

  std::string Refusal(const std::string& body, unsigned threads, unsigned shared = 0) {
    const auto y = Run(body, 3, threads, {1}, 1, shared);
    return y.ok() ? "it ran" : MessageOf(y.status());
  }

  StatusOr<void*> Place(const std::vector<int>& values) {
    OPWIRE_ASSIGN_OR_RETURN(
        void* const memory,
        device().Allocate(static_cast<int64_t>(4 * values.size()), MemoryKind::kDevice));
    OPWIRE_RETURN_IF_ERROR(
        device().Copy(memory, values.data(), static_cast<int64_t>(4 * values.size()), 0));
    return memory;
  }

  GpuDevice& device() { return static_cast<GpuDevice&>(*device_); }

  // Opens the device again after a failure, which all waiting reports.
  void Reopen(const std::string& failure) {
    for (int i = 0; i < 2; ++i) {
      const std::string waited = MessageOf(device().Synchronize());
      EXPECT_TRUE(waited.find(failure) != std::string::npos) << waited;
    }
    code_.reset();
    device_.reset();
    device_ = Open();
    code_ = std::make_unique<Code>(device(), jit::EmuCompiler({}), KernelCache(cache_));
    EXPECT_TRUE(device().Synchronize().ok());
  }
  static std::unique_ptr<Device> Open() {
    return OpenDevice(fmt::format("emu:{}", GetParam()), {}).value();
  }

  const int wave_ = GetParam() == 0 ? 32 : 64;
  const Folder cache_;
  std::unique_ptr<Device> device_ = Open();
  std::unique_ptr<Code> code_ =
      std::make_unique<Code>(device(), jit::EmuCompiler({}), KernelCache(cache_));
};

std::vector<int> Iota(int n) {
  std::vector<int> x(static_cast<size_t>(n));
  std::iota(x.begin(), x.end(), 0);
  return x;
}
bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_P(EmuTest, SaysWhatItIs) {
  EXPECT_EQ(device().info().kind, "emu");
  EXPECT_EQ(device().info().arch, fmt::format("emu{}", wave_));
  EXPECT_FALSE(device().info().host_memory);
  EXPECT_EQ(device().shared_bytes(), GetParam() == 0 ? 227 << 10 : 64 << 10);
}

TEST_P(EmuTest, ThreadsHaveTheirPlaces) {
  const auto y =
      Run("y[Index()] = x[Index()] * 3 + static_cast<int>(gridDim.x);", 5, 48, Iota(240), 240);
  ASSERT_OK(y.status());
  for (int i = 0; i < 240; ++i) EXPECT_EQ((*y)[static_cast<size_t>(i)], i * 3 + 5);
}

TEST_P(EmuTest, BarriersAreWaitedFor) {
  const auto y =
      Run("__shared__ i32 all[256];\n all[threadIdx.x] = x[Index()];\n __syncthreads();\n"
          "i32 sum = 0;\n for (int i = 0; i < 256; ++i) sum += all[i];\n"
          "y[Index()] = sum + 1000000 * __syncthreads_count(threadIdx.x % 3 == 0);",
          2, 256, Iota(512), 512);
  ASSERT_OK(y.status());
  for (int i = 0; i < 512; ++i)
    EXPECT_EQ((*y)[static_cast<size_t>(i)], 32640 + (i < 256 ? 0 : 65536) + 86000000) << i;
}

TEST_P(EmuTest, WavesShuffle) {
  const int threads = 2 * wave_;
  const auto run = [&](const char* body) {
    return Run(body, 1, static_cast<unsigned>(threads), Iota(threads), static_cast<size_t>(threads))
        .value();
  };
  const std::vector<int> xors = run("y[threadIdx.x] = ShuffleXor(x[threadIdx.x], 5);");
  const std::vector<int> from = run("y[threadIdx.x] = ShuffleFrom(x[threadIdx.x], 7);");
  const std::vector<int> up = run("y[threadIdx.x] = __shfl_up(x[threadIdx.x], 2);");
  const std::vector<int> down = run("y[threadIdx.x] = __shfl_down(x[threadIdx.x], 3, 16);");
  const std::vector<int> any =
      run("y[threadIdx.x] = __any(threadIdx.x == 3) + 2 * __all(threadIdx.x >= OPW_WARP) + 4 * "
          "__popcll(__ballot(threadIdx.x % 2));");
  const std::vector<int> sums = run("y[threadIdx.x] = WarpReduce(x[threadIdx.x], Sum());");
  const std::vector<int> block = run("y[threadIdx.x] = BlockReduce(x[threadIdx.x], Max(), 0);");
  for (int i = 0; i < threads; ++i) {
    const size_t at = static_cast<size_t>(i);
    const int first = i / wave_ * wave_;
    EXPECT_EQ(xors[at], i ^ 5);
    EXPECT_EQ(from[at], first + 7);
    EXPECT_EQ(up[at], i - first < 2 ? i : i - 2);
    EXPECT_EQ(down[at], i % 16 >= 13 ? i : i + 3);
    EXPECT_EQ(any[at], (first == 0 ? 1 : 2) + 4 * (wave_ / 2));
    EXPECT_EQ(sums[at], wave_ * first + wave_ * (wave_ - 1) / 2);
    EXPECT_EQ(block[at], threads - 1);
  }
}

TEST_P(EmuTest, HalvesOfAWaveMeetByMask) {
  const auto y =
      Run("const bool low = Lane() < 16;\n if (low) y[threadIdx.x] = __shfl_xor_sync(0xffffu, "
          "x[threadIdx.x], 1);\n"
          "else if (Lane() < 32) y[threadIdx.x] = __shfl_xor_sync(0xffff0000u, x[threadIdx.x], 2);",
          1, 32, Iota(32), 32);
  ASSERT_OK(y.status());
  for (int i = 0; i < 32; ++i) EXPECT_EQ((*y)[static_cast<size_t>(i)], i ^ (i < 16 ? 1 : 2));
}

TEST_P(EmuTest, AtomicsCount) {
  const auto y =
      Run("atomicAdd(&y[0], x[Index()]);\n atomicMax(&y[1], x[Index()]);\n atomicMin(&y[2], "
          "-x[Index()]);\n atomicCAS(&y[3], -1, 9);",
          4, 128, Iota(512), 4);
  ASSERT_OK(y.status());
  EXPECT_EQ(*y, (std::vector<int>{512 * 511 / 2 - 1, 511, -511, 9}));
}

TEST_P(EmuTest, DynamicSharedMemoryIsWhatWasAskedFor) {
  const char* const body =
      "extern __shared__ alignas(16) i32 all[];\n all[threadIdx.x] = x[threadIdx.x];\n "
      "__syncthreads();\n"
      "y[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];";
  const auto y = Run(body, 1, 100, Iota(100), 100, 400);
  ASSERT_OK(y.status());
  for (int i = 0; i < 100; ++i) EXPECT_EQ((*y)[static_cast<size_t>(i)], 99 - i);
  const std::string beyond =
      Refusal("extern __shared__ i32 all[];\n all[threadIdx.x] = 1;", 101, 400);
  EXPECT_TRUE(
      Has(beyond, "a test: block (0, 0, 0): shared memory was written 1 bytes beyond its end"))
      << beyond;
  EXPECT_TRUE(Has(Refusal(body, 100, 49 << 10), "INVALID_VALUE"));
  const Function f = Compile(body).value();
  EXPECT_TRUE(device().AllowShared(f, device().shared_bytes()).ok());
  EXPECT_FALSE(device().AllowShared(f, device().shared_bytes() + 1).ok());
}

TEST_P(EmuTest, SharedMemoryBeginsUndefined) {
  const auto y =
      Run("__shared__ i32 one;\n if (x[0] == 1) one = 5;\n __syncthreads();\n y[blockIdx.x] = one;",
          2, 32, {0}, 2);
  ASSERT_OK(y.status());
  EXPECT_EQ(*y, (std::vector<int>{-1, -1})) << "by its pattern";
}

TEST_P(EmuTest, DivergenceIsAnError) {
  const std::string barrier = Refusal("if (threadIdx.x < 40) __syncthreads();", 100);
  EXPECT_TRUE(Has(barrier,
                  "LAUNCH_FAILED: a test: block (0, 0, 0): threads diverge: threads 0-39 wait at a "
                  "barrier; threads 40-99 have ended"))
      << barrier;
  const std::string shuffle =
      Refusal("if (threadIdx.x == 3) return;\n y[0] = ShuffleXor(1, 1);", 64);
  EXPECT_TRUE(Has(
      shuffle,
      fmt::format("threads 0-2, 4-{} wait in an operation of their wave; threads 3", wave_ - 1)))
      << shuffle;
  const std::string both =
      Refusal("if (threadIdx.x < 8) __syncthreads();\n else y[0] = ShuffleXor(1, 1);", 32);
  EXPECT_TRUE(
      Has(both, "threads 0-7 wait at a barrier; threads 8-31 wait in an operation of their wave"))
      << both;
  Reopen("threads 0-39 wait at a barrier");
  EXPECT_TRUE(
      Run("y[threadIdx.x] = BlockReduce(x[threadIdx.x], Sum(), 0);", 2, 128, Iota(128), 128).ok());
}

TEST_P(EmuTest, AnIndexBeyondAnArrayIsAnError) {
  const std::string shared = Refusal(
      "__shared__ i32 some[16];\n some[threadIdx.x] = 1;\n __syncthreads();\n y[0] = some[0];", 32);
  EXPECT_TRUE(Has(shared, "thread 16: an index beyond an array")) << shared;
  const std::string local = Refusal("i32 v[4] = {};\n v[x[0] + 4] = 1;\n y[0] = v[x[0]];", 32);
  EXPECT_TRUE(Has(local, "thread 0: an index beyond an array")) << local;
}

TEST_P(EmuTest, UnitsThatDoNotCompileAreRefused) {
  const Status refused = Compile("this is no code;").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Has(MessageOf(refused), "a test: ")) << refused;
}

TEST_P(EmuTest, MoreThreadsThanTheBoundsAreRefused) {
  EXPECT_TRUE(Has(Refusal("y[0] = 1;", 513), "INVALID_VALUE"));
}

// A correct kernel gives equal bits in every order. A kernel with a race does not.
TEST_P(EmuTest, OrdersTellRaces) {
  const auto run = [&](const char* order, const char* body) {
    setenv("OPWIRE_EMU_ORDER", order, 1);
    return Run(body, 8, 64, Iota(512), 512).value();
  };
  const char* const right =
      "__shared__ i32 all[64];\n all[threadIdx.x] = x[Index()];\n __syncthreads();\n y[Index()] = "
      "all[63 - threadIdx.x];";
  const char* const of_threads =
      "__shared__ i32 all[64];\n all[threadIdx.x] = x[Index()];\n y[Index()] = all[63 - "
      "threadIdx.x];";
  const char* const of_blocks = "if (threadIdx.x == 0) y[0] = static_cast<int>(blockIdx.x);";
  for (const char* order : {"backward", "1", "2"}) {
    EXPECT_EQ(run(order, right), run("forward", right)) << order;
    EXPECT_NE(run(order, of_threads), run("forward", of_threads)) << order;
  }
  EXPECT_EQ(run("forward", of_blocks)[0], 7);
  EXPECT_EQ(run("backward", of_blocks)[0], 0);
  EXPECT_EQ(run("5", right), run("5", right));
  setenv("OPWIRE_EMU_ORDER", "sideways", 1);
  EXPECT_TRUE(Has(Refusal("y[0] = 1;", 1),
                  "OPWIRE_EMU_ORDER: expected forward, backward or a number, got sideways"));
}

TEST_P(EmuTest, GraphsHoldLaunchesWithTheirParameters) {
  const Function f = Compile("atomicAdd(&y[0], x[threadIdx.x]);").value();
  void* const x = Place({1, 2, 3}).value();
  void* const y = Place({0}).value();
  ASSERT_OK(device().BeginCapture(0));
  Params p{x, y, 3};
  ASSERT_OK(device().Launch(f, {.threads = 3}, &p, sizeof p));
  const GraphId graph = device().EndCapture(0).value();
  p = {};
  for (int i = 1; i < 4; ++i) {
    ASSERT_OK(device().Replay(graph, 0));
    int sum = 0;
    ASSERT_OK(device().Copy(&sum, y, 4, 0));
    EXPECT_EQ(sum, 6 * i);
  }
}

TEST_P(EmuTest, GraphsTakeOtherAddresses) {
  const Function f = Compile("y[threadIdx.x] = x[threadIdx.x] + 1;").value();
  void* const memory[] = {Place({1, 2, 3}).value(), Place({10, 20, 30}).value(),
                          Place({0, 0, 0}).value()};
  const auto launch = [&](int from, int to) {
    const Params p{memory[from], memory[to], 3};
    return device().Launch(f, {.threads = 3}, &p, sizeof p);
  };
  const auto ints = [&](int at) {
    std::vector<int> out(3);
    EXPECT_TRUE(device().Copy(out.data(), memory[at], 12, 0).ok());
    EXPECT_TRUE(device().Synchronize().ok());
    return out;
  };
  ASSERT_OK(device().BeginCapture(0));
  ASSERT_OK(launch(0, 2));
  ASSERT_OK(launch(2, 0));
  const GraphId graph = device().EndCapture(0).value();
  ASSERT_OK(device().BeginUpdate(graph));
  ASSERT_OK(launch(1, 2));
  ASSERT_OK(launch(2, 0));
  ASSERT_TRUE(device().EndUpdate());
  EXPECT_EQ(ints(0), (std::vector<int>{1, 2, 3})) << "nothing ran yet";
  ASSERT_OK(device().Replay(graph, 0));
  EXPECT_EQ(ints(2), (std::vector<int>{11, 21, 31}));
  EXPECT_EQ(ints(0), (std::vector<int>{12, 22, 32}));
  // Fewer, more, and other work.
  ASSERT_OK(device().BeginUpdate(graph));
  ASSERT_OK(launch(1, 2));
  EXPECT_FALSE(device().EndUpdate());
  ASSERT_OK(device().BeginUpdate(graph));
  for (int i = 0; i < 3; ++i) ASSERT_OK(launch(1, 2));
  EXPECT_FALSE(device().EndUpdate());
  ASSERT_OK(device().BeginUpdate(graph));
  ASSERT_OK(launch(1, 2));
  ASSERT_OK(device().Copy(memory[0], memory[2], 12, 0));
  EXPECT_FALSE(device().EndUpdate());
  device().DestroyGraph(graph);
  EXPECT_FALSE(device().Replay(graph, 0).ok());
  EXPECT_FALSE(device().BeginUpdate(graph).ok());
}

TEST_P(EmuTest, KernelsReportForTheStepThatWasNoted) {
  const Function f = code_
                         ->GetText({"a test", "kernels/ops/gpu/device.cuh",
                                    "OPW_GLOBAL(64) OPW_KERNEL(const opw::Reporter r) {\n  if "
                                    "(threadIdx.x >= 7) opw::ReportOutOfRange(r, 2, threadIdx.x);\n"
                                    "  opw::Raise(r, opw::kRaiseDivide);\n}\n"})
                         ->Load()
                         .value();
  EXPECT_EQ(device().TakeFlags().out_of_range_operand, -1);
  for (const uint32_t step : {9u, 4u, 6u}) {
    device().NoteStep(step);
    ASSERT_OK(device().Launch(f, {.threads = 64}, &device().reporter(), sizeof(opw::Reporter)));
  }
  const RunFlags flags = device().TakeFlags();
  EXPECT_EQ(flags.out_of_range_step, 4u);
  EXPECT_EQ(flags.out_of_range_operand, 2);
  EXPECT_EQ(flags.out_of_range_position, 7);
  EXPECT_EQ(flags.raised, static_cast<uint32_t>(OPW_FLAG_DIVIDE));
  EXPECT_EQ(device().TakeFlags().out_of_range_operand, -1);
}

TEST_P(EmuTest, HalvesRoundAsTheHardwareDoes) {
  const auto y =
      Run("for (u32 i = threadIdx.x; i < 0x7c00; i += blockDim.x) {\n"
          "  const f16 h{static_cast<u16>(i)}, next{static_cast<u16>(i + 1)};\n  const float a = "
          "ToFloat(h), b = ToFloat(next);\n"
          "  bool good = ToF16(a).bits == i && ToF16(-a).bits == (i | 0x8000);\n"
          "  if (i + 1 < 0x7c00) {\n    const float middle = (a + b) / 2;\n    good = good && "
          "ToF16(middle).bits == (i + 1) / 2 * 2;\n"
          "    good = good && ToF16(FloatOf(BitsOf(middle) + 1)).bits == i + 1 && (i == 0 || "
          "ToF16(FloatOf(BitsOf(middle) - 1)).bits == i);\n  }\n"
          "  if (!good) atomicMax(&y[0], static_cast<int>(i));\n}\n"
          "if (ToF16(65520.0f).bits != 0x7c00 || ToF16(65519.9f).bits != 0x7bff || "
          "ToF16(FloatOf(0x7fc00000)).bits != 0x7fff) y[0] = 99999;\n"
          "if (ToFloat(f16{0x3555}) != 0.333251953125f || ToFloat(f16{1}) != FloatOf(0x33800000)) "
          "y[0] = 99998;",
          1, 64, {0}, 1);
  ASSERT_OK(y.status());
  EXPECT_EQ((*y)[0], -1);
}

// A host that reads the device's memory is wrong, as on a real GPU.
TEST_P(EmuTest, MemoryIsNotTheHosts) {
  const int* const memory = static_cast<const int*>(Place({1, 2, 3}).value());
  EXPECT_DEATH(std::printf("%d\n", *memory), "");
}

TEST_P(EmuTest, KernelsThatLeaveTheirMemoryFail) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "this sanitizer does not let a handler leave by a jump";
#endif
  int* const y = static_cast<int*>(device().Allocate(256, MemoryKind::kDevice).value());
  Params p{y, y, 0};
  const auto refusal = [&](const char* body) {
    return MessageOf(device().Launch(Compile(body).value(), {3, 1, 1, 32, 0}, &p, sizeof p));
  };
  const std::string beyond = refusal("if (threadIdx.x == 9 && blockIdx.x == 2) y[64] = 1;");
  EXPECT_TRUE(Has(beyond, fmt::format("block (2, 0, 0): thread 9: memory at {} is not the kernel's",
                                      fmt::ptr(y + 64))))
      << beyond;
  EXPECT_TRUE(
      Has(refusal("__syncthreads();\n y[-2000] = 1;"), "block (0, 0, 0): thread 0: memory at "));
  EXPECT_TRUE(Has(refusal("volatile i32 deep[1 << 17];\n deep[x[0] & 1] = 1;\n y[0] = deep[0];"),
                  "thread 0: memory at "));
  p.y = device().Allocate(256, MemoryKind::kDevice).value();
  device().Free(p.y);
  EXPECT_TRUE(Has(refusal("y[0] = 1;"), "thread 0: memory at "));
  Reopen("block (2, 0, 0): thread 9: memory at ");
  EXPECT_TRUE(
      Run("y[threadIdx.x] = BlockReduce(x[threadIdx.x], Sum(), 0);", 2, 128, Iota(128), 128).ok())
      << "nothing is left behind";
}

INSTANTIATE_TEST_SUITE_P(Waves, EmuTest, testing::Values(0, 1),
                         [](const auto& info) { return info.param == 0 ? "Of32" : "Of64"; });

}  // namespace
}  // namespace opwire::gpu
