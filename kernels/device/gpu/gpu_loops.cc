// Loops captured node by node: a while node of the graph, whose body has the work of one iteration,
// and if nodes in that body.
#include "kernels/device/gpu/gpu_loops.h"

#include <utility>

#include "kernels/device/gpu/gpu_device.h"

namespace opwire::gpu {
namespace {

enum : int { kIf = 0, kWhile = 1 };   // CUgraphConditionalNodeType
constexpr unsigned kSetAtLaunch = 1;  // a handle has its first value whenever the graph is launched

// Parameters of the kernels below.
struct IterationParams {
  unsigned long long handle;
  LoopState* state;
  int64_t* number;
  const uint8_t* condition;
};
struct BranchParams {
  unsigned long long handle, otherwise;
  const uint8_t* condition;
};
static_assert(sizeof(IterationParams) == 32 && sizeof(BranchParams) == 24 &&
              sizeof(LoopState) == 24);

// The function that sets a condition belongs to the driver, which links it when it assembles the
// code itself. With the toolkit's compilers the code would have to be linked with their device
// runtime.
constexpr char kCode[] = R"(
.version 7.0
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry opw_iteration(.param .align 8 .b8 p[32])
{
  .reg .pred %holds, %asked, %goes_on;
  .reg .b32 %value;
  .reg .b64 %handle, %state, %number, %condition, %done, %last, %wide;
  .param .b64 a;
  .param .b32 b;
  ld.param.u64 %handle, [p];
  ld.param.u64 %state, [p+8];
  ld.param.u64 %number, [p+16];
  ld.param.u64 %condition, [p+24];
  ld.global.u64 %done, [%state];
  add.s64 %done, %done, 1;
  st.global.u64 [%state], %done;
  setp.ne.u64 %asked, %number, 0;
  @%asked st.global.u64 [%number], %done;
  mov.u32 %value, 1;
  setp.ne.u64 %asked, %condition, 0;
  @%asked ld.global.u8 %value, [%condition];
  setp.ne.u32 %holds, %value, 0;
  selp.u64 %wide, 1, 0, %holds;
  st.global.u64 [%state+16], %wide;
  ld.global.u64 %last, [%state+8];
  setp.lt.and.s64 %goes_on, %done, %last, %holds;
  selp.u32 %value, 1, 0, %goes_on;
  st.param.b64 [a], %handle;
  st.param.b32 [b], %value;
  call.uni cudaGraphSetConditional, (a, b);
  ret;
}

.visible .entry opw_branch(.param .align 8 .b8 p[24])
{
  .reg .pred %holds, %two;
  .reg .b32 %value;
  .reg .b64 %handle, %otherwise, %condition;
  .param .b64 a;
  .param .b32 b;
  .param .b64 c;
  .param .b32 d;
  ld.param.u64 %handle, [p];
  ld.param.u64 %otherwise, [p+8];
  ld.param.u64 %condition, [p+16];
  ld.global.u8 %value, [%condition];
  setp.ne.u32 %holds, %value, 0;
  selp.u32 %value, 1, 0, %holds;
  st.param.b64 [a], %handle;
  st.param.b32 [b], %value;
  call.uni cudaGraphSetConditional, (a, b);
  setp.ne.u64 %two, %otherwise, 0;
  @!%two ret;
  xor.b32 %value, %value, 1;
  st.param.b64 [c], %otherwise;
  st.param.b32 [d], %value;
  call.uni cudaGraphSetConditional, (c, d);
  ret;
}
)";

}  // namespace

Status GpuLoops::Load() {
  if (iteration_) return absl::OkStatus();
  if (device_.api_.loop_kernels) {
    device_.api_.loop_kernels(&iteration_, &branch_);
    return absl::OkStatus();
  }
  OPWIRE_ASSIGN_OR_RETURN(const Module module, device_.LoadModule(kCode));  // as long as the device
  OPWIRE_ASSIGN_OR_RETURN(branch_, device_.FindFunction(module, "opw_branch"));
  OPWIRE_ASSIGN_OR_RETURN(iteration_, device_.FindFunction(module, "opw_iteration"));
  return absl::OkStatus();
}

StatusOr<GpuLoops::Handle> GpuLoops::NewHandle(Graph graph, bool initially) {
  Handle handle = 0;
  OPWIRE_RETURN_IF_ERROR(
      device_.Check(device_.api_.graph_condition(&handle, graph, device_.context_,
                                                 initially ? 1 : 0, initially ? kSetAtLaunch : 0),
                    "making a condition"));
  return handle;
}

Status GpuLoops::CaptureInto(Graph graph, GraphNode after) {
  OPWIRE_RETURN_IF_ERROR(
      device_.Check(device_.api_.stream_capture_into(device_.streams_[0], graph, &after, nullptr,
                                                     after ? 1 : 0, kCaptureThreadLocal),
                    "beginning a capture"));
  captured_ = graph;
  begins_ = after;
  device_.settled_ = true;
  return absl::OkStatus();
}

StatusOr<GraphNode> GpuLoops::Leave() {
  int status = 0;
  unsigned long long id = 0;
  Graph graph = nullptr;
  const GraphNode* last = nullptr;
  size_t count = 0;
  OPWIRE_RETURN_IF_ERROR(device_.Check(
      device_.api_.capture_info(device_.streams_[0], &status, &id, &graph, &last, &count),
      "asking about a capture"));
  if (count > 1)
    return Internal("{}: a capture ends in {} nodes, expected one", device_.info_.kind, count);
  const GraphNode node = count == 1 ? *last : begins_;
  captured_ = nullptr;
  OPWIRE_RETURN_IF_ERROR(device_.Check(device_.api_.stream_end_capture(device_.streams_[0], &graph),
                                       "ending a capture"));
  return node;
}

Status GpuLoops::Enter(Graph graph, GraphNode after, Handle handle, int kind, GraphNode* node) {
  ConditionalNode made;
  made.handle = handle;
  made.kind = kind;
  made.context = device_.context_;
  OPWIRE_RETURN_IF_ERROR(
      device_.Check(device_.api_.graph_add(node, graph, &after, nullptr, after ? 1 : 0, &made),
                    "adding a conditional node"));
  return CaptureInto(made.bodies[0], nullptr);
}

Status GpuLoops::BeginLoop(const LoopPlaces& places) {
  OPWIRE_RETURN_IF_ERROR(device_.Bind());
  OPWIRE_RETURN_IF_ERROR(Load());
  OPWIRE_RETURN_IF_ERROR(device_.Check(device_.api_.graph_create(&graph_, 0), "making a graph"));
  places_ = places;
  const auto begin = [&]() -> Status {
    OPWIRE_ASSIGN_OR_RETURN(handle_, NewHandle(graph_, true));
    GraphNode node = nullptr;
    return Enter(graph_, nullptr, handle_, kWhile, &node);
  };
  Status status = begin();
  return status.ok() ? status : Failed(std::move(status));
}

StatusOr<uint32_t> GpuLoops::EndLoop() {
  const IterationParams params{handle_, places_.state, places_.number, places_.condition};
  const auto end = [&]() -> StatusOr<uint32_t> {
    OPWIRE_RETURN_IF_ERROR(device_.Launch(iteration_, {}, &params, sizeof params));
    OPWIRE_RETURN_IF_ERROR(Leave().status());
    return device_.Keep(std::exchange(graph_, nullptr), {});
  };
  StatusOr<uint32_t> graph = end();
  if (!graph.ok()) AbandonLoop();
  return graph;
}

Status GpuLoops::BeginOnce() {
  OPWIRE_RETURN_IF_ERROR(device_.Bind());
  OPWIRE_RETURN_IF_ERROR(Load());
  OPWIRE_RETURN_IF_ERROR(device_.Check(device_.api_.graph_create(&graph_, 0), "making a graph"));
  Status status = CaptureInto(graph_, nullptr);
  return status.ok() ? status : Failed(std::move(status));
}

StatusOr<uint32_t> GpuLoops::EndOnce() {
  const auto end = [&]() -> StatusOr<uint32_t> {
    OPWIRE_RETURN_IF_ERROR(Leave().status());
    return device_.Keep(std::exchange(graph_, nullptr), {});
  };
  StatusOr<uint32_t> graph = end();
  if (!graph.ok()) AbandonLoop();
  return graph;
}

void GpuLoops::AbandonLoop() {
  Graph ended = nullptr;
  if (captured_) (void)device_.api_.stream_end_capture(device_.streams_[0], &ended);
  if (graph_) (void)device_.api_.graph_destroy(graph_);
  graph_ = captured_ = nullptr;
  branches_.clear();
}

void GpuLoops::Part() { device_.settled_ = false; }

Status GpuLoops::EndEarly(LoopState& state) {
  if (beside_ == 0) {
    OPWIRE_ASSIGN_OR_RETURN(beside_, device_.CreateStream());
  }
  const int64_t none = 0;
  return device_.Copy(&state.last, &none, sizeof none, beside_);
}

Status GpuLoops::BeginBranch(const uint8_t* condition, bool otherwise) {
  const auto begin = [&]() -> Status {
    Branch b{captured_, nullptr, 0};
    OPWIRE_ASSIGN_OR_RETURN(const Handle handle, NewHandle(b.graph, false));
    if (otherwise) {
      OPWIRE_ASSIGN_OR_RETURN(
          b.otherwise, NewHandle(b.graph, false));  // an unused handle makes the graph invalid
    }
    const BranchParams params{handle, b.otherwise, condition};
    OPWIRE_RETURN_IF_ERROR(device_.Launch(branch_, {}, &params, sizeof params));
    OPWIRE_ASSIGN_OR_RETURN(const GraphNode last, Leave());
    OPWIRE_RETURN_IF_ERROR(Enter(b.graph, last, handle, kIf, &b.node));
    branches_.push_back(b);
    return absl::OkStatus();
  };
  Status status = begin();
  return status.ok() ? status : Failed(std::move(status));
}

Status GpuLoops::Else() {
  Branch& b = branches_.back();
  Status status = Leave().status();
  if (status.ok()) status = Enter(b.graph, b.node, b.otherwise, kIf, &b.node);
  return status.ok() ? status : Failed(std::move(status));
}

Status GpuLoops::EndBranch() {
  const Branch b = branches_.back();
  branches_.pop_back();
  Status status = Leave().status();
  if (status.ok()) status = CaptureInto(b.graph, b.node);
  return status.ok() ? status : Failed(std::move(status));
}

}  // namespace opwire::gpu
