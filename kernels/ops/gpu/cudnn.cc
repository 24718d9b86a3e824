// Building and running cuDNN's graphs. The only file that includes its frontend.
#include "kernels/ops/gpu/cudnn.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>
#include <string>
#include <unordered_map>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "kernels/jit/vendor_library.h"
#include "kernels/ops/gpu/by_call.h"
#include "kernels/ops/gpu/libraries.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // what the frontend finds the library's functions in
}

namespace opwire::gpu {
namespace {

namespace fe = cudnn_frontend;

// Empty: the library is open. CUDA's runtime, which the frontend looks for by its name, is opened before it.
const std::string& Missing() {
  static const std::string missing = [] {
    const jit::VendorLibrary runtime = {"OPWIRE_CUDART", {"CUDA_HOME", "CUDA_PATH"}, {"/usr/local/cuda"}, {"lib64", "lib", "nvidia/cu13/lib", "nvidia/cuda_runtime/lib"},
                                        {"libcudart.so.13", "libcudart.so.12"}};
    const jit::VendorLibrary cudnn = {"OPWIRE_CUDNN", {"CUDNN_HOME", "CUDA_HOME", "CUDA_PATH"}, {"/usr/local/cuda"}, {"lib64", "lib", "nvidia/cudnn/lib"}, {"libcudnn.so.9"}};
    std::string why;
    if (!jit::OpenFirst(runtime, why)) return "there is no CUDA runtime (OPWIRE_CUDART may name its file or folder)" + why;
    fe::cudnn_dlhandle = jit::OpenFirst(cudnn, why);
    return fe::cudnn_dlhandle ? std::string() : "there is no cuDNN (OPWIRE_CUDNN may name its file or folder)" + why;
  }();
  return missing;
}

// The library throws where it cannot go on; the frontend also where a function is missing.
template <typename F>
auto Guarded(std::string_view what, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::exception& e) {
    return Internal("cudnn: {}: {}", what, e.what());
  }
}

Status CheckCode(cudnnStatus_t code, std::string_view what) {
  return code == CUDNN_STATUS_SUCCESS ? absl::OkStatus() : Internal("cudnn: {}: {}", what, fe::detail::get_error_string(code));
}

// The library's handles for a device, made once: graphs are built with one of them and run with the other, so that no run waits for a build.
struct Handles {
  std::mutex building, running;
  cudnnHandle_t build = nullptr, run = nullptr;
};
StatusOr<Handles*> HandlesOf(const GpuDevice& device) {
  static std::mutex mutex;
  static std::unordered_map<int, std::unique_ptr<Handles>> all;
  std::lock_guard lock(mutex);
  std::unique_ptr<Handles>& handles = all[device.info().index];
  if (!handles) {
    auto made = std::make_unique<Handles>();
    OPWIRE_RETURN_IF_ERROR(CheckCode(fe::detail::create_handle(&made->build), "starting"));
    OPWIRE_RETURN_IF_ERROR(CheckCode(fe::detail::create_handle(&made->run), "starting"));
    handles = std::move(made);
  }
  return handles.get();
}

class Built final : public CudnnGraph {
 public:
  Built(Handles* handles, std::shared_ptr<fe::graph::Graph> graph, int64_t workspace) : handles_(handles), graph_(std::move(graph)), workspace_(workspace) {}

  int64_t workspace_bytes() const override { return workspace_; }
  Status Execute(Stream stream, std::span<void* const> addresses, void* workspace) const override {
    return Guarded("running", [&]() -> Status {
      std::lock_guard lock(handles_->running);
      OPWIRE_RETURN_IF_ERROR(CheckCode(fe::detail::set_stream(handles_->run, reinterpret_cast<cudaStream_t>(stream)), "a stream"));
      std::unordered_map<int64_t, void*> pack;
      for (size_t i = 0; i < addresses.size(); ++i) pack[static_cast<int64_t>(i) + 1] = addresses[i];
      fe::error_t error = graph_->execute(handles_->run, pack, workspace);
      return error.is_good() ? absl::OkStatus() : Internal("cudnn: running: {}", error.get_message());
    });
  }

 private:
  Handles* const handles_;
  const std::shared_ptr<fe::graph::Graph> graph_;
  const int64_t workspace_;
};

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// A graph whose tensors' numbers are their places in Execute's addresses, from 1 on.
class Builder {
 public:
  explicit Builder(DType type) : type_(type == DType::kF32 ? fe::DataType_t::FLOAT : type == DType::kF16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16) {
    graph_->set_io_data_type(type_).set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
  }
  fe::graph::Graph* operator->() { return graph_.get(); }

  Tensor In(const CudnnTensor& t, bool f32 = false) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(++last_)
                              .set_dim({t.extents, t.extents + t.rank})
                              .set_stride({t.strides, t.strides + t.rank})
                              .set_data_type(f32 ? fe::DataType_t::FLOAT : type_));
  }
  void Out(const Tensor& made, const CudnnTensor& t, bool f32 = false) {
    made->set_output(true)
        .set_uid(++last_)
        .set_dim({t.extents, t.extents + t.rank})
        .set_stride({t.strides, t.strides + t.rank})
        .set_data_type(f32 ? fe::DataType_t::FLOAT : type_);
  }
  // By the heuristics of `modes`; kernels with one of `barred`, or that want more workspace, are passed over.
  StatusOr<std::unique_ptr<CudnnGraph>> Build(Handles* handles, const std::vector<fe::HeurMode_t>& modes = {fe::HeurMode_t::A},
                                              const std::vector<fe::NumericalNote_t>& barred = {}, int64_t most_workspace = INT64_MAX) {
    std::lock_guard lock(handles->building);
    fe::error_t error = graph_->validate();
    if (error.is_good()) error = graph_->build_operation_graph(handles->build);
    if (error.is_good()) error = graph_->create_execution_plans(modes);
    if (error.is_good()) error = graph_->deselect_numeric_notes(barred).deselect_workspace_greater_than(most_workspace).check_support();
    if (error.is_good()) error = graph_->build_plans();
    if (error.is_bad()) return Unimplemented("cudnn: {}", error.get_message());
    int64_t workspace = 0;
    fe::error_t asked = graph_->get_workspace_size(workspace);
    if (asked.is_bad()) return Internal("cudnn: asking for its workspace: {}", asked.get_message());
    return std::make_unique<Built>(handles, graph_, workspace);
  }

 private:
  const fe::DataType_t type_;
  const std::shared_ptr<fe::graph::Graph> graph_ = std::make_shared<fe::graph::Graph>();
  int64_t last_ = 0;
};

template <typename Attributes>
void SetMask(const CudnnAttention& call, Attributes& attributes) {
  attributes.set_attn_scale(call.scale);
  const bool square = call.query.extents[2] == call.key.extents[2];
  if (call.causal || call.window > 0) attributes.set_diagonal_alignment(square ? fe::DiagonalAlignment_t::TOP_LEFT : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
  if (call.causal) attributes.set_diagonal_band_right_bound(0);
  if (call.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(call.window));
}

// ---- One graph for equal calls ------------------------------------------------------------------------------------------------

std::string KeyOf(const CudnnTensor& t) { return fmt::format(" [{}; {}]", fmt::join(t.extents, t.extents + t.rank, ","), fmt::join(t.strides, t.strides + t.rank, ",")); }
std::string KeyOf(const GpuDevice& device, const CudnnAttention& c, std::string_view what) {
  std::string key = fmt::format("{} on {}: {} {} {} {:a}", what, device.info().index, DTypeName(c.type), c.causal, c.window, c.scale);
  for (const CudnnTensor* t : {&c.query, &c.key, &c.value, &c.output, &c.log_sum_exp}) key += KeyOf(*t);
  if (what == "attention") return key;
  key += fmt::format(" {}", c.deterministic);
  for (const CudnnTensor* t : {&c.grad, &c.grad_query, &c.grad_key, &c.grad_value}) key += KeyOf(*t);
  return key;
}
std::string KeyOf(const GpuDevice& device, const CudnnConvolution& c, std::string_view what) {
  const auto list = [axes = c.x.rank - 2](const int64_t* first) { return fmt::join(first, first + axes, ","); };
  return fmt::format("{} on {}: {} {} {} {}; {}; {}", what, device.info().index, DTypeName(c.type), static_cast<int>(c.made), c.deterministic, list(c.stride), list(c.padding), list(c.dilation)) +
         KeyOf(c.x) + KeyOf(c.w) + KeyOf(c.y);
}

template <typename Build>
StatusOr<std::shared_ptr<const CudnnGraph>> Shared(const std::string& key, std::string_view what, const Build& build) {
  static ByCall<CudnnGraph> graphs;
  return graphs.Get(key, [&] { return Guarded(what, build); });
}

}  // namespace

void StartCudnn(GpuDevice& device) {
  // A graph of attention, which is let go: with the first the library loads what all have in common.
  constexpr int64_t kRows = 64, kDepth = 64;
  CudnnAttention call{.type = DType::kBF16, .causal = true, .scale = 1};
  const CudnnTensor rows = {{1, 1, kRows, kDepth}, {kRows * kDepth, kRows * kDepth, kDepth, 1}};
  call.query = call.key = call.value = call.output = rows;
  call.log_sum_exp = {{1, 1, kRows, 1}, {kRows, kRows, 1, 1}};
  (void)CudnnAttentionForward(device, call);
}

const char* WithoutCudnn(bool open) { return !open || Missing().empty() ? nullptr : Missing().c_str(); }

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionForward(const GpuDevice& device, const CudnnAttention& call) {
  if (const char* why = WithoutCudnn()) return Unimplemented("{}", why);
  return Shared(KeyOf(device, call, "attention"), "building attention", [&]() -> StatusOr<std::unique_ptr<CudnnGraph>> {
    OPWIRE_RETURN_IF_ERROR(device.Bind());
    OPWIRE_ASSIGN_OR_RETURN(Handles* const handles, HandlesOf(device));
    Builder graph(call.type);
    const Tensor query = graph.In(call.query), key = graph.In(call.key), value = graph.In(call.value);
    fe::graph::SDPA_attributes attributes;
    attributes.set_generate_stats(true);
    SetMask(call, attributes);
    const auto [output, log_sum_exp] = graph->sdpa(query, key, value, attributes);
    graph.Out(output, call.output);
    graph.Out(log_sum_exp, call.log_sum_exp, true);
    return graph.Build(handles);
  });
}

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionBackward(const GpuDevice& device, const CudnnAttention& call) {
  if (const char* why = WithoutCudnn()) return Unimplemented("{}", why);
  return Shared(KeyOf(device, call, "attention_backward"), "building the gradient of attention", [&]() -> StatusOr<std::unique_ptr<CudnnGraph>> {
    OPWIRE_RETURN_IF_ERROR(device.Bind());
    OPWIRE_ASSIGN_OR_RETURN(Handles* const handles, HandlesOf(device));
    Builder graph(call.type);
    const Tensor query = graph.In(call.query), key = graph.In(call.key), value = graph.In(call.value), output = graph.In(call.output);
    const Tensor log_sum_exp = graph.In(call.log_sum_exp, true), grad = graph.In(call.grad);
    fe::graph::SDPA_backward_attributes attributes;
    attributes.set_deterministic_algorithm(call.deterministic);
    SetMask(call, attributes);
    const auto [grad_query, grad_key, grad_value] = graph->sdpa_backward(query, key, value, output, grad, log_sum_exp, attributes);
    graph.Out(grad_query, call.grad_query);
    graph.Out(grad_key, call.grad_key);
    graph.Out(grad_value, call.grad_value);
    return graph.Build(handles);
  });
}

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnConvolutionOf(const GpuDevice& device, const CudnnConvolution& call) {
  if (const char* why = WithoutCudnn()) return Unimplemented("{}", why);
  return Shared(KeyOf(device, call, "convolution"), "building a convolution", [&]() -> StatusOr<std::unique_ptr<CudnnGraph>> {
    OPWIRE_RETURN_IF_ERROR(device.Bind());
    OPWIRE_ASSIGN_OR_RETURN(Handles* const handles, HandlesOf(device));
    Builder graph(call.type);
    const int axes = call.x.rank - 2;
    const auto with_steps = [&](auto attributes) {
      const auto list = [axes](const int64_t* first) { return std::vector<int64_t>(first, first + axes); };
      attributes.set_stride(list(call.stride)).set_padding(list(call.padding)).set_dilation(list(call.dilation));
      return attributes;
    };
    if (call.made == CudnnConvolution::kY) {
      const Tensor x = graph.In(call.x), w = graph.In(call.w);
      graph.Out(graph->conv_fprop(x, w, with_steps(fe::graph::Conv_fprop_attributes())), call.y);
    } else if (call.made == CudnnConvolution::kX) {
      const Tensor w = graph.In(call.w), y = graph.In(call.y);
      graph.Out(graph->conv_dgrad(y, w, with_steps(fe::graph::Conv_dgrad_attributes())), call.x);
    } else {
      const Tensor x = graph.In(call.x), y = graph.In(call.y);
      graph.Out(graph->conv_wgrad(y, x, with_steps(fe::graph::Conv_wgrad_attributes())), call.w);
    }
    // Each product is of the operands as they are and is added in f32: no tf32, no transforms whose error is another, no narrower sums.
    using Note = fe::NumericalNote_t;
    std::vector<Note> barred = {Note::DOWN_CONVERT_INPUTS, Note::REDUCED_PRECISION_REDUCTION, Note::FFT, Note::WINOGRAD, Note::WINOGRAD_TILE_4x4, Note::WINOGRAD_TILE_6x6, Note::WINOGRAD_TILE_13x13};
    if (call.type == DType::kF32) barred.push_back(Note::TENSOR_CORE);
    if (call.deterministic) barred.push_back(Note::NONDETERMINISTIC);
    constexpr int64_t kMostWorkspace = int64_t{1} << 30;
    return graph.Build(handles, {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}, barred, kMostWorkspace);
  });
}

}  // namespace opwire::gpu
