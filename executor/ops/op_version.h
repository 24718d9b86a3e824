// A folder's op at one state of its files, and the source of its variants' code: prebuilt, else
// cached, else built and tried.
#ifndef OPWIRE_EXECUTOR_OPS_OP_VERSION_H_
#define OPWIRE_EXECUTOR_OPS_OP_VERSION_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "executor/plan/reference.h"
#include "kernels/device/device.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/manifest.h"
#include "kernels/jit/toolchain.h"
#include "kernels/select/variant.h"

namespace opwire::executor {

// One variant of an op, for one backend.
struct Built {
  jit::OpVariantSpec spec;
  std::string backend, arch;
  bool own = false;  // this executor's device runs it
  enum State : uint8_t {
    kWaiting,
    kReady,
    kFailed,
    kUnsuited
  } state = kWaiting;  // kUnsuited: for the architecture, whatever its files say
  std::string reason;  // why it cannot be used
  std::string key;     // of its object in the cache
  Origin origin = Origin::kBuilt;
  opw_kernel kernel{};
  std::shared_ptr<const void> holds;  // owns the kernel's code; null: it is not loaded
};

struct OpVersion {
  std::shared_ptr<const jit::OpManifest> manifest;
  std::shared_ptr<const ReferenceProgram> reference;
  std::vector<Built> variants;

  bool Loaded() const;   // some variant runs here
  bool Waiting() const;  // something must be built
  // Adds the variants, the facts about variants for other backends, and the reference to a set.
  void AddTo(KernelSet& set) const;
};

struct OpSourceOptions {
  std::string worker;   // the program that compiles and tries in processes of its own
  double seconds = 60;  // of wall time, for a compilation and for a trial
  std::string died;  // "op@variant" in which the previous executor faulted; empty: it did not fault
  Device* device = nullptr;  // a GPU, which outlives all; null: a cpu
};

// Any thread; several at a time.
class OpSource {
 public:
  // `cache` may be null if no folder is read.
  OpSource(OpSourceOptions options, std::unique_ptr<jit::BuildCache> cache,
           std::shared_ptr<const KernelSet> builtin);

  // Reads the folder's op with prebuilt or cached objects. Variants without one wait to be built.
  // If any waits, the op's reference was planned.
  StatusOr<std::shared_ptr<OpVersion>> Read(const std::string& folder);
  // Builds a waiting variant, tries it, and loads it, or stores why it cannot.
  void Build(const jit::OpManifest& op, Built& b);

  jit::BuildCache* cache() { return cache_.get(); }
  const std::vector<std::unique_ptr<jit::Toolchain>>& toolchains() const {
    return toolchains_.all();
  }

 private:
  Built NewBuilt(const jit::OpVariantSpec& spec, const std::string& backend) const;
  StatusOr<std::shared_ptr<OpVersion>> ReadFiles(const std::string& folder,
                                                 ReferenceProgram::When when) const;
  bool FromPrebuilt(const jit::OpManifest& op, Built& b);
  bool FromCache(const jit::OpManifest& op, Built& b);
  // Returns the path of the built object; empty: none.
  std::string BuildOnce(const jit::OpManifest& op, Built& b);
  void Take(const jit::OpManifest& op, Built& b, jit::CacheEntry entry);
  Status Load(const jit::OpManifest& op, const std::string& object, Built& b) const;
  void CountDeath(const jit::OpManifest& op, const Built& b, jit::CacheEntry& entry);

  const OpSourceOptions options_;
  const std::unique_ptr<jit::BuildCache> cache_;
  const std::shared_ptr<const KernelSet> builtin_;
  const std::string backend_;  // of the device
  const jit::Toolchains toolchains_;
  std::atomic<bool> death_counted_{false};
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_OP_VERSION_H_
