// Binds a function's dimensions.
#include "executor/plan/instance.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "executor/plan/scratch.h"
#include "executor/run/crash_record.h"
#include "executor/run/graphs.h"
#include "ir/wire/message.h"
#include "kernels/select/failure.h"

namespace opwire::executor {
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

// The same by the device, if the calling thread cannot access its memory.
int CopyOnDevice(const opw_call* c) {
  const Status status =
      static_cast<Device*>(const_cast<void*>(c->context))
          ->Copy(c->results[0].data, c->operands[0].data, c->operands[0].elements, 0);
  if (status.ok()) return OPW_OK;
  NoteFailure(status);
  return OPW_FAILED;
}

const DeviceInfo& MachineOf(const Device* device) {
  static const auto* const host = new DeviceInfo();
  return device ? device->info() : *host;
}

uint32_t EstimateNanos(const OpCost& cost, DType dtype, const DeviceInfo& device) {
  const bool narrow = fused::ComputeType(dtype) != dtype;
  const double ns = device.call_ns + std::max(cost.bytes / device.bytes_per_ns,
                                              cost.flops / (narrow ? device.narrow_flops_per_ns
                                                                   : device.flops_per_ns));
  return ns < 4e9 ? static_cast<uint32_t>(ns) : UINT32_MAX;
}

}  // namespace

const std::string& LabelOf(const Step& step, const VariantTable& variants) {
  const size_t i = step.mark >> 32;
  static const std::string *const copy = new std::string("copy@result"),
                                  *const control = new std::string("control"),
                                  *const fused = new std::string(kFusedLabel);
  if (step.kind != StepKind::kCall) return *control;
  if (i == CrashRecord::kFused) return *fused;
  return i < variants.labels().size() ? variants.labels()[i] : *copy;
}

class Instance::Builder {
 public:
  Builder(const Program& program, uint32_t function, std::vector<int64_t> symbols,
          const InstanceOptions& options)
      : p_(program),
        dims_(program.module.dims, symbols),
        variants_(program.kernels->variants),
        options_(options),
        out_(new Instance(program, function)) {
    out_->symbols_ = std::move(symbols);
  }

  StatusOr<std::unique_ptr<Instance>> Build() {
    const uint32_t number = out_->function_;
    const Function& f = p_.module.functions[number];
    const CrashRecord::Running running(options_.crash, f.name);
    running_ = &running;
    Frame frame(p_, number, p_.plans[number], /*is_called=*/false);
    OPWIRE_RETURN_IF_ERROR(Size(frame));
    SizeSlots(frame);
    Reserve();
    for (size_t i = 0; i < f.params.size(); ++i)
      frame.place[i] = {Place::kParam, static_cast<int64_t>(i)};
    for (size_t i = 0; i < f.results.size(); ++i) {
      const int32_t inout = frame.plan.inout_of_result[i];
      if (inout >= 0) {
        frame.results.push_back(frame.place[static_cast<size_t>(inout)]);
        continue;
      }
      // A result is written by its producer, in the middle of the run, and read after its end: no
      // other value may share its memory.
      OPWIRE_ASSIGN_OR_RETURN(out_->result_scratch_[i], TakeScratch(out_->results_[i].bytes));
      frame.results.push_back({Place::kResult, static_cast<int64_t>(i)});
    }
    OPWIRE_RETURN_IF_ERROR(PlaceFunction(frame));
    if (options_.device) options_.device->AwaitKernels();
    // Steps no longer move: their workspaces' addresses can be noted.
    for (const auto& [step, at] : workspaces_) PatchScratch(&out_->steps_[step].call.workspace, at);
    if (!options_.no_arena) {
      scratch_.Place();
      for (ScratchPatch& p : out_->scratch_patches_) p.offset += scratch_.OffsetOf(p.place);
      for (int64_t& at : out_->result_scratch_) at = at < 0 ? at : scratch_.OffsetOf(at);
      out_->scratch_bytes_ = scratch_.peak();
      out_->scratch_bound_ = scratch_.bound();
    }
    return std::move(out_);
  }

 private:
  struct Layout {
    const int64_t* shape;
    const int64_t* strides;
    int64_t elements, bytes;
    int64_t offset = 0;  // in its root's memory, in bytes
    bool dense = true;
  };
  // The place of a root's storage.
  struct Place {
    enum Kind { kNone, kParam, kResult, kScratch } kind = kNone;
    int64_t at = 0;  // a parameter, a result, or the number of the scratch memory
    bool operator==(const Place&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Place& p) {
      return H::combine(std::move(h), p.kind, p.at);
    }
  };
  // A function during its placement: the function that is run, or one that a node of another calls.
  struct Frame {
    Frame(const Program& p, uint32_t function, const FunctionPlan& function_plan, bool is_called)
        : called(is_called ? static_cast<int32_t>(function) : -1),
          f(p.module.functions[function]),
          plan(function_plan),
          types(p.values[function]),
          typing(p.typing.functions[function]),
          layout(types.size()),
          place(types.size()),
          late(f.results.size()) {}

    const int32_t called;  // its number; -1: the function that is run
    const Function& f;
    const FunctionPlan& plan;
    const ValueTypes& types;
    const FunctionTyping& typing;
    std::vector<Layout> layout;            // by value
    std::vector<Place> place;              // by root
    std::vector<Place> results;            // by result: its destination
    absl::flat_hash_set<ValueId> scratch;  // roots whose memory belongs to this frame
    std::vector<int64_t> temporaries;      // scratch memory, until the function's end
    std::vector<bool> late;  // by result: it must be copied into its parameter after all
    uint32_t unit = 0;       // of the schedule: the present unit
  };

  static ErrorSite Site(const Frame& frame, uint32_t n) {
    return {frame.f.name, static_cast<int32_t>(n), frame.f.nodes[n].op, frame.f.nodes[n].location};
  }

  Status CheckConstraints(const Frame& frame) {
    for (const auto& c : frame.typing.constraints) {
      const auto a = dims_.Get(c.a), b = dims_.Get(c.b);
      Status status = !a.ok() ? a.status() : b.status();
      if (status.ok() && *a != *b) {
        status = InvalidArgument("{}: {} differ for this binding: {} is {}, {} is {}",
                                 frame.f.nodes[c.node].op, c.what, p_.module.dims.ToString(c.a), *a,
                                 p_.module.dims.ToString(c.b), *b);
      }
      if (!status.ok()) return WithSite(std::move(status), Site(frame, c.node));
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
      return ResourceExhausted("a tensor of {}{} has more bytes than can be counted",
                               DTypeName(type.dtype), ShapeToString(shape));
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

  // Checks the function's sizes and computes those of its values.
  Status Size(Frame& frame) {
    OPWIRE_RETURN_IF_ERROR(CheckConstraints(frame));
    for (size_t v = 0; v < frame.types.size(); ++v) {
      if (v < frame.f.params.size() && frame.f.params[v].mode == ParamMode::kDim) continue;
      // Nodes in chains have equal types. A look at the producer's operand first would save little,
      // because this map finds them.
      auto layout = LayoutOf(*frame.types.types[v]);
      if (!layout.ok()) {
        const int32_t n = frame.plan.producer[v];
        return n < 0 ? WithSite(layout.status(), {frame.f.name, -1, "", ""})
                     : WithSite(layout.status(), Site(frame, static_cast<uint32_t>(n)));
      }
      frame.layout[v] = *layout;
    }
    LayViews(frame);
    return absl::OkStatus();
  }

  // Sets the layouts of views in their roots: first parts in the value that joins them, from the
  // last node to the first, then views of values with a layout.
  void LayViews(Frame& frame) {
    const Views& views = frame.plan.views;
    const auto layout_of = [&](ValueId v) {
      const Layout& l = frame.layout[v];
      return ViewLayout{{l.strides, l.strides + frame.types.types[v]->rank()},
                        l.offset / DTypeBytes(frame.types.types[v]->dtype)};
    };
    const auto shape_of = [&](ValueId v) {
      return std::span(frame.layout[v].shape, static_cast<size_t>(frame.types.types[v]->rank()));
    };
    const auto lay = [&](ValueId v, const ViewLayout& as) {
      Layout& l = frame.layout[v];
      const std::span<const int64_t> shape = shape_of(v);
      bool dense = true;
      for (size_t a = 0; a < shape.size(); ++a)
        dense = dense && (shape[a] == 1 || as.strides[a] == l.strides[a]);
      l.offset = as.offset * DTypeBytes(frame.types.types[v]->dtype);
      if (dense) return;
      std::vector<int64_t>& memory = out_->extents_.emplace_back(shape.begin(), shape.end());
      memory.insert(memory.end(), as.strides.begin(), as.strides.end());
      l.dense = false;
      l.shape = memory.data();
      l.strides = memory.data() + shape.size();
    };
    for (uint32_t n = static_cast<uint32_t>(frame.f.nodes.size()); n-- > 0;) {
      if (views.kinds[n] != ViewKind::kInto) continue;
      const auto whole = static_cast<ValueId>(frame.types.first_result[n]);
      const std::optional<size_t> axis = JoinedAxis(frame.f.nodes[n], frame.typing.nodes[n]);
      int64_t before = 0;
      for (const ValueId v : frame.f.nodes[n].operands) {
        const int64_t extent = axis ? shape_of(v)[*axis] : 0;
        lay(v, LayoutOfPart(frame.f.nodes[n], frame.typing.nodes[n], layout_of(whole),
                            shape_of(whole), shape_of(v), before));
        before += extent;
      }
    }
    for (uint32_t n = 0; n < frame.f.nodes.size(); ++n) {
      if (views.kinds[n] != ViewKind::kOf) continue;
      const ValueId from = frame.f.nodes[n].operands[0],
                    to = static_cast<ValueId>(frame.types.first_result[n]);
      // A reshape of a dense value is dense, whatever it does to axes.
      if (frame.layout[from].dense && frame.typing.nodes[n].row->aliasing == Aliasing::kReshape)
        frame.layout[to].offset = frame.layout[from].offset;
      else
        lay(to, LayoutOfView(views, frame.f.nodes[n], frame.typing.nodes[n], n, layout_of(from),
                             shape_of(to), shape_of(from)));
    }
  }

  static Slot SlotOf(const Frame& frame, ValueId v) {
    const TensorType& t = *frame.types.types[v];
    return {t.dtype,
            t.encoding,
            {frame.layout[v].shape, frame.layout[v].shape + t.rank()},
            frame.layout[v].bytes};
  }

  void SizeSlots(const Frame& frame) {
    const Function& f = frame.f;
    for (size_t i = 0; i < f.params.size(); ++i) {
      out_->params_.push_back(
          f.params[i].mode == ParamMode::kDim ? Slot{} : SlotOf(frame, static_cast<ValueId>(i)));
    }
    for (const Result& r : f.results) out_->results_.push_back(SlotOf(frame, r.value));
    out_->inout_of_result_.assign(frame.plan.inout_of_result.begin(),
                                  frame.plan.inout_of_result.end());
    out_->first_write_.assign(f.params.size(), UINT32_MAX);
    out_->last_write_.assign(f.params.size(), 0);
    out_->param_patches_.resize(f.params.size());
    out_->result_patches_.resize(f.results.size());
    out_->result_data_.resize(f.results.size());
    out_->result_scratch_.assign(f.results.size(), -1);
  }

  // Other objects hold addresses of elements of these vectors, so they must not grow.
  struct Counts {
    size_t tensors = 0, starts = 0, steps = 0;
  };
  void Count(uint32_t function, Counts& counts) const {
    const Function& f = p_.module.functions[function];
    // A result may be copied through scratch memory.
    counts.tensors += 4 * f.results.size();
    counts.steps += 2 * f.results.size();
    for (size_t n = 0; n < f.nodes.size(); ++n) {
      const Node& node = f.nodes[n];
      const OpDef& row = *p_.typing.functions[function].nodes[n].row;
      counts.tensors += node.operands.size() + node.results.size();
      counts.starts += row.operands.size() + 1;
      ++counts.steps;
      if (row.control == Control::kNone) continue;
      // Carried values are copied before the first iteration. Three more: the count, the
      // iteration's number, the condition.
      counts.tensors += 2 * node.results.size() + 3;
      counts.steps += node.results.size() + 4;
      for (const uint32_t callee : node.calls) Count(callee, counts);
    }
  }
  void Reserve() {
    Counts counts;
    Count(out_->function_, counts);
    out_->tensors_.reserve(counts.tensors);
    out_->starts_.reserve(counts.starts);
    out_->steps_.reserve(counts.steps);
  }

  // Places the nodes of a function whose parameters and results have places.
  Status PlaceFunction(Frame& frame) {
    const std::vector<Unit>& units = frame.plan.schedule.units;
    for (frame.unit = 0; frame.unit < units.size(); ++frame.unit) {
      const auto [n, group] = units[frame.unit];
      Status status =
          group >= 0 ? PlaceGroup(frame, frame.plan.schedule.groups[static_cast<size_t>(group)])
          : frame.typing.nodes[n].row->control == Control::kNone ? PlaceNode(frame, n)
                                                                 : PlaceControl(frame, n);
      if (!status.ok())
        return SiteOf(status).op.empty() ? WithSite(std::move(status), Site(frame, n))
                                         : status;  // or with the site in a called function
    }
    OPWIRE_RETURN_IF_ERROR(PlaceResults(frame));
    for (const ValueId root : frame.scratch) GiveScratch(frame.place[root].at);
    for (const int64_t at : frame.temporaries) GiveScratch(at);
    return absl::OkStatus();
  }

  static opw_tensor Describe(const Frame& frame, ValueId v) {
    const TensorType& t = *frame.types.types[v];
    const Layout& l = frame.layout[v];
    return {nullptr,
            l.shape,
            l.strides,
            l.elements,
            static_cast<uint8_t>(t.dtype),
            static_cast<uint8_t>(t.encoding),
            static_cast<uint8_t>(t.rank()),
            static_cast<uint8_t>(l.dense)};
  }

  // Describes a tensor with `rank` axes. `order`: by axis of the tensor, the one of these axes.
  void Permute(opw_tensor& t, const AxisOrder& order, size_t rank) {
    std::vector<int64_t>&shape = out_->extents_.emplace_back(rank, 1),
    &strides = out_->extents_.emplace_back(rank, 0);
    for (size_t a = 0; a < order.size(); ++a) {
      shape[order[a]] = t.shape[a];
      strides[order[a]] = t.strides[a];
    }
    int64_t dense = 1;
    t.contiguous = 1;
    for (size_t a = rank; a-- > 0; dense *= shape[a])
      t.contiguous &= shape[a] == 1 || strides[a] == dense;
    t.shape = shape.data();
    t.strides = strides.data();
    t.rank = static_cast<uint8_t>(rank);
  }

  // Notes the source of the address of a tensor in out_->tensors_: `offset` bytes after the place's
  // begin.
  void Patch(opw_tensor* t, const Place& place, int64_t offset = 0) {
    switch (place.kind) {
      case Place::kParam:
        out_->param_patches_[place.at].slots.push_back({&t->data, offset});
        break;
      case Place::kResult:
        out_->result_patches_[place.at].slots.push_back({&t->data, offset});
        break;
      case Place::kScratch:
        PatchScratch(&t->data, place.at, offset);
        break;
      case Place::kNone:
        break;
    }
  }
  void PatchScratch(void** slot, int64_t at, int64_t offset = 0) {
    if (options_.no_arena)
      *slot = out_->owned_[static_cast<size_t>(at)].get() + offset;
    else
      out_->scratch_patches_.push_back({slot, at, offset});
  }

  // Returns the number of a piece of scratch memory: the planner's, or with no_arena that of an
  // allocation.
  StatusOr<int64_t> TakeScratch(int64_t bytes) {
    if (options_.no_arena) {
      if (bytes > options_.most - owned_bytes_) {
        return ResourceExhausted(
            "out of memory: the run needs {} bytes of scratch memory beside {}, the executor may "
            "hold {}",
            bytes, owned_bytes_, options_.most);
      }
      owned_bytes_ += bytes;
      Instance::Owned memory(new (std::align_val_t{kAlignment}, std::nothrow)
                                 uint8_t[static_cast<size_t>(std::max<int64_t>(bytes, 1))]);
      if (!memory) return ResourceExhausted("scratch memory of {} bytes", bytes);
      out_->owned_.push_back(std::move(memory));
      return static_cast<int64_t>(out_->owned_.size() - 1);
    }
    const auto place = scratch_.Take(bytes);
    if (!place) return ResourceExhausted("scratch memory has more bytes than can be counted");
    return *place;
  }
  void GiveScratch(int64_t at) {
    if (!options_.no_arena) scratch_.Give(at);
  }

  // Attributes in the order of the op definition, as the kernel reads them.
  const opw_attr* LowerAttrs(const std::vector<AttrValue>& values) {
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
        case AttrKind::kInt:
          integer(std::get<int64_t>(v));
          break;
        case AttrKind::kBool:
          integer(std::get<bool>(v));
          break;
        case AttrKind::kDType:
          integer(static_cast<int64_t>(std::get<DType>(v)));
          break;
        case AttrKind::kDim:
          integer(dims_.Get(std::get<Dim>(v)).value_or(0));
          break;
        case AttrKind::kType:
          integer(static_cast<int64_t>(std::get<TensorType>(v).dtype));
          break;
        case AttrKind::kFloat:
          a.kind = OPW_ATTR_FLOAT;
          a.value.f = std::get<double>(v);
          break;
        case AttrKind::kString:
          bytes(std::get<std::string>(v));
          break;
        case AttrKind::kBlob:
          bytes(p_.module.blobs[std::get<BlobRef>(v).index]);
          break;
        case AttrKind::kInts:
          ints(std::get<Ints>(v));
          break;
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
        case AttrKind::kStrings:
          break;  // no op definition has such a list
      }
      lowered.push_back(a);
    }
    return lowered.data();
  }

  static OpCost CostOf(const Frame& frame, uint32_t n) {
    const Node& node = frame.f.nodes[n];
    std::vector<Shape> operands, results;
    const auto shape = [&](ValueId v) {
      return v == kAbsent ? Shape{}
                          : Shape(frame.layout[v].shape,
                                  frame.layout[v].shape + frame.types.types[v]->rank());
    };
    for (ValueId v : node.operands) operands.push_back(shape(v));
    for (size_t r = 0; r < node.results.size(); ++r)
      results.push_back(shape(static_cast<ValueId>(frame.types.first_result[n] + r)));
    return frame.typing.nodes[n].row->cost(
        {operands, results, node.results.empty() ? 0 : DTypeBytes(node.results[0].dtype)});
  }

  StatusOr<const Variant*> Choose(const Frame& frame, uint32_t n, DType dtype, const opw_call& call,
                                  double expected_ns) const {
    const Node& node = frame.f.nodes[n];
    const VariantTable::Asks asks = [&](const Variant& v) {
      running_->Step(CrashRecord::Mark(n, v.label, frame.called));
    };
    Choices* const choices = p_.kernels->choices.get();
    // Empty results are no work, so do not measure. On a device the calling thread's time would be
    // measured.
    if (!choices || options_.device || call.results[0].elements == 0)
      return variants_.Choose(node.op, dtype, call, node.pin, asks);
    return variants_.Choose(node.op, dtype, call, node.pin, *choices, expected_ns, asks);
  }

  // The operands and results of a kernel, of a node or of a group.
  struct Values {
    std::span<const ValueId> operands;
    std::span<const ValueId> results;
    std::span<const OperandSpec> specs;  // of a node's op definition
    std::span<const uint32_t> segments;  // of operands by spec; none: one each
  };
  // Returns a step whose call lacks only addresses and the kernel.
  Step DescribeCall(const Frame& frame, const Values& values) {
    Step step{};
    opw_call& call = step.call;
    call.operands = out_->tensors_.data() + out_->tensors_.size();
    for (const ValueId v : values.operands)
      out_->tensors_.push_back(v == kAbsent ? opw_tensor{} : Describe(frame, v));
    call.results = out_->tensors_.data() + out_->tensors_.size();
    for (const ValueId v : values.results) out_->tensors_.push_back(Describe(frame, v));
    call.starts = out_->starts_.data() + out_->starts_.size();
    uint32_t start = 0;
    for (size_t i = 0; start < values.operands.size() || i < values.specs.size(); ++i) {
      out_->starts_.push_back(start);
      start += values.segments.empty() ? 1 : values.segments[i];
    }
    out_->starts_.push_back(start);
    call.runtime = options_.runtime;  // preparation depends on its number of threads
    return step;
  }
  // Prepares the kernel and adds the step. `done_with(i, r)`: when the kernel writes an element of
  // result r, it has read that element of operand i.
  template <typename DoneWith>
  Status AddCall(Frame& frame, Step step, const opw_kernel& kernel, const Packing* packing,
                 const Values& values, const std::string& who, const DoneWith& done_with) {
    opw_call& call = step.call;
    step.run = kernel.run;
    step.captures = (kernel.flags & OPW_NO_GRAPH) == 0;
    int64_t workspace = 0;
    call.context = kernel.context;
    running_->Step(step.mark);
    if (kernel.prepare) {
      if (kernel.prepare(&call, &call.state, &workspace) != OPW_OK) {
        const Status why = TakeFailure();
        return Internal("{} could not be prepared{}{}", who, why.ok() ? "" : ": ",
                        why.ok() ? "" : MessageOf(why));
      }
      if (kernel.release) out_->prepared_.push_back({kernel.release, call.state});
      if (workspace < 0) return Internal("{} asked for a workspace of {} bytes", who, workspace);
    }

    // Takes memory for results, then frees operands that end here. So a kernel's results never
    // overlap its operands, except for those with `done_with`.
    opw_tensor *const operands = const_cast<opw_tensor*>(call.operands),
                      *const results = const_cast<opw_tensor*>(call.results);
    for (uint32_t r = 0; r < values.results.size(); ++r) {
      const ValueId v = values.results[r], root = frame.plan.views.root[v];
      // Other parts of the root may have a place already.
      if (frame.place[root].kind == Place::kNone) {
        OPWIRE_ASSIGN_OR_RETURN(
            frame.place[root], PlaceResult(frame, root, values.operands,
                                           [&](size_t i) { return root == v && done_with(i, r); }));
      }
      NoteWrite(frame.place[root]);
      Patch(&results[r], frame.place[root], frame.layout[v].offset);
    }
    for (size_t i = 0; i < values.operands.size(); ++i) {
      const ValueId v = values.operands[i];
      if (v == kAbsent) continue;
      const Place& place = PlaceOf(frame, v);
      if (packing && i == call.starts[packing->operand] && IsParam(place, operands[i]) &&
          packing->size(operands[i]).pieces > 0) {
        out_->packables_.push_back(
            {static_cast<int>(place.at), Here(), loops_around_ > 0, &operands[i], packing});
        step.packs = true;
      } else {
        Patch(&operands[i], place, frame.layout[v].offset);
      }
    }
    if (workspace > 0) {
      OPWIRE_ASSIGN_OR_RETURN(const int64_t at, TakeScratch(workspace));
      call.workspace_bytes = workspace;
      workspaces_.push_back({out_->steps_.size(), at});
      GiveScratch(at);
    }
    ReleaseAround(frame, values.operands, values.results);
    out_->steps_.push_back(step);
    return absl::OkStatus();
  }

  // Whether a tensor is an unchanged parameter, and not a view of it.
  bool IsParam(const Place& place, const opw_tensor& t) const {
    if (options_.device || place.kind != Place::kParam) return false;
    const Slot& slot = out_->params_[static_cast<size_t>(place.at)];
    return p_.module.functions[out_->function_].params[static_cast<size_t>(place.at)].mode ==
               ParamMode::kIn &&
           static_cast<DType>(t.dtype) == slot.dtype &&
           static_cast<Encoding>(t.encoding) == slot.encoding &&
           std::ranges::equal(std::span(t.shape, t.rank), slot.shape);
  }

  Status PlaceNode(Frame& frame, uint32_t n) {
    const Node& node = frame.f.nodes[n];
    const OpDef& row = *frame.typing.nodes[n].row;
    if (frame.plan.views.kinds[n] != ViewKind::kNone) return absl::OkStatus();
    const std::vector<ValueId> results = ResultsOf(frame, n);
    const Values values{node.operands, results, row.operands, node.segments};
    Step step = DescribeCall(frame, values);
    step.call.attrs = LowerAttrs(frame.typing.nodes[n].attrs);
    const DType dtype = KeyDType(row, node, frame.types.types);
    step.cost_ns = EstimateNanos(CostOf(frame, n), dtype, MachineOf(options_.device));
    OPWIRE_ASSIGN_OR_RETURN(const Variant* variant,
                            Choose(frame, n, dtype, step.call, step.cost_ns));
    step.mark = CrashRecord::Mark(n, variant->label, frame.called);
    for (const OperandSpec& o : row.operands) step.checks_values |= o.domain != Domain::kAny;
    if (step.checks_values) step.number = checking_++;
    const bool in_place =
        (variant->kernel.flags & OPW_INPLACE) &&
        (row.aliasing == Aliasing::kElementwise || row.aliasing == Aliasing::kUpdate);
    return AddCall(frame, step, variant->kernel, variant->packing, values,
                   fmt::format("{}@{}", node.op, variant->name),
                   [&](size_t i, uint32_t r) { return in_place && DoneWith(frame, n, i, r); });
  }

  Status PlaceGroup(Frame& frame, const FusedGroup& group) {
    const Values values{group.inputs, group.outputs, {}, {}};
    Step step = DescribeCall(frame, values);
    step.call.attrs = group.arguments.data();
    for (size_t i = 0; i < group.input_orders.size(); ++i)
      Permute(const_cast<opw_tensor&>(step.call.operands[i]), group.input_orders[i],
              group.output_orders[0].size());
    for (size_t r = 0; r < group.output_orders.size(); ++r)
      Permute(const_cast<opw_tensor&>(step.call.results[r]), group.output_orders[r],
              group.output_orders[r].size());
    OpCost cost;
    for (const uint32_t n : group.nodes) cost.flops += CostOf(frame, n).flops;
    for (size_t i = 0; i < group.inputs.size(); ++i)
      cost.bytes +=
          group.ChangesOperand(i) ? 0 : static_cast<double>(frame.layout[group.inputs[i]].bytes);
    for (size_t r = 0; r < group.outputs.size(); ++r)
      cost.bytes +=
          group.ChangesResult(r) ? 0 : static_cast<double>(frame.layout[group.outputs[r]].bytes);
    const DType dtype = static_cast<DType>(step.call.results[0].dtype);
    step.cost_ns = EstimateNanos(cost, dtype, MachineOf(options_.device));
    step.mark = CrashRecord::Mark(group.checked.value_or(group.nodes.back()), CrashRecord::kFused,
                                  frame.called);
    step.checks_values = group.checked.has_value();
    if (step.checks_values) step.number = checking_++;
    out_->groups_.push_back({Here(), &group});
    step.call.context = group.kernel->context;
    if (const char* const why =
            group.kernel->supports ? group.kernel->supports(&step.call) : nullptr)
      return Unimplemented("a fused group cannot run: {}", why);
    const size_t inputs = group.inputs.size() / group.members,
                 outputs = group.outputs.size() / group.members;  // of a member
    return AddCall(frame, step, *group.kernel, /*packing=*/nullptr, values, "a fused group",
                   [&](size_t i, uint32_t r) {
                     if (!group.takes_place_of.empty())
                       return group.takes_place_of[r] == static_cast<int32_t>(i);
                     if (group.members > 1) return i / inputs == r / outputs;
                     if (!group.input_orders.empty())
                       return group.input_orders[i] == group.output_orders[r];
                     return group.input_places.empty() ||
                            group.input_places[i] == group.output_places[r];
                   });
  }

  static std::vector<ValueId> ResultsOf(const Frame& frame, uint32_t n) {
    std::vector<ValueId> out;
    for (size_t r = 0; r < frame.f.nodes[n].results.size(); ++r)
      out.push_back(static_cast<ValueId>(frame.types.first_result[n] + r));
    return out;
  }

  // Frees operands whose last reader is this unit, and unused results.
  void ReleaseAround(Frame& frame, std::span<const ValueId> operands,
                     std::span<const ValueId> results) {
    for (const ValueId v : operands) {
      if (v != kAbsent) Release(frame, frame.plan.views.root[v]);
    }
    for (const ValueId v : results) Release(frame, frame.plan.views.root[v]);
  }
  void Release(Frame& frame, ValueId root) {
    if (frame.plan.last_use[root] > frame.unit) return;
    const auto held = frame.scratch.find(root);
    if (held == frame.scratch.end()) return;
    GiveScratch(frame.place[root].at);
    frame.scratch.erase(held);
  }

  // Notes that the next added step writes there.
  void NoteWrite(const Place& place) {
    if (place.kind != Place::kParam) return;
    const auto param = static_cast<size_t>(place.at);
    const auto step = static_cast<uint32_t>(out_->steps_.size());
    out_->first_write_[param] = std::min(out_->first_write_[param], step);
    out_->last_write_[param] = std::max(out_->last_write_[param], step);
  }

  // Whether a kernel that works element by element has read operand `i` of a node when it writes
  // the same elements of its result `r`. Kernels process the elements of lists one by one, in any
  // order. So an operand that is read for several elements is never done. A loop is done with the
  // operand whose carried value is result `r`.
  static bool DoneWith(const Frame& frame, uint32_t n, size_t i, uint32_t r) {
    const Node& node = frame.f.nodes[n];
    const OpDef& row = *frame.typing.nodes[n].row;
    if (row.control != Control::kNone) return CarriedOperand(row, node, r) == i;
    if (row.aliasing == Aliasing::kUpdate) {
      const std::vector<ValueId>& root = frame.plan.views.root;
      return i == 0 && std::ranges::none_of(std::span(node.operands).subspan(1), [&](ValueId v) {
               return v != kAbsent && root[v] == root[node.operands[0]];
             });
    }
    const std::vector<uint32_t> operands = row.OperandStarts(node.segments),
                                results = row.ResultStarts(operands);
    if (std::ranges::none_of(row.results, &ResultSpec::variadic)) return true;
    const size_t operand =
        static_cast<size_t>(std::ranges::upper_bound(operands, i) - operands.begin()) - 1;
    const size_t result =
        static_cast<size_t>(std::ranges::upper_bound(results, r) - results.begin()) - 1;
    return row.operands[operand].variadic && row.results[result].variadic &&
           i - operands[operand] == r - results[result];
  }
  // Returns the operand that is the initial value of a loop's result. REQUIRES: the row is a
  // loop's.
  static size_t CarriedOperand(const OpDef& row, const Node& node, size_t result) {
    return row.OperandStarts(node.segments)[row.LengthOf(0)] + result;
  }

  // Returns an operand that ends here and in whose memory the result can be made; kAbsent: none.
  // None if every value must have its own memory.
  template <typename DoneWith>
  ValueId TakesPlaceOf(const Frame& frame, ValueId v, std::span<const ValueId> operands,
                       const DoneWith& done_with) const {
    if (options_.no_arena) return kAbsent;
    const auto fits = [&](size_t i) {
      const ValueId o = operands[i];
      return done_with(i) && frame.types.types[o]->dtype == frame.types.types[v]->dtype &&
             frame.layout[o].shape == frame.layout[v].shape;
    };
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] == kAbsent) continue;
      const ValueId root = frame.plan.views.root[operands[i]];
      if (!fits(i) || frame.plan.last_use[root] > frame.unit || !frame.scratch.contains(root))
        continue;
      bool all_fit = true;  // the root may be read as several operands
      for (size_t k = 0; k < operands.size(); ++k)
        all_fit = all_fit &&
                  (operands[k] == kAbsent || frame.plan.views.root[operands[k]] != root || fits(k));
      if (all_fit) return root;
    }
    return kAbsent;
  }

  // Returns the place of a result whose node reads `operands`. `done_with(i)`: it may take the
  // place of operand i, element by element.
  template <typename DoneWith>
  StatusOr<Place> PlaceResult(Frame& frame, ValueId v, std::span<const ValueId> operands,
                              const DoneWith& done_with) {
    const int32_t result = frame.plan.result_of[v];
    if (result >= 0) {
      const int32_t inout = frame.plan.inout_of_result[result];
      if (inout < 0) return frame.results[result];
      // The old value may be read only if it can be replaced element by element.
      bool reads = false, safe = true;
      for (size_t i = 0; i < operands.size(); ++i) {
        const ValueId o = operands[i];
        if (o == kAbsent || frame.plan.views.root[o] != inout) continue;
        reads = true;
        safe = safe && done_with(i) && frame.types.types[o]->dtype == frame.types.types[v]->dtype &&
               frame.layout[o].shape == frame.layout[v].shape;
      }
      if (!reads || safe) return frame.results[result];
      frame.late[static_cast<size_t>(result)] = true;
    }
    if (const ValueId gone = TakesPlaceOf(frame, v, operands, done_with); gone != kAbsent) {
      frame.scratch.erase(gone);
      frame.scratch.insert(v);
      return frame.place[gone];
    }
    OPWIRE_ASSIGN_OR_RETURN(const int64_t at, TakeScratch(frame.layout[v].bytes));
    frame.scratch.insert(v);
    return Place{Place::kScratch, at};
  }

  // ---- Control

  // A tensor that a control step reads or writes.
  opw_tensor* AddTensor(DType dtype, const Place& place) {
    opw_tensor t{};
    t.elements = 1;
    t.dtype = static_cast<uint8_t>(dtype);
    t.contiguous = 1;
    out_->tensors_.push_back(t);
    Patch(&out_->tensors_.back(), place);
    return &out_->tensors_.back();
  }
  // Adds a control step, whose target may be set later.
  ControlStep& AddControl(const Frame& frame, uint32_t n, StepKind kind,
                          const opw_tensor* reads = nullptr, const opw_tensor* writes = nullptr) {
    constexpr uint32_t kNanos = 20;
    ControlStep& control = out_->controls_.emplace_back();
    Step step{};
    step.kind = kind;
    step.call.operands = reads;
    step.call.results = writes;
    step.call.context = &control;
    step.mark = CrashRecord::Mark(n, CrashRecord::kCopy, frame.called);
    step.cost_ns = kNanos;
    out_->steps_.push_back(step);
    return control;
  }
  uint32_t Here() const { return static_cast<uint32_t>(out_->steps_.size()); }

  Status PlaceControl(Frame& frame, uint32_t n) {
    switch (frame.typing.nodes[n].row->control) {
      case Control::kIf:
        OPWIRE_RETURN_IF_ERROR(PlaceIf(frame, n));
        break;
      case Control::kWhile:
      case Control::kRepeat:
        OPWIRE_RETURN_IF_ERROR(PlaceLoop(frame, n));
        break;
      case Control::kEmit: {
        const ValueId v = frame.f.nodes[n].operands[0];
        if (const int64_t bytes = frame.layout[v].bytes;
            bytes > static_cast<int64_t>(kInlineBytes)) {
          return InvalidArgument(
              "emit: a value has {} bytes, more than the {} that a message carries", bytes,
              kInlineBytes);
        }
        out_->tensors_.push_back(Describe(frame, v));
        opw_tensor* const value = &out_->tensors_.back();
        Patch(value, PlaceOf(frame, v));
        AddControl(frame, n, StepKind::kEmit, value).name =
            std::get<std::string>(frame.typing.nodes[n].attrs[0]);
        break;
      }
      case Control::kNone:
        break;
    }
    ReleaseAround(frame, frame.f.nodes[n].operands, ResultsOf(frame, n));
    return absl::OkStatus();
  }
  static const Place& PlaceOf(const Frame& frame, ValueId v) {
    return frame.place[frame.plan.views.root[v]];
  }

  // Places the function that a node calls, with parameters and results at the caller's places.
  Status PlaceCall(uint32_t function, const std::vector<Place>& params,
                   const std::vector<Place>& results, Program::Call call) {
    Frame frame(p_, function, p_.PlanOf(function, call), /*is_called=*/true);
    OPWIRE_RETURN_IF_ERROR(Size(frame));
    std::ranges::copy(params, frame.place.begin());
    frame.results = results;
    return PlaceFunction(frame);
  }

  Status PlaceIf(Frame& frame, uint32_t n) {
    const Node& node = frame.f.nodes[n];
    std::vector<Place> params, results;
    for (size_t i = 1; i < node.operands.size(); ++i)
      params.push_back(PlaceOf(frame, node.operands[i]));
    for (size_t r = 0; r < node.results.size(); ++r) {
      const size_t v = frame.types.first_result[n] + r;
      OPWIRE_ASSIGN_OR_RETURN(
          frame.place[v],
          PlaceResult(frame, static_cast<ValueId>(v), node.operands, [](size_t) { return false; }));
      results.push_back(frame.place[v]);
    }
    ControlStep& otherwise = AddControl(frame, n, StepKind::kBranch,
                                        AddTensor(DType::kBool, PlaceOf(frame, node.operands[0])));
    OPWIRE_RETURN_IF_ERROR(PlaceCall(node.calls[0], params, results, Program::Call::kOwn));
    ControlStep& end = AddControl(frame, n, StepKind::kJump);
    otherwise.target = Here();
    OPWIRE_RETURN_IF_ERROR(PlaceCall(node.calls[1], params, results, Program::Call::kOwn));
    end.target = Here();
    return absl::OkStatus();
  }

  // Returns the place of a carried value from before the first iteration until after the last. It
  // is the place of the operand with its initial value if three conditions hold. The operand is in
  // scratch memory and ends here. It is no other operand of the loop. The loop's result is no
  // result of the function. Else it is the place that PlaceResult gives the loop's result.
  StatusOr<Place> PlaceCarried(Frame& frame, uint32_t n, uint32_t r) {
    const Node& node = frame.f.nodes[n];
    const ValueId v = static_cast<ValueId>(frame.types.first_result[n] + r);
    const size_t own = CarriedOperand(*frame.typing.nodes[n].row, node, r);
    const ValueId begins = frame.plan.views.root[node.operands[own]];
    const auto held = frame.scratch.find(begins);
    bool alone = held != frame.scratch.end() && frame.plan.last_use[begins] == frame.unit &&
                 frame.plan.result_of[v] < 0;
    for (size_t i = 0; i < node.operands.size(); ++i)
      alone = alone && (i == own || frame.plan.views.root[node.operands[i]] != begins);
    if (!alone)
      return PlaceResult(frame, v, node.operands,
                         [&](size_t i) { return DoneWith(frame, n, i, r); });
    frame.scratch.erase(held);
    frame.scratch.insert(v);
    return frame.place[begins];
  }

  static bool Reads(const Function& f, ValueId param) {
    return std::ranges::any_of(f.nodes,
                               [&](const Node& node) {
                                 return std::ranges::find(node.operands, param) !=
                                        node.operands.end();
                               }) ||
           std::ranges::any_of(f.results, [&](const Result& r) { return r.value == param; });
  }

  Status PlaceLoop(Frame& frame, uint32_t n) {
    const Node& node = frame.f.nodes[n];
    const OpDef& row = *frame.typing.nodes[n].row;
    const bool repeat = row.control == Control::kRepeat;
    const size_t first_carried = CarriedOperand(row, node, 0);
    std::vector<Place> carried;
    for (uint32_t r = 0; r < node.results.size(); ++r) {
      const size_t v = frame.types.first_result[n] + r;
      OPWIRE_ASSIGN_OR_RETURN(frame.place[v], PlaceCarried(frame, n, r));
      carried.push_back(frame.place[v]);
    }
    for (size_t r = 0; r < carried.size(); ++r) {
      const ValueId v = node.operands[first_carried + r];
      if (PlaceOf(frame, v) != carried[r])
        AddCopy(frame, PlaceOf(frame, v), carried[r], frame.layout[v].bytes);
    }
    std::vector<Place> params = carried;
    for (size_t i = first_carried + carried.size(); i < node.operands.size(); ++i)
      params.push_back(PlaceOf(frame, node.operands[i]));

    const uint32_t body = node.calls.back(), loop = out_->loops_++;
    const int64_t max_trips = repeat ? -1 : std::get<int64_t>(frame.typing.nodes[n].attrs[0]);
    ControlStep& enter =
        AddControl(frame, n, StepKind::kEnter,
                   repeat ? AddTensor(DType::kI64, PlaceOf(frame, node.operands[0])) : nullptr);
    const uint32_t head = Here();
    ControlStep* leave = nullptr;
    Place aside;  // the number of the iteration, or the condition
    constexpr int64_t kAsideBytes = 8;
    OPWIRE_ASSIGN_OR_RETURN(aside.at, TakeScratch(kAsideBytes));
    aside.kind = Place::kScratch;
    if (!repeat) {
      OPWIRE_RETURN_IF_ERROR(PlaceCall(node.calls[0], params, {aside}, Program::Call::kOwn));
      leave = &AddControl(frame, n, StepKind::kBranch, AddTensor(DType::kBool, aside));
    }
    const bool counts = repeat && Reads(p_.module.functions[body], 0);
    ControlStep& iteration = AddControl(frame, n, StepKind::kIteration, nullptr,
                                        counts ? AddTensor(DType::kI64, aside) : nullptr);
    if (repeat) leave = &iteration;
    if (repeat) params.insert(params.begin(), aside);
    ++loops_around_;
    OPWIRE_RETURN_IF_ERROR(PlaceCall(
        body, params, carried, repeat ? Program::Call::kFromSecond : Program::Call::kFromFirst));
    --loops_around_;
    ControlStep& next = AddControl(frame, n, StepKind::kNext);
    next.target = head;
    leave->target = Here();
    for (ControlStep* c : {&enter, &iteration, &next}) {
      c->loop = loop;
      c->max_trips = max_trips;
    }
    GiveScratch(aside.at);
    return absl::OkStatus();
  }

  // ---- Results

  void AddCopy(const Frame& frame, const Place& from, const Place& to, int64_t bytes) {
    Step step{};
    step.captures = true;
    step.run = options_.device ? &CopyOnDevice : &CopyBytes;
    step.mark = CrashRecord::Mark(CrashRecord::kNoNode, CrashRecord::kCopy, frame.called);
    step.cost_ns =
        EstimateNanos({0, static_cast<double>(2 * bytes)}, DType::kU8, MachineOf(options_.device));
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
    NoteWrite(to);
    out_->steps_.push_back(step);
  }

  // Copies results whose value is stored elsewhere, at the end. Results with storage of their own
  // come before any that overwrites a parameter. A value that another copy would overwrite is first
  // copied to scratch memory.
  Status PlaceResults(Frame& frame) {
    const FunctionPlan& plan = frame.plan;
    absl::flat_hash_set<Place> replaced;
    for (size_t i = 0; i < frame.results.size(); ++i) {
      if (plan.inout_of_result[i] >= 0) replaced.insert(frame.results[i]);
    }
    std::vector<std::pair<size_t, Place>> into_params;
    for (size_t i = 0; i < frame.f.results.size(); ++i) {
      const ValueId root = plan.views.root[frame.f.results[i].value];
      const int64_t bytes = frame.layout[root].bytes;
      const int32_t inout = plan.inout_of_result[i];
      if (!plan.copied[i] && !frame.late[i]) continue;
      if (inout < 0) {
        AddCopy(frame, frame.place[root], frame.results[i], bytes);
        continue;
      }
      Place from = frame.place[root];
      if (from == frame.results[i]) continue;  // handed back unchanged
      if (replaced.contains(from)) {
        OPWIRE_ASSIGN_OR_RETURN(const int64_t at, TakeScratch(bytes));
        frame.temporaries.push_back(at);
        const Place temporary{Place::kScratch, at};
        AddCopy(frame, from, temporary, bytes);
        from = temporary;
      }
      into_params.push_back({i, from});
    }
    for (const auto& [i, from] : into_params)
      AddCopy(frame, from, frame.results[i],
              frame.layout[plan.views.root[frame.f.results[i].value]].bytes);
    return absl::OkStatus();
  }

  const Program& p_;
  DimValues dims_;
  const VariantTable& variants_;
  const InstanceOptions options_;
  std::unique_ptr<Instance> out_;
  absl::flat_hash_map<std::vector<int64_t>, const int64_t*> layouts_;
  std::vector<std::pair<size_t, int64_t>> workspaces_;  // of steps
  ScratchPlanner scratch_;
  int64_t owned_bytes_ = 0;                        // no_arena
  uint16_t checking_ = 0;                          // steps that check values, so far
  int loops_around_ = 0;                           // the number of loops around the present step
  const CrashRecord::Running* running_ = nullptr;  // Build's
};

StatusOr<std::unique_ptr<Instance>> Instance::Build(const Program& program, uint32_t function,
                                                    std::vector<int64_t> symbols,
                                                    const InstanceOptions& options) {
  return Builder(program, function, std::move(symbols), options).Build();
}

void Instance::FreeAligned::operator()(uint8_t* memory) const {
  ::operator delete[](memory, std::align_val_t{kAlignment});
}

Instance::Instance(const Program& program, uint32_t function)
    : program_(program), function_(function) {}

Instance::~Instance() {
  graphs.reset();  // they hold state that the kernels prepared
  for (const Prepared& p : prepared_) p.release(p.state);
}

const FusedGroup* Instance::GroupAt(uint32_t step) const {
  const auto found =
      std::ranges::lower_bound(groups_, step, {}, [](const auto& entry) { return entry.first; });
  return found != groups_.end() && found->first == step ? found->second : nullptr;
}

void Instance::BindScratch(uint8_t* base) {
  if (base == scratch_) return;
  scratch_ = base;
  ++bindings_;
  for (const ScratchPatch& p : scratch_patches_) *p.slot = base + p.offset;
}

void Instance::BindPackable(size_t i, void* data, bool packed) {
  packables_[i].tensor->data = data;
  packables_[i].tensor->packed = packed ? 1 : 0;
}

void Instance::BindParam(int param, void* data) { bindings_ += param_patches_[param].Set(data); }

void Instance::BindResult(int result, void* data) {
  if (!data)
    data = owned_.empty() ? static_cast<void*>(scratch_ + result_scratch_[result])
                          : owned_[result_scratch_[result]].get();
  result_data_[result] = data;
  bindings_ += result_patches_[result].Set(data);
}

}  // namespace opwire::executor
