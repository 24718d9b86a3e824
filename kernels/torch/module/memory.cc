// Blocks and their sources.
#include "kernels/torch/module/memory.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "kernels/torch/module/exceptions.h"

namespace opwire::torch_module {

struct Source {
  opw_torch_host host;
  bool cuda = false;
  bool open = true;
};

namespace {

constexpr size_t kAlignment = 64;

// Guards the blocks, and sources against being closed.
std::mutex& Mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}
// Of no source: the process's own. Never destroyed, as libtorch gives blocks back while the process
// ends.
std::unordered_map<void*, Source*>& Blocks() {
  static auto* const blocks = new std::unordered_map<void*, Source*>;
  return *blocks;
}
std::atomic<Source*> current[2];  // of a cpu, of a GPU

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = Allocate(bytes, /*cuda=*/false);
    return {memory, memory, &Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

Source* AddSource(const opw_torch_host& host) {
  return new Source{host, std::string_view(host.kind) == "cuda"};
}

void CloseSource(Source* source) {
  const std::lock_guard lock(Mutex());
  source->open = false;
  Source* was = source;
  current[source->cuda].compare_exchange_strong(was, nullptr);
}

void UseSource(Source* source) { current[source->cuda].store(source, std::memory_order_release); }

void* Allocate(size_t bytes, bool cuda) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(Mutex());
  Source* const source = current[cuda].load(std::memory_order_acquire);
  char why[256] = "no device is open";
  void* memory = nullptr;
  if (source != nullptr)
    memory =
        source->host.allocate(source->host.context, static_cast<int64_t>(bytes), why, sizeof why);
  else if (!cuda)
    memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) throw Exhausted(why);
  Blocks().emplace(memory, source);
  return memory;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(Mutex());
  const auto block = Blocks().find(memory);
  if (block == Blocks().end()) return;
  const Source* const source = block->second;
  Blocks().erase(block);
  if (source == nullptr)
    std::free(memory);
  else if (source->open)
    source->host.free(source->host.context, memory);
}

void InstallCpuAllocator() {
  static CpuAllocator* const allocator = [] {
    auto* const made = new CpuAllocator;
    c10::SetCPUAllocator(made, /*priority=*/100);
    return made;
  }();
  (void)allocator;
}

}  // namespace opwire::torch_module
