// Several members of one program as one kernel: each has the bits and flags of a run of its own.
#include "kernels/fused/joint.h"

#include <gtest/gtest.h>

#include "kernels/device/device.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/fuser.h"
#include "kernels/jit/sanitized.h"
#include "kernels/select/failure.h"
#include "kernels/select/variant.h"
#include "tests/folder.h"
#include "tests/fused/fixture.h"
#include "tests/fused/programs.h"

namespace opwire::fused {
namespace {

struct Members {
  std::vector<TestTensor> inputs, outputs;
  std::vector<opw_attr> arguments;
};

// Adds a member. Its operands broadcast to its shape, or are views.
void AddMember(const ScalarProgram& p, const std::vector<int64_t>& shape, std::mt19937_64& random,
               Members& to) {
  for (const DType type : p.inputs()) {
    to.inputs.push_back(random() % 3 == 0                     ? Broadcast(type, shape, random)
                        : random() % 4 == 0 && !shape.empty() ? View(type, shape, random)
                                                              : TestTensor(type, shape));
    FillHard(to.inputs.back(), random);
  }
  for (size_t i = 0; i < p.outputs().size(); ++i) {
    const DType type = p.OutputType(static_cast<int>(i));
    to.outputs.push_back(random() % 5 == 0 && !shape.empty() ? View(type, shape, random)
                                                             : TestTensor(type, shape));
  }
  const std::vector<opw_attr> own = {FloatArgument(static_cast<double>(random() % 100) / 8),
                                     IntArgument(static_cast<int64_t>(random() % 9)),
                                     IntArgument(static_cast<int64_t>(random() % 2)),
                                     FloatArgument(0.75)};
  for (int a = 0; a < p.arguments(); ++a) to.arguments.push_back(own[static_cast<size_t>(a)]);
}

TEST(JointKernels, HaveTheBitsOfTheirMembers) {
  const std::vector<std::vector<int64_t>> shapes = {
      {1},        {7},      {},     {0},       {3, 5},  {40'000}, {2, 300},
      {130, 129}, {16, 16}, {0, 4}, {5, 1, 9}, {16384}, {20'000}};
  std::mt19937_64 random(Seed());
  for (int n = 0; n < 40; ++n) {
    SCOPED_TRACE(testing::Message() << "program " << n << ", seed " << Seed());
    const ScalarProgram program = RandomProgram(random, 12).program;
    const auto functions = std::make_shared<Functions>(std::vector{program});
    const int members = n == 0 ? 1 : 2 + static_cast<int>(random() % 40);
    Members all;
    for (int m = 0; m < members; ++m)
      AddMember(program, shapes[random() % shapes.size()], random, all);
    const FusedKernel one(program);
    const JointKernel joint(functions, members);
    std::vector<TestTensor> together = all.outputs;
    const uint32_t raised = Call(joint.kernel(), all.inputs, together, all.arguments);
    uint32_t alone = 0;
    for (int m = 0; m < members; ++m) {
      const auto part = [&](const auto& list, size_t each) {
        return std::vector(list.begin() + static_cast<int64_t>(each) * m,
                           list.begin() + static_cast<int64_t>(each) * (m + 1));
      };
      std::vector<TestTensor> outputs = part(all.outputs, program.outputs().size());
      alone |= Call(one.kernel(), part(all.inputs, program.inputs().size()), outputs,
                    part(all.arguments, static_cast<size_t>(program.arguments())));
      for (size_t i = 0; i < outputs.size(); ++i)
        EXPECT_EQ(
            FirstDifference(outputs[i], together[static_cast<size_t>(m) * outputs.size() + i]), "")
            << "member " << m << ", output " << i;
    }
    EXPECT_EQ(raised, alone);
  }
}

TEST(JointKernels, StopBetweenRanges) {
  ScalarProgram program;
  const int x = program.AddInput(DType::kF32);
  program.AddOutput(*program.Append(*Catalogue().Find("exp"), {{x}}, {}, DType::kF32));
  const JointKernel joint(std::make_shared<Functions>(std::vector{program}), 3);
  const std::vector<TestTensor> inputs(3, TestTensor(DType::kF32, {16384}));
  std::vector<TestTensor> outputs = inputs;
  Call(joint.kernel(), inputs, outputs, {}, 2);
  EXPECT_NE(FirstDifference(outputs[0], inputs[0]), "");
  EXPECT_NE(FirstDifference(outputs[1], inputs[1]), "");
  EXPECT_EQ(FirstDifference(outputs[2], inputs[2]), "");
}

TEST(JointKernels, AreOneForEqualProgramsAndCounts) {
  ScalarProgram program;
  const int x = program.AddInput(DType::kF32);
  program.AddOutput(*program.Append(*Catalogue().Find("neg"), {{x}}, {}, DType::kF32));
  const std::shared_ptr<Fuser> fuser = MakeHostFuser({});
  ASSERT_TRUE(fuser->HasJoint());
  const auto three = fuser->GetJoint(program, 3), again = fuser->GetJoint(program, 3),
             four = fuser->GetJoint(program, 4);
  EXPECT_EQ(three, again);
  EXPECT_NE(three, four);
}

// On emulated devices: one launch, or several if forms differ or the parameters are too many for
// one.
TEST(JointKernels, HaveTheBitsOfTheirMembersOnGpus) {
  if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
  const Folder cache;
  const std::unique_ptr<Device> device = OpenDevice("emu:0", {}).value();
  const std::shared_ptr<Fuser> fuser = BuildFuser(*device, {.cache = KernelCache(cache)});
  ASSERT_TRUE(fuser->HasJoint());
  const std::vector<std::vector<int64_t>> shapes = {{1},      {7},      {0},    {3, 5}, {6000},
                                                    {2, 300}, {16, 16}, {4096}, {1500}};
  std::mt19937_64 random(Seed());
  for (int n = 0; n < 4; ++n) {
    SCOPED_TRACE(testing::Message() << "program " << n << ", seed " << Seed());
    const ScalarProgram program = RandomProgram(random, 8).program;
    const size_t members = n == 0 ? 90 : 2 + random() % 20, inputs = program.inputs().size(),
                 outputs = program.outputs().size();
    Members all;
    for (size_t m = 0; m < members; ++m)
      AddMember(program,
                n == 0 ? std::vector<int64_t>{static_cast<int64_t>(64 * m + 16)}
                       : shapes[random() % shapes.size()],
                random, all);
    std::vector<void*> memory;
    const auto place = [&](const std::vector<TestTensor>& tensors) {
      std::vector<opw_tensor> out;
      for (const TestTensor& t : tensors) {
        memory.push_back(
            device->Allocate(static_cast<int64_t>(t.bytes.size()) + 64, MemoryKind::kDevice)
                .value());
        out.push_back(t.abi());
        out.back().data = memory.back();
        EXPECT_TRUE(
            device->Copy(memory.back(), t.bytes.data(), static_cast<int64_t>(t.bytes.size()), 0)
                .ok());
      }
      return out;
    };
    const std::vector<opw_tensor> in = place(all.inputs);
    const auto run = [&](const opw_kernel& kernel, size_t first, size_t count,
                         const std::vector<opw_tensor>& out) {
      std::vector<uint32_t> starts;
      for (uint32_t i = 0; i <= inputs * count; ++i) starts.push_back(i);
      opw_call call{};
      call.operands = in.data() + first * inputs;
      call.results = out.data() + first * outputs;
      call.attrs = all.arguments.data() + first * static_cast<size_t>(program.arguments());
      call.starts = starts.data();
      call.runtime = device->runtime();
      call.context = kernel.context;
      ASSERT_EQ(kernel.prepare(&call, &call.state, &call.workspace_bytes), OPW_OK) << TakeFailure();
      EXPECT_EQ(kernel.run(&call), OPW_OK) << TakeFailure();
      EXPECT_TRUE(device->Synchronize().ok());
      kernel.release(call.state);
    };
    const std::vector<opw_tensor> together = place(all.outputs), apart = place(all.outputs);
    run(*fuser->GetJoint(program, static_cast<int>(members)), 0, members, together);
    const uint32_t raised = device->TakeFlags().raised;
    for (size_t m = 0; m < members; ++m) run(*fuser->Get(program), m, 1, apart);
    EXPECT_EQ(raised, device->TakeFlags().raised);
    for (size_t i = 0; i < all.outputs.size(); ++i) {
      TestTensor a = all.outputs[i], b = a;
      const auto bytes = static_cast<int64_t>(a.bytes.size());
      EXPECT_TRUE(device->Copy(a.bytes.data(), together[i].data, bytes, 0).ok() &&
                  device->Copy(b.bytes.data(), apart[i].data, bytes, 0).ok() &&
                  device->Synchronize().ok());
      EXPECT_EQ(FirstDifference(a, b), "") << "output " << i;
    }
    for (void* const m : memory) device->Free(m);
  }
}

}  // namespace
}  // namespace opwire::fused
