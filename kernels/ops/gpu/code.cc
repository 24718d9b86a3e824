// Writes kernels that call templates, compiles and loads them.
#include "kernels/ops/gpu/code.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <vector>

#include "ir/base/cpu_quota.h"
#include "kernels/jit/gpu_text.h"

namespace opwire::gpu {
namespace {

constexpr std::string_view kPlaceholder = "OPW_KERNEL";

KernelText KernelOf(const CodeInstance& i) {
  const std::string bounds =
      i.blocks > 0 ? fmt::format("{}, {}", i.threads, i.blocks) : fmt::format("{}", i.threads);
  const std::string cluster =
      i.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", i.cluster) : "";
  return {fmt::format("{} {}", i.file, i.call), std::string(i.file),
          fmt::format("\nextern \"C\" __global__ void {}__launch_bounds__({}) {}(OPW_PARAM opw::{} "
                      "p) {{\n  using namespace opw;\n{}  {}(p);\n}}\n",
                      cluster, bounds, kPlaceholder, i.params,
                      i.awaits ? "" : "  AwaitPrevious();\n", i.call)};
}

// A text holds no NUL.
std::string IdentityOf(const KernelText& kernel) { return kernel.prelude + '\0' + kernel.text; }

}  // namespace

std::string UnitOf(std::span<const KernelText> kernels) {
  std::set<std::string, std::less<>> seen;
  std::string out;
  jit::AppendGpuSource(kernels[0].prelude, seen, out);
  for (size_t i = 0; i < kernels.size(); ++i) {
    std::string_view rest = kernels[i].text;
    for (size_t at; (at = rest.find(kPlaceholder)) != rest.npos;
         rest.remove_prefix(at + kPlaceholder.size())) {
      out += rest.substr(0, at);
      out += fmt::format("k{}", i);
    }
    out += rest;
  }
  return out;
}

std::string_view BitsName(int64_t bytes) {
  return CodeName(bytes == 1   ? DType::kU8
                  : bytes == 2 ? DType::kU16
                  : bytes == 4 ? DType::kU32
                               : DType::kU64);
}
std::string_view CodeName(DType type) {
  static constexpr std::string_view kNames[kDTypeCount] = {
      "",    "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64",
      "i32", "i16", "i8",  "u64", "u32",  "u16",    "u8",     "boolean"};
  return kNames[static_cast<int>(type)];
}

std::string_view ComputeName(DType type) {
  if (type == DType::kBool) return "bool";
  return kFloats.Has(type) || kFloat8s.Has(type) ? (type == DType::kF64 ? "f64" : "f32")
                                                 : CodeName(type);
}

Code::~Code() {
  for (std::jthread& t : compilers_)
    t.request_stop();  // all, before the first join: otherwise the others would continue with
                       // queued kernels
  compilers_.clear();
  for (const Module m : modules_) device_.UnloadModule(m);
}

int Code::cluster_blocks() const { return CudaArchitecture(device_.info().arch) >= 90 ? 8 : 1; }

int Code::warp() const {
  const std::string& arch = device_.info().arch;
  return CudaArchitecture(arch) > 0 || arch == "emu32" ? 32 : 64;
}

bool Code::multiplies_tiles() const {
  return CudaArchitecture(device_.info().arch) >= 80 || device_.info().arch == "emu32";
}

bool Code::hopper() const { return device_.info().arch == "sm_90a"; }

// ---- A kernel

Kernel::Kernel(Code& code, KernelText text)
    : device_(code.device()), code_(&code), text_(std::move(text)) {}

StatusOr<Function> Kernel::Await() {
  OPWIRE_ASSIGN_OR_RETURN(const jit::CacheEntry compiled, code_->AwaitObjectOf(*this));
  std::lock_guard lock(mutex_);
  if (const Function f = function_) return f;
  OPWIRE_ASSIGN_OR_RETURN(const Module module, code_->LoadObject(compiled.object));
  OPWIRE_ASSIGN_OR_RETURN(const Function f, device_.FindFunction(module, "k0"));
  Set(f);
  return f;
}

void Kernel::Set(Function f) {
  if (shared_ > 0) (void)device_.AllowShared(f, shared_);
  function_.store(f, std::memory_order_release);
}

void Kernel::AllowShared(int bytes) {
  std::lock_guard lock(mutex_);
  shared_ = std::max(shared_, bytes);
  if (const Function f = function_) (void)device_.AllowShared(f, shared_);
}

// ---- All of a device

Kernel* Code::Get(const CodeInstance& i) {
  return Find(fmt::format("{} {} {} {} {} {} {}", i.file, i.call, i.params, i.threads, i.blocks,
                          i.cluster, i.awaits),
              [&] { return KernelOf(i); });
}

Kernel* Code::GetText(const KernelText& kernel) {
  return Find(kernel.text, [&] { return kernel; });
}

Kernel* Code::Find(const std::string& key, const std::function<KernelText()>& text) {
  std::unique_lock lock(mutex_);
  if (const auto it = kernels_.find(key); it != kernels_.end()) {
    Kernel& known = *it->second;
    if (known.compiled_ && !known.compiled_->ok()) {
      known.compiled_.reset();
      Enqueue(it->second);
    }
    return &known;
  }
  const std::shared_ptr<Kernel> kernel(new Kernel(*this, text()));
  if (const auto it = prepared_.find(IdentityOf(kernel->text_)); it != prepared_.end()) {
    const Place place = it->second;
    lock.unlock();
    // Its object may have been removed from the cache; then the kernel is compiled alone.
    if (const StatusOr<Function> f = LoadFrom(place); f.ok()) kernel->Set(*f);
    lock.lock();
  }
  const auto [it, added] = kernels_.emplace(key, kernel);
  if (!added) return it->second.get();
  if (record_) {
    lock.unlock();
    record_(kernel->text_);
  } else if (kernel->function_ == nullptr) {
    Enqueue(kernel);
  }
  return kernel.get();
}

void Code::Enqueue(std::shared_ptr<Kernel> kernel) {
  static const size_t kMost = std::min<size_t>(static_cast<size_t>(UsableThreads()), 16);
  device_.WhenAwaited([waits = std::weak_ptr(kernel)] {
    if (const std::shared_ptr<Kernel> k = waits.lock())
      (void)k->Load();  // an error is reported by its launch
  });
  queue_.push_back(std::move(kernel));
  if (idle_ < queue_.size() && compilers_.size() < kMost)
    compilers_.emplace_back([this](const std::stop_token& stop) { CompileQueued(stop); });
  queued_.notify_one();
}

void Code::CompileQueued(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    queued_.wait(lock, stop, [&] { return !queue_.empty(); });
    --idle_;
    if (stop.stop_requested()) return;
    const std::shared_ptr<Kernel> kernel = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    StatusOr<jit::CacheEntry> entry = Compile({.name = kernel->text_.name,
                                               .text = UnitOf({&kernel->text_, 1}),
                                               .arch = device_.info().arch});
    lock.lock();
    kernel->compiled_ = std::move(entry);
    compiled_.notify_all();
  }
}

StatusOr<jit::CacheEntry> Code::AwaitObjectOf(const Kernel& kernel) {
  std::unique_lock lock(mutex_);
  compiled_.wait(lock, [&] { return kernel.compiled_.has_value(); });
  return *kernel.compiled_;
}

StatusOr<Function> Code::LoadFrom(const Place& place) {
  Unit& unit = *place.unit;
  std::lock_guard lock(unit.mutex);
  if (!unit.module) {
    OPWIRE_ASSIGN_OR_RETURN(unit.module, LoadObject(unit.object));
  }
  Function& f = unit.functions[place.at];
  if (!f) {
    OPWIRE_ASSIGN_OR_RETURN(
        f, device_.FindFunction(unit.module, fmt::format("k{}", place.at).c_str()));
  }
  return f;
}

StatusOr<Module> Code::LoadObject(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string image((std::istreambuf_iterator<char>(in)), {});
  if (!in) return Internal("{} cannot be read", path);
  OPWIRE_ASSIGN_OR_RETURN(const Module module, device_.LoadModule(image));
  std::lock_guard lock(mutex_);
  modules_.push_back(module);
  return module;
}

StatusOr<jit::BuildCache*> Code::Cache() {
  std::lock_guard lock(mutex_);
  if (!cache_) {
    OPWIRE_ASSIGN_OR_RETURN(cache_, jit::BuildCache::Open({.directory = cache_directory_}));
  }
  return cache_.get();
}

StatusOr<jit::CacheEntry> Code::Compile(const jit::CompileRequest& request) {
  OPWIRE_ASSIGN_OR_RETURN(jit::BuildCache* const cache, Cache());
  return cache->Get(*toolchain_, request);
}

StatusOr<jit::CacheEntry> Code::Prepare(std::span<const KernelText> kernels) {
  const std::string name =
      kernels.size() == 1 ? kernels[0].name
                          : fmt::format("{} kernels of {}", kernels.size(), kernels[0].prelude);
  OPWIRE_ASSIGN_OR_RETURN(
      jit::CacheEntry entry,
      Compile({.name = name, .text = UnitOf(kernels), .arch = device_.info().arch}));
  auto unit = std::make_unique<Unit>();
  unit->object = entry.object;
  unit->functions.resize(kernels.size());
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < kernels.size(); ++i)
    prepared_.try_emplace(IdentityOf(kernels[i]), Place{unit.get(), i});
  units_.push_back(std::move(unit));
  return entry;
}

}  // namespace opwire::gpu
