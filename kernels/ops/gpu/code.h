// GPU code of one bound device: instances of the function templates in the embedded .cuh files. Its
// own threads compile them once they are requested. They are kept in the user's build cache, and
// loaded.
//
//   // costs microseconds
//   Kernel* const f = code.Get({"kernels/ops/softmax/gpu.cuh", "softmax::Rows<bf16, 4>",
//       "softmax::RowsParams", 256});
//   ...  // others are requested, and are compiled in parallel
//   OPWIRE_ASSIGN_OR_RETURN(const Function function, f->Load());    // once it is compiled
//
// A template is a device function over a `const Params&` that every thread of the grid calls. This
// class writes the kernel that calls it. Kernels that will be needed can be compiled before, many
// in one unit (ahead.h lists them): `code.Prepare(kernels)`.
#ifndef OPWIRE_KERNELS_OPS_GPU_CODE_H_
#define OPWIRE_KERNELS_OPS_GPU_CODE_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ir/base/dtype.h"
#include "kernels/device/gpu/gpu_device.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/toolchain.h"

namespace opwire {
class Choices;
}

namespace opwire::gpu {

struct CodeInstance {
  std::string_view file;  // from the top of the sources
  std::string call;       // the call in each thread: "softmax::Rows<bf16, 4>", in namespace opw
  std::string params;     // the type of its argument: "softmax::RowsParams"
  int threads = 256;      // most threads of a block
  int blocks = 0;         // that should fit on a multiprocessor at a time; 0: no requirement
  int cluster = 1;        // blocks of a cluster, up to Code::cluster_blocks()
  bool awaits = false;    // true: the call itself awaits earlier work (AwaitPrevious); false: the
                          // kernel does so first
};

// A kernel before it is compiled. It awaits earlier work (AwaitPrevious).
struct KernelText {
  std::string name;     // for messages
  std::string prelude;  // the embedded file that comes before it
  std::string text;     // with OPW_KERNEL as its name; declarations for it alone are in namespace
                        // opw::OPW_KERNEL
  bool reads_early = false;  // GpuDevice::LaunchShape's
};

class Code;

// A requested kernel: it waits to be compiled, is compiled, or is on the device. Any thread.
class Kernel {
 public:
  // A kernel that is on the device. The device outlives it.
  Kernel(GpuDevice& device, Function function) : device_(device), function_(function) {}
  Kernel(const Kernel&) = delete;

  // Waits until it is compiled, and loads it. Errors are the toolchain's: FAILED_PRECONDITION if
  // there is none, INVALID_ARGUMENT if the kernel does not compile. REQUIRES: the code does not
  // record.
  StatusOr<Function> Load() {
    const Function f = function_.load(std::memory_order_acquire);
    return f ? f : Await();
  }
  // Whether its launches may begin early: it awaits earlier work itself.
  bool overlaps() const { return code_ != nullptr; }
  bool reads_early() const { return text_.reads_early; }
  // Lets launches use this many bytes of dynamic shared memory in addition to the kernel's own
  // variables. If the device refuses that, it also refuses the launch.
  void AllowShared(int bytes);

 private:
  friend class Code;
  Kernel(Code& code, KernelText text);
  StatusOr<Function> Await();
  void Set(Function f);

  GpuDevice& device_;
  Code* const code_ = nullptr;  // null: it is on the device since construction
  const KernelText text_;
  std::optional<StatusOr<jit::CacheEntry>>
      compiled_;  // its object, guarded by the code's mutex; unset: it waits, or is being compiled
  std::atomic<Function> function_ = nullptr;  // once it is on the device
  std::mutex mutex_;                          // guards the transition to the device, and
  int shared_ = 0;
};

class Code {
 public:
  using Recorder = std::function<void(const KernelText&)>;

  // Of this device, which outlives it. The cache is opened, and the toolchain searched for, at the
  // first compilation.
  Code(GpuDevice& device, std::unique_ptr<jit::Toolchain> toolchain, std::string cache_directory,
       std::shared_ptr<Choices> choices = nullptr)
      : device_(device),
        toolchain_(std::move(toolchain)),
        cache_directory_(std::move(cache_directory)),
        choices_(std::move(choices)) {}
  // Only lists the kernels that plans need: `record` is called with each kernel once, and nothing
  // is compiled.
  Code(GpuDevice& device, Recorder record) : device_(device), record_(std::move(record)) {}
  Code(const Code&) = delete;
  ~Code();

  // Never null; valid as long as this object. A failed compilation is tried again. A planner must
  // ensure that all kernels are loaded before they are recorded into a graph: Device::AwaitKernels.
  // Any thread.
  Kernel* Get(const CodeInstance& instance);
  // The text is its identity.
  Kernel* GetText(const KernelText& kernel);

  // Compiles these kernels as one unit, or finds it in the cache. Afterwards Get and GetText use it
  // for those kernels that were not requested before. Its module is loaded when the first of them
  // is. Errors are Kernel::Load's, and change nothing: each kernel is then compiled when it is
  // requested. The same holds while this call lasts. Any thread; several at a time. REQUIRES: at
  // least one kernel, all of one prelude.
  StatusOr<jit::CacheEntry> Prepare(std::span<const KernelText> kernels);

  GpuDevice& device() const { return device_; }
  // The user's cache, opened at the first call. Any thread.
  StatusOr<jit::BuildCache*> Cache();
  // Storage for measurements on the device (tune.h); null: nothing is measured, and the first way
  // is used.
  Choices* choices() const { return choices_.get(); }
  // Whether it only records: plans are not run, and put nothing on the device.
  bool records() const { return record_ != nullptr; }
  // Most blocks of a cluster: 8, which every device with clusters allows, or 1.
  int cluster_blocks() const;
  // Threads of a warp: 32, or 64 if the device's warps may have 64.
  int warp() const;
  // Whether its warps multiply tiles (MultiplyTile of opwire/gpu.h).
  bool multiplies_tiles() const;
  // Whether it runs code that is made only for Hopper (kernels/ops/gpu/hopper.cuh).
  bool hopper() const;

 private:
  friend class Kernel;
  // An object of several kernels, k0, k1, ...
  struct Unit {
    std::string object;  // its path
    std::mutex mutex;    // guards the following fields
    Module module = nullptr;
    std::vector<Function> functions;  // by kernel; null: not looked up yet
  };
  struct Place {
    Unit* unit;
    size_t at;
  };

  // Returns the kernel of this key. Makes and compiles it if there is none.
  Kernel* Find(const std::string& key, const std::function<KernelText()>& text);
  void Enqueue(std::shared_ptr<Kernel> kernel);  // REQUIRES: the mutex is held
  void CompileQueued(const std::stop_token& stop);
  StatusOr<jit::CacheEntry> AwaitObjectOf(const Kernel& kernel);
  StatusOr<Function> LoadFrom(const Place& place);
  StatusOr<Module> LoadObject(const std::string& path);
  StatusOr<jit::CacheEntry> Compile(const jit::CompileRequest& request);

  GpuDevice& device_;
  const std::unique_ptr<jit::Toolchain> toolchain_;
  const std::string cache_directory_;
  const std::shared_ptr<Choices> choices_;
  const Recorder record_;
  std::mutex mutex_;  // guards the following fields
  std::unique_ptr<jit::BuildCache> cache_;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels_;  // by their identity
  std::vector<Module> modules_;                                       // all, of units too
  std::vector<std::unique_ptr<Unit>> units_;
  std::unordered_map<std::string, Place> prepared_;  // by prelude and text
  std::deque<std::shared_ptr<Kernel>> queue_;        // that wait to be compiled
  size_t idle_ = 0;                                  // compilers that wait
  std::condition_variable_any queued_, compiled_;
  std::vector<std::jthread> compilers_;  // last, so that they end first
};

// The unit for kernels of one prelude: first the prelude with the files that it includes, each
// once, then the kernels, named k0, k1, ... REQUIRES: at least one.
std::string UnitOf(std::span<const KernelText> kernels);
// The name of an element type in the units: "bf16", "f32", "boolean".
std::string_view CodeName(DType type);
// An unsigned integer of `bytes` bytes, for kernels that only move elements: "u16".
std::string_view BitsName(int64_t bytes);
// The type in which its values compute: "f32", "f64", an integer's own.
std::string_view ComputeName(DType type);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_CODE_H_
