// Binds, executes and ends runs.
#include "executor/run/run.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "executor/run/crash_record.h"
#include "executor/run/graphs.h"
#include "kernels/select/failure.h"

namespace opwire::executor {
namespace {

using fb::BindingKind;
using fb::ResultKind;

constexpr size_t kProfiledSteps = 8192;        // the most that a reply reports
constexpr int64_t kProfileBytes = 256 << 10;   // of a profile in a reply
constexpr uint32_t kClockEveryNanos = 50'000;  // of estimated work
constexpr uint32_t kWaitEveryNanos = 400'000;  // of work on a device between two looks at it
constexpr int64_t kInlineAlignment = 64;
constexpr size_t kScalarBytes = 64;

TensorKey KeyOf(const fb::Binding& b) { return {b.attachment(), b.value()}; }

}  // namespace

Status Run::Begin(const RunEnvironment& env, Store& store, uint32_t attachment,
                  std::shared_ptr<const Program> program, const fb::Run& message, bool& wait) {
  wait = false;
  message_ = &message;
  attachment_ = attachment;
  program_ = std::move(program);
  instance_ = nullptr;
  arena_ = nullptr;
  ran_ = 0;
  flags_ = 0;
  failure_ = absl::OkStatus();
  aborted_ = ended_ = waits_to_emit_ = false;
  copied_.reset();
  NoteDone();
  step_ns_.clear();
  const auto prepare = [&]() -> Status {
    if (message.function() >= program_->module.functions.size()) {
      return InvalidArgument("run of @{}: function {} is not among its {}", program_->name(),
                             message.function(), program_->module.functions.size());
    }
    const Function& f = program_->module.functions[message.function()];
    OPWIRE_RETURN_IF_ERROR(Resolve(store));
    OPWIRE_RETURN_IF_ERROR(BindSymbols(f));
    OPWIRE_RETURN_IF_ERROR(FindInstance(env));
    if (!env.device->info().host_memory && !env.inline_results)
      return ResourceExhausted("no host memory for the results of runs");
    OPWIRE_RETURN_IF_ERROR(CheckShapes(f));
    // Before the arena: results can take scratch memory of earlier runs.
    OPWIRE_RETURN_IF_ERROR(TakeResults(store));
    const bool on_device = !env.device->info().host_memory;
    OPWIRE_ASSIGN_OR_RETURN(
        arena_, env.arenas->Acquire(instance_->scratch_bytes() +
                                    (on_device ? kInlineAlignment + inline_bytes_ : 0)));
    if (!arena_) {
      wait = true;
      return Unavailable("all arenas are busy");
    }
    OPWIRE_RETURN_IF_ERROR(TakeInouts(store, f));
    if (on_device) OPWIRE_RETURN_IF_ERROR(Upload(env));
    Bind(env, f);
    cursor_.Reset(*instance_);
    return absl::OkStatus();
  };
  Status status = prepare();
  if (!status.ok()) {
    End(env);
    return status;
  }
  instance_->busy = true;
  return status;
}

// Finds every operand and changes nothing.
Status Run::Resolve(Store& store) {
  const Function& f = program_->module.functions[message_->function()];
  const size_t params = f.params.size();
  const size_t got = message_->bindings() ? message_->bindings()->size() : 0;
  if (got != params)
    return InvalidArgument("run of @{}: expected {} bindings, got {}", f.name, params, got);
  inputs_.assign(params, {});
  inline_.clear();
  size_t inline_words = 0, inline_bytes = 0, shapes_at = 0;
  const size_t shapes = message_->shapes() ? message_->shapes()->size() : 0;
  const size_t payload = message_->payload() ? message_->payload()->size() : 0;
  for (size_t i = 0; i < params; ++i) {
    const fb::Binding& b = *message_->bindings()->Get(static_cast<flatbuffers::uoffset_t>(i));
    if (b.kind() == BindingKind::Inline) inline_words += (b.size() + 63) / 64 * 8;
    if (b.kind() == BindingKind::Scalar) inline_words += kScalarBytes / 8;
    if (b.kind() == BindingKind::Inline && (b.size() > payload || b.value() > payload - b.size())) {
      return InvalidArgument("run of @{}: %{} lies outside the payload of {} bytes", f.name,
                             f.params[i].name, payload);
    }
    // Bindings may share bytes of the payload, but each is copied.
    if (b.kind() == BindingKind::Inline && (inline_bytes += b.size()) > kInlineBytes) {
      return InvalidArgument(
          "run of @{}: inline operands have more than the {} bytes that a message carries; put "
          "large ones as tensors",
          f.name, kInlineBytes);
    }
  }
  inline_.resize(inline_words + 8);
  uint8_t* at =
      reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(inline_.data()) + 63) / 64 * 64);
  inline_begin_ = at;
  inline_bytes_ = static_cast<int64_t>(inline_words * 8);
  for (size_t i = 0; i < params; ++i) {
    const Param& p = f.params[i];
    const fb::Binding& b = *message_->bindings()->Get(static_cast<flatbuffers::uoffset_t>(i));
    Input& in = inputs_[i];
    if ((p.mode == ParamMode::kDim) != (b.kind() == BindingKind::Dim)) {
      return InvalidArgument("run of @{}: %{}: expected {}", f.name, p.name,
                             p.mode == ParamMode::kDim ? "a dimension" : "a tensor");
    }
    DType dtype = static_cast<DType>(b.dtype());
    Encoding encoding = Encoding::kDense;
    switch (b.kind()) {
      case BindingKind::Tensor: {
        auto tensor = store.Find(KeyOf(b));
        if (!tensor.ok()) return tensor.status();
        in.tensor = *tensor;
        in.data = (*tensor)->buffer->data();
        in.shape = (*tensor)->shape.span();
        dtype = (*tensor)->dtype;
        encoding = (*tensor)->encoding;
        break;
      }
      case BindingKind::Scalar: {
        const uint64_t value = b.value();
        std::memcpy(at, &value, sizeof value);
        in.data = at;
        at += kScalarBytes;
        break;
      }
      case BindingKind::Dim:
        break;
      case BindingKind::Inline: {
        if (b.rank() > kMaxRank || b.rank() > shapes - shapes_at) {
          return InvalidArgument("run of @{}: %{}: {} extents are not in the message", f.name,
                                 p.name, b.rank());
        }
        if (b.rank() > 0) in.shape = {message_->shapes()->data() + shapes_at, b.rank()};
        shapes_at += b.rank();
        const auto bytes = TensorBytes(dtype, encoding, in.shape);
        if (!bytes || static_cast<uint64_t>(*bytes) != b.size()) {
          return InvalidArgument("run of @{}: %{}: {} bytes are not a {}{}", f.name, p.name,
                                 b.size(), DTypeName(dtype), ShapeToString(in.shape));
        }
        if (b.size() > 0) std::memcpy(at, message_->payload()->data() + b.value(), b.size());
        in.data = at;
        at += (b.size() + 63) / 64 * 64;
        break;
      }
      default:
        return InvalidArgument("run of @{}: %{}: unknown kind of binding {}", f.name, p.name,
                               static_cast<uint8_t>(b.kind()));
    }
    if (p.mode == ParamMode::kDim) continue;
    if (dtype != p.type.dtype || encoding != p.type.encoding ||
        static_cast<int>(in.shape.size()) != p.type.rank()) {
      return InvalidArgument(
          "run of @{}: %{}: expected {}, got {}{}{}", f.name, p.name,
          ToString(p.type, program_->module.dims), DTypeName(dtype),
          encoding == Encoding::kDense ? "" : fmt::format(":{}", EncodingName(encoding)),
          ShapeToString(in.shape));
    }
    if (p.mode == ParamMode::kInout && b.kind() != BindingKind::Tensor) {
      return InvalidArgument("run of @{}: %{} is inout: expected a tensor of the session", f.name,
                             p.name);
    }
  }
  return absl::OkStatus();
}

Status Run::BindSymbols(const Function& f) {
  const DimTable& dims = program_->module.dims;
  symbols_.assign(dims.symbols().size(), -1);
  const auto bind = [&](const Param& p, Dim d, int64_t value,
                        std::span<const int64_t> shape) -> Status {
    const DimNode& n = dims.node(d);
    const auto differs = [&](int64_t expected) {
      return InvalidArgument(
          "run of @{}: %{}: expected {}, got {} with {} = {}", f.name, p.name,
          p.mode == ParamMode::kDim ? dims.ToString(p.dim) : ToString(p.type, dims),
          ShapeToString(shape), dims.ToString(d), expected);
    };
    if (n.kind == DimKind::kConstant && n.value != value) return differs(n.value);
    if (n.kind != DimKind::kSymbol) return absl::OkStatus();
    int64_t& known = symbols_[n.value];
    if (known >= 0) return known == value ? absl::OkStatus() : differs(known);
    known = value;
    return dims.CheckSymbol(static_cast<size_t>(n.value), value);
  };
  for (size_t i = 0; i < f.params.size(); ++i) {
    const Param& p = f.params[i];
    if (p.mode == ParamMode::kDim) {
      OPWIRE_RETURN_IF_ERROR(
          bind(p, p.dim,
               static_cast<int64_t>(
                   message_->bindings()->Get(static_cast<flatbuffers::uoffset_t>(i))->value()),
               {}));
      continue;
    }
    for (size_t a = 0; a < p.type.shape.size(); ++a)
      OPWIRE_RETURN_IF_ERROR(bind(p, p.type.shape[a], inputs_[i].shape[a], inputs_[i].shape));
  }
  for (const uint32_t s : program_->typing.functions[message_->function()].uses) {
    if (symbols_[s] >= 0) continue;
    return InvalidArgument(
        "run of @{}: no parameter binds ?{}; expected a run of a function that calls it", f.name,
        dims.symbols()[s].name);
  }
  // A symbol of another function of the module has no value here and needs none.
  for (int64_t& s : symbols_) s = std::max<int64_t>(s, 0);
  return absl::OkStatus();
}

Status Run::FindInstance(const RunEnvironment& env) {
  auto& ready = program_->instances[message_->function()].ready;
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i]->busy || ready[i]->symbols() != symbols_) continue;
    instance_ = ready[i].get();
    if (i > 0)
      std::rotate(ready.begin(), ready.begin() + static_cast<ptrdiff_t>(i),
                  ready.begin() + static_cast<ptrdiff_t>(i) + 1);
    return absl::OkStatus();
  }
  OPWIRE_ASSIGN_OR_RETURN(auto built, Instance::Build(*program_, message_->function(), symbols_,
                                                      env.instance_options()));
  instance_ = built.get();
  ready.insert(ready.begin(), std::move(built));
  for (size_t i = ready.size();
       i-- > 1 && static_cast<int64_t>(ready.size()) > env.max_instances;) {
    if (!ready[i]->busy) ready.erase(ready.begin() + static_cast<ptrdiff_t>(i));
  }
  return absl::OkStatus();
}

// Compares extents that are neither constants nor symbols, once they have values.
Status Run::CheckShapes(const Function& f) const {
  for (size_t i = 0; i < f.params.size(); ++i) {
    if (f.params[i].mode == ParamMode::kDim) continue;
    const Slot& slot = instance_->params()[i];
    if (!std::equal(slot.shape.begin(), slot.shape.end(), inputs_[i].shape.begin(),
                    inputs_[i].shape.end())) {
      return InvalidArgument("run of @{}: %{}: expected {} = {}, got {}", f.name, f.params[i].name,
                             ToString(f.params[i].type, program_->module.dims),
                             ShapeToString(slot.shape), ShapeToString(inputs_[i].shape));
    }
  }
  return absl::OkStatus();
}

Status Run::TakeResults(Store& store) {
  const auto* wanted = message_->results();
  const size_t results = instance_->results().size();
  if ((wanted ? wanted->size() : 0) != results) {
    return InvalidArgument("run of @{}: expected {} result slots, got {}", program_->name(),
                           results, wanted ? wanted->size() : 0);
  }
  int64_t inline_bytes = 0;
  for (size_t r = 0; r < results; ++r) {
    const fb::ResultSlot& slot = *wanted->Get(static_cast<flatbuffers::uoffset_t>(r));
    const int64_t bytes = instance_->results()[r].bytes;
    if (slot.kind() == ResultKind::Inline) {
      inline_bytes += bytes;
      if (bytes > static_cast<int64_t>(kInlineBytes) ||
          inline_bytes > static_cast<int64_t>(kInlineBytes)) {
        return InvalidArgument(
            "run of @{}: result {} has {} bytes, more than the {} that a message carries; keep it "
            "as a tensor",
            program_->name(), r, bytes, kInlineBytes);
      }
    } else if (slot.kind() == ResultKind::Kept) {
      if (instance_->InoutOf(static_cast<int>(r)) >= 0) {
        return InvalidArgument(
            "run of @{}: result {} stays in its inout tensor; expected no slot of its own",
            program_->name(), r);
      }
      OPWIRE_RETURN_IF_ERROR(store.CheckRoom(static_cast<int64_t>(kept_.size()) + 1));
      OPWIRE_ASSIGN_OR_RETURN(BufferRef buffer, store.Allocate(bytes));
      kept_.push_back({static_cast<int>(r), {attachment_, slot.counter()}, std::move(buffer)});
    } else if (slot.kind() != ResultKind::NotWanted) {
      return InvalidArgument("run of @{}: unknown kind of result {}", program_->name(),
                             static_cast<uint8_t>(slot.kind()));
    }
  }
  // Empty results have extents too.
  if (const int64_t bytes = ReplyBytes();
      bytes > static_cast<int64_t>(kMaxFrameBytes - kInlineBytes)) {
    return InvalidArgument(
        "run of @{}: its reply would have {} bytes, more than a message carries; expected fewer "
        "results",
        program_->name(), bytes);
  }
  return absl::OkStatus();
}

Status Run::TakeInouts(Store& store, const Function& f) {
  for (size_t i = 0; i < f.params.size(); ++i) {
    if (f.params[i].mode != ParamMode::kInout) continue;
    const TensorKey key = KeyOf(*message_->bindings()->Get(static_cast<flatbuffers::uoffset_t>(i)));
    for (size_t j = 0; j < f.params.size(); ++j) {
      if (j != i && inputs_[j].tensor &&
          KeyOf(*message_->bindings()->Get(static_cast<flatbuffers::uoffset_t>(j))) == key) {
        return InvalidArgument("run of @{}: tensor {} is bound to %{} (inout) and to %{}", f.name,
                               ToString(key), f.params[i].name, f.params[j].name);
      }
    }
    Tensor& t = **store.Find(key);
    if (t.buffer.Shared()) {
      // The old bytes have another reader: a transfer, or a copy that was free until now.
      OPWIRE_ASSIGN_OR_RETURN(BufferRef own, store.Allocate(t.buffer->bytes()));
      OPWIRE_RETURN_IF_ERROR(store.CopyInto(own, t.buffer));
      t.buffer = std::move(own);
      inputs_[i].data = t.buffer->data();
    }
    t.buffer->Written();
    mutated_.push_back({static_cast<int>(i), key});
  }
  for (const Mutated& m : mutated_) store.FindAny(m.key)->pinned_by_run = true;
  for (const Input& in : inputs_) {
    if (in.tensor) held_.push_back(in.tensor->buffer);
  }
  return absl::OkStatus();
}

// A device that fails while it works does no more work, pending work included. If several steps
// are pending, the one that failed is not known.
void Run::Lost(const RunEnvironment& env, const CrashRecord::Running& running,
               const Status& why) const {
  if (unfinished_ > 1) running.Step(CrashRecord::Mark(0, CrashRecord::kCopy));
  if (absl::IsInternal(why) && env.on_fault) env.on_fault(why);
}

Status Run::Upload(const RunEnvironment& env) {
  if (inline_bytes_ == 0) return absl::OkStatus();
  uint8_t* const there = arena_->base + (instance_->scratch_bytes() + kInlineAlignment - 1) /
                                            kInlineAlignment * kInlineAlignment;
  for (Input& in : inputs_) {
    const auto* data = static_cast<const uint8_t*>(in.data);
    if (data >= inline_begin_ && data < inline_begin_ + inline_bytes_)
      in.data = there + (data - inline_begin_);
  }
  return env.device->Copy(there, inline_begin_, inline_bytes_, 0);
}

Status Run::FetchResults(const RunEnvironment& env) {
  if (env.device->info().host_memory) {
    inline_results_ = nullptr;
    return absl::OkStatus();
  }
  inline_results_ = env.inline_results;
  uint8_t* at = inline_results_;
  for (size_t r = 0; r < instance_->results().size() && cursor_.at() == instance_->steps().size() &&
                     failure_.ok();
       ++r) {
    if (message_->results()->Get(static_cast<flatbuffers::uoffset_t>(r))->kind() !=
        ResultKind::Inline)
      continue;
    const int64_t bytes = instance_->results()[r].bytes;
    OPWIRE_RETURN_IF_ERROR(env.device->Copy(at, ResultData(r), bytes, 0));
    at += PayloadBytes(bytes);
  }
  return env.device->Synchronize();
}

namespace {

Emission EmissionOf(const Step& step, const void* data) {
  const opw_tensor& t = *step.call.operands;
  Emission e{step.control().name,
             static_cast<DType>(t.dtype),
             static_cast<Encoding>(t.encoding),
             {t.shape, t.rank},
             {}};
  e.bytes = {static_cast<const uint8_t*>(data),
             static_cast<size_t>(TensorBytes(e.dtype, e.encoding, e.shape).value_or(0))};
  return e;
}

Status AwaitEvent(const RunEnvironment& env, EventId event) {
  constexpr Nanos kMostYielding =
      10 * kMillisecond;  // after that, Synchronize reports an error if there is one
  for (const Nanos begun = env.clock(); !env.device->Done(event);) {
    if (env.clock() - begun >= kMostYielding) return env.device->Synchronize();
    sched_yield();
  }
  return absl::OkStatus();
}

}  // namespace

Status Run::LimitPending(const RunEnvironment& env, bool all) {
  if (all) {
    OPWIRE_RETURN_IF_ERROR(env.device->Synchronize());
    NoteDone();
    return absl::OkStatus();
  }
  const std::optional<EventId> before = chunk_;
  OPWIRE_ASSIGN_OR_RETURN(chunk_, env.device->Record(0));
  if (before) {
    OPWIRE_RETURN_IF_ERROR(AwaitEvent(env, *before));
    unfinished_ = behind_;
  }
  behind_ = 0;
  return absl::OkStatus();
}

void Run::Await(const RunEnvironment& env) {
  const CrashRecord::Running running(env.crash,
                                     program_->module.functions[message_->function()].name);
  const Nanos begun = env.clock();
  if (Status status = LimitPending(env, /*all=*/true); !status.ok()) {
    Lost(env, running, status);
    NoteDone();
    if (failure_.ok()) Abort(std::move(status));
  }
  if (const uint32_t reason = env.device->stop().load(std::memory_order_relaxed);
      reason != 0 && failure_.ok())
    Abort(WhyStopped(reason));
  ReadFlags(env);
  ran_ += env.clock() - begun;
}

StatusOr<bool> Run::Emit(const RunEnvironment& env, const Step& step, Graphs* graphs) {
  if (!env.emit) return true;
  const void* const data = step.call.operands->data;
  if (env.device->info().host_memory) return env.emit(EmissionOf(step, data));
  const auto bytes = static_cast<int64_t>(EmissionOf(step, data).bytes.size());
  if (!graphs) {
    OPWIRE_RETURN_IF_ERROR(env.device->Copy(env.inline_results, data, bytes, 0));
    OPWIRE_RETURN_IF_ERROR(env.device->Synchronize());
    return env.emit(EmissionOf(step, env.inline_results));
  }
  OPWIRE_ASSIGN_OR_RETURN(const bool room, HandOver(env));
  if (!room) return false;
  OPWIRE_ASSIGN_OR_RETURN(void* const to, graphs->PlaceForEmitted(bytes));
  OPWIRE_RETURN_IF_ERROR(env.device->Copy(to, data, bytes, 0));
  OPWIRE_ASSIGN_OR_RETURN(const EventId done, env.device->Record(0));
  copied_ = {&step, to, done};
  return true;
}

StatusOr<bool> Run::HandOver(const RunEnvironment& env) {
  if (!copied_) return true;
  OPWIRE_RETURN_IF_ERROR(AwaitEvent(env, copied_->done));
  if (!env.emit(EmissionOf(*copied_->step, copied_->to))) return false;
  copied_.reset();
  return true;
}

const void* Run::ResultData(size_t r) const {
  const int inout = instance_->InoutOf(static_cast<int>(r));
  return inout >= 0 ? inputs_[static_cast<size_t>(inout)].data
                    : instance_->ResultData(static_cast<int>(r));
}

void Run::ReadFlags(const RunEnvironment& env) {
  const RunFlags flags = env.device->TakeFlags();
  flags_ |= flags.raised;
  if (flags.out_of_range_operand < 0 || !failure_.ok()) return;
  const auto step = std::ranges::find_if(instance_->steps(), [&](const Step& s) {
    return s.checks_values && s.number == flags.out_of_range_step;
  });
  if (step == instance_->steps().end()) return;
  const OpDef& row =
      *program_->typing.functions[instance_->FunctionOf(*step)].nodes[step->node()].row;
  // The reference program of a user's op reports operands of the ops in it, which may be others.
  auto operand = row.operands.begin() +
                 std::min<ptrdiff_t>(flags.out_of_range_operand, std::ssize(row.operands) - 1);
  if (operand->domain == Domain::kAny)
    operand = std::ranges::find_if(row.operands,
                                   [](const OperandSpec& o) { return o.domain != Domain::kAny; });
  if (row.aliasing == Aliasing::kUpdate && instance_->FunctionOf(*step) == instance_->function())
    left_alone_ = static_cast<uint32_t>(step - instance_->steps().begin());
  failure_ =
      WithSite(OutOfRange("{}: operand {} has a value outside its domain at position {}", row.name,
                          operand == row.operands.end() ? "unknown" : operand->name,
                          flags.out_of_range_position),
               SiteOf(*step));
}

void Run::Bind(const RunEnvironment& env, const Function& f) {
  instance_->BindScratch(arena_->base);
  for (size_t i = 0; i < f.params.size(); ++i)
    instance_->BindParam(static_cast<int>(i), inputs_[i].data);
  size_t kept = 0;
  for (int r = 0; r < static_cast<int>(instance_->results().size()); ++r) {
    if (instance_->InoutOf(r) >= 0) continue;
    const bool keep = kept < kept_.size() && kept_[kept].result == r;
    instance_->BindResult(r, keep ? kept_[kept++].buffer->data() : nullptr);
  }
  const auto block_of = [&](int param) {
    const Tensor* const t = inputs_[static_cast<size_t>(param)].tensor;
    return t && env.packed ? &t->buffer : nullptr;
  };
  packed_.Bind(
      *instance_, [&](int param) { return inputs_[static_cast<size_t>(param)].data; }, block_of);
}

ErrorSite Run::SiteOf(const Step& step) const {
  const Function& f = program_->module.functions[instance_->FunctionOf(step)];
  const uint32_t node = step.node();
  if (node >= f.nodes.size()) return {f.name, -1, "copy", ""};
  return {f.name, static_cast<int32_t>(node), f.nodes[node].op, f.nodes[node].location};
}

Status Run::WhyStopped(uint32_t reason) const {
  switch (static_cast<StopReason>(reason)) {
    case StopReason::kDeadline:
      return DeadlineExceeded("the deadline passed while @{} ran", program_->name());
    case StopReason::kDraining:
      return Unavailable("the executor is shutting down");
    default:
      return Cancelled("@{} was cancelled", program_->name());
  }
}

Run::Outcome Run::Continue(const RunEnvironment& env, Nanos slice, bool alone) {
  const CrashRecord::Running running(env.crash,
                                     program_->module.functions[message_->function()].name);
  const std::span<const Step> steps = instance_->steps();
  const std::atomic<uint32_t>& stop = env.device->stop();
  const bool on_host = env.device->info().host_memory;
  const uint32_t look_every = on_host ? kClockEveryNanos : kWaitEveryNanos;
  const Nanos begun = env.clock();
  const bool profile = message_->profile();
  if (profile) step_ns_.resize(steps.size());
  uint64_t since_clock = 0;
  Outcome outcome = Outcome::kDone;
  const auto call = [&](uint32_t i) {
    // A run with a value outside its domain continues to its end. Its status is that of the first
    // such value.
    if (steps[i].checks_values) env.device->NoteStep(steps[i].number);
    return steps[i].run(&steps[i].call);
  };
  // Starting with the second run, or a loop's second iteration. The first one compiles kernels, and
  // may be the only one.
  const bool again = instance_->took != kNever;
  if (!on_host && cursor_.at() == 0 && !instance_->graphs && (again || instance_->loops() > 0)) {
    instance_->graphs =
        std::make_unique<Graphs>(*env.device, *instance_, again && !instance_->has_control());
  }
  Graphs* const graphs = profile ? nullptr : instance_->graphs.get();
  const auto note = [&](uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; ++i) since_clock += steps[i].cost_ns;
    unfinished_ += to - from;
    behind_ += to - from;
  };
  const auto lost = [&](Status why, const Step& at) {
    Lost(env, running, why);
    failure_ = WithSite(std::move(why), SiteOf(at));
  };
  while (cursor_.at() < steps.size() && !aborted_ && !ended_) {
    const uint32_t at = cursor_.at();
    const Step& s = steps[at];
    bool waited = false;  // until the device had no pending work
    running.Step(s.mark);
    if (s.packs && packed_.Wanted(*instance_, at)) {
      packed_.Work(*instance_, at, *env.packed, *env.device);
      if (const uint32_t reason = stop.load(std::memory_order_relaxed)) {
        failure_ = WithSite(WhyStopped(reason), SiteOf(s));
        break;
      }
      since_clock = 0;
      if (env.clock() - begun >= slice) {
        outcome = Outcome::kMore;
        break;
      }
      continue;
    }
    if (s.kind == StepKind::kEmit) {
      const auto sent = Emit(env, s, graphs);
      if (!sent.ok()) {
        lost(sent.status(), s);
        break;
      }
      waits_to_emit_ = !*sent;
      if (waits_to_emit_) {
        outcome = Outcome::kMore;
        break;
      }
    }
    if (s.kind == StepKind::kIteration && graphs && graphs->LoopsAt(cursor_)) {
      Status looped = graphs->Loop(cursor_, call, env.inline_results);
      waited = looped.ok();
      if (!waited && !absl::IsUnimplemented(looped)) {
        lost(std::move(looped), s);
        break;
      }
    }
    bool decided = false;
    if (s.kind == StepKind::kBranch && graphs && graphs->DecidesAt(at)) {
      const StatusOr<uint32_t> behind = graphs->Decide(at, call);
      decided = behind.ok();
      if (decided) {
        note(at, *behind);
        cursor_.MoveTo(*behind);
      } else if (!absl::IsUnimplemented(behind.status())) {
        lost(behind.status(), s);
        break;
      }
    }
    if (decided) {
    } else if (!waited && s.kind != StepKind::kCall) {
      const auto followed = cursor_.Follow(s, on_host ? nullptr : env.device, env.inline_results);
      if (!followed.ok()) {
        lost(followed.status(), s);
        break;
      }
      waited = *followed;
      since_clock += s.cost_ns;
    } else if (!waited) {
      const Nanos step_begun = profile ? env.clock() : 0;
      const bool replayed = graphs && graphs->BeginsAt(at) && graphs->Run(at, call).ok();
      int rc = replayed ? OPW_OK : call(at);
      if (profile) {
        if (!on_host && rc == OPW_OK && !env.device->Synchronize().ok()) rc = OPW_FAILED;
        step_ns_[at] += static_cast<uint64_t>(env.clock() - step_begun);
      }
      if (rc != OPW_OK) {
        const Status why = TakeFailure();
        const std::string what =
            fmt::format("{} failed{}{}", LabelOf(s, program_->kernels->variants),
                        why.ok() ? "" : ": ", why.ok() ? "" : MessageOf(why));
        failure_ = WithSite(why.ok() ? Internal("{}", what) : Status(why.code(), what), SiteOf(s));
        cursor_.MoveTo(at + 1);
        break;
      }
      const uint32_t end = replayed ? graphs->EndOf(at) : at + 1;
      note(at, end);
      cursor_.MoveTo(end);
    }
    if (const uint32_t reason = stop.load(std::memory_order_relaxed)) {
      failure_ = WithSite(WhyStopped(reason), SiteOf(s));
      break;
    }
    if (waited || since_clock >= look_every) {
      since_clock = 0;
      if (cursor_.at() == steps.size()) break;
      if (on_host || waited) {
        NoteDone();
      } else if (Status status = LimitPending(env, !alone); !status.ok()) {
        lost(std::move(status), s);
        break;
      }
      if (env.clock() - begun >= slice) {
        outcome = Outcome::kMore;
        break;
      }
    }
  }
  ended_ = outcome == Outcome::kDone;
  const bool copies = !ended_ && under_way() && copied_ && !env.device->Done(copied_->done);
  if (ended_ || (!waits_to_emit_ && !copies)) {
    const StatusOr<bool> sent = aborted_ ? true : HandOver(env);
    if (!sent.ok()) lost(sent.status(), *copied_->step);
    waits_to_emit_ = sent.ok() && !*sent;
    if (waits_to_emit_) outcome = Outcome::kMore;
  }
  if (outcome == Outcome::kDone) {
    if (Status status = FetchResults(env); !status.ok()) {
      Lost(env, running, status);
      if (failure_.ok()) failure_ = std::move(status);
    }
    NoteDone();
  }
  // Also for a suspended run: the flags of the next run are its own.
  ReadFlags(env);
  stopped_ = env.clock();
  ran_ += stopped_ - begun;
  return outcome;
}

bool Run::IsLeftAlone(int param) const {
  if (!left_alone_ || *left_alone_ != instance_->FirstWrite(param) ||
      *left_alone_ != instance_->LastWrite(param))
    return false;
  const Function& f = program_->module.functions[instance_->function()];
  return f.nodes[instance_->steps()[*left_alone_].node()].operands[0] ==
         static_cast<ValueId>(param);
}

Status Run::Finish(Store& store) {
  const Function& f = program_->module.functions[message_->function()];
  for (const Mutated& m : mutated_) {
    Tensor* t = store.FindAny(m.key);
    if (!t) continue;
    t->pinned_by_run = false;
    if (failure_.ok() || instance_->FirstWrite(m.param) >= cursor_.begun() || IsLeftAlone(m.param))
      continue;
    t->state = TensorState::kPoisoned;
    t->error = DataLoss(
        "tensor {} was being written by a run of @{} that failed: {}; overwrite it before use",
        ToString(m.key), f.name, MessageOf(failure_).substr(0, 512));
  }
  Status status = failure_;
  for (Kept& k : kept_) {
    const Slot& slot = instance_->results()[static_cast<size_t>(k.result)];
    Tensor t;
    t.dtype = slot.dtype;
    t.encoding = slot.encoding;
    t.shape = Extents(slot.shape);
    t.buffer = k.buffer;
    if (!failure_.ok()) {
      // Later runs that use its results, and are in flight already, fail with the same error.
      t.buffer = BufferRef();
      t.state = TensorState::kFailed;
      t.error = failure_;
    }
    if (auto put = store.Put(k.key, std::move(t)); !put.ok() && status.ok()) status = put.status();
  }
  return status;
}

bool Run::silent() const {
  if (flags_ != 0 || message_->profile()) return false;
  for (size_t r = 0; r < instance_->results().size(); ++r) {
    if (message_->results()->Get(static_cast<flatbuffers::uoffset_t>(r))->kind() ==
        ResultKind::Inline)
      return false;
  }
  return true;
}

int64_t Run::ReplyBytes() const {
  int64_t bytes = 256;
  for (size_t r = 0; r < instance_->results().size(); ++r) {
    const Slot& slot = instance_->results()[r];
    const bool carried = message_->results()->Get(static_cast<flatbuffers::uoffset_t>(r))->kind() ==
                         ResultKind::Inline;
    bytes += (carried ? PayloadBytes(slot.bytes) : 0) +
             static_cast<int64_t>(sizeof(fb::ResultInfo) + slot.shape.size() * sizeof(int64_t));
  }
  return bytes + (message_->profile() ? kProfileBytes : 0);
}

flatbuffers::Offset<fb::RunReply> Run::Reply(flatbuffers::FlatBufferBuilder& b,
                                             Nanos queued) const {
  const size_t results = instance_->results().size();
  fb::ResultInfo* infos;
  const auto* wanted = message_->results();
  int64_t payload = 0;
  size_t extents = 0;
  for (size_t r = 0; r < results; ++r) {
    if (wanted->Get(static_cast<flatbuffers::uoffset_t>(r))->kind() == ResultKind::Inline)
      payload += PayloadBytes(instance_->results()[r].bytes);
    extents += instance_->results()[r].shape.size();
  }
  flatbuffers::Offset<flatbuffers::Vector<uint8_t>> payload_at;
  uint8_t* bytes = nullptr;
  if (payload > 0) {
    b.ForceVectorAlignment(static_cast<size_t>(payload), 1, 16);
    payload_at = b.CreateUninitializedVector(static_cast<size_t>(payload), &bytes);
  }
  int64_t at = 0;
  // `bytes` is valid until the builder grows, so it is filled first.
  for (size_t r = 0; r < results && bytes; ++r) {
    if (wanted->Get(static_cast<flatbuffers::uoffset_t>(r))->kind() != ResultKind::Inline) continue;
    const Slot& slot = instance_->results()[r];
    std::memcpy(bytes + at, inline_results_ ? inline_results_ + at : ResultData(r),
                static_cast<size_t>(slot.bytes));
    at += PayloadBytes(slot.bytes);
  }
  int64_t* shape;
  const auto shapes_at = b.CreateUninitializedVector(extents, &shape);
  for (const Slot& slot : instance_->results())
    shape = std::copy(slot.shape.begin(), slot.shape.end(), shape);
  const auto infos_at = b.CreateUninitializedVectorOfStructs(results, &infos);
  at = 0;
  size_t kept = 0;
  for (size_t r = 0; r < results; ++r) {
    const Slot& slot = instance_->results()[r];
    const ResultKind kind = wanted->Get(static_cast<flatbuffers::uoffset_t>(r))->kind();
    int64_t offset = -1;
    if (kind == ResultKind::Inline) {
      offset = at;
      at += PayloadBytes(slot.bytes);
    } else if (kind == ResultKind::Kept) {
      offset = kept_[kept++].buffer->offset();
    }
    infos[r] = fb::ResultInfo(kind, static_cast<uint8_t>(slot.dtype),
                              static_cast<uint8_t>(slot.shape.size()), 0, offset,
                              static_cast<uint64_t>(slot.bytes));
  }
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::StepCost>>> profile_at;
  if (message_->profile()) {
    std::vector<flatbuffers::Offset<fb::StepCost>> costs;
    for (size_t i = 0; i < step_ns_.size() && costs.size() < kProfiledSteps; ++i) {
      const Step& s = instance_->steps()[i];
      if (s.kind != StepKind::kCall) continue;
      costs.push_back(fb::CreateStepCost(
          b, s.node(), b.CreateSharedString(LabelOf(s, program_->kernels->variants)), step_ns_[i],
          s.called_function()));
    }
    profile_at = b.CreateVector(costs);
  }
  return fb::CreateRunReply(b, infos_at, shapes_at, payload_at, flags_,
                            static_cast<uint64_t>(queued), static_cast<uint64_t>(ran_), profile_at);
}

void Run::End(const RunEnvironment& env) {
  if (instance_) {
    instance_->busy = false;
    if (!aborted_) instance_->took = ran_;
  }
  if (arena_) env.arenas->Release(arena_);
  program_.reset();
  packed_.End();
  held_.clear();
  kept_.clear();
  mutated_.clear();
}

}  // namespace opwire::executor
