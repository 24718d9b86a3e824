// Kernels that are compiled before they are needed: the list, and units of Code.
#include "kernels/ops/gpu/ahead.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "kernels/jit/sanitized.h"
#include "tests/assert_ok.h"
#include "tests/folder.h"
#include "tests/kernels/counting_toolchain.h"

namespace opwire::gpu {
namespace {

class AheadList : public testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<Device> opened_ = OpenDevice(GetParam(), {}).value();
  GpuDevice& device_ = static_cast<GpuDevice&>(*opened_);
};
INSTANTIATE_TEST_SUITE_P(Waves, AheadList, testing::Values("emu:0", "emu:1"),
                         [](const auto& p) { return p.param[4] == '0' ? "Of32" : "Of64"; });

TEST_P(AheadList, IsPlannedWithinItsBounds) {
  device_.ResetPeak();
  const int64_t before = device_.memory_stats().in_use;
  ASSERT_OK_AND(const std::vector<AheadUnit> units, AheadUnits(device_));
  std::set<std::pair<std::string, std::string>> seen;
  size_t kernels = 0;
  for (const AheadUnit& unit : units) {
    ASSERT_FALSE(unit.empty());
    EXPECT_LT(unit.size(), 50u);
    kernels += unit.size();
    for (const KernelText& kernel : unit) {
      EXPECT_EQ(kernel.prelude, unit[0].prelude);
      EXPECT_TRUE(seen.emplace(kernel.prelude, kernel.text).second)
          << kernel.name << " is there twice";
    }
  }
  EXPECT_LE(kernels, kAheadKernels);
  EXPECT_GE(kernels, 120u);
  EXPECT_EQ(device_.memory_stats().peak, before) << "nothing is put on the device";
}

TEST(Units, HaveEachKernelOnceByPrelude) {
  std::vector<KernelText> kernels;
  for (int i = 0; i < 7; ++i) {
    kernels.push_back({"", "b", std::to_string(i)});
    kernels.push_back({"", "a", std::to_string(i % 2)});
  }
  std::vector<size_t> sizes;
  std::set<std::string> texts;
  for (const AheadUnit& unit : UnitsOf(kernels, [](std::string_view) { return 3; })) {
    sizes.push_back(unit.size());
    for (const KernelText& k : unit) {
      EXPECT_EQ(k.prelude, unit[0].prelude);
      EXPECT_TRUE(texts.insert(k.prelude + k.text).second);
    }
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 2, 2, 3}));
  EXPECT_TRUE(UnitsOf({}, [](std::string_view) { return 3; }).empty());
}

TEST_P(AheadList, EachCallAsksForSomething) {
  for (const AheadCall& call : AheadCalls()) {
    const auto units = AheadUnits(device_, {&call, 1});
    ASSERT_TRUE(units.ok()) << units.status();
    EXPECT_FALSE(units->empty()) << call.op << "(" << call.operands << ")";
  }
}

TEST_P(AheadList, CallsThatAreNoneAreNamed) {
  const std::pair<AheadCall, const char*> wrong[] = {
      {{"nothing", "T[2]", {}}, "nothing(T[2]) is not planned: no such op"},
      {{"add", "T[2]", {}}, "expected 2 operands, got 1"},
      {{"add", "T[2], f99[2]", {}}, "expected a type and extents in 'T[2], f99[2]'"},
      {{"add", "T[2], T[x]", {}}, "expected an extent before 'x]'"},
      {{"add", "T[2] T[2]", {}}, "expected a comma before ' T[2]'"},
      {{"cat", "(T[2], T[2]", {{"dim", 0}}}, "expected a comma before ''"},
      {{"add", "T[2], T[3]", {}}, "add"},
      {{"softmax", "T[2]", {{"dimm", 0}}}, "dimm"}};
  for (const auto& [call, says] : wrong) {
    const std::string said = MessageOf(AheadUnits(device_, {&call, 1}).status());
    EXPECT_NE(said.find(says), std::string::npos) << said;
  }
}

class PreparedUnits : public testing::TestWithParam<const char*> {
 protected:
  struct Params {
    const void* x;
    void* y;
  };
  void SetUp() override {
    if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
  }

  // Returns a kernel with `elements` of shared memory. The first 64 of them hold x.
  static KernelText Kernel(int i, const std::string& body, int elements = 64) {
    return {
        fmt::format("kernel {}", i), "kernels/ops/gpu/device.cuh",
        fmt::format(
            "namespace opw::OPW_KERNEL {{ struct Params {{ const void* x; void* y; }}; }}\n"
            "OPW_GLOBAL(64) OPW_KERNEL(const opw::OPW_KERNEL::Params p) {{\n  using namespace "
            "opw;\n  __shared__ i32 all[{}];\n"
            "  all[threadIdx.x] = static_cast<const i32*>(p.x)[threadIdx.x];\n  __syncthreads();\n"
            "  static_cast<i32*>(p.y)[threadIdx.x] = {};\n}}\n",
            elements, body)};
  }
  static std::vector<KernelText> Three() {
    return {Kernel(0, "all[63 - threadIdx.x]"), Kernel(1, "all[threadIdx.x] * 3"),
            Kernel(2, "all[threadIdx.x ^ 1] + 7")};
  }

  std::unique_ptr<Code> NewCode(const Folder& cache) {
    return std::make_unique<Code>(device_, std::make_unique<jit::CountingToolchain>(calls_),
                                  cache.path());
  }

  StatusOr<std::vector<int>> Run(Code& code, const KernelText& kernel) {
    OPWIRE_ASSIGN_OR_RETURN(const Function f, code.GetText(kernel)->Load());
    std::vector<int> x(64);
    std::iota(x.begin(), x.end(), 100);
    OPWIRE_ASSIGN_OR_RETURN(void* const from, device_.Allocate(256, MemoryKind::kDevice));
    OPWIRE_ASSIGN_OR_RETURN(void* const to, device_.Allocate(256, MemoryKind::kDevice));
    OPWIRE_RETURN_IF_ERROR(device_.Copy(from, x.data(), 256, 0));
    const Params p{from, to};
    OPWIRE_RETURN_IF_ERROR(device_.Launch(f, {1, 1, 1, 64, 0}, &p, sizeof p));
    OPWIRE_RETURN_IF_ERROR(device_.Copy(x.data(), to, 256, 0));
    OPWIRE_RETURN_IF_ERROR(device_.Synchronize());
    return x;
  }
  static void RemoveObjects(const Folder& cache) {
    for (const auto& entry : std::filesystem::directory_iterator(cache / "objects"))
      std::filesystem::remove_all(entry.path());
  }

  jit::CountingToolchain::Calls calls_;
  const Folder cache_, other_;
  const std::unique_ptr<Device> opened_ = OpenDevice(GetParam(), {}).value();
  GpuDevice& device_ = static_cast<GpuDevice&>(*opened_);
};
INSTANTIATE_TEST_SUITE_P(Waves, PreparedUnits, testing::Values("emu:0", "emu:1"),
                         [](const auto& p) { return p.param[4] == '0' ? "Of32" : "Of64"; });

TEST_P(PreparedUnits, TheirKernelsAreNotCompiledAgainAndGiveTheSame) {
  const auto code = NewCode(cache_), alone = NewCode(other_);
  ASSERT_OK_AND(const jit::CacheEntry entry, code->Prepare(Three()));
  EXPECT_TRUE(entry.built);
  EXPECT_EQ(entry.name, "3 kernels of kernels/ops/gpu/device.cuh");
  std::vector<std::vector<int>> by_unit;
  for (int i : {2, 0, 1, 2}) {
    ASSERT_OK_AND(auto y, Run(*code, Three()[static_cast<size_t>(i)]));
    by_unit.push_back(std::move(y));
  }
  EXPECT_EQ(calls_.compiled, 1);
  for (size_t at = 0; int i : {2, 0, 1, 2}) {
    ASSERT_OK_AND(const auto y, Run(*alone, Three()[static_cast<size_t>(i)]));
    EXPECT_EQ(y, by_unit[at++]) << i;
  }
  EXPECT_EQ(calls_.compiled, 4);
  EXPECT_EQ(by_unit[1][0], 163);
  EXPECT_EQ(by_unit[2][1], 303);
  // A kernel that no unit has is compiled. So is a kernel with the same text after another prelude
  // file.
  ASSERT_OK(Run(*code, Kernel(3, "all[5]")).status());
  EXPECT_EQ(calls_.compiled, 5);
  const auto fresh = NewCode(cache_);
  ASSERT_OK(fresh->Prepare(Three()).status());
  KernelText elsewhere = Three()[0];
  elsewhere.prelude = "kernels/ops/gpu/rows.cuh";
  ASSERT_OK(Run(*fresh, elsewhere).status());
  EXPECT_EQ(calls_.compiled, 6);
}

TEST_P(PreparedUnits, EachKernelMayHaveAllSharedMemory) {
  const std::vector<KernelText> kernels = {Kernel(0, "all[63 - threadIdx.x]", 10'000),
                                           Kernel(1, "all[threadIdx.x] * 3", 12'000)};
  const auto code = NewCode(cache_);
  ASSERT_OK(code->Prepare(kernels).status());
  ASSERT_OK_AND(const auto y, Run(*code, kernels[1]));
  EXPECT_EQ(y[1], 303);
  EXPECT_EQ(calls_.compiled, 1);
  EXPECT_FALSE(Run(*code, Kernel(2, "all[0]", 13'000)).ok()) << "more than a block may have";
}

TEST_P(PreparedUnits, AWarmCacheOnlyFindsThem) {
  ASSERT_OK(NewCode(cache_)->Prepare(Three()).status());
  const auto code = NewCode(cache_);
  ASSERT_OK_AND(const jit::CacheEntry entry, code->Prepare(Three()));
  EXPECT_FALSE(entry.built);
  for (const KernelText& kernel : Three()) ASSERT_OK(Run(*code, kernel).status());
  EXPECT_EQ(calls_.compiled, 1);
}

TEST_P(PreparedUnits, TheirModulesAreLoadedWhenTheFirstKernelIsAskedFor) {
  const auto late = NewCode(cache_), early = NewCode(other_);
  ASSERT_OK(late->Prepare(Three()).status());
  ASSERT_OK(early->Prepare(Three()).status());
  ASSERT_OK(Run(*early, Three()[0]).status());
  RemoveObjects(cache_);
  RemoveObjects(other_);
  EXPECT_EQ(calls_.compiled, 2);
  ASSERT_OK_AND(const auto y, Run(*early, Three()[1]));
  EXPECT_EQ(calls_.compiled, 2) << "the whole unit was loaded";
  ASSERT_OK_AND(const auto by_itself, Run(*late, Three()[1]));
  EXPECT_EQ(calls_.compiled, 3) << "nothing was loaded, and the object is gone: by itself";
  EXPECT_EQ(y, by_itself);
}

TEST_P(PreparedUnits, OneThatDoesNotCompileLeavesItsKernelsToThemselves) {
  const auto code = NewCode(cache_);
  std::vector<KernelText> kernels = Three();
  kernels.push_back(Kernel(3, "nothing"));
  EXPECT_EQ(code->Prepare(kernels).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_OK_AND(const auto y, Run(*code, kernels[1]));
  EXPECT_EQ(y[1], 303);
  EXPECT_FALSE(Run(*code, kernels[3]).ok());
  EXPECT_EQ(calls_.compiled, 3);
}

TEST_P(PreparedUnits, WhatIsAskedForIsCompiledSideBySide) {
  if (std::thread::hardware_concurrency() < 2)
    GTEST_SKIP() << "a processor alone compiles one at a time";
  calls_.before = [&](const jit::CompileRequest&) -> Status {
    for (int i = 0; i < 10'000; ++i) {
      {
        std::lock_guard lock(calls_.mutex);
        if (calls_.most_running >= 2) return absl::OkStatus();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Internal("no other is compiled beside it");
  };
  const auto code = NewCode(cache_);
  for (const KernelText& kernel : Three()) ASSERT_NE(code->GetText(kernel), nullptr);
  device_.AwaitKernels();
  RemoveObjects(cache_);  // all are on the device
  ASSERT_OK_AND(const auto y, Run(*code, Three()[1]));
  EXPECT_EQ(y[1], 303);
  for (const KernelText& kernel : Three()) ASSERT_OK(code->GetText(kernel)->Load().status());
  EXPECT_EQ(calls_.compiled, 3);
}

TEST_P(PreparedUnits, WhatDidNotCompileIsTriedAgain) {
  calls_.before = [](const jit::CompileRequest&) -> Status {
    return ResourceExhausted("the disk is full");
  };
  const auto code = NewCode(cache_);
  EXPECT_EQ(code->GetText(Three()[0])->Load().status(), ResourceExhausted("the disk is full"));
  calls_.before = nullptr;
  ASSERT_OK(Run(*code, Three()[0]).status());
  EXPECT_EQ(calls_.compiled, 2);
}

TEST_P(PreparedUnits, NobodyWaitsForOneThatIsBeingCompiled) {
  std::atomic<bool> go_on{false};
  calls_.before = [&](const jit::CompileRequest& request) -> Status {
    while (request.text.find("k2(") != std::string::npos && !go_on) std::this_thread::yield();
    return absl::OkStatus();
  };
  const auto code = NewCode(cache_);
  Status prepared = Internal("not done");
  std::thread behind([&] { prepared = code->Prepare(Three()).status(); });
  const auto y = Run(*code, Three()[1]);
  go_on = true;
  behind.join();
  ASSERT_OK(y.status());
  ASSERT_OK(prepared);
  EXPECT_EQ(calls_.compiled, 2);
  EXPECT_EQ(*Run(*code, Three()[1]), *y);
  ASSERT_OK(Run(*code, Three()[0]).status());
  EXPECT_EQ(calls_.compiled, 2);
}

}  // namespace
}  // namespace opwire::gpu
