// Opens the module, and passes calls to it.
#include "kernels/torch/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>

#include "kernels/device/device.h"
#include "kernels/device/gpu/gpu_device.h"
#include "kernels/jit/vendor_library.h"
#include "kernels/ops/call.h"
#include "kernels/select/failure.h"
#include "kernels/select/key_types.h"
#include "kernels/torch/torch_ops.h"

namespace opwire::torch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModule = "opwire_torch.so";
constexpr const char* kSetting = "OPWIRE_TORCH";
constexpr const char* kInstallation = "OPWIRE_LIBTORCH";

// Loads the libraries of the named installation, in this order. The module then finds them loaded.
Status LoadInstallation() {
  if (const char* named = std::getenv(kInstallation); !named || !*named) return absl::OkStatus();
  for (const char* name : {"libc10.so", "libtorch_cpu.so"}) {
    std::string reasons;
    if (!jit::OpenFirst({kInstallation, {}, {}, {"lib", "torch/lib"}, {name}}, reasons))
      return FailedPrecondition("{} names no installation of torch that can be loaded{}",
                                kInstallation, reasons);
  }
  return absl::OkStatus();
}

// A device as the module sees it, and the module's session for it. The session is opened once, when
// it is first needed.
class Provider {
 public:
  Provider(Device& device, std::string path) : device_(device), path_(std::move(path)) {
    const DeviceInfo& info = device.info();
    host_ = {this, info.kind.c_str(), info.index, 0, Allocate, Free, Stream, Fail};
  }
  ~Provider() {
    if (session_) module_->close(session_);
  }
  Provider(const Provider&) = delete;

  // Null if it is open.
  const char* Open() {
    std::call_once(once_, [&] {
      const StatusOr<const opw_torch_module*> module = OpenModule(path_);
      Status status = module.status();
      if (status.ok()) module_ = *module;
      if (status.ok() && module_->open(&host_, &session_) != OPW_OK) {
        status = TakeFailure();
        if (status.ok()) status = Internal("{} does not open", path_);
      }
      if (!status.ok()) reason_ = MessageOf(status);
      opened_.store(true, std::memory_order_release);
    });
    return reason_.empty() ? nullptr : reason_.c_str();
  }
  // Why it does not open, if that is known already; does not open it.
  std::string Known() const { return opened_.load(std::memory_order_acquire) ? reason_ : ""; }

  // REQUIRES: it is open.
  int32_t Find(const char* op) const { return module_->find(op); }
  int Run(int32_t row, const opw_call* c) { return module_->run(session_, row, c); }

 private:
  static Provider& Of(void* context) { return *static_cast<Provider*>(context); }
  static void* Allocate(void* context, int64_t bytes, char* why, int64_t why_bytes) {
    const StatusOr<void*> memory = Of(context).device_.Allocate(bytes, MemoryKind::kDevice);
    if (memory.ok()) return *memory;
    if (why_bytes > 0)
      *fmt::format_to_n(why, why_bytes - 1, "{}", MessageOf(memory.status())).out = '\0';
    return nullptr;
  }
  static void Free(void* context, void* memory) { Of(context).device_.Free(memory); }
  static void* Stream(void* context) {
    const Device& device = Of(context).device_;
    return device.info().kind == "cpu" ? nullptr
                                       : static_cast<const gpu::GpuDevice&>(device).stream(0);
  }
  static void Fail(void*, int32_t code, const char* message) {
    NoteFailure(Status(static_cast<absl::StatusCode>(code), message));
  }

  Device& device_;
  const std::string path_;
  opw_torch_host host_;
  std::once_flag once_;
  std::atomic<bool> opened_{false};
  const opw_torch_module* module_ = nullptr;
  void* session_ = nullptr;
  std::string reason_;
};

// The context of a row's kernel.
struct TorchKernel {
  TorchKernel(const TorchOp& r, std::shared_ptr<Provider> p) : row(r), provider(std::move(p)) {}
  const TorchOp& row;
  const std::shared_ptr<Provider> provider;
  mutable std::atomic<int32_t> number{-1};  // the row's number in the module; -1: not known yet
};

const char* Supports(const opw_call* c) {
  const auto& kernel = *static_cast<const TorchKernel*>(c->context);
  if (kernel.row.supports) {
    if (const char* const reason = kernel.row.supports(c)) return reason;
  }
  if (const char* const reason = kernel.provider->Open()) return reason;
  if (kernel.number < 0) kernel.number = kernel.provider->Find(kernel.row.op);
  return kernel.number < 0 ? "the module that was opened has no such row" : nullptr;
}

int Run(const opw_call* c) {
  const auto& kernel = *static_cast<const TorchKernel*>(c->context);
  return kernel.provider->Run(kernel.number, c);
}

}  // namespace

StatusOr<std::string> FindModule() {
  std::vector<fs::path> places;
  std::error_code ignored;
  if (const char* named = std::getenv(kSetting); named && *named) {
    places = {fs::is_directory(named, ignored) ? fs::path(named) / kModule : fs::path(named)};
  } else {
    const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    places = {here / kModule, here.parent_path() / "lib" / "opwire" / kModule};
  }
  std::string missing;
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place, ignored)) return place.string();
    missing += fmt::format("{}{}", missing.empty() ? "" : " and no ", place.string());
  }
  return NotFound("there is no {} ({} may name its file or folder)", missing, kSetting);
}

StatusOr<const opw_torch_module*> OpenModule(const std::string& path) {
  OPWIRE_RETURN_IF_ERROR(LoadInstallation());
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* const why = dlerror();
    return FailedPrecondition("{} cannot be loaded: {} ({} may name another installation of torch)",
                              path, why ? why : "no reason given", kInstallation);
  }
  const auto* const module = static_cast<const opw_torch_module*>(dlsym(handle, "opwire_torch"));
  if (!module)
    return FailedPrecondition("{} is no module of libtorch: it exports no opwire_torch", path);
  if (module->version != OPW_TORCH_VERSION || module->abi_version != OPW_ABI_VERSION) {
    return FailedPrecondition(
        "{} is of another executor: its interface has version {}.{}, this one's {}.{}", path,
        module->version, module->abi_version, OPW_TORCH_VERSION, OPW_ABI_VERSION);
  }
  return module;
}

void AddTorch(VariantTable& table, Device& device) {
  const StatusOr<std::string> path = FindModule();
  const std::string unavailable = path.ok() ? "" : MessageOf(path.status());
  const auto provider = std::make_shared<Provider>(device, path.ok() ? *path : "");
  for (const TorchOp& row : TorchOps()) {
    const OpDef* const of = Catalogue().Find(row.op);
    if (of == nullptr) continue;
    DTypeSet dtypes = KeyTypesOf(*of) - (KeyTypesOf(*of) - row.dtypes);
    if (device.info().kind != "cpu") dtypes = dtypes - row.only_cpu;
    auto kernel = std::make_shared<const TorchKernel>(row, provider);
    const opw_kernel functions = {
        OPW_ABI_VERSION, row.flags | OPW_NO_GRAPH, Supports, nullptr, nullptr, Run, kernel.get()};
    Variant v{row.op, "torch", Tier::kLibtorch, 0, dtypes, unavailable, "builtin", functions};
    v.restriction = row.restriction;
    v.library = [provider](bool open) -> std::string {
      if (!open) return provider->Known();
      const char* const reason = provider->Open();
      return reason ? reason : "";
    };
    v.holds = std::move(kernel);
    table.Add(std::move(v));
  }
}

}  // namespace opwire::torch
