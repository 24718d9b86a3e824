// Reasons for an executor to build or compile again: sizes of another class are one, other lengths
// and values are not. Random numbers follow their key, for every kind of run.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "executor/plan/instance.h"
#include "executor/plan/program.h"
#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "kernels/device/gpu/gpu_device.h"
#include "kernels/fused/fuser.h"
#include "kernels/jit/sanitized.h"
#include "kernels/ops/gpu/code.h"
#include "tests/assert_ok.h"
#include "tests/executor/fixture.h"
#include "tests/folder.h"
#include "tests/kernels/counting_toolchain.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

// ---- Lengths
// -------------------------------------------------------------------------------------------------

// The prompt of a language model: embedding, a block with rotary positions, causal attention of
// grouped heads and a gated MLP, and the logits of the last position.
constexpr const char* kPrompt = R"(
dim ?s in [1, 4096]
program @prompt(%tokens: i64[?s], %wte: T[512, 64], %n1: T[64], %wq: T[64, 64], %wk: T[32, 64], %wv: T[32, 64], %wo: T[64, 64], %n2: T[64], %gate: T[128, 64],
                %up: T[128, 64], %down: T[64, 128], %n3: T[64]) -> (logits: T[1, 512]) {
  %x = embedding(%wte, %tokens)
  %normal = rms_norm(%x, %n1)
  %q = linear(%normal, %wq)
  %k = linear(%normal, %wk)
  %v = linear(%normal, %wv)
  %q4 = reshape(%q) {shape = [1, ?s, 4, 16]}
  %k4 = reshape(%k) {shape = [1, ?s, 2, 16]}
  %v4 = reshape(%v) {shape = [1, ?s, 2, 16]}
  %qh = permute(%q4) {dims = [0, 2, 1, 3]}
  %kh = permute(%k4) {dims = [0, 2, 1, 3]}
  %vh = permute(%v4) {dims = [0, 2, 1, 3]}
  %qr = rotary_embedding(%qh)
  %kr = rotary_embedding(%kh)
  %heads, %sums = scaled_dot_product_attention(%qr, %kr, %vh) {causal = true}
  %back = permute(%heads) {dims = [0, 2, 1, 3]}
  %joined = reshape(%back) {shape = [?s, 64]}
  %attended = linear(%joined, %wo)
  %normal2, %middle = add_rms_norm(%attended, %x, %n2)
  %gates = linear(%normal2, %gate)
  %open = silu(%gates)
  %ups = linear(%normal2, %up)
  %passed = mul(%open, %ups)
  %narrow = linear(%passed, %down)
  %y = add(%narrow, %middle)
  %end = full() {value = -1.0, dtype = i64}
  %last = slice(%y, %end) {length = 1}
  %normal3 = rms_norm(%last, %n3)
  %logits = linear(%normal3, %wte)
  return %logits
})";

// Attention by its scores, whose rows are as long as the prompt.
constexpr const char* kScores = R"(
dim ?s in [1, 4096]
program @scores(%q: T[4, ?s, 16], %k: T[4, ?s, 16], %v: T[4, ?s, 16]) -> (y: T[4, ?s, 16]) {
  %scores = matmul(%q, %k) {transpose_y = true}
  %f = full() {value = 0.25, dtype = T}
  %scaled = mul(%scores, %f)
  %shares = softmax(%scaled)
  %y = matmul(%shares, %v)
  return %y
})";

std::string Of(std::string text, const std::string& type) {
  for (size_t at = 0; (at = text.find(": T[", at)) != std::string::npos;)
    text.replace(at + 2, 1, type);
  for (size_t at = 0; (at = text.find("dtype = T", at)) != std::string::npos;)
    text.replace(at + 8, 1, type);
  return text;
}

// The names of the GPU kernels that the first of these lengths needs, and of those that only later
// lengths need.
struct Kernels {
  std::vector<std::string> first, later;
};
Kernels KernelsOf(const std::string& text, std::span<const int64_t> lengths) {
  const std::unique_ptr<Device> device = OpenDevice("emu:0", {}).value();
  Kernels out;
  bool later = false;
  const auto code = std::make_shared<gpu::Code>(
      static_cast<gpu::GpuDevice&>(*device), [&](const gpu::KernelText& kernel) {
        (later ? out.later : out.first).push_back(kernel.name);
      });
  auto set = std::make_shared<KernelSet>();
  set->variants = BuildVariantTable(*device, {.code = code});
  set->fuser = BuildFuser(*device, {.code = code});
  const auto program =
      PrepareProgram(Serialise(Parse(text, "prompt.opw").value()), set, ExecutorLimits()).value();
  for (const int64_t length : lengths) {
    const auto instance = Instance::Build(*program, 0, {length},
                                          {.runtime = device->runtime(), .device = device.get()});
    EXPECT_TRUE(instance.ok()) << instance.status();
    later = true;
  }
  return out;
}

// The order of lengths does not matter: texts contain classes of sizes, not sizes.
TEST(Compiles, TwoHundredPromptLengthsAskForAtMostFiveMoreKernels) {
  OPWIRE_TRACE_SEED();
  std::vector<int64_t> lengths(200);
  std::iota(lengths.begin(), lengths.end(), 1);
  std::mt19937_64 random(Seed());
  for (const char* text : {kPrompt, kScores}) {
    for (const char* type : {"bf16", "f32"}) {
      for (const char* order : {"from the shortest", "from the longest", "as they come"}) {
        SCOPED_TRACE(std::string(type) + ", " + order);
        if (order[0] == 'a')
          std::ranges::shuffle(lengths, random);
        else if (order == std::string("from the longest"))
          std::ranges::sort(lengths, std::greater());
        else
          std::ranges::sort(lengths);
        const Kernels kernels = KernelsOf(Of(text, type), lengths);
        EXPECT_GE(kernels.first.size(), 3u);
        EXPECT_LE(kernels.later.size(), 5u) << testing::PrintToString(kernels.later);
      }
    }
  }
}

// The CPU's fuser, which records its kernels.
class CountingFuser final : public fused::Fuser {
 public:
  std::shared_ptr<const opw_kernel> Get(const fused::ScalarProgram& program) override {
    return Count(cpu_->Get(program));
  }
  std::shared_ptr<const opw_kernel> GetRows(const fused::RowProgram& program) override {
    return Count(cpu_->GetRows(program));
  }
  bool HasRows() const override { return cpu_->HasRows(); }
  std::shared_ptr<const opw_kernel> GetColumns(const fused::ColumnProgram& program) override {
    return Count(cpu_->GetColumns(program));
  }
  bool HasColumns() const override { return cpu_->HasColumns(); }
  bool Settled() const override { return cpu_->Settled(); }

  std::set<std::shared_ptr<const opw_kernel>> kernels;

 private:
  std::shared_ptr<const opw_kernel> Count(std::shared_ptr<const opw_kernel> kernel) {
    return *kernels.insert(std::move(kernel)).first;
  }

  const std::unique_ptr<Device> device_ = OpenDevice("cpu", {}).value();
  const std::shared_ptr<fused::Fuser> cpu_ = BuildFuser(*device_);
};

TEST(Compiles, GroupsHaveOneKernelForAllLengths) {
  const std::unique_ptr<Device> device = OpenDevice("cpu", {}).value();
  const auto fuser = std::make_shared<CountingFuser>();
  auto set = std::make_shared<KernelSet>();
  set->variants = BuildVariantTable(*device);
  set->fuser = fuser;
  const auto program = PrepareProgram(Serialise(Parse(Of(kPrompt, "f32"), "prompt.opw").value()),
                                      set, ExecutorLimits())
                           .value();
  for (int64_t length = 1; length <= 200; ++length)
    ASSERT_OK(Instance::Build(*program, 0, {length}, {.runtime = device->runtime()}).status());
  EXPECT_EQ(fuser->kernels.size(), 1u) << "silu(gates) * ups";
}

// ---- Values
// -------------------------------------------------------------------------------------------------

class RatesTest : public CoreTest {
 protected:
  void UseDevice(const std::string& spec) {
    core_.reset();
    variants_ = VariantTable();
    device_ = OpenDevice(spec, {}).value();
  }

  jit::CountingToolchain::Calls calls_;
  const Folder cache_;
};

int prepared = 0;
std::set<float>* rates = nullptr;

int PrepareStep(const opw_call*, void**, int64_t*) { return ++prepared, OPW_OK; }
int RunStep(const opw_call* c) {
  float rate;
  std::memcpy(&rate, c->operands[1].data, sizeof rate);
  rates->insert(rate);
  return OPW_OK;
}

TEST_F(RatesTest, AThousandAreOneInstance) {
  UseDevice("cpu");
  const opw_kernel kernel = {OPW_ABI_VERSION, OPW_CONTIGUOUS, nullptr, PrepareStep,
                             nullptr,         RunStep,        nullptr};
  variants_.Add({"mul", "own", Tier::kProduction, 0, kFloats, "", "builtin", kernel});
  Restart();
  std::set<float> seen;
  rates = &seen;
  prepared = 0;
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1,
                   "program @step(%g: f32[4], %rate: f32[]) -> (d: f32[4]) { %d = mul(%g, %rate) "
                   "return %d }")
                  .ok());
  ASSERT_TRUE(Put(c, 1, {1, 2, 3, 4}).ok());
  for (int i = 1; i <= 1000; ++i)
    ASSERT_TRUE(Ask(c, RunOf(1).Tensor(c, 1).Scalar(static_cast<float>(i) * 1e-6f).None()).ok());
  EXPECT_EQ(prepared, 1);
  EXPECT_EQ(seen.size(), 1000u);
}

TEST_F(RatesTest, AThousandCompileNothingAndAreReplayed) {
  if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
  UseDevice("emu:0");
  const auto code =
      std::make_shared<gpu::Code>(static_cast<gpu::GpuDevice&>(*device_),
                                  std::make_unique<jit::CountingToolchain>(calls_), cache_.path());
  variants_ = BuildVariantTable(*device_, {.code = code});
  fuser_ = BuildFuser(*device_, {.code = code});
  Restart();
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1,
                   "program @step(inout %w: f32[4], %g: f32[4], %rate: f32[]) -> (w: f32[4]) { %d "
                   "= mul(%g, %rate) %w2 = sub(%w, %d) return %w2 }")
                  .ok());
  ASSERT_TRUE(Put(c, 1, {0, 0, 0, 0}).ok());
  ASSERT_TRUE(Put(c, 2, {1, 2, 3, 4}).ok());
  float w = 0;
  for (int i = 1; i <= 1000; ++i) {
    const float rate = static_cast<float>(i) / 1024;
    ASSERT_TRUE(Ask(c, RunOf(1).Tensor(c, 1).Tensor(c, 2).Scalar(rate).None()).ok());
    w -= rate;
    EXPECT_EQ(calls_.compiled, 1);
  }
  EXPECT_EQ(Get(c, 1).BulkFloats()[0], w) << "each rate was the one of its run";
}

// ---- Random numbers: on OPWIRE_TEST_DEVICE
// ---------------------------------------------------------------------------------------

class DrawsTest : public CoreTest {
 protected:
  static std::string Key(uint64_t low, uint64_t high) {
    const uint64_t words[] = {low, high};
    return {reinterpret_cast<const char*>(words), sizeof words};
  }
};

TEST_F(DrawsTest, FollowTheirKey) {
  Client c = Hello();
  ASSERT_TRUE(
      Load(
          c, 1,
          R"(program @draw(%x: f32[64], %p: f32[], %key: u64[2]) -> (y: f32[64]) { %y = dropout(%x, %p, %key) return %y })")
          .ok());
  ASSERT_TRUE(Put(c, 1, std::vector<float>(64, 1)).ok());
  for (uint64_t k = 0; k < 3; ++k)
    ASSERT_TRUE(PutTyped(c, 10 + k, DType::kU64, {2}, Key(k, 7)).ok());
  const auto draw = [&](uint64_t key) {
    return Ask(c, RunOf(1).Tensor(c, 1).Scalar(0.5).Tensor(c, 10 + key).Inline()).Floats(0);
  };
  std::vector<std::vector<float>> drawn;
  for (uint64_t k = 0; k < 3; ++k) drawn.push_back(draw(k));
  for (uint64_t k = 0; k < 3; ++k) {
    EXPECT_NE(drawn[k], drawn[(k + 1) % 3]);
    for (int again = 0; again < 3; ++again) EXPECT_EQ(draw(k), drawn[k]) << k;
  }
}

// A run that equals the previous one except for the contents of its tensors, as a replay of a graph
// does.
TEST_F(DrawsTest, DifferWhereARunAdvancesItsKey) {
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1, R"(
program @draw(inout %key: u64[2], inout %y: f32[16]) -> (key: u64[2], y: f32[16]) {
  %low = full() {value = 0.0, dtype = f32}
  %high = full() {value = 1.0, dtype = f32}
  %u = uniform(%key, %low, %high) {shape = [16]}
  %y2 = add(%y, %u)
  %one = values() {value = [1, 0], dtype = u64}
  %next = add(%key, %one)
  return %next, %y2
})")
                  .ok());
  ASSERT_TRUE(PutTyped(c, 1, DType::kU64, {2}, Key(5, 7)).ok());
  ASSERT_TRUE(Put(c, 2, std::vector<float>(16, 0)).ok());
  std::set<std::vector<float>> drawn;
  std::vector<float> before(16, 0);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(Ask(c, RunOf(1).Tensor(c, 1).Tensor(c, 2).None().None()).ok());
    std::vector<float> sums = Get(c, 2).BulkFloats(), difference = sums;
    for (size_t k = 0; k < sums.size(); ++k) difference[k] -= before[k];
    EXPECT_TRUE(drawn.insert(difference).second) << i;
    before = sums;
  }
  EXPECT_EQ(Get(c, 1).bulk, Key(13, 7));
}

}  // namespace
}  // namespace opwire::executor
