// Both libraries have one interface under two prefixes. The few functions that are used are
// declared here, so that nothing of CUDA or ROCm is needed to build.
#include "kernels/jit/rtc_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "kernels/embedded.h"
#include "kernels/jit/build_id.h"
#include "kernels/jit/digest.h"
#include "kernels/jit/files.h"
#include "kernels/jit/vendor_library.h"

namespace opwire::jit {
namespace {

namespace fs = std::filesystem;

struct ProgramOfLibrary;
using Handle = ProgramOfLibrary*;

// Results, equal in both.
enum : int { kSuccess = 0, kOutOfMemory = 1, kInvalidOption = 5, kCompilation = 6 };

struct Api {
  int (*version)(int*, int*);
  int (*create)(Handle*, const char* text, const char* name, int headers,
                const char* const* contents, const char* const* names);
  int (*destroy)(Handle*);
  int (*compile)(Handle, int flags, const char* const*);
  int (*log_size)(Handle, size_t*);
  int (*log)(Handle, char*);
  int (*code_size)(Handle, size_t*);
  int (*code)(Handle, char*);
  int (*ptx_size)(Handle, size_t*);  // only in NVRTC, as are the following
  int (*ptx)(Handle, char*);
  int (*architecture_count)(int*);
  int (*architectures)(int*);
  const char* (*error)(int);
};

struct Kind {
  const char* title;
  const char* prefix;
  const char *code_size, *code;
  VendorLibrary library;
  const char* companion;  // the library opens it automatically when it compiles
};

const Kind* KindOf(std::string_view kind) {
  static const Kind kNvrtc = {"NVRTC",
                              "nvrtc",
                              "GetCUBINSize",
                              "GetCUBIN",
                              {"OPWIRE_NVRTC",
                               {"CUDA_HOME", "CUDA_PATH"},
                               {"/usr/local/cuda"},
                               {"lib64", "lib", "nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"},
                               {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}},
                              "libnvrtc-builtins."};
  static const Kind kHiprtc = {"hipRTC",
                               "hiprtc",
                               "GetCodeSize",
                               "GetCode",
                               {"OPWIRE_HIPRTC",
                                {"ROCM_PATH", "HIP_PATH"},
                                {"/opt/rocm"},
                                {"lib64", "lib"},
                                {"libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6",
                                 "libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.5"}},
                               "libhiprtc-builtins."};
  return kind == "nvrtc" ? &kNvrtc : kind == "hiprtc" ? &kHiprtc : nullptr;
}

std::set<std::string> LoadedFiles() {
  std::set<std::string> files;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (info->dlpi_name && info->dlpi_name[0] == '/')
          static_cast<std::set<std::string>*>(out)->insert(info->dlpi_name);
        return 0;
      },
      &files);
  return files;
}

// A library's size and build ID, which are the same in any folder. Libraries have up to 100 MB, so
// their bytes are not read. Without a build ID: path, size and time.
std::string DescriptionOf(const fs::path& file) {
  std::error_code ignored;
  const fs::path real = fs::canonical(file, ignored);
  const std::optional<FileStamp> stamp = StampOf(real);
  const int64_t bytes = stamp ? stamp->bytes : -1;
  const std::string id = BuildIdOf(real);
  return id.empty() ? fmt::format("{} {} {}", real.native(), bytes, stamp ? stamp->modified_ns : -1)
                    : fmt::format("{} {}", bytes, id);
}

// Identity of the library, of those loaded with it, and of the companion that it will open.
std::string IdentityOf(const Kind& kind, const std::string& version, const std::string& path,
                       const std::set<std::string>& before) {
  std::set<std::string> descriptions;  // sorted, whatever the folders are called
  for (const std::string& file : LoadedFiles()) {
    if (!before.contains(file)) descriptions.insert(DescriptionOf(file));
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path(), ignored)) {
    if (entry.path().filename().string().starts_with(kind.companion))
      descriptions.insert(DescriptionOf(entry.path()));
  }
  Digest digest;
  digest.Add(std::string_view(version));
  for (const std::string& description : descriptions) digest.Add(std::string_view(description));
  return digest.Hex();
}

class Library final : public RtcLibrary {
 public:
  Library(const Kind& kind, const Api& api) : kind_(kind), api_(api) {}

  // Queries the library's version and facts, which may fail for a library of another vendor.
  Status Ask(void* symbol, const std::set<std::string>& before) {
    int major = 0, minor = 0;
    if (const int code = api_.version(&major, &minor); code != kSuccess)
      return Internal("its version: {}", Error(code));
    facts_.version = fmt::format("{} {}.{}", kind_.title, major, minor);
    Dl_info info;
    if (dladdr(symbol, &info) != 0 && info.dli_fname) facts_.path = info.dli_fname;
    facts_.identity = IdentityOf(kind_, facts_.version, facts_.path, before);
    int count = 0;
    if (!api_.architecture_count || api_.architecture_count(&count) != kSuccess || count <= 0)
      return absl::OkStatus();
    std::vector<int> numbers(static_cast<size_t>(count));
    if (api_.architectures(numbers.data()) != kSuccess) return absl::OkStatus();
    for (const int number : numbers) facts_.architectures.push_back(fmt::format("sm_{}", number));
    return absl::OkStatus();
  }

  const RtcLibraryFacts& facts() const override { return facts_; }

  StatusOr<std::string> Compile(const std::string& name, const std::string& arch,
                                const std::string& text, const std::vector<std::string>& flags,
                                std::string& log) override {
    const std::string header(GpuHeader());
    const char* contents[] = {header.c_str()};
    const char* names[] = {"opwire/gpu.h"};
    Handle handle;
    if (const int code = api_.create(&handle, text.c_str(), name.c_str(), 1, contents, names);
        code != kSuccess)
      return StatusOf(code);
    const std::unique_ptr<Handle, int (*)(Handle*)> owner(&handle, api_.destroy);
    std::vector<std::string> all = OwnFlags(arch);
    all.insert(all.end(), flags.begin(), flags.end());
    std::vector<const char*> pointers;
    for (const std::string& flag : all) pointers.push_back(flag.c_str());
    const int code = api_.compile(handle, static_cast<int>(pointers.size()), pointers.data());
    log = Read(handle, api_.log_size, api_.log).value_or("");
    while (!log.empty() && log.back() == '\0') log.pop_back();
    if (code != kSuccess) return StatusOf(code);
    return arch.starts_with("compute_") ? Read(handle, api_.ptx_size, api_.ptx)
                                        : Read(handle, api_.code_size, api_.code);
  }

 private:
  // Contraction is off, since rounding is part of an op's meaning; no folder is searched for
  // headers.
  std::vector<std::string> OwnFlags(const std::string& arch) const {
    if (arch.starts_with("gfx"))
      return {"--offload-arch=" + arch, "-std=c++17", "-O3",
              "-ffp-contract=off",      "-nostdinc",  "-nostdinc++"};
    return {"--gpu-architecture=" + arch, "--std=c++17", "--fmad=false"};
  }

  std::string Error(int code) const {
    const char* text = api_.error(code);
    return text ? text : fmt::format("error {}", code);
  }

  Status StatusOf(int code) const {
    if (code == kCompilation || code == kInvalidOption) return InvalidArgument("{}", Error(code));
    if (code == kOutOfMemory) return ResourceExhausted("{}", Error(code));
    return Internal("{}", Error(code));
  }

  StatusOr<std::string> Read(Handle handle, int (*size)(Handle, size_t*),
                             int (*bytes)(Handle, char*)) const {
    size_t length = 0;
    if (const int code = size(handle, &length); code != kSuccess) return StatusOf(code);
    std::string out(length, '\0');
    if (const int code = bytes(handle, out.data()); length > 0 && code != kSuccess)
      return StatusOf(code);
    return out;
  }

  const Kind& kind_;
  const Api api_;
  RtcLibraryFacts facts_;
};

// Resolves the functions; `missing` gets the name of the first that is missing.
Api Resolve(void* library, const Kind& kind, std::string& missing) {
  Api api = {};
  const auto find = [&](auto& function, const char* name, bool needed) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library, (std::string(kind.prefix) + name).c_str()));
    if (!function && needed && missing.empty()) missing = std::string(kind.prefix) + name;
  };
  const bool nvrtc = std::string_view(kind.prefix) == "nvrtc";
  find(api.version, "Version", true);
  find(api.create, "CreateProgram", true);
  find(api.destroy, "DestroyProgram", true);
  find(api.compile, "CompileProgram", true);
  find(api.log_size, "GetProgramLogSize", true);
  find(api.log, "GetProgramLog", true);
  find(api.code_size, kind.code_size, true);
  find(api.code, kind.code, true);
  find(api.ptx_size, "GetPTXSize", nvrtc);
  find(api.ptx, "GetPTX", nvrtc);
  find(api.architecture_count, "GetNumSupportedArchs", nvrtc);
  find(api.architectures, "GetSupportedArchs", nvrtc);
  find(api.error, "GetErrorString", true);
  return api;
}

}  // namespace

StatusOr<std::unique_ptr<RtcLibrary>> RtcLibrary::Load(std::string_view name) {
  const Kind* const kind = KindOf(name);
  if (!kind) return InvalidArgument("{}: expected nvrtc or hiprtc", name);
  const std::set<std::string> before = LoadedFiles();
  std::string reasons;
  for (const std::string& candidate : CandidatesFor(kind->library)) {
    void* const handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* why = dlerror();
      reasons += fmt::format("\n  {}", why ? why : candidate.c_str());
      continue;
    }
    std::string missing;
    const Api api = Resolve(handle, *kind, missing);
    if (!missing.empty()) {
      reasons += fmt::format("\n  {}: has no {}", candidate, missing);
      continue;
    }
    auto library = std::make_unique<Library>(*kind, api);
    const Status asked = library->Ask(reinterpret_cast<void*>(api.version), before);
    if (asked.ok()) return library;
    reasons += fmt::format("\n  {}: {}", candidate, MessageOf(asked));
  }
  return NotFound("no {} was found; {} may name its file or folder. Looked at:{}", kind->title,
                  kind->library.setting, reasons);
}

}  // namespace opwire::jit
