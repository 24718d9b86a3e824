// The memory that training of whole models takes between their nodes, against the least possible
// peak.
#include <gtest/gtest.h>

#include <iostream>
#include <string_view>

#include "examples/03_gpt2/model.h"
#include "executor/plan/instance.h"
#include "ir/passes/gradient.h"
#include "ir/passes/pipeline.h"
#include "ir/passes/recompute.h"
#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "kernels/device/device.h"
#include "tests/assert_ok.h"

namespace opwire::executor {
using namespace examples;
namespace {

constexpr std::string_view kMlp = R"(
program @mlp(%x: f32[?b, 784], %w1: f32[2048, 784], %b1: f32[2048], %w2: f32[1024, 2048], %b2: f32[1024], %w3: f32[10, 1024], %b3: f32[10], %targets: i64[?b]) -> (loss: f32[]) {
  %h1 = linear(%x, %w1, %b1) {activation = "relu"}
  %a2 = linear(%h1, %w2, %b2)
  %h2 = tanh(%a2)
  %y = linear(%h2, %w3, %b3)
  %loss = cross_entropy(%y, %targets)
  return %loss
})";

constexpr std::string_view kCnn = R"(
program @cnn(%x: f32[?b, 3, 64, 64], %w1: f32[32, 3, 3, 3], %b1: f32[32], %w2: f32[64, 32, 3, 3], %b2: f32[64], %w3: f32[64, 64, 3, 3], %w4: f32[10, 64], %b4: f32[10], %targets: i64[?b]) -> (loss: f32[]) {
  %c1 = convolution(%x, %w1, %b1) {padding = [1]}
  %h1 = relu(%c1)
  %c2 = convolution(%h1, %w2, %b2) {stride = [2, 2], padding = [1, 1]}
  %h2 = silu(%c2)
  %c3 = convolution(%h2, %w3) {padding = [1]}
  %h3 = gelu(%c3)
  %sum = add(%h3, %h2)
  %space = mean(%sum) {dims = [2, 3]}
  %y = linear(%space, %w4, %b4)
  %loss = cross_entropy(%y, %targets)
  return %loss
})";

constexpr std::string_view kRecurrent = R"(
program @recurrent(%h: f32[?b, 512], %x: f32[?b, 512], %w: f32[512, 512], %u: f32[512, 512]) -> (loss: f32[]) {
  %iterations = full() {value = 12.0, dtype = i64}
  %end = repeat(%iterations, [%h], [%x, %w, %u]) calls(@step)
  %square = mul(%end, %end)
  %loss = mean(%square)
  return %loss
}
function @step(%iteration: i64[], %h: f32[?b, 512], %x: f32[?b, 512], %w: f32[512, 512], %u: f32[512, 512]) -> (h: f32[?b, 512]) {
  %a = linear(%h, %w)
  %b = linear(%x, %u)
  %c = add(%a, %b)
  %d = tanh(%c)
  return %d
})";

struct Takes {
  int64_t bytes = 0, least = 0;
};
StatusOr<Takes> ScratchOf(Module module, std::vector<int64_t> symbols) {
  OPWIRE_RETURN_IF_ERROR(RunPasses(module).status());
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice("cpu", {}));
  auto set = std::make_shared<KernelSet>();
  set->variants = BuildVariantTable(*device);
  set->fuser = BuildFuser(*device);
  OPWIRE_ASSIGN_OR_RETURN(const auto program,
                          PrepareProgram(Serialise(module), set, ExecutorLimits()));
  OPWIRE_ASSIGN_OR_RETURN(const auto instance, Instance::Build(*program, 0, std::move(symbols),
                                                               {.runtime = device->runtime()}));
  return Takes{instance->scratch_bytes(), instance->scratch_bound()};
}

void ExpectNearlyTheLeast(const char* what, const Module& module, std::vector<int64_t> symbols) {
  SCOPED_TRACE(what);
  ASSERT_OK_AND(const Takes takes, ScratchOf(module, std::move(symbols)));
  EXPECT_GT(takes.least, 1 << 20);
  EXPECT_LE(static_cast<double>(takes.bytes), 1.05 * static_cast<double>(takes.least))
      << takes.bytes << " bytes, at least " << takes.least;
  std::cout << what << ": " << takes.bytes << " bytes, "
            << static_cast<double>(takes.bytes) / static_cast<double>(takes.least)
            << " of the least\n";
}

TEST(MemoryPlan, TrainingTakesNearlyTheLeast) {
  const struct {
    const char* name;
    std::string_view text;
    std::vector<std::string> wrt;
  } models[] = {{"mlp", kMlp, {"w1", "b1", "w2", "b2", "w3", "b3"}},
                {"cnn", kCnn, {"w1", "b1", "w2", "b2", "w3", "w4", "b4"}},
                {"recurrent", kRecurrent, {"w", "u"}}};
  for (const auto& model : models) {
    ASSERT_OK_AND(const Module loss, Parse(model.text, "model.opw"));
    ASSERT_OK_AND(const Module trained, Gradient(loss, model.wrt));
    for (const int64_t batch : {64, 333}) ExpectNearlyTheLeast(model.name, trained, {batch});
  }
}

TEST(MemoryPlan, TrainingOfALanguageModelTakesNearlyTheLeast) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const Gpt2Config config{.dtype = dtype, .masters = dtype == DType::kBF16};
    ASSERT_OK_AND(const Module training, Gpt2Training(config));
    ExpectNearlyTheLeast("gpt2", training, {1 << 20, 100});
  }
}

// Rematerialisation down to little more than half of the nodes' memory (logits and their gradient
// are the rest) also takes less scratch memory. Fusion has already saved much of the scratch
// memory.
TEST(MemoryPlan, RecomputingTakesLess) {
  ASSERT_OK_AND(Module training, Gpt2Training({}));
  ASSERT_OK(RunPasses(training).status());
  ASSERT_OK_AND(const Takes before, ScratchOf(training, {1 << 20, 100}));
  ASSERT_OK_AND(const RecomputeReport least, Recompute(training, {.memory_bytes = INT64_MAX}));
  EXPECT_EQ(least.nodes, 0);
  for (const int percent : {75, 60, 52}) {
    Module less = training;
    ASSERT_OK_AND(const RecomputeReport report,
                  Recompute(less, {.memory_bytes = least.before_bytes / 100 * percent}));
    ASSERT_OK_AND(const Takes after, ScratchOf(less, {1 << 20, 100}));
    std::cout << percent << " %: " << report.before_bytes << " -> " << report.after_bytes
              << " by the nodes, " << report.nodes << " computed again; scratch memory "
              << before.bytes << " -> " << after.bytes << "\n";
    EXPECT_LT(after.bytes, before.bytes);
  }
}

}  // namespace
}  // namespace opwire::executor
