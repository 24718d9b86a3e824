// GPU code of one bound device: instances of the function templates in the embedded .cu files,
// compiled by threads of its own from when they are first asked for, kept in the user's build
// cache, and loaded.
//
//   // costs microseconds
//   Kernel* const f = code.Get({"kernels/ops/softmax/gpu.cu", "softmax::Rows<bf16, 4>",
//       "softmax::RowsParams", 256});
//   ...  // others are asked for, which are compiled beside it
//   OPWIRE_ASSIGN_OR_RETURN(const Function function, f->Load());    // once it is compiled
//
// A template is a device function over a `const Params&` that every thread of the grid calls; the
// kernel around it is written here. Kernels that will be wanted can be compiled before, many in one
// go (ahead.h says which): `code.Prepare(kernels)`.
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
  std::string call;       // what each thread calls: "softmax::Rows<bf16, 4>", in namespace opw
  std::string params;     // the type of its argument: "softmax::RowsParams"
  int threads = 256;      // a block, at the most
  int blocks = 0;         // that should fit a multiprocessor at a time; 0: as it comes
  int cluster = 1;        // blocks of a cluster, up to Code::cluster_blocks()
  bool awaits = false;  // the call itself awaits what runs before (AwaitPrevious); else the kernel
                        // does first of all
};

// A kernel before it is compiled, which awaits what runs before it (AwaitPrevious).
struct KernelText {
  std::string name;     // for messages
  std::string prelude;  // the embedded file that comes before it
  std::string text;     // OPW_KERNEL stands for what it is called, and what it alone needs is in
                        // namespace opw::OPW_KERNEL
  bool reads_early = false;  // GpuDevice::LaunchShape's
};

class Code;

// A kernel that was asked for: it waits to be compiled, is compiled, or is on the device. Any
// thread.
class Kernel {
 public:
  // One that is on the device, which outlives it.
  Kernel(GpuDevice& device, Function function) : device_(device), function_(function) {}
  Kernel(const Kernel&) = delete;

  // Waits until it is compiled, and loads it. The toolchain's errors: FAILED_PRECONDITION where
  // there is none, INVALID_ARGUMENT where it does not compile. REQUIRES: not of code that records.
  StatusOr<Function> Load() {
    const Function f = function_.load(std::memory_order_acquire);
    return f ? f : Await();
  }
  // Whether its launches may begin early: it awaits what is before them by itself.
  bool overlaps() const { return code_ != nullptr; }
  bool reads_early() const { return text_.reads_early; }
  // Launches may take so many bytes of shared memory beside what it has itself. Where the device
  // refuses that, so it does the launch.
  void AllowShared(int bytes);

 private:
  friend class Code;
  Kernel(Code& code, KernelText text);
  StatusOr<Function> Await();
  void Set(Function f);

  GpuDevice& device_;
  Code* const code_ = nullptr;  // null: it is on the device since it was made
  const KernelText text_;
  std::optional<StatusOr<jit::CacheEntry>>
      compiled_;  // its object, guarded by the code's mutex; unset: it waits, or is being compiled
  std::atomic<Function> function_ = nullptr;  // once it is on the device
  std::mutex mutex_;                          // guards the way there, and
  int shared_ = 0;
};

class Code {
 public:
  using Recorder = std::function<void(const KernelText&)>;

  // Of this device, which outlives it. The cache is opened, and the toolchain looked for, when
  // something is to be compiled.
  Code(GpuDevice& device, std::unique_ptr<jit::Toolchain> toolchain, std::string cache_directory,
       std::shared_ptr<Choices> choices = nullptr)
      : device_(device),
        toolchain_(std::move(toolchain)),
        cache_directory_(std::move(cache_directory)),
        choices_(std::move(choices)) {}
  // For looking at what plans ask for: each kernel is told to `record` once, and nothing is
  // compiled.
  Code(GpuDevice& device, Recorder record) : device_(device), record_(std::move(record)) {}
  Code(const Code&) = delete;
  ~Code();

  // Never null, and stays as long as this does. What could not be compiled before is tried again.
  // Whoever plans sees to it that all are loaded before they are recorded into a graph:
  // Device::AwaitKernels. Any thread.
  Kernel* Get(const CodeInstance& instance);
  // The text is its identity.
  Kernel* GetText(const KernelText& kernel);

  // Compiles these kernels as one unit, or finds it in the cache. From then on Get and GetText take
  // from it those of them that they have not asked for yet; its module is loaded when the first is.
  // Errors are Kernel::Load's, and change nothing: each is then compiled when it is asked for, as
  // it is while this lasts. Any thread; several at a time. REQUIRES: at least one kernel, all of
  // one prelude.
  StatusOr<jit::CacheEntry> Prepare(std::span<const KernelText> kernels);

  GpuDevice& device() const { return device_; }
  // The user's cache, opened when it is first asked for. Any thread.
  StatusOr<jit::BuildCache*> Cache();
  // Where what was measured on the device is kept (tune.h); null: nothing is measured, and the
  // first way is taken.
  Choices* choices() const { return choices_.get(); }
  // Whether it is for looking only: plans are not run, and put nothing on the device.
  bool records() const { return record_ != nullptr; }
  // The most blocks of a cluster: 8, which every device that has clusters allows, or 1.
  int cluster_blocks() const;
  // Threads of a warp: 32, or 64 if the device's warps may have 64.
  int warp() const;
  // Whether its warps multiply tiles (MultiplyTile of opwire/gpu.h).
  bool multiplies_tiles() const;
  // Whether it runs what is made for Hopper alone (kernels/ops/gpu/hopper.cuh).
  bool hopper() const;

 private:
  friend class Kernel;
  // An object of several kernels, k0, k1, ...
  struct Unit {
    std::string object;  // its path
    std::mutex mutex;    // guards what follows
    Module module = nullptr;
    std::vector<Function> functions;  // by kernel; null: not looked up yet
  };
  struct Place {
    Unit* unit;
    size_t at;
  };

  // The kernel of this key, which is made and compiled where there is none.
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
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<jit::BuildCache> cache_;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels_;  // by what identifies them
  std::vector<Module> modules_;                                       // all, of units too
  std::vector<std::unique_ptr<Unit>> units_;
  std::unordered_map<std::string, Place> prepared_;  // by prelude and text
  std::deque<std::shared_ptr<Kernel>> queue_;        // that wait to be compiled
  size_t idle_ = 0;                                  // compilers that wait
  std::condition_variable_any queued_, compiled_;
  std::vector<std::jthread> compilers_;  // last, so that they end first
};

// What is compiled for kernels of one prelude: that with the files that it includes in front, each
// once, and the kernels, called k0, k1, ... REQUIRES: at least one.
std::string UnitOf(std::span<const KernelText> kernels);
// What an element type is called in the units: "bf16", "f32", "boolean".
std::string_view CodeName(DType type);
// An unsigned integer of so many bytes, for kernels that only move elements: "u16".
std::string_view BitsName(int64_t bytes);
// What its values compute in: "f32", "f64", an integer's own.
std::string_view ComputeName(DType type);

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_CODE_H_
