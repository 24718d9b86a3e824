// Plans as opw_kernels, and merging of axes.
#include "kernels/ops/gpu/plan.h"

#include <algorithm>
#include <bit>

#include "kernels/ops/families.h"
#include "kernels/select/failure.h"
#include "kernels/select/key_types.h"

namespace opwire::gpu {
namespace {

constexpr int64_t kWorkspaceAlignment = 256;

}  // namespace

Plan::~Plan() {
  for (void* m : owned_) device_.Free(m);
}

void Plan::LaunchBytes(Kernel* f, const Grid& grid, const void* params, size_t bytes,
                       std::span<const Field> fields) {
  Step& s = steps_.emplace_back();
  s.kernel = f;
  s.shape = {static_cast<unsigned>(grid.blocks),
             static_cast<unsigned>(grid.blocks_y),
             static_cast<unsigned>(grid.blocks_z),
             static_cast<unsigned>(grid.threads),
             static_cast<unsigned>(grid.shared),
             f->overlaps(),
             f->reads_early()};
  // Without a request a block has 48 KiB, and the kernel's own variables use part of them.
  if (grid.shared > 32 << 10) f->AllowShared(grid.shared);
  s.params.assign(static_cast<const std::byte*>(params),
                  static_cast<const std::byte*>(params) + bytes);
  for (const Field& field : fields) {
    s.patches.push_back({static_cast<uint32_t>(static_cast<const std::byte*>(field.field) -
                                               static_cast<const std::byte*>(params)),
                         field.source, field.tiles});
  }
}

void Plan::Zero(Source to, int64_t bytes) {
  Step& s = steps_.emplace_back();
  s.to = to;
  s.bytes = bytes;
}

void Plan::Copy(Source to, Source from, int64_t bytes) {
  Step& s = steps_.emplace_back();
  s.to = to;
  s.from = from;
  s.copies = true;
  s.bytes = bytes;
}

void Plan::Do(std::function<Status(const opw_call*, Stream)> work) {
  steps_.emplace_back().work = std::move(work);
}

int64_t Plan::TakeWorkspace(int64_t bytes) {
  const int64_t at = workspace_;
  workspace_ += (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  return at;
}

int64_t Plan::ShareWorkspace(int64_t bytes) {
  if (bytes > shared_bytes_) {
    shared_at_ = TakeWorkspace(bytes);
    shared_bytes_ = bytes;
  }
  return shared_at_;
}

// Calls align their workspace to 64 bytes.
int64_t Plan::workspace_bytes() const {
  return workspace_ > 0 ? workspace_ + kWorkspaceAlignment - 64 : 0;
}
char* Plan::WorkspaceOf(const opw_call* c, int64_t offset) {
  return reinterpret_cast<char*>(
             (reinterpret_cast<uintptr_t>(c->workspace) + kWorkspaceAlignment - 1) /
             kWorkspaceAlignment * kWorkspaceAlignment) +
         offset;
}

StatusOr<void*> Plan::Upload(const void* data, int64_t bytes) {
  if (records_) return nullptr;
  OPWIRE_ASSIGN_OR_RETURN(void* const memory, device_.Allocate(bytes, MemoryKind::kDevice));
  owned_.push_back(memory);
  OPWIRE_RETURN_IF_ERROR(device_.Copy(memory, data, bytes, 0));
  OPWIRE_RETURN_IF_ERROR(device_.Synchronize());  // afterwards the caller may change `data`
  return memory;
}

void* Plan::AddressOf(const Source& s, const opw_call* c) {
  switch (s.kind) {
    case Source::kOperand:
      return static_cast<char*>(c->operands[s.index].data) + s.offset;
    case Source::kResult:
      return static_cast<char*>(c->results[s.index].data) + s.offset;
    case Source::kWorkspace:
      return WorkspaceOf(c, s.offset);
    default:
      return s.fixed;
  }
}

Status Plan::Run(const opw_call* c) const {
  for (size_t at = 0; at < steps_.size(); ++at) {
    const Step& s = steps_[at];
    if (s.work) {
      addresses_.assign(1, c->workspace);
      for (uint32_t i = 0; i < operands_; ++i) addresses_.push_back(c->operands[i].data);
      for (uint32_t i = 0; i < results_; ++i) addresses_.push_back(c->results[i].data);
      if (device_.TakesWork(addresses_)) OPWIRE_RETURN_IF_ERROR(s.work(c, device_.stream(0)));
    } else if (!s.kernel) {
      if (s.copies && AddressOf(s.to, c) == AddressOf(s.from, c)) continue;
      OPWIRE_RETURN_IF_ERROR(
          s.copies ? device_.Copy(AddressOf(s.to, c), AddressOf(s.from, c), s.bytes, 0)
                   : device_.Zero(AddressOf(s.to, c), s.bytes, 0));
    } else if (s.unless_aligned && !IsAligned(s, c)) {
      OPWIRE_RETURN_IF_ERROR(s.unless_aligned->Run(c));
      at += static_cast<size_t>(s.launches) - 1;
    } else {
      OPWIRE_RETURN_IF_ERROR(RunLaunch(s, c));
    }
  }
  return absl::OkStatus();
}

bool Plan::IsAligned(const Step& s, const opw_call* c) {
  return std::ranges::all_of(s.patches, [&](const Patch& p) {
    return p.source.kind == Source::kReporter ||
           reinterpret_cast<uintptr_t>(AddressOf(p.source, c)) % 16 == 0;
  });
}

Status Plan::RunLaunch(const Step& s, const opw_call* c) const {
  OPWIRE_ASSIGN_OR_RETURN(const Function function, s.kernel->Load());
  for (const Patch& p : s.patches) {
    if (p.source.kind == Source::kReporter) {
      const opw::Reporter reporter = device_.reporter();
      std::memcpy(s.params.data() + p.at, &reporter, sizeof reporter);
      continue;
    }
    void* const address = AddressOf(p.source, c);
    if (p.tiles) {
      OPWIRE_ASSIGN_OR_RETURN(const opw::TileMap map, device_.MapTiles(*p.tiles, address));
      std::memcpy(s.params.data() + p.at, &map, sizeof map);
    } else {
      std::memcpy(s.params.data() + p.at, &address, sizeof address);
    }
  }
  return device_.Launch(function, s.shape, s.params.data(), s.params.size());
}

Status Fallback::Run(const opw_call* c) {
  if (!plan_) {
    auto plan = std::make_unique<Plan>(code_.device(), row_, c);
    OPWIRE_RETURN_IF_ERROR(make_({c, code_, row_}, *plan));
    plan_ = std::move(plan);
  }
  return plan_->Run(c);
}

// ---- opw_kernel

opw_kernel Planner::kernel(uint32_t flags) const {
  const auto supports = [](const opw_call* c) {
    return static_cast<const Planner*>(c->context)->Supports(c);
  };
  const auto release = [](void* state) { delete static_cast<Plan*>(state); };
  const auto run = [](const opw_call* c) -> int {
    const Status status = static_cast<const Plan*>(c->state)->Run(c);
    if (status.ok()) return OPW_OK;
    NoteFailure(status);
    return OPW_FAILED;
  };
  return {OPW_ABI_VERSION, flags, supports, Prepare, release, run, this};
}

int Planner::Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const auto& self = *static_cast<const Planner*>(c->context);
  const std::span<const opw_tensor> results(c->results, self.row_.CountResults(c->starts));
  auto plan = std::make_unique<Plan>(self.device_, self.row_, c);
  Status status;
  if (std::ranges::any_of(results, [](const opw_tensor& r) { return r.elements > 0; }))
    status = self.MakePlan(c, *plan);
  if (!status.ok()) {
    NoteFailure(status);
    return OPW_FAILED;
  }
  *workspace_bytes = plan->workspace_bytes();
  *state = plan.release();
  return OPW_OK;
}

namespace {

class BuiltinPlanner final : public Planner {
 public:
  BuiltinPlanner(std::shared_ptr<Code> code, const OpDef& row, const GpuKernel& kernel)
      : Planner(code->device(), row), code_(std::move(code)), kernel_(kernel) {}

  const char* Supports(const opw_call* c) const override {
    return kernel_.supports ? kernel_.supports(c) : nullptr;
  }
  Status MakePlan(const opw_call* c, Plan& plan) const override {
    if (code_->records()) plan.Record();
    return kernel_.plan({c, *code_, row_}, plan);
  }

 private:
  const std::shared_ptr<Code> code_;
  const GpuKernel kernel_;
};

}  // namespace

void AddGpu(VariantTable& table, const std::shared_ptr<Code>& code, std::string_view op,
            const GpuKernel& kernel) {
  const OpDef* const row = Catalogue().Find(op);
  auto planner = std::make_shared<const BuiltinPlanner>(code, *row, kernel);
  Variant v{std::string(op),
            std::string(kernel.name),
            kernel.tier,
            kernel.priority,
            kernel.dtypes.Empty() ? KeyTypesOf(*row) : kernel.dtypes,
            "",
            "builtin",
            planner->kernel(kernel.flags)};
  v.holds = std::move(planner);
  if (kernel.without) {
    v.library = [without = kernel.without](bool open) -> std::string {
      const char* const why = without(open);
      return why ? why : "";
    };
  }
  table.Add(std::move(v));
}

// ---- Axes

MergedAxes Merge(std::vector<int64_t> extents, std::vector<std::vector<int64_t>> strides) {
  MergedAxes m;
  m.strides.resize(strides.size());
  for (size_t a = 0; a < extents.size(); ++a) {
    m.elements *= extents[a];
    if (extents[a] == 1) continue;
    bool merges = m.rank > 0;
    for (size_t t = 0; t < strides.size(); ++t)
      merges = merges && m.strides[t].back() == strides[t][a] * extents[a];
    if (merges) {
      m.extents.back() *= extents[a];
    } else {
      m.extents.push_back(extents[a]);
      ++m.rank;
    }
    for (size_t t = 0; t < strides.size(); ++t) {
      if (merges)
        m.strides[t].back() = strides[t][a];
      else
        m.strides[t].push_back(strides[t][a]);
    }
  }
  if (m.rank == 0) {  // one element
    m.rank = 1;
    m.extents = {1};
    for (auto& s : m.strides) s = {0};
  }
  return m;
}

MergedAxes Merge(std::span<const opw_tensor* const> tensors) {
  const opw_tensor& first = *tensors[0];
  std::vector<std::vector<int64_t>> strides;
  for (const opw_tensor* t : tensors) {
    std::vector<int64_t>& s = strides.emplace_back(first.rank, 0);
    for (int a = 0, shift = first.rank - t->rank; a < t->rank; ++a)
      s[static_cast<size_t>(a + shift)] = t->shape[a] == 1 ? 0 : t->strides[a];
  }
  return Merge({first.shape, first.shape + first.rank}, std::move(strides));
}

opw::Divisor DivisorOf(int64_t d) {
  const auto divisor = static_cast<uint32_t>(d);
  const uint32_t shift =
      divisor == 1 ? 0 : 32 - static_cast<uint32_t>(std::countl_zero(divisor - 1));
  const uint64_t magic = ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor)) / divisor + 1;
  return {divisor, static_cast<uint32_t>(magic), shift, 0};
}

}  // namespace opwire::gpu
