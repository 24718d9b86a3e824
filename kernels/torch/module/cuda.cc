// libtorch_cuda, opened when a GPU is; the few functions of it that have no device-generic form are
// declared here, as cudart's types in their names are only pointers.
#include "kernels/torch/module/cuda.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "kernels/torch/module/memory.h"

struct CUstream_st;
namespace c10::cuda::CUDACachingAllocator {
class CUDAAllocator;
}

namespace opwire::torch_module {
namespace {

using CudaAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;
using Malloc = std::function<void*(size_t, int, CUstream_st*)>;
using Release = std::function<void(void*, size_t, int, CUstream_st*)>;

// torch::cuda::CUDAPluggableAllocator::createCustomAllocator and changeCurrentAllocator.
constexpr const char* kCreate =
    "_ZN5torch4cuda22CUDAPluggableAllocator21createCustomAllocatorESt8functionIFPvmiP11CUstream_"
    "stEES2_IFvS3_miS5_EE";
constexpr const char* kChange =
    "_ZN5torch4cuda22CUDAPluggableAllocator22changeCurrentAllocatorERKSt10shared_"
    "ptrIN3c104cuda20CUDACachingAllocator13CUDAAllocatorEE";

// The files of the libraries of this process whose names begin so.
std::set<std::string> Loaded(std::string_view name) {
  struct Search {
    std::string_view name;
    std::set<std::string> found;
  } search{name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* context) {
        auto& s = *static_cast<Search*>(context);
        const std::string_view path = info->dlpi_name ? info->dlpi_name : "";
        if (path.substr(path.rfind('/') + 1).starts_with(s.name)) s.found.emplace(path);
        return 0;
      },
      &search);
  return search.found;
}

void* LoadLibrary() {
  Dl_info here{};
  TORCH_CHECK(dladdr(reinterpret_cast<void*>(&at::globalContext), &here) != 0 && here.dli_fname,
              "its folder cannot be told");
  const std::string cpu = here.dli_fname;
  const std::string path = cpu.substr(0, cpu.rfind('/') + 1) + "libtorch_cuda.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const why = library ? nullptr : dlerror();
  TORCH_CHECK_NOT_IMPLEMENTED(library, "it has nothing for CUDA here: ", why ? why : path.c_str());
  return library;
}

void InstallAllocator(void* library) {
  const auto create = reinterpret_cast<std::shared_ptr<CudaAllocator> (*)(Malloc, Release)>(
      dlsym(library, kCreate));
  const auto change =
      reinterpret_cast<void (*)(const std::shared_ptr<CudaAllocator>&)>(dlsym(library, kChange));
  TORCH_CHECK_NOT_IMPLEMENTED(create && change,
                              "its allocator cannot be replaced: it has no CUDAPluggableAllocator");
  change(create([](size_t bytes, int, CUstream_st*) { return Allocate(bytes, /*cuda=*/true); },
                [](void* memory, size_t, int, CUstream_st*) { Free(memory); }));
}

}  // namespace

void OpenCuda(c10::Device device) {
  static void* const library = [] {
    void* const opened = LoadLibrary();
    const std::set<std::string> cudnn = Loaded("libcudnn.so");
    TORCH_CHECK_NOT_IMPLEMENTED(cudnn.size() <= 1, "it brings a second cuDNN: ", *cudnn.begin(),
                                " and ", *cudnn.rbegin());
    InstallAllocator(opened);
    at::globalContext().lazyInitDevice(at::kCUDA);
    // As the rows say: products of f32 are f32's, and sums of narrow floats are kept in f32.
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setAllowFP16ReductionCuBLAS(false);
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
    return opened;
  }();
  (void)library;
  const int count = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
  TORCH_CHECK_NOT_IMPLEMENTED(device.index() < count, "it sees ", count, " GPUs, and not number ",
                              static_cast<int>(device.index()));
}

// A stream that is not libtorch's own is known by its handle.
OnStream::OnStream(c10::Device device, void* stream)
    : before_(c10::impl::VirtualGuardImpl(c10::kCUDA).exchangeDevice(device)),
      stream_before_(c10::impl::VirtualGuardImpl(c10::kCUDA)
                         .exchangeStream(c10::Stream(
                             c10::Stream::UNSAFE, device,
                             static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(stream))))) {}

OnStream::~OnStream() {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  (void)guard.exchangeStream(stream_before_);
  guard.uncheckedSetDevice(before_);
}

}  // namespace opwire::torch_module
