// Programs and runs, from the client's side.
#include <fmt/ranges.h>

#include <algorithm>

#include "frontend/cpp/session_state.h"
#include "ir/base/element.h"
#include "ir/passes/pipeline.h"
#include "ir/program/serialise.h"
#include "ir/text/text.h"

namespace opwire::client {
namespace {

const std::vector<int64_t>* ShapeOf(const Arg& arg) {
  if (const Tensor* t = std::get_if<Tensor>(&arg.value())) return &t->shape();
  if (const ArrayView* v = std::get_if<ArrayView>(&arg.value())) return &v->shape;
  return nullptr;
}

}  // namespace

// ---- Loading
// -------------------------------------------------------------------------------------------------

StatusOr<std::shared_ptr<const OpCatalogue>> SessionState::Ops() {
  OPWIRE_RETURN_IF_ERROR(Ensure());
  if (ops && ops_generation == generation) return ops;
  OPWIRE_ASSIGN_OR_RETURN(const std::string json, Info("declarations"));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<OpDeclaration> declarations,
                          DeclarationsFromJson(json));
  ops = CatalogueOf(declarations);
  ops_generation = generation;
  return ops;
}

StatusOr<std::shared_ptr<const OpCatalogue>> Session::Ops() { return state_->Ops(); }

StatusOr<Program> Session::Load(std::string_view text, std::string_view filename,
                                const LoadOptions& options) {
  if (text.find(kUserPrefix) == text.npos) {
    OPWIRE_ASSIGN_OR_RETURN(Module module, Parse(text, filename));
    return Load(std::move(module), options);
  }
  OPWIRE_ASSIGN_OR_RETURN(const auto ops, state_->Ops());
  OPWIRE_ASSIGN_OR_RETURN(Module module, Parse(text, filename, {.ops = *ops}));
  return Load(std::move(module), options);
}

StatusOr<Program> Session::Load(Module module, const LoadOptions& options) {
  Program p;
  p.state_ = std::make_shared<Program::State>();
  Program::State& s = *p.state_;
  s.session = state_;
  const auto is_user = [](const Node& n) { return n.op.starts_with(kUserPrefix); };
  if (std::ranges::any_of(module.functions, [&](const Function& f) {
        return std::ranges::any_of(f.nodes, is_user);
      })) {
    OPWIRE_ASSIGN_OR_RETURN(s.ops, state_->Ops());
  }
  const OpCatalogue& ops = s.ops ? *s.ops : Catalogue();
  if (options.passes)
    OPWIRE_RETURN_IF_ERROR(RunPasses(module, {.ops = ops, .accuracy = *options.passes}).status());
  OPWIRE_ASSIGN_OR_RETURN(s.typing, VerifyModule(module, {}, ops));
  s.module = std::move(module);
  s.bytes = Serialise(s.module);
  s.slot = state_->next_slot++;
  OPWIRE_RETURN_IF_ERROR(state_->Ensure());
  OPWIRE_RETURN_IF_ERROR(state_->EnsureUploaded(s));
  return p;
}

const Module& Program::module() const { return state_->module; }

Status SessionState::EnsureUploaded(Program::State& p) {
  OPWIRE_RETURN_IF_ERROR(Ensure());
  if (p.generation == generation) return absl::OkStatus();
  fb::PutProgramT put;
  put.slot = p.slot;
  Bytes bulk = AsBytes(p.bytes);
  Tensor carrier;
  if (bulk.size() > kChunkBytes) {
    // Too large for a message: as a tensor, which is sent in chunks.
    Session self;
    self.state_ = shared_from_this();
    OPWIRE_ASSIGN_OR_RETURN(carrier, self.Put({DType::kU8,
                                               {static_cast<int64_t>(bulk.size())},
                                               bulk.data(),
                                               static_cast<int64_t>(bulk.size())}));
    put.bytes =
        std::make_unique<fb::TensorId>(carrier.state_->attachment, 0, carrier.state_->counter);
    bulk = {};
  }
  OPWIRE_RETURN_IF_ERROR(Ask(std::move(put), nullptr, bulk).status());
  p.generation = generation;
  return absl::OkStatus();
}

Program::State::~State() {
  if (session && generation == session->generation) session->drops.push_back(slot);
}

// ---- Runs
// -------------------------------------------------------------------------------------------------

Status SessionState::Move(const std::vector<Arg>& args, std::vector<Tensor>& moved) {
  moved.clear();
  int64_t payload_bytes = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const ArrayView* v = std::get_if<ArrayView>(&args[i].value());
    if (!v) continue;
    if (moved.empty()) moved.resize(args.size());
    if (v->bytes <= static_cast<int64_t>(kInlineBytes) - payload_bytes) {
      payload_bytes += PayloadBytes(v->bytes);
      continue;
    }
    Session self;
    self.state_ = shared_from_this();
    OPWIRE_ASSIGN_OR_RETURN(moved[i], self.Put(*v));
  }
  return absl::OkStatus();
}

StatusOr<flatbuffers::Offset<fb::Run>> SessionState::BuildRun(
    flatbuffers::FlatBufferBuilder& into, Program::State& p, const std::vector<Arg>& args,
    const RunOptions& run, std::vector<Tensor>& kept, const std::vector<Tensor>& moved) {
  const int function = run.function.empty() ? 0 : p.module.FindFunction(run.function);
  if (function < 0) return NotFound("the program has no function @{}", run.function);
  const Function& f = p.module.functions[static_cast<size_t>(function)];
  if (args.size() != f.params.size())
    return InvalidArgument("run of @{}: expected {} arguments, got {}", f.name, f.params.size(),
                           args.size());
  int64_t payload_bytes = 0;
  size_t extents = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const ArrayView* v = std::get_if<ArrayView>(&args[i].value());
    if (!v || moved[i].valid()) continue;
    payload_bytes += PayloadBytes(v->bytes);
    extents += v->shape.size();
  }
  uint8_t* payload = nullptr;
  flatbuffers::Offset<flatbuffers::Vector<uint8_t>> payload_at;
  if (payload_bytes > 0) {
    payload_at = into.CreateUninitializedVector(static_cast<size_t>(payload_bytes), &payload);
    int64_t at = 0;
    for (size_t i = 0; i < args.size(); ++i) {
      const ArrayView* v = std::get_if<ArrayView>(&args[i].value());
      if (!v || moved[i].valid()) continue;
      std::memcpy(payload + at, v->data, static_cast<size_t>(v->bytes));
      at += PayloadBytes(v->bytes);
    }
  }
  int64_t* shapes = nullptr;
  const auto shapes_at = into.CreateUninitializedVector(extents, &shapes);
  for (size_t i = 0; i < args.size(); ++i) {
    const ArrayView* v = std::get_if<ArrayView>(&args[i].value());
    if (v && !moved[i].valid()) shapes = std::copy(v->shape.begin(), v->shape.end(), shapes);
  }
  fb::Binding* bindings = nullptr;
  const auto bindings_at = into.CreateUninitializedVectorOfStructs(args.size(), &bindings);
  int64_t at = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const Param& param = f.params[i];
    const Tensor* tensor =
        !moved.empty() && moved[i].valid() ? &moved[i] : std::get_if<Tensor>(&args[i].value());
    if (tensor) {
      if (!tensor->valid())
        return InvalidArgument("run of @{}: %{}: the tensor is empty", f.name, param.name);
      OPWIRE_RETURN_IF_ERROR(Check(*tensor->state_));
      bindings[i] = fb::Binding(fb::BindingKind::Tensor, 0, 0, 0, tensor->state_->attachment,
                                tensor->state_->counter, 0);
    } else if (const ArrayView* v = std::get_if<ArrayView>(&args[i].value())) {
      bindings[i] = fb::Binding(fb::BindingKind::Inline, static_cast<uint8_t>(v->dtype),
                                static_cast<uint8_t>(v->shape.size()), 0, 0,
                                static_cast<uint64_t>(at), static_cast<uint64_t>(v->bytes));
      at += PayloadBytes(v->bytes);
    } else if (param.mode == ParamMode::kDim) {
      const int64_t* n = std::get_if<int64_t>(&args[i].value());
      if (!n)
        return InvalidArgument("run of @{}: %{} is a dimension: expected an integer", f.name,
                               param.name);
      bindings[i] = fb::Binding(fb::BindingKind::Dim, 0, 0, 0, 0, static_cast<uint64_t>(*n), 0);
    } else {
      const DType t = param.type.dtype;
      const double* real = std::get_if<double>(&args[i].value());
      const uint64_t bits =
          real ? ElementBits(t, *real) : ElementBits(t, std::get<int64_t>(args[i].value()));
      bindings[i] = fb::Binding(fb::BindingKind::Scalar, static_cast<uint8_t>(t), 0, 0, 0, bits, 0);
    }
  }
  kept.assign(f.results.size(), Tensor());
  fb::ResultSlot* slots = nullptr;
  const auto slots_at = into.CreateUninitializedVectorOfStructs(f.results.size(), &slots);
  for (size_t r = 0; r < f.results.size(); ++r) {
    bool inout = false;
    for (const Param& param : f.params)
      inout |= param.mode == ParamMode::kInout && param.name == f.results[r].name;
    const Want want = r < run.wants.size() ? run.wants[r] : inout ? Want::kNothing : Want::kTensor;
    uint64_t counter = 0;
    if (want == Want::kTensor) {
      counter = next_counter++;
      kept[r] = Make(DType::kInvalid, {}, 0, counter);
    }
    slots[r] = fb::ResultSlot(static_cast<fb::ResultKind>(want), 0, counter);
  }
  return fb::CreateRun(into, p.slot, static_cast<uint32_t>(function), bindings_at, slots_at,
                       shapes_at, payload_at, static_cast<uint64_t>(run.deadline_us), run.trace_id,
                       0, 0, 0, 0, 0, run.profile);
}

StatusOr<RunResult> SessionState::ReadRun(const fb::RunReply& reply, std::vector<Tensor>& kept) {
  RunResult out;
  out.divided_by_zero = (reply.flags() & 1u) != 0;
  out.queue_ns = static_cast<int64_t>(reply.queue_ns());
  out.run_ns = static_cast<int64_t>(reply.run_ns());
  for (size_t i = 0; reply.profile() && i < reply.profile()->size(); ++i) {
    const fb::StepCost& c = *reply.profile()->Get(static_cast<flatbuffers::uoffset_t>(i));
    out.profile.push_back({c.function(), static_cast<int>(c.node()),
                           c.label() ? c.label()->str() : "", static_cast<int64_t>(c.ns())});
  }
  const size_t count = reply.results() ? reply.results()->size() : 0;
  const size_t shapes = reply.shapes() ? reply.shapes()->size() : 0;
  const size_t payload = reply.payload() ? reply.payload()->size() : 0;
  if (count != kept.size())
    return Internal("executor {}: expected {} results, got {}", executor_id, kept.size(), count);
  size_t at = 0;
  out.outputs.resize(count);
  for (size_t r = 0; r < count; ++r) {
    const fb::ResultInfo& info = *reply.results()->Get(static_cast<flatbuffers::uoffset_t>(r));
    if (info.rank() > shapes - at)
      return Internal("executor {}: a result's extents are missing", executor_id);
    const int64_t* extents = shapes ? reply.shapes()->data() + at : nullptr;
    std::vector<int64_t> shape(extents, extents + info.rank());
    at += info.rank();
    if (info.kind() == fb::ResultKind::Inline) {
      Array a(static_cast<DType>(info.dtype()), std::move(shape));
      const uint64_t offset = static_cast<uint64_t>(info.offset());
      if (a.bytes().size() != info.size() || info.size() > payload ||
          offset > payload - info.size()) {
        return Internal("executor {}: a result's bytes are missing", executor_id);
      }
      if (info.size() > 0)
        std::memcpy(a.bytes().data(), reply.payload()->data() + offset, info.size());
      out.outputs[r].array = std::move(a);
    } else if (kept[r].valid()) {
      Tensor::State& t = *kept[r].state_;
      t.dtype = static_cast<DType>(info.dtype());
      t.shape = std::move(shape);
      t.bytes = static_cast<int64_t>(info.size());
      out.outputs[r].tensor = std::move(kept[r]);
    }
  }
  return out;
}

struct PendingRun::State {
  std::shared_ptr<SessionState> session;
  uint64_t ticket = 0;
  uint64_t seq = 0;
  std::vector<Tensor> kept;
  bool taken = false;
};

PendingRun::PendingRun(std::unique_ptr<State> s) : state_(std::move(s)) {}
PendingRun::PendingRun(PendingRun&&) noexcept = default;
PendingRun& PendingRun::operator=(PendingRun&&) noexcept = default;
PendingRun::~PendingRun() {
  if (!state_) return;
  state_->session->on_emit.erase(state_->ticket);
  if (!state_->taken) state_->session->flight.Abandon(state_->ticket);
}

bool PendingRun::Ready(int64_t timeout_us) {
  auto ended = state_->session->Pump(state_->ticket, timeout_us * kMicrosecond);
  return !ended.ok() || *ended;
}

StatusOr<RunResult> PendingRun::Wait(int64_t timeout_us) {
  SessionState& s = *state_->session;
  if (state_->taken) return FailedPrecondition("the run was waited for already");
  OPWIRE_ASSIGN_OR_RETURN(
      const bool ended,
      s.Pump(state_->ticket, timeout_us < 0 ? kNever : timeout_us * kMicrosecond));
  if (!ended) return DeadlineExceeded("the run has not ended within {} us", timeout_us);
  state_->taken = true;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, s.Wait(state_->ticket));
  const fb::RunReply* body = reply->body_as_RunReply();
  if (!body) return Internal("executor {} answered something else", s.executor_id);
  return s.ReadRun(*body, state_->kept);
}

Status SessionState::Cancel(uint64_t seq) {
  fb::CancelT cancel;
  cancel.token = connection->hello().token;
  cancel.attachment = attachment;
  cancel.seq = seq;
  return connection->Control(std::move(cancel)).status();
}

Status PendingRun::Cancel() {
  SessionState& s = *state_->session;
  return s.connection && !s.flight.Ended(state_->ticket) ? s.Cancel(state_->seq) : absl::OkStatus();
}

StatusOr<PendingRun> Program::Start(const std::vector<Arg>& args, const RunOptions& options) const {
  SessionState& s = *state_->session;
  OPWIRE_RETURN_IF_ERROR(s.EnsureUploaded(*state_));
  auto pending = std::make_unique<PendingRun::State>();
  std::vector<Tensor> moved;
  OPWIRE_RETURN_IF_ERROR(s.Move(args, moved));
  OPWIRE_RETURN_IF_ERROR(s.SendQueue());
  s.builder.Clear();
  OPWIRE_ASSIGN_OR_RETURN(const auto run,
                          s.BuildRun(s.builder, *state_, args, options, pending->kept, moved));
  pending->session = state_->session;
  OPWIRE_ASSIGN_OR_RETURN(pending->ticket, s.SendBuilt(fb::Body::Run, run.Union(), {}));
  pending->seq = s.flight.SequenceOf(pending->ticket);
  if (options.on_emit) s.on_emit[pending->ticket] = options.on_emit;
  return PendingRun(std::move(pending));
}

StatusOr<std::string> Program::Plan(std::span<const int64_t> sizes,
                                    std::string_view function) const {
  OPWIRE_RETURN_IF_ERROR(state_->session->EnsureUploaded(*state_));
  const int number = function.empty() ? 0 : state_->module.FindFunction(function);
  if (number < 0)
    return NotFound("program @{} has no function @{}", state_->module.functions[0].name, function);
  return state_->session->Info(
      "plan", fmt::format("{} {} {}", state_->slot, number, fmt::join(sizes, " ")));
}

StatusOr<RunResult> Program::Run(const std::vector<Arg>& args, const RunOptions& options) const {
  OPWIRE_ASSIGN_OR_RETURN(PendingRun pending, Start(args, options));
  return pending.Wait();
}

StatusOr<std::vector<Array>> Program::Call(const std::vector<Arg>& args) const {
  const Function& f = state_->module.functions[0];
  // Sizes of the results, from the arguments' shapes: what fits comes back with the reply.
  std::vector<int64_t> symbols(state_->module.dims.symbols().size(), 0);
  for (size_t i = 0; i < std::min(args.size(), f.params.size()); ++i) {
    const std::vector<int64_t>* shape = ShapeOf(args[i]);
    const auto bind = [&](Dim d, int64_t value) {
      const DimNode& n = state_->module.dims.node(d);
      if (n.kind == DimKind::kSymbol) symbols[static_cast<size_t>(n.value)] = value;
    };
    if (f.params[i].mode == ParamMode::kDim) {
      if (const int64_t* n = std::get_if<int64_t>(&args[i].value())) bind(f.params[i].dim, *n);
    } else if (shape && shape->size() == f.params[i].type.shape.size()) {
      for (size_t a = 0; a < shape->size(); ++a) bind(f.params[i].type.shape[a], (*shape)[a]);
    }
  }
  const DimValues values(state_->module.dims, symbols);
  const ValueTypes types(f);
  RunOptions options;
  int64_t total = 0;
  for (const Result& r : f.results) {
    bool inout = false;
    for (const Param& param : f.params)
      inout |= param.mode == ParamMode::kInout && param.name == r.name;
    std::vector<int64_t> shape;
    for (Dim d : types.types[static_cast<size_t>(r.value)]->shape)
      shape.push_back(values.Get(d).value_or(kMaxExtent));
    const auto bytes =
        TensorBytes(types.types[static_cast<size_t>(r.value)]->dtype, Encoding::kDense, shape);
    const bool fits = !inout && bytes && *bytes <= static_cast<int64_t>(kInlineBytes) - total;
    if (fits) total += *bytes;
    options.wants.push_back(inout ? Want::kNothing : fits ? Want::kInline : Want::kTensor);
  }
  OPWIRE_ASSIGN_OR_RETURN(RunResult result, Run(args, options));
  std::vector<Array> out;
  for (RunResult::Output& o : result.outputs) {
    if (o.array) {
      out.push_back(*std::move(o.array));
    } else if (o.tensor.valid()) {
      OPWIRE_ASSIGN_OR_RETURN(Array a, state_->session->Fetch(*o.tensor.state_));
      out.push_back(std::move(a));
    }
  }
  return out;
}

}  // namespace opwire::client
