// Binding a function's dimensions.
#include "executor/plan/instance.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "executor/plan/scratch.h"
#include "executor/run/crash_record.h"
#include "executor/run/graphs.h"
#include "ir/wire/message.h"
#include "kernels/select/failure.h"

namespace opwire {
namespace {

constexpr size_t kAlignment = 64;  // of every value and workspace

int CopyBytes(const opw_call* c) {
  const opw_tensor& from = c->operands[0];
  const opw_tensor& to = c->results[0];
  struct Context {
    uint8_t* to;
    const uint8_t* from;
  } context{static_cast<uint8_t*>(to.data), static_cast<const uint8_t*>(from.data)};
  // `elements` counts bytes here.
  c->runtime->parallel_for(
      c->runtime, from.elements, 1 << 20,
      [](void* p, int64_t begin, int64_t end) {
        const auto* x = static_cast<Context*>(p);
        std::memcpy(x->to + begin, x->from + begin, static_cast<size_t>(end - begin));
      },
      &context);
  return OPW_OK;
}

// The same by the device, where the calling thread does not reach its memory.
int CopyOnDevice(const opw_call* c) {
  const Status status = static_cast<Device*>(const_cast<void*>(c->context))->Copy(c->results[0].data, c->operands[0].data, c->operands[0].elements, 0);
  if (status.ok()) return OPW_OK;
  NoteFailure(status);
  return OPW_FAILED;
}

const DeviceInfo& MachineOf(const Device* device) {
  static const auto* const host = new DeviceInfo();
  return device ? device->info() : *host;
}

uint32_t EstimateNanos(const OpCost& cost, const DeviceInfo& device) {
  const double ns = device.call_ns + std::max(cost.bytes / device.bytes_per_ns, cost.flops / device.flops_per_ns);
  return ns < 4e9 ? static_cast<uint32_t>(ns) : UINT32_MAX;
}

}  // namespace

const std::string& LabelOf(const Step& step, const VariantTable& variants) {
  const size_t i = step.mark >> 32;
  static const std::string* const copy = new std::string("copy@result");
  return i < variants.labels().size() ? variants.labels()[i] : *copy;
}

class Instance::Builder {
 public:
  Builder(const Program& program, uint32_t function, std::vector<int64_t> symbols,
          const InstanceOptions& options)
      : p_(program), f_(program.module.functions[function]), plan_(program.plans[function]), types_(program.values[function]),
        typing_(program.typing.functions[function]), dims_(program.module.dims, symbols), variants_(program.kernels->variants), options_(options),
        out_(new Instance(program, function)) {
    out_->symbols_ = std::move(symbols);
  }

  StatusOr<std::unique_ptr<Instance>> Build() {
    const CrashRecord::Running running(options_.crash, f_.name);
    running_ = &running;
    OPWIRE_RETURN_IF_ERROR(CheckConstraints());
    OPWIRE_RETURN_IF_ERROR(SizeValues());
    SizeSlots();
    Reserve();
    OPWIRE_RETURN_IF_ERROR(ReserveResults());
    for (uint32_t n = 0; n < f_.nodes.size(); ++n) {
      node_ = n;
      Status status = PlaceNode(n);
      if (!status.ok()) return WithSite(std::move(status), Site(n));
    }
    OPWIRE_RETURN_IF_ERROR(PlaceResults());
    out_->scratch_bytes_ = options_.no_arena ? 0 : scratch_.peak();
    return std::move(out_);
  }

 private:
  struct Layout {
    const int64_t* shape;
    const int64_t* strides;
    int64_t elements, bytes;
  };
  // Where a root's storage is.
  struct Place {
    enum Kind { kNone, kParam, kResult, kScratch } kind = kNone;
    int64_t at = 0;  // parameter, result, or scratch offset
  };

  ErrorSite Site(uint32_t n) const { return {f_.name, static_cast<int32_t>(n), f_.nodes[n].op, f_.nodes[n].location}; }

  Status CheckConstraints() {
    for (const auto& c : typing_.constraints) {
      const auto a = dims_.Get(c.a), b = dims_.Get(c.b);
      Status status = !a.ok() ? a.status() : b.status();
      if (status.ok() && *a != *b) {
        status = InvalidArgument("{}: {} differ for this binding: {} is {}, {} is {}", f_.nodes[c.node].op, c.what,
                                 p_.module.dims.ToString(c.a), *a, p_.module.dims.ToString(c.b), *b);
      }
      if (!status.ok()) return WithSite(std::move(status), Site(c.node));
    }
    return absl::OkStatus();
  }

  StatusOr<Layout> LayoutOf(const TensorType& type) {
    std::vector<int64_t> shape;
    for (Dim d : type.shape) {
      OPWIRE_ASSIGN_OR_RETURN(const int64_t extent, dims_.Get(d));
      shape.push_back(extent);
    }
    const auto elements = CheckedElements(shape);
    const auto bytes = TensorBytes(type.dtype, type.encoding, shape);
    if (!elements || !bytes) {
      return ResourceExhausted("a tensor of {}{} has more bytes than can be counted", DTypeName(type.dtype), ShapeToString(shape));
    }
    // One pair of arrays for all values of equal extents.
    auto [it, added] = layouts_.try_emplace(shape, nullptr);
    if (added) {
      std::vector<int64_t>& memory = out_->extents_.emplace_back(shape);
      memory.resize(2 * shape.size() + 1);
      int64_t stride = 1;
      for (size_t i = shape.size(); i-- > 0;) {
        memory[shape.size() + i] = stride;
        stride *= std::max<int64_t>(shape[i], 1);
      }
      it->second = memory.data();
    }
    return Layout{it->second, it->second + shape.size(), *elements, *bytes};
  }

  Status SizeValues() {
    layout_.resize(types_.size());
    for (size_t v = 0; v < types_.size(); ++v) {
      if (v < f_.params.size() && f_.params[v].mode == ParamMode::kDim) continue;
      // Chains repeat their types: look at the producer's operand first would save little, the map serves.
      auto layout = LayoutOf(*types_.types[v]);
      if (!layout.ok()) {
        const int32_t n = plan_.producer[v];
        return n < 0 ? WithSite(layout.status(), {f_.name, -1, "", ""}) : WithSite(layout.status(), Site(static_cast<uint32_t>(n)));
      }
      layout_[v] = *layout;
    }
    return absl::OkStatus();
  }

  Slot SlotOf(ValueId v) const {
    const TensorType& t = *types_.types[v];
    return {t.dtype, t.encoding, {layout_[v].shape, layout_[v].shape + t.rank()}, layout_[v].bytes};
  }

  void SizeSlots() {
    for (size_t i = 0; i < f_.params.size(); ++i) {
      out_->params_.push_back(f_.params[i].mode == ParamMode::kDim ? Slot{} : SlotOf(static_cast<ValueId>(i)));
    }
    for (const Result& r : f_.results) out_->results_.push_back(SlotOf(r.value));
    out_->inout_of_result_.assign(plan_.inout_of_result.begin(), plan_.inout_of_result.end());
    out_->first_write_.assign(f_.params.size(), UINT32_MAX);
    out_->param_patches_.resize(f_.params.size());
    out_->result_patches_.resize(f_.results.size());
    out_->result_data_.resize(f_.results.size());
    out_->result_scratch_.assign(f_.results.size(), -1);
  }

  // Addresses into these vectors are kept, so they must not grow.
  void Reserve() {
    size_t tensors = 2 * f_.results.size(), starts = 2, steps = f_.results.size();
    for (const Node& n : f_.nodes) {
      tensors += n.operands.size() + n.results.size();
      starts += typing_.nodes[static_cast<size_t>(&n - f_.nodes.data())].row->operands.size() + 1;
      ++steps;
    }
    out_->tensors_.reserve(tensors);
    out_->starts_.reserve(starts);
    out_->steps_.reserve(steps);
    place_.resize(types_.size());
    for (size_t i = 0; i < f_.params.size(); ++i) place_[i] = {Place::kParam, static_cast<int64_t>(i)};
  }

  // A result is written by its producer, in the middle of the run, and read after its end: no other value may share its memory.
  Status ReserveResults() {
    for (size_t i = 0; i < f_.results.size(); ++i) {
      if (plan_.inout_of_result[i] >= 0) continue;
      OPWIRE_ASSIGN_OR_RETURN(out_->result_scratch_[i], TakeScratch(out_->results_[i].bytes));
    }
    return absl::OkStatus();
  }

  opw_tensor Describe(ValueId v) const {
    const TensorType& t = *types_.types[v];
    const Layout& l = layout_[v];
    return {nullptr, l.shape, l.strides, l.elements, static_cast<uint8_t>(t.dtype), static_cast<uint8_t>(t.encoding),
            static_cast<uint8_t>(t.rank()), 1};
  }

  // Notes where the address of a tensor in out_->tensors_ comes from.
  void Patch(opw_tensor* t, const Place& place) {
    switch (place.kind) {
      case Place::kParam: out_->param_patches_[place.at].slots.push_back(&t->data); break;
      case Place::kResult: out_->result_patches_[place.at].slots.push_back(&t->data); break;
      case Place::kScratch: PatchScratch(&t->data, place.at); break;
      case Place::kNone: break;
    }
  }
  void PatchScratch(void** slot, int64_t at) {
    if (options_.no_arena) *slot = out_->owned_[static_cast<size_t>(at)].get();
    else out_->scratch_patches_.push_back({slot, at});
  }

  // Scratch memory: an offset, or with no_arena the number of an allocation.
  StatusOr<int64_t> TakeScratch(int64_t bytes) {
    if (options_.no_arena) {
      if (bytes > options_.most - owned_bytes_) {
        return ResourceExhausted("out of memory: the run needs {} bytes of scratch memory beside {}, the executor may hold {}", bytes, owned_bytes_,
                                 options_.most);
      }
      owned_bytes_ += bytes;
      Instance::Owned memory(new (std::align_val_t{kAlignment}, std::nothrow) uint8_t[static_cast<size_t>(std::max<int64_t>(bytes, 1))]);
      if (!memory) return ResourceExhausted("scratch memory of {} bytes", bytes);
      out_->owned_.push_back(std::move(memory));
      return static_cast<int64_t>(out_->owned_.size() - 1);
    }
    const auto offset = scratch_.Take(bytes);
    if (!offset) return ResourceExhausted("scratch memory has more bytes than can be counted");
    return *offset;
  }
  void GiveScratch(int64_t at, int64_t bytes) {
    if (!options_.no_arena) scratch_.Give(at, bytes);
  }

  // Attributes in the row's order as the kernel reads them.
  const opw_attr* LowerAttrs(uint32_t n) {
    const std::vector<AttrValue>& values = typing_.nodes[n].attrs;
    std::vector<opw_attr>& lowered = out_->attrs_.emplace_back();
    for (const AttrValue& v : values) {
      opw_attr a{};
      const auto ints = [&](std::vector<int64_t> list) {
        const std::vector<int64_t>& kept = out_->attr_ints_.emplace_back(std::move(list));
        a.kind = OPW_ATTR_INTS;
        a.count = static_cast<int64_t>(kept.size());
        a.value.ints = kept.data();
      };
      const auto integer = [&](int64_t i) {
        a.kind = OPW_ATTR_INT;
        a.value.i = i;
      };
      const auto bytes = [&](const std::string& s) {
        a.kind = OPW_ATTR_BYTES;
        a.count = static_cast<int64_t>(s.size());
        a.value.bytes = s.c_str();
      };
      switch (KindOf(v)) {
        case AttrKind::kInt: integer(std::get<int64_t>(v)); break;
        case AttrKind::kBool: integer(std::get<bool>(v)); break;
        case AttrKind::kDType: integer(static_cast<int64_t>(std::get<DType>(v))); break;
        case AttrKind::kDim: integer(dims_.Get(std::get<Dim>(v)).value_or(0)); break;
        case AttrKind::kType: integer(static_cast<int64_t>(std::get<TensorType>(v).dtype)); break;
        case AttrKind::kFloat:
          a.kind = OPW_ATTR_FLOAT;
          a.value.f = std::get<double>(v);
          break;
        case AttrKind::kString: bytes(std::get<std::string>(v)); break;
        case AttrKind::kBlob: bytes(p_.module.blobs[std::get<BlobRef>(v).index]); break;
        case AttrKind::kInts: ints(std::get<Ints>(v)); break;
        case AttrKind::kBools: {
          const Bools& list = std::get<Bools>(v);
          ints({list.begin(), list.end()});
          break;
        }
        case AttrKind::kDTypes: {
          std::vector<int64_t> list;
          for (DType t : std::get<DTypes>(v)) list.push_back(static_cast<int64_t>(t));
          ints(std::move(list));
          break;
        }
        case AttrKind::kDims: {
          std::vector<int64_t> list;
          for (Dim d : std::get<Dims>(v)) list.push_back(dims_.Get(d).value_or(0));
          ints(std::move(list));
          break;
        }
        case AttrKind::kFloats:
          a.kind = OPW_ATTR_FLOATS;
          a.count = static_cast<int64_t>(std::get<Doubles>(v).size());
          a.value.floats = std::get<Doubles>(v).data();
          break;
        case AttrKind::kStrings: break;  // no row has such a list
      }
      lowered.push_back(a);
    }
    return lowered.data();
  }

  OpCost CostOf(const OpRow& row, const Node& node, uint32_t first_result) const {
    std::vector<Shape> operands, results;
    const auto shape = [&](ValueId v) {
      return v == kAbsent ? Shape{} : Shape(layout_[v].shape, layout_[v].shape + types_.types[v]->rank());
    };
    for (ValueId v : node.operands) operands.push_back(shape(v));
    for (size_t r = 0; r < node.results.size(); ++r) results.push_back(shape(static_cast<ValueId>(first_result + r)));
    return row.cost({operands, results, node.results.empty() ? 0 : DTypeBytes(node.results[0].dtype)});
  }

  StatusOr<const Variant*> Choose(const OpRow& row, const Node& node, const opw_call& call, double expected_ns) const {
    const DType dtype = KeyDType(row, node, types_.types);
    const VariantTable::Asks asks = [&](const Variant& v) { running_->Step(CrashRecord::Mark(node_, v.label)); };
    Choices* const choices = p_.kernels->choices.get();
    // Some sizes are no work, and take no measuring; and what is measured is the calling thread's.
    if (!choices || options_.device || call.results[0].elements == 0) return variants_.Choose(node.op, dtype, call, node.pin, asks);
    return variants_.Choose(node.op, dtype, call, node.pin, *choices, expected_ns, asks);
  }

  Status PlaceNode(uint32_t n) {
    const Node& node = f_.nodes[n];
    const OpRow& row = *typing_.nodes[n].row;
    const ValueId first = static_cast<ValueId>(types_.first_result[n]);
    if (plan_.root[first] != first) {  // a view
      place_[first] = place_[plan_.root[first]];
      return absl::OkStatus();
    }
    Step step{};
    opw_call& call = step.call;
    // Operands.
    opw_tensor* operands = out_->tensors_.data() + out_->tensors_.size();
    for (ValueId v : node.operands) out_->tensors_.push_back(v == kAbsent ? opw_tensor{} : Describe(v));
    opw_tensor* results = out_->tensors_.data() + out_->tensors_.size();
    for (size_t r = 0; r < node.results.size(); ++r) out_->tensors_.push_back(Describe(first + static_cast<ValueId>(r)));
    call.operands = operands;
    call.results = results;
    call.starts = out_->starts_.data() + out_->starts_.size();
    uint32_t start = 0;
    for (size_t i = 0; i < row.operands.size(); ++i) {
      out_->starts_.push_back(start);
      start += node.segments.empty() ? 1 : node.segments[i];
    }
    out_->starts_.push_back(start);
    call.attrs = LowerAttrs(n);

    step.cost_ns = EstimateNanos(CostOf(row, node, static_cast<uint32_t>(first)), MachineOf(options_.device));
    call.runtime = options_.runtime;  // its number of threads is part of what is prepared
    OPWIRE_ASSIGN_OR_RETURN(const Variant* variant, Choose(row, node, call, step.cost_ns));
    const opw_kernel& kernel = variant->kernel;
    step.run = kernel.run;
    step.captures = (kernel.flags & OPW_NO_GRAPH) == 0;
    step.mark = CrashRecord::Mark(n, variant->label);
    for (const OperandSpec& o : row.operands) step.checks_values |= o.domain != Domain::kAny;

    int64_t workspace = 0;
    call.context = kernel.context;
    running_->Step(step.mark);
    if (kernel.prepare) {
      if (kernel.prepare(&call, &call.state, &workspace) != OPW_OK) {
        const Status why = TakeFailure();
        return Internal("{}@{} could not be prepared{}{}", node.op, variant->name, why.ok() ? "" : ": ", why.ok() ? "" : MessageOf(why));
      }
      if (kernel.release) out_->prepared_.push_back({kernel.release, call.state});
      if (workspace < 0) return Internal("{}@{} asked for a workspace of {} bytes", node.op, variant->name, workspace);
    }

    // Results, then operands that end here give their memory back: a kernel's results never overlap what it reads.
    for (size_t r = 0; r < node.results.size(); ++r) {
      const ValueId v = first + static_cast<ValueId>(r);
      OPWIRE_ASSIGN_OR_RETURN(place_[v], PlaceResult(n, static_cast<uint32_t>(r), (kernel.flags & OPW_INPLACE) && row.aliasing == Aliasing::kElementwise));
      Patch(&results[r], place_[v]);
    }
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (node.operands[i] != kAbsent) Patch(&operands[i], place_[plan_.root[node.operands[i]]]);
    }
    if (workspace > 0) {
      OPWIRE_ASSIGN_OR_RETURN(const int64_t at, TakeScratch(workspace));
      call.workspace_bytes = workspace;
      workspaces_.push_back({out_->steps_.size(), at});
      GiveScratch(at, workspace);
    }
    for (ValueId v : node.operands) {
      if (v != kAbsent) Release(plan_.root[v], n);
    }
    for (size_t r = 0; r < node.results.size(); ++r) Release(first + static_cast<ValueId>(r), n);  // one that nobody reads
    out_->steps_.push_back(step);
    return absl::OkStatus();
  }

  void Release(ValueId root, uint32_t n) {
    Place& place = place_[root];
    if (place.kind != Place::kScratch || plan_.last_use[root] > n || released_.contains(root)) return;
    released_.insert({root, true});
    GiveScratch(place.at, layout_[root].bytes);
  }

  // Whether a kernel that works element by element is done with operand `i` of a node once it writes the same elements of its result `r`. Lists
  // are worked through place by place, in any order, so that what is read for several places is never done with.
  bool DoneWith(uint32_t n, size_t i, uint32_t r) const {
    const Node& node = f_.nodes[n];
    const OpRow& row = *typing_.nodes[n].row;
    const std::vector<uint32_t> operands = row.OperandStarts(node.segments), results = row.ResultStarts(operands);
    if (std::ranges::none_of(row.results, &ResultSpec::variadic)) return true;
    const size_t operand = static_cast<size_t>(std::ranges::upper_bound(operands, i) - operands.begin()) - 1;
    const size_t result = static_cast<size_t>(std::ranges::upper_bound(results, r) - results.begin()) - 1;
    return row.operands[operand].variadic && row.results[result].variadic && i - operands[operand] == r - results[result];
  }

  StatusOr<Place> PlaceResult(uint32_t n, uint32_t r, bool in_place) {
    const ValueId v = static_cast<ValueId>(types_.first_result[n] + r);
    const int32_t result = plan_.result_of[v];
    if (result < 0) {
      OPWIRE_ASSIGN_OR_RETURN(const int64_t at, TakeScratch(layout_[v].bytes));
      return Place{Place::kScratch, at};
    }
    const int32_t inout = plan_.inout_of_result[result];
    if (inout < 0) return Place{Place::kResult, result};
    // The node may read the old value only where it can replace it element by element.
    bool reads = false, safe = in_place;
    for (size_t i = 0; i < f_.nodes[n].operands.size(); ++i) {
      const ValueId o = f_.nodes[n].operands[i];
      if (o == kAbsent || plan_.root[o] != inout) continue;
      reads = true;
      safe = safe && DoneWith(n, i, r) && types_.types[o]->dtype == types_.types[v]->dtype && layout_[o].shape == layout_[v].shape;
    }
    if (!reads || safe) {
      out_->first_write_[inout] = static_cast<uint32_t>(out_->steps_.size());
      return Place{Place::kParam, inout};
    }
    late_.push_back(result);
    OPWIRE_ASSIGN_OR_RETURN(const int64_t at, TakeScratch(layout_[v].bytes));
    return Place{Place::kScratch, at};
  }

  Status AddCopy(const Place& from, const Place& to, int64_t bytes) {
    Step step{};
    step.captures = true;
    step.run = options_.device ? &CopyOnDevice : &CopyBytes;
    step.mark = CrashRecord::Mark(static_cast<uint32_t>(f_.nodes.size()), UINT32_MAX);
    step.cost_ns = EstimateNanos({0, static_cast<double>(2 * bytes)}, MachineOf(options_.device));
    for (const Place* place : {&from, &to}) {
      opw_tensor t{};
      t.elements = bytes;
      out_->tensors_.push_back(t);
      Patch(&out_->tensors_.back(), *place);
    }
    step.call.operands = &out_->tensors_[out_->tensors_.size() - 2];
    step.call.results = &out_->tensors_.back();
    step.call.runtime = options_.runtime;
    step.call.context = options_.device;
    out_->steps_.push_back(step);
    return absl::OkStatus();
  }

  // Results whose value lives elsewhere are copied at the end: those with storage of their own before any that overwrites a parameter,
  // and what would be overwritten by another's copy goes through scratch memory.
  Status PlaceResults() {
    std::vector<std::pair<int, Place>> into_params;
    for (size_t i = 0; i < f_.results.size(); ++i) {
      const ValueId root = plan_.root[f_.results[i].value];
      const int32_t inout = plan_.inout_of_result[i];
      const bool late = std::find(late_.begin(), late_.end(), static_cast<int>(i)) != late_.end();
      if (inout >= 0) {
        if (!plan_.copied[i] && !late) continue;
        if (root == inout) continue;  // handed back unchanged
        Place from = place_[root];
        if (from.kind == Place::kParam) {
          OPWIRE_ASSIGN_OR_RETURN(const int64_t at, TakeScratch(layout_[root].bytes));
          const Place temporary{Place::kScratch, at};
          OPWIRE_RETURN_IF_ERROR(AddCopy(from, temporary, layout_[root].bytes));
          from = temporary;
        }
        into_params.push_back({static_cast<int>(i), from});
        continue;
      }
      if (plan_.copied[i]) OPWIRE_RETURN_IF_ERROR(AddCopy(place_[root], {Place::kResult, static_cast<int64_t>(i)}, layout_[root].bytes));
    }
    for (const auto& [i, from] : into_params) {
      const int32_t inout = plan_.inout_of_result[i];
      out_->first_write_[inout] = std::min(out_->first_write_[inout], static_cast<uint32_t>(out_->steps_.size()));
      OPWIRE_RETURN_IF_ERROR(AddCopy(from, {Place::kParam, inout}, out_->results_[i].bytes));
    }
    // Steps no longer move: their workspaces' addresses can be noted.
    for (const auto& [step, at] : workspaces_) PatchScratch(&out_->steps_[step].call.workspace, at);
    return absl::OkStatus();
  }

  const Program& p_;
  const Function& f_;
  const FunctionPlan& plan_;
  const ValueTypes& types_;
  const FunctionTyping& typing_;
  DimValues dims_;
  const VariantTable& variants_;
  const InstanceOptions options_;
  std::unique_ptr<Instance> out_;
  absl::flat_hash_map<std::vector<int64_t>, const int64_t*> layouts_;
  std::vector<Layout> layout_;  // by value
  std::vector<Place> place_;    // by root
  absl::flat_hash_map<ValueId, bool> released_;
  std::vector<int> late_;       // results that must be copied into their parameter after all
  std::vector<std::pair<size_t, int64_t>> workspaces_;
  ScratchPlanner scratch_;
  int64_t owned_bytes_ = 0;     // no_arena
  const CrashRecord::Running* running_ = nullptr;  // Build's
  uint32_t node_ = 0;           // that is being placed
};

StatusOr<std::unique_ptr<Instance>> Instance::Build(const Program& program, uint32_t function, std::vector<int64_t> symbols,
                                                    const InstanceOptions& options) {
  return Builder(program, function, std::move(symbols), options).Build();
}

void Instance::FreeAligned::operator()(uint8_t* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }

Instance::Instance(const Program& program, uint32_t function) : program_(program), function_(function) {}

Instance::~Instance() {
  graphs.reset();  // which hold what the kernels have prepared
  for (const Prepared& p : prepared_) p.release(p.state);
}

void Instance::BindScratch(uint8_t* base) {
  if (base == scratch_) return;
  scratch_ = base;
  ++bindings_;
  for (const ScratchPatch& p : scratch_patches_) *p.slot = base + p.offset;
}

void Instance::BindParam(int param, void* data) { bindings_ += param_patches_[param].Set(data); }

void Instance::BindResult(int result, void* data) {
  if (!data) data = owned_.empty() ? static_cast<void*>(scratch_ + result_scratch_[result]) : owned_[result_scratch_[result]].get();
  result_data_[result] = data;
  bindings_ += result_patches_[result].Set(data);
}

}  // namespace opwire
