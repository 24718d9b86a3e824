// How a GPU kernel lowers a call when its sizes are bound: launches in order, with parameters that
// lack only the tensors' addresses. All GPU variants share the functions of opw_kernel in this
// file. A family writes `supports` and a function that plans.
//
//   Status PlanSoftmax(const Call& call, Plan& plan) {
//     Kernel* const f = call.code.Get({kFile, fmt::format("softmax::Rows<{}>", CodeName(type)),
//         "softmax::RowsParams"});
//     opw::softmax::RowsParams p{.columns = n};
//     plan.Launch(f, {.blocks = rows, .threads = 256}, p, {{&p.x, Operand(0)}, {&p.y, Result(0)}});
//     return absl::OkStatus();
//   }
//   AddGpu(table, code, "softmax", {.plan = PlanSoftmax, .supports = Supports, .dtypes = kFloats});
//
// Addresses are only aligned to an element: kernels check them before they use wider accesses.
#ifndef OPWIRE_KERNELS_OPS_GPU_PLAN_H_
#define OPWIRE_KERNELS_OPS_GPU_PLAN_H_

#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/ops/call.h"
#include "kernels/ops/gpu/code.h"
#include "kernels/ops/gpu/shared.h"
#include "kernels/select/variant.h"

namespace opwire::gpu {

// The source of an address in the parameters when the call runs.
struct Source {
  enum Kind : uint8_t { kOperand, kResult, kWorkspace, kReporter, kFixed } kind;
  uint32_t index = 0;  // of opw_call::operands (lists are flattened) or results
  int64_t offset = 0;  // bytes after it
  void* fixed = nullptr;
};
inline Source Operand(uint32_t flat_index, int64_t offset = 0) {
  return {Source::kOperand, flat_index, offset};
}
inline Source Result(uint32_t index, int64_t offset = 0) {
  return {Source::kResult, index, offset};
}
inline Source Workspace(int64_t offset = 0) { return {Source::kWorkspace, 0, offset}; }
// Memory that Plan::Upload returned.
inline Source Fixed(void* memory) { return {Source::kFixed, 0, 0, memory}; }
// For a field of type opw::Reporter.
inline Source Reports() { return {Source::kReporter}; }

struct Field {
  const void* field;  // in the parameters passed to Launch
  Source source;
  // If the field is of type opw::TileMap, not an address: the matrix at that address.
  std::optional<GpuDevice::Tiled> tiles = std::nullopt;
};

struct Grid {
  int64_t blocks = 1;                  // along x; below 2^31
  int threads = 256;                   // per block
  int shared = 0;                      // bytes of dynamic shared memory
  int64_t blocks_y = 1, blocks_z = 1;  // below 65536
};

class Fallback;

class Plan {
 public:
  // For calls with these numbers of operands (lists are flattened) and results.
  Plan(GpuDevice& device, uint32_t operands, uint32_t results)
      : device_(device), operands_(operands), results_(results) {}
  // For calls of an op like this one.
  Plan(GpuDevice& device, const OpDef& row, const opw_call* c)
      : Plan(device, c->starts[row.operands.size()], row.CountResults(c->starts)) {}
  Plan(const Plan&) = delete;
  ~Plan();

  // `params` are the kernel's parameters; its fields that are addresses are listed with their
  // sources.
  template <typename P>
  void Launch(Kernel* f, const Grid& grid, const P& params, std::initializer_list<Field> fields) {
    static_assert(std::is_trivially_copyable_v<P>);
    LaunchBytes(f, grid, &params, sizeof(P), {fields.begin(), fields.size()});
  }
  void LaunchBytes(Kernel* f, const Grid& grid, const void* params, size_t bytes,
                   std::span<const Field> fields);
  // The last launches, `launches` of them with the same tensors, need addresses that are aligned to
  // 16 bytes. If a call has other addresses, `instead` is run.
  void UnlessAligned(std::shared_ptr<Fallback> instead, int launches = 1) {
    Step& first = steps_[steps_.size() - static_cast<size_t>(launches)];
    first.unless_aligned = std::move(instead);
    first.launches = launches;
  }
  void Zero(Source to, int64_t bytes);
  // No work if both have one address.
  void Copy(Source to, Source from, int64_t bytes);
  // Work that a library puts on the stream. If its status is not OK, the run fails with it.
  void Do(std::function<Status(const opw_call*, Stream)> work);

  // Reserves memory for the launches in addition to the tensors. Returns its offset, for
  // Workspace() and WorkspaceOf. 256-byte aligned, as libraries require.
  int64_t TakeWorkspace(int64_t bytes);
  // The same for memory that no step needs after it has ended: steps that use it share it one after
  // the other.
  int64_t ShareWorkspace(int64_t bytes);
  static char* WorkspaceOf(const opw_call* c, int64_t offset);
  // Its address in a call. REQUIRES: not the reporter.
  static void* AddressOf(const Source& s, const opw_call* c);
  // A copy of `bytes` bytes on the device, as long as the plan exists; null if the plan belongs to
  // code that records.
  StatusOr<void*> Upload(const void* data, int64_t bytes);
  // The plan will not be run, and puts nothing on the device.
  void Record() { records_ = true; }

  // The functions of opw_kernel.
  int64_t workspace_bytes() const;
  Status Run(const opw_call* c) const;

 private:
  struct Patch {
    uint32_t at;  // in the parameters
    Source source;
    std::optional<GpuDevice::Tiled> tiles;
  };
  struct Step {
    Kernel* kernel = nullptr;  // null: a copy, a zeroing or a library's work
    GpuDevice::LaunchShape shape;
    mutable std::vector<std::byte> params;
    std::vector<Patch> patches;
    Source to{}, from{};
    bool copies = false;
    int64_t bytes = 0;
    std::function<Status(const opw_call*, Stream)> work;
    std::shared_ptr<Fallback> unless_aligned;  // for this launch and the following ones,
    int launches = 1;                          // this many in total
  };
  static bool IsAligned(const Step& s, const opw_call* c);
  Status RunLaunch(const Step& s, const opw_call* c) const;

  GpuDevice& device_;
  const uint32_t operands_, results_;
  std::vector<Step> steps_;
  std::vector<void*> owned_;
  bool records_ = false;
  int64_t workspace_ = 0;
  int64_t shared_at_ = 0, shared_bytes_ = 0;
  mutable std::vector<const void*> addresses_;  // addresses of a library's call
};

// Makes plans for an opw_kernel.
class Planner {
 public:
  // The device and the op definition outlive it.
  Planner(GpuDevice& device, const OpDef& row) : device_(device), row_(row) {}
  virtual ~Planner() = default;
  Planner(const Planner&) = delete;

  // As opw_kernel's.
  virtual const char* Supports(const opw_call* c) const = 0;
  // Not called if no result has elements.
  virtual Status MakePlan(const opw_call* c, Plan& plan) const = 0;

  // A kernel whose context is this object, which outlives every call.
  opw_kernel kernel(uint32_t flags) const;

 protected:
  GpuDevice& device_;
  const OpDef& row_;

 private:
  static int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes);
};

// A call with bound sizes, for the function that plans it.
struct Call {
  const opw_call* c;
  Code& code;
  const OpDef& row;

  const opw_tensor& operand(int i) const {
    return ops::Operand(c, i);
  }  // of the op definition; the first one of a list
  const opw_tensor& result(int i = 0) const { return c->results[i]; }
  const opw_attr& attr(int i) const { return c->attrs[i]; }
  int multiprocessors() const { return code.device().info().compute_units; }
};

struct GpuKernel {
  std::string_view name = "gpu";
  Tier tier = Tier::kProduction;
  int priority = 0;
  DTypeSet dtypes{};                   // of the op's first type variable; empty: all its types
  uint32_t flags = OPW_DETERMINISTIC;  // OPW_*
  const char* (*supports)(const opw_call*) = nullptr;
  Status (*plan)(const Call&, Plan&) = nullptr;  // not called if no result has elements
  // Returns why its library cannot be opened, in static memory, or null. Without `open` it returns
  // only reasons that are known before the library is opened.
  const char* (*without)(bool open) = nullptr;
};
// REQUIRES: `op` is in the catalogue.
void AddGpu(VariantTable& table, const std::shared_ptr<Code>& code, std::string_view op,
            const GpuKernel& kernel);

// Another variant's plan for a call, made when it is first run: for a library that rejects a call
// only when it gets the addresses.
class Fallback {
 public:
  // REQUIRES: the plan of `plan` needs no workspace.
  Fallback(const Call& call, std::function<Status(const Call&, Plan&)> plan)
      : code_(call.code), row_(call.row), make_(std::move(plan)) {}
  Status Run(const opw_call* c);

 private:
  Code& code_;
  const OpDef& row_;
  const std::function<Status(const Call&, Plan&)> make_;
  std::unique_ptr<Plan> plan_;
};

// Blocks of `threads` threads for n items, `each` per thread.
inline int64_t BlocksFor(int64_t n, int64_t threads, int64_t each = 1) {
  return (n + threads * each - 1) / (threads * each);
}

// The call's axes for a kernel. Neighbours are merged if every tensor allows it. The first tensor's
// shape is walked; the others are broadcast to it by NumPy's rule.
struct MergedAxes {
  int rank = 0;  // 1 at least
  int64_t elements = 1;
  std::vector<int64_t> extents;               // [rank]
  std::vector<std::vector<int64_t>> strides;  // [tensor][rank], in elements
};
MergedAxes Merge(std::span<const opw_tensor* const> tensors);
// The same for shapes with strides that the caller has computed, outermost axis first.
MergedAxes Merge(std::vector<int64_t> extents, std::vector<std::vector<int64_t>> strides);
opw::Divisor DivisorOf(int64_t d);  // REQUIRES: 0 < d < 2^31

// REQUIRES: at most kRank axes, kTensors tensors.
template <int kTensors, int kRank>
opw::Axes<kTensors, kRank> AxesOf(const MergedAxes& m) {
  opw::Axes<kTensors, kRank> out{};
  const int skip = kRank - m.rank;
  for (int a = 0; a < kRank; ++a) {
    out.extents[a] = a < skip ? 1 : m.extents[static_cast<size_t>(a - skip)];
    out.divisors[a] = DivisorOf(std::min<int64_t>(out.extents[a], INT32_MAX));
    for (int t = 0; t < kTensors; ++t)
      out.strides[t][a] =
          a < skip ? 0 : m.strides[static_cast<size_t>(t)][static_cast<size_t>(a - skip)];
  }
  return out;
}
// The least power of 2 that is at least the rank: kernels are instantiated for these.
inline int RankClass(int rank) {
  int c = 1;
  while (c < rank) c *= 2;
  return c;
}

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_PLAN_H_
