// Builds and runs cuDNN's graphs. The only file that includes its frontend.
#include "kernels/ops/gpu/cudnn.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include "kernels/jit/cache.h"
#include "kernels/jit/digest.h"
#include "kernels/jit/vendor_library.h"
#include "kernels/ops/gpu/by_call.h"
#include "kernels/ops/gpu/libraries.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend finds the library's functions through it
}

namespace opwire::gpu {
namespace {

namespace fe = cudnn_frontend;

// Empty if the library is open. CUDA's runtime, which the frontend searches for by name, is opened
// before it.
const std::string& Missing() {
  static const std::string missing = [] {
    const jit::VendorLibrary runtime = {
        "OPWIRE_CUDART",
        {"CUDA_HOME", "CUDA_PATH"},
        {"/usr/local/cuda"},
        {"lib64", "lib", "nvidia/cu13/lib", "nvidia/cuda_runtime/lib"},
        {"libcudart.so.13", "libcudart.so.12"}};
    const jit::VendorLibrary cudnn = {"OPWIRE_CUDNN",
                                      {"CUDNN_HOME", "CUDA_HOME", "CUDA_PATH"},
                                      {"/usr/local/cuda"},
                                      {"lib64", "lib", "nvidia/cudnn/lib"},
                                      {"libcudnn.so.9"}};
    std::string why;
    if (!jit::OpenFirst(runtime, why))
      return "there is no CUDA runtime (OPWIRE_CUDART may name its file or folder)" + why;
    fe::cudnn_dlhandle = jit::OpenFirst(cudnn, why);
    return fe::cudnn_dlhandle
               ? std::string()
               : "there is no cuDNN (OPWIRE_CUDNN may name its file or folder)" + why;
  }();
  return missing;
}

// The library throws on fatal errors; the frontend also if a function is missing.
template <typename F>
auto Guarded(std::string_view what, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::exception& e) {
    return Internal("cudnn: {}: {}", what, e.what());
  }
}

Status CheckCode(cudnnStatus_t code, std::string_view what) {
  return code == CUDNN_STATUS_SUCCESS
             ? absl::OkStatus()
             : Internal("cudnn: {}: {}", what, fe::detail::get_error_string(code));
}

// The library's handles for a device, made once. Graphs are built with one of them and run with the
// other, so no run waits for a build.
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
  // REQUIRES: the graph has a plan.
  static StatusOr<std::unique_ptr<Built>> Of(Handles* handles,
                                             std::shared_ptr<fe::graph::Graph> graph) {
    std::unique_ptr<Built> built(new Built(handles, std::move(graph)));
    fe::error_t asked = built->graph_->get_workspace_size(built->workspace_);
    if (asked.is_bad()) return Internal("cudnn: asking for its workspace: {}", asked.get_message());
    return built;
  }
  // Reads the result of Plan; a plan of another device or version is refused.
  static StatusOr<std::unique_ptr<Built>> Read(Handles* handles, const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<uint8_t> plan((std::istreambuf_iterator<char>(in)), {});
    auto graph = std::make_shared<fe::graph::Graph>();
    std::lock_guard lock(handles->building);
    fe::error_t error = graph->deserialize(handles->build, plan);
    if (error.is_bad()) return Internal("cudnn: reading {}: {}", path, error.get_message());
    return Of(handles, std::move(graph));
  }

  StatusOr<std::vector<uint8_t>> Plan() const {
    std::vector<uint8_t> plan;
    fe::error_t error = graph_->serialize(plan, /*serialize_structure=*/false);
    if (error.is_bad()) return Internal("cudnn: writing a plan: {}", error.get_message());
    return plan;
  }

  int64_t workspace_bytes() const override { return workspace_; }
  Status Execute(Stream stream, std::span<void* const> addresses, void* workspace) const override {
    return Guarded("running", [&]() -> Status {
      std::lock_guard lock(handles_->running);
      OPWIRE_RETURN_IF_ERROR(
          CheckCode(fe::detail::set_stream(handles_->run, reinterpret_cast<cudaStream_t>(stream)),
                    "a stream"));
      std::unordered_map<int64_t, void*> pack;
      for (size_t i = 0; i < addresses.size(); ++i)
        pack[static_cast<int64_t>(i) + 1] = addresses[i];
      fe::error_t error = graph_->execute(handles_->run, pack, workspace);
      return error.is_good() ? absl::OkStatus()
                             : Internal("cudnn: running: {}", error.get_message());
    });
  }

 private:
  Built(Handles* handles, std::shared_ptr<fe::graph::Graph> graph)
      : handles_(handles), graph_(std::move(graph)) {}

  Handles* const handles_;
  const std::shared_ptr<fe::graph::Graph> graph_;
  int64_t workspace_ = 0;
};

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// A graph whose tensors are numbered by their places in Execute's addresses, starting with 1.
class Builder {
 public:
  explicit Builder(DType type)
      : type_(type == DType::kF32   ? fe::DataType_t::FLOAT
              : type == DType::kF16 ? fe::DataType_t::HALF
                                    : fe::DataType_t::BFLOAT16) {
    graph_->set_io_data_type(type_)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
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
  // Uses the heuristics of `modes`. Kernels that have a note of `barred`, or need more workspace,
  // are skipped.
  StatusOr<std::unique_ptr<Built>> Build(
      Handles* handles, const std::vector<fe::HeurMode_t>& modes = {fe::HeurMode_t::A},
      const std::vector<fe::NumericalNote_t>& barred = {}, int64_t most_workspace = INT64_MAX) {
    std::lock_guard lock(handles->building);
    fe::error_t error = graph_->validate();
    if (error.is_good()) error = graph_->build_operation_graph(handles->build);
    if (error.is_good()) error = graph_->create_execution_plans(modes);
    if (error.is_good())
      error = graph_->deselect_numeric_notes(barred)
                  .deselect_workspace_greater_than(most_workspace)
                  .check_support();
    if (error.is_good()) error = graph_->build_plans();
    if (error.is_bad()) return Unimplemented("cudnn: {}", error.get_message());
    return Built::Of(handles, graph_);
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
  if (call.causal || call.window > 0)
    attributes.set_diagonal_alignment(square ? fe::DiagonalAlignment_t::TOP_LEFT
                                             : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
  if (call.causal) attributes.set_diagonal_band_right_bound(0);
  if (call.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(call.window));
}

// ---- One graph for equal calls
// ------------------------------------------------------------------------------------------------

std::string KeyOf(const CudnnTensor& t) {
  return fmt::format(" [{}; {}]", fmt::join(t.extents, t.extents + t.rank, ","),
                     fmt::join(t.strides, t.strides + t.rank, ","));
}
std::string KeyOf(const CudnnAttention& c, std::string_view what) {
  std::string key =
      fmt::format("{}: {} {} {} {:a}", what, DTypeName(c.type), c.causal, c.window, c.scale);
  for (const CudnnTensor* t : {&c.query, &c.key, &c.value, &c.output, &c.log_sum_exp})
    key += KeyOf(*t);
  if (what == "attention") return key;
  key += fmt::format(" {}", c.deterministic);
  for (const CudnnTensor* t : {&c.grad, &c.grad_query, &c.grad_key, &c.grad_value})
    key += KeyOf(*t);
  return key;
}
std::string KeyOf(const CudnnConvolution& c, std::string_view what) {
  const auto list = [axes = c.x.rank - 2](const int64_t* first) {
    return fmt::join(first, first + axes, ",");
  };
  return fmt::format("{}: {} {} {} {}; {}; {}", what, DTypeName(c.type), static_cast<int>(c.made),
                     c.deterministic, list(c.stride), list(c.padding), list(c.dilation)) +
         KeyOf(c.x) + KeyOf(c.w) + KeyOf(c.y);
}

using Build = std::function<StatusOr<std::unique_ptr<Built>>(Handles*)>;

// Makes plans for the user's cache, where they are objects like those of compilers.
class PlanMaker final : public jit::Toolchain {
 public:
  PlanMaker(const GpuDevice& device, Handles* handles, const Build& build)
      : handles_(handles), build_(build) {
    facts_.version = fmt::format("cuDNN {}, frontend {}", fe::detail::get_backend_version(),
                                 CUDNN_FRONTEND_VERSION);
    facts_.identity = jit::Sha256(
        fmt::format("{} {} {}", facts_.version, device.info().name, device.info().compute_units));
  }
  std::string_view name() const override { return "cudnn"; }
  std::string_view backend() const override { return "cuda"; }
  const jit::ToolchainFacts& facts() override { return facts_; }
  StatusOr<jit::CompiledObject> Compile(const jit::CompileRequest& request,
                                        const std::string& directory) override {
    const auto begun = std::chrono::steady_clock::now();
    OPWIRE_ASSIGN_OR_RETURN(built, Guarded(request.name, [&] { return build_(handles_); }));
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<uint8_t> plan,
                            Guarded(request.name, [&] { return built->Plan(); }));
    jit::CompiledObject object{.path = directory + "/plan"};
    std::ofstream out(object.path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(plan.data()),
              static_cast<std::streamsize>(plan.size()));
    out.close();
    if (!out) return ResourceExhausted("{}: {} cannot be written", request.name, object.path);
    object.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    return object;
  }

  std::unique_ptr<Built> built;  // by the last Compile

 private:
  Handles* const handles_;
  const Build& build_;
  jit::ToolchainFacts facts_;
};

// Returns the graph that `build` makes, or made before: then it is in the user's cache.
StatusOr<std::unique_ptr<CudnnGraph>> Kept(Code& code, const std::string& key,
                                           std::string_view what, const Build& build) {
  OPWIRE_RETURN_IF_ERROR(code.device().Bind());
  OPWIRE_ASSIGN_OR_RETURN(Handles* const handles, HandlesOf(code.device()));
  if (!code.records()) {
    PlanMaker maker(code.device(), handles, build);
    const StatusOr<jit::BuildCache*> cache = code.Cache();
    const auto entry = cache.ok()
                           ? (*cache)->Get(maker, {.name = "cudnn " + key.substr(0, key.find(':')),
                                                   .text = key,
                                                   .arch = code.device().info().arch})
                           : StatusOr<jit::CacheEntry>(cache.status());
    if (maker.built) return std::move(maker.built);
    if (absl::IsUnimplemented(entry.status())) return entry.status();
    if (entry.ok()) {
      if (auto read = Guarded(what, [&] { return Built::Read(handles, entry->object); }); read.ok())
        return *std::move(read);
    }
  }
  return build(handles);
}

StatusOr<std::shared_ptr<const CudnnGraph>> Shared(Code& code, const std::string& key,
                                                   std::string_view what, const Build& build) {
  static ByCall<CudnnGraph> graphs;
  return graphs.Get(fmt::format("{} on {}", key, code.device().info().index),
                    [&] { return Guarded(what, [&] { return Kept(code, key, what, build); }); });
}

}  // namespace

void StartCudnn(Code& code) {
  // Makes a graph of attention, and discards it: with the first graph the library loads the parts
  // that all share.
  constexpr int64_t kRows = 64, kDepth = 64;
  CudnnAttention call{.type = DType::kBF16, .causal = true, .scale = 1};
  const CudnnTensor rows = {{1, 1, kRows, kDepth}, {kRows * kDepth, kRows * kDepth, kDepth, 1}};
  call.query = call.key = call.value = call.output = rows;
  call.log_sum_exp = {{1, 1, kRows, 1}, {kRows, kRows, 1, 1}};
  (void)CudnnAttentionForward(code, call);
}

const char* WithoutCudnn(bool open) {
  return !open || Missing().empty() ? nullptr : Missing().c_str();
}

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionForward(Code& code,
                                                                  const CudnnAttention& call) {
  if (const char* why = WithoutCudnn()) return Unimplemented("{}", why);
  return Shared(code, KeyOf(call, "attention"), "building attention", [&](Handles* handles) {
    Builder graph(call.type);
    const Tensor query = graph.In(call.query), key = graph.In(call.key),
                 value = graph.In(call.value);
    fe::graph::SDPA_attributes attributes;
    attributes.set_generate_stats(true);
    SetMask(call, attributes);
    const auto [output, log_sum_exp] = graph->sdpa(query, key, value, attributes);
    graph.Out(output, call.output);
    graph.Out(log_sum_exp, call.log_sum_exp, true);
    return graph.Build(handles);
  });
}

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnAttentionBackward(Code& code,
                                                                   const CudnnAttention& call) {
  if (const char* why = WithoutCudnn()) return Unimplemented("{}", why);
  return Shared(code, KeyOf(call, "attention_backward"), "building the gradient of attention",
                [&](Handles* handles) {
                  Builder graph(call.type);
                  const Tensor query = graph.In(call.query), key = graph.In(call.key),
                               value = graph.In(call.value), output = graph.In(call.output);
                  const Tensor log_sum_exp = graph.In(call.log_sum_exp, true),
                               grad = graph.In(call.grad);
                  fe::graph::SDPA_backward_attributes attributes;
                  attributes.set_deterministic_algorithm(call.deterministic);
                  SetMask(call, attributes);
                  const auto [grad_query, grad_key, grad_value] = graph->sdpa_backward(
                      query, key, value, output, grad, log_sum_exp, attributes);
                  graph.Out(grad_query, call.grad_query);
                  graph.Out(grad_key, call.grad_key);
                  graph.Out(grad_value, call.grad_value);
                  return graph.Build(handles);
                });
}

StatusOr<std::shared_ptr<const CudnnGraph>> CudnnConvolutionOf(Code& code,
                                                               const CudnnConvolution& call) {
  if (const char* why = WithoutCudnn()) return Unimplemented("{}", why);
  return Shared(code, KeyOf(call, "convolution"), "building a convolution", [&](Handles* handles) {
    Builder graph(call.type);
    const int axes = call.x.rank - 2;
    const auto with_steps = [&](auto attributes) {
      const auto list = [axes](const int64_t* first) {
        return std::vector<int64_t>(first, first + axes);
      };
      attributes.set_stride(list(call.stride))
          .set_padding(list(call.padding))
          .set_dilation(list(call.dilation));
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
    // Each product uses the operands unchanged and is added in f32: no tf32, no transforms with
    // another error, no narrower sums.
    using Note = fe::NumericalNote_t;
    std::vector<Note> barred = {Note::DOWN_CONVERT_INPUTS,
                                Note::REDUCED_PRECISION_REDUCTION,
                                Note::FFT,
                                Note::WINOGRAD,
                                Note::WINOGRAD_TILE_4x4,
                                Note::WINOGRAD_TILE_6x6,
                                Note::WINOGRAD_TILE_13x13};
    if (call.type == DType::kF32) barred.push_back(Note::TENSOR_CORE);
    if (call.deterministic) barred.push_back(Note::NONDETERMINISTIC);
    constexpr int64_t kMostWorkspace = int64_t{1} << 30;
    return graph.Build(handles, {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}, barred,
                       kMostWorkspace);
  });
}

}  // namespace opwire::gpu
