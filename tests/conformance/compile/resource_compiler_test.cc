// Resources of kernels in the build cache, with a compiler that is a fake.
#include "tests/conformance/compile/resource_compiler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kernels/jit/cache.h"
#include "kernels/jit/files.h"
#include "kernels/ops/gpu/code.h"
#include "tests/assert_ok.h"
#include "tests/folder.h"

namespace opwire::conformance {
namespace {

// Reports what NVRTC would of one kernel, and counts.
class FakeNvrtc final : public jit::Toolchain {
 public:
  struct Script {
    std::string identity = "fake 1";
    Status failure;
    std::string log =
        "ptxas info    : Compiling entry function 'k0' for 'sm_90a'\n"
        "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 168 registers, 1024 bytes smem\n";
    std::vector<std::string> headers;
    int compiled = 0;
  };
  explicit FakeNvrtc(Script& script) : script_(script) { facts_.identity = script.identity; }

  std::string_view name() const override { return "nvrtc"; }
  std::string_view backend() const override { return "cuda"; }
  const jit::ToolchainFacts& facts() override { return facts_; }
  StatusOr<jit::CompiledObject> Compile(const jit::CompileRequest&,
                                        const std::string& directory) override {
    ++script_.compiled;
    OPWIRE_RETURN_IF_ERROR(script_.failure);
    jit::CompiledObject object;
    object.path = directory + "/object";
    object.headers = script_.headers;
    object.log = script_.log;
    OPWIRE_RETURN_IF_ERROR(jit::WriteFile(object.path, "code", /*sync=*/false));
    return object;
  }

 private:
  Script& script_;
  jit::ToolchainFacts facts_;
};

class ResourceCache : public ::testing::Test {
 protected:
  ResourceCache() {
    request_.name = "1 kernel";
    request_.text = "unit";
    request_.flags = {kPtxasFlag};
    request_.arch = "sm_90a";
  }

  StatusOr<jit::CacheEntry> Get(const jit::CompileRequest& request) {
    auto cache = jit::BuildCache::Open({.directory = folder_ / "cache"});
    if (!cache.ok()) return cache.status();
    const auto compiler = ResourceCompiler(std::make_unique<FakeNvrtc>(script_));
    return (*cache)->Get(*compiler, request);
  }
  void ExpectCompiled(const jit::CompileRequest& request, const char* what) {
    const int before = script_.compiled;
    EXPECT_TRUE(Get(request).ok()) << what;
    EXPECT_EQ(script_.compiled, before + 1) << what;
    EXPECT_TRUE(Get(request).ok()) << what;
    EXPECT_EQ(script_.compiled, before + 1) << what;
  }

  Folder folder_;
  FakeNvrtc::Script script_;
  jit::CompileRequest request_;
};

TEST_F(ResourceCache, FindsWhatItCompiled) {
  for (const bool built : {true, false}) {
    ASSERT_OK_AND(const jit::CacheEntry entry, Get(request_));
    EXPECT_EQ(entry.built, built);
    ASSERT_OK_AND(const ResourcesByKernel kernels, ReadResources(entry.object));
    ASSERT_EQ(kernels.size(), 1u);
    const Resources& r = kernels.at("k0");
    EXPECT_EQ(r.registers, 168);
    EXPECT_EQ(r.spill_stores, 8);
    EXPECT_EQ(r.spill_loads, 12);
    EXPECT_EQ(r.stack, 16);
    EXPECT_EQ(r.shared, 1024);
  }
  EXPECT_EQ(script_.compiled, 1);
}

TEST_F(ResourceCache, KeepsNoFailure) {
  script_.failure = InvalidArgument("does not compile");
  for (int i = 1; i <= 2; ++i) {
    EXPECT_TRUE(absl::IsInvalidArgument(Get(request_).status()));
    EXPECT_EQ(script_.compiled, i);
  }
  script_.failure = absl::OkStatus();
  ExpectCompiled(request_, "after the failure");
}

TEST_F(ResourceCache, KeepsNothingWithoutResources) {
  const std::string log = std::exchange(script_.log, "");
  EXPECT_TRUE(absl::IsInternal(Get(request_).status()));
  script_.log = log;
  ExpectCompiled(request_, "after the empty log");
}

TEST_F(ResourceCache, CompilesAgainIfAnEntryIsBroken) {
  ASSERT_OK_AND(const jit::CacheEntry entry, Get(request_));
  const std::string record = std::filesystem::path(entry.object).parent_path() / "record.json";
  for (const std::string& file : {entry.object, record}) {
    const auto bytes = std::filesystem::file_size(file);
    std::filesystem::resize_file(file, bytes / 2);
    ExpectCompiled(request_, "truncated");
    ASSERT_OK_AND(std::string text, jit::ReadFile(file));
    text[text.size() / 2] ^= 1;
    std::ofstream(file, std::ios::binary) << text;
    file == record ? (void)Get(request_).ok() : ExpectCompiled(request_, "changed");
    EXPECT_EQ(ReadResources(Get(request_)->object)->at("k0").registers, 168);
  }
}

TEST_F(ResourceCache, AnyChangeIsAnotherEntry) {
  // A header that changes while it is compiled is compiled again, so file times have to move on.
  const auto write = [&](const char* text) {
    std::string path = folder_.Write("near.h", text);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return path;
  };
  script_.headers = {write("1")};
  ExpectCompiled(request_, "first");
  jit::CompileRequest r = request_;
  r.text += " ";
  ExpectCompiled(r, "text");
  r = request_;
  r.flags.push_back("-DX");
  ExpectCompiled(r, "flags");
  r = request_;
  r.arch = "sm_80";
  ExpectCompiled(r, "architecture");
  write("2");
  ExpectCompiled(request_, "header");
  script_.identity = "fake 2";
  ExpectCompiled(request_, "toolchain");
}

TEST_F(ResourceCache, IsNotThatOfTheObject) {
  ExpectCompiled(request_, "resources");
  auto cache = jit::BuildCache::Open({.directory = folder_ / "cache"});
  ASSERT_TRUE(cache.ok());
  FakeNvrtc plain(script_);
  EXPECT_FALSE((*cache)->Find(plain, request_));
}

// So the key of a unit covers them.
TEST(Unit, HasTheTextOfItsHeaders) {
  const gpu::KernelText kernel{"k", "kernels/ops/softmax/gpu.cuh", "void OPW_KERNEL();"};
  const std::string unit = gpu::UnitOf({&kernel, 1});
  EXPECT_EQ(unit.find("#include \"kernels/"), unit.npos);
  EXPECT_NE(unit.find("namespace opw"), unit.npos);
}

TEST(Resources, RefusesAnotherText) {
  Folder folder;
  for (const char* text : {"", "opwire resources 1\n", "opwire resources 1\nk0 1 2\nend\n",
                           "opwire resources 1\nk0 1 2 3 4 5\n", "other\nend\n"}) {
    EXPECT_TRUE(absl::IsDataLoss(ReadResources(folder.Write("r", text)).status())) << text;
  }
}

}  // namespace
}  // namespace opwire::conformance
