// Shared libraries made by the machine's own compiler, for tests of what is compiled.
#ifndef OPWIRE_TESTS_KERNELS_HOST_LIBRARY_H_
#define OPWIRE_TESTS_KERNELS_HOST_LIBRARY_H_

#include <atomic>
#include <memory>
#include <string>

#include "kernels/abi.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/toolchain.h"

namespace opwire {

// A folder that is removed with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// g++ or what CXX names, spawned directly; no limits.
class TestToolchain : public jit::Toolchain {
 public:
  std::string_view name() const override { return "c++"; }
  std::string_view backend() const override { return "cpu"; }
  const jit::ToolchainFacts& facts() override { return facts_; }
  StatusOr<jit::CompiledObject> Compile(const jit::CompileRequest& request, const std::string& directory) override;

 private:
  jit::ToolchainFacts facts_{.path = "/usr/bin/c++", .version = "c++"};
};

// Builds each request anew, in a folder of its own.
class TestCache : public jit::BuildCache {
 public:
  StatusOr<jit::CacheEntry> Get(jit::Toolchain& toolchain, const jit::CompileRequest& request) override;
  std::optional<jit::CacheEntry> Find(jit::Toolchain&, const jit::CompileRequest&) override { return std::nullopt; }
  Status SetVerdict(const std::string&, const jit::Verdict&) override { return absl::OkStatus(); }
  std::vector<jit::CacheEntry> List() override { return {}; }
  StatusOr<int> Prune(int64_t) override { return 0; }
  const std::string& directory() const override { return folder_.path(); }
  const std::string& warning() const override { return warning_; }

 private:
  TemporaryFolder folder_;
  std::string warning_;
  std::atomic<int> builds_{0};
};

}  // namespace opwire

#endif  // OPWIRE_TESTS_KERNELS_HOST_LIBRARY_H_
