// The module's exports: sessions for devices, and calls of rows.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/torch/module/call.h"
#include "kernels/torch/module/cuda.h"
#include "kernels/torch/module/exceptions.h"
#include "kernels/torch/module/memory.h"

namespace opwire::torch_module {
namespace {

struct Session {
  opw_torch_host host;
  at::Device device;
  Source* source;
};

const std::vector<Row>& Rows() {
  static const auto* const rows = [] {
    auto* const all = new std::vector<Row>;
    for (const Row* list : {kElementwiseRows, kReduceRows, kShapeRows, kNnRows, kOptimRows}) {
      for (; list->op != nullptr; ++list) all->push_back(*list);
    }
    return all;
  }();
  return *rows;
}

std::string VersionText(uint64_t abi) {
  return std::to_string(abi >> 56) + "." + std::to_string(abi >> 48 & 255) + "." +
         std::to_string(abi >> 40 & 255);
}

int Open(const opw_torch_host* host, void** session) {
  return Guarded(*host, [&] {
    const uint64_t loaded = aoti_torch_abi_version();
    TORCH_CHECK_NOT_IMPLEMENTED(loaded == TORCH_ABI_VERSION, "it is version ", VersionText(loaded),
                                ", and the module is built for " TORCH_VERSION);
    const bool cuda = std::string_view(host->kind) == "cuda";
    TORCH_CHECK_NOT_IMPLEMENTED(cuda || std::string_view(host->kind) == "cpu",
                                "it has nothing for a device of kind ", host->kind);
    const at::Device device =
        cuda ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(host->index))
             : at::Device(at::kCPU);
    auto made = std::make_unique<Session>(Session{*host, device, nullptr});
    if (cuda) OpenCuda(made->device);
    made->source = AddSource(*host);
    UseSource(made->source);
    InstallCpuAllocator();
    *session = made.release();
  });
}

void Close(void* session) {
  const std::unique_ptr<Session> closed(static_cast<Session*>(session));
  CloseSource(closed->source);
}

int32_t Find(const char* op) {
  for (size_t i = 0; i < Rows().size(); ++i) {
    if (std::string_view(Rows()[i].op) == op) return static_cast<int32_t>(i);
  }
  return -1;
}

int Run(void* session, int32_t row, const opw_call* call) {
  Session& s = *static_cast<Session*>(session);
  return Guarded(s.host, [&] {
    const c10::InferenceMode without_gradients;
    // Its regions are the calling thread's, so they run on the team that the executor has bound.
    if (call->runtime != nullptr && at::get_num_threads() != call->runtime->threads)
      at::set_num_threads(call->runtime->threads);
    UseSource(s.source);
    const Row& of = Rows()[static_cast<size_t>(row)];
    if (s.device.is_cuda()) {
      const OnStream stream(s.device, s.host.stream(s.host.context));
      of.run(Call(call, s.device));
    } else {
      of.run(Call(call, s.device));
    }
  });
}

}  // namespace
}  // namespace opwire::torch_module

extern "C" __attribute__((visibility("default")))
const opw_torch_module opwire_torch = {OPW_TORCH_VERSION,
                                       OPW_ABI_VERSION,
                                       TORCH_VERSION,
                                       opwire::torch_module::Open,
                                       opwire::torch_module::Close,
                                       opwire::torch_module::Find,
                                       opwire::torch_module::Run};
