// Runs a program's instance inside a kernel call.
#include "executor/plan/reference.h"

#include <algorithm>
#include <cstring>

#include "executor/plan/instance.h"
#include "ir/base/element.h"
#include "ir/text/text.h"
#include "kernels/select/failure.h"
#include "kernels/select/key_types.h"

namespace opwire::executor {
namespace {

std::string Describe(const TypeBinding& types) {
  std::string out;
  for (const auto& [name, dtype] : types)
    out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", name, DTypeName(dtype));
  return out.empty() ? "no types" : out;
}

bool Stopped(opw_runtime* runtime) {
  bool began = false;
  runtime->parallel_for(
      runtime, 1, 1, [](void* context, int64_t, int64_t) { *static_cast<bool*>(context) = true; },
      &began);
  return !began;
}

}  // namespace

struct ReferenceProgram::State {
  // The runtime of the kernels inside: the outer one, except that it reports a value out of its
  // domain for `operand`.
  struct InnerRuntime : opw_runtime {
    opw_runtime* outer = nullptr;
    int operand = -1;

    void Bind(opw_runtime* to, int index_operand) {
      outer = to;
      operand = index_operand;
      abi_version = to->abi_version;
      threads = to->threads;
      parallel_for = [](opw_runtime* r, int64_t n, int64_t grain, opw_body body, void* context) {
        opw_runtime* const o = static_cast<InnerRuntime*>(r)->outer;
        o->parallel_for(o, n, grain, body, context);
      };
      out_of_range = [](opw_runtime* r, int, int64_t position) {
        const auto* self = static_cast<InnerRuntime*>(r);
        self->outer->out_of_range(self->outer, std::max(self->operand, 0), position);
      };
      raise = [](opw_runtime* r, uint32_t flags) {
        opw_runtime* const o = static_cast<InnerRuntime*>(r)->outer;
        o->raise(o, flags);
      };
    }
  };

  explicit State(Device* d) : device(d) {}
  ~State() {
    if (device) device->Free(on_device);
  }
  State(const State&) = delete;

  // Returns the memory in which the kernels read the scalars.
  StatusOr<uint64_t*> Place() {
    if (!device) return scalars.data();
    const auto bytes =
        static_cast<int64_t>(std::max<size_t>(scalars.size(), 1) * sizeof scalars[0]);
    OPWIRE_ASSIGN_OR_RETURN(on_device, device->Allocate(bytes, MemoryKind::kDevice));
    OPWIRE_RETURN_IF_ERROR(device->Copy(
        on_device, scalars.data(), static_cast<int64_t>(scalars.size() * sizeof scalars[0]), 0));
    return static_cast<uint64_t*>(on_device);
  }

  InnerRuntime runtime;
  std::unique_ptr<Instance> instance;
  Device* const device;           // null: the host's
  std::vector<uint64_t> scalars;  // by parameter
  void* on_device = nullptr;      // the same scalars
};

StatusOr<std::shared_ptr<const ReferenceProgram>> ReferenceProgram::Make(
    const OpDeclaration& declaration, const OpDef& row, std::string text, std::string filename,
    std::shared_ptr<const KernelSet> builtin, When when, bool wide, Device* device) {
  for (const OperandSpec& o : row.operands) {
    if (o.optional || o.variadic) {
      return InvalidArgument(
          "{}: a reference program takes every operand, and {} of {} may be absent or a list",
          filename, o.name, row.name);
    }
  }
  auto reference = std::make_shared<ReferenceProgram>();
  reference->row_ = row;
  reference->text_ = std::move(text);
  reference->filename_ = std::move(filename);
  reference->builtin_ = std::move(builtin);
  reference->device_ = device;
  for (size_t i = 0; i < row.operands.size(); ++i) {
    if (row.operands[i].domain != Domain::kAny && reference->index_operand_ < 0)
      reference->index_operand_ = static_cast<int>(i);
  }
  OPWIRE_ASSIGN_OR_RETURN(reference->patterns_, OperandPatterns(declaration));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<TypeBinding> all, TypeBindings(row));
  for (const TypeBinding& types : all) {
    Form& form = reference->forms_.emplace_back(Form{.declared = types, .types = types});
    for (auto& [name, dtype] : form.types) {
      if (wide && (*row.Variable(name) - kFloats).Empty()) dtype = DType::kF64;
    }
  }
  if (when == When::kAsked) return std::shared_ptr<const ReferenceProgram>(std::move(reference));
  Status first;
  bool some = false;
  for (Form& form : reference->forms_) {
    const Status status = reference->Plan(form);
    if (!status.ok() && first.ok()) first = status;
    some |= status.ok();
  }
  if (!some) return first;
  return std::shared_ptr<const ReferenceProgram>(std::move(reference));
}

Status ReferenceProgram::Plan(Form& form) const {
  form.planned = true;
  auto program = Parsed(form);
  if (program.ok()) {
    form.program = *std::move(program);
    return absl::OkStatus();
  }
  form.error = fmt::format("its program does not serve {}: {}", Describe(form.declared),
                           MessageOf(program.status()));
  return program.status();
}

StatusOr<std::shared_ptr<Program>> ReferenceProgram::Parsed(const Form& form) const {
  OPWIRE_ASSIGN_OR_RETURN(const Module module, Parse(text_, filename_, {.types = form.types}));
  for (const Node& node : module.functions[0].nodes) {
    const OpDef* const row = Catalogue().Find(node.op);
    if (row != nullptr && row->control != Control::kNone)
      return InvalidArgument(
          "{}: {}: a reference program has no loops and branches and emits nothing", filename_,
          node.op);
  }
  const auto in_file = [&](const Status& s) {
    return Status(s.code(), fmt::format("{}: {}", filename_, MessageOf(s)));
  };
  auto program = PrepareProgram(Serialise(module), builtin_, ExecutorLimits());
  if (!program.ok()) return in_file(program.status());
  const Function& f = (*program)->module.functions[0];
  auto params = MatchParams(f);
  if (!params.ok()) return in_file(params.status());
  params_ = *std::move(params);
  if (Status s = CheckTypes(form, f); !s.ok()) return in_file(s);
  return program;
}

// Finds the operand or attribute of each parameter of the program.
StatusOr<std::vector<ReferenceProgram::Param>> ReferenceProgram::MatchParams(
    const Function& f) const {
  std::vector<Param> params;
  for (size_t i = 0; i < f.params.size(); ++i) {
    const std::string& name = f.params[i].name;
    if (f.params[i].mode == ParamMode::kInout)
      return InvalidArgument("parameter %{}: expected none that is inout", name);
    if (i < row_.operands.size()) {
      if (name != row_.operands[i].name || f.params[i].mode != ParamMode::kIn)
        return InvalidArgument("parameter {}: expected %{}, as in {}, got %{}", i + 1,
                               row_.operands[i].name, row_.Signature(), name);
      params.push_back({static_cast<int>(i), -1});
      continue;
    }
    const int attr = row_.FindAttr(name);
    if (attr < 0)
      return InvalidArgument("parameter %{}: {} has no operand and no attribute of that name", name,
                             row_.name);
    const AttrKind kind = row_.attrs[static_cast<size_t>(attr)].kind;
    const bool scalar = f.params[i].mode == ParamMode::kIn && f.params[i].type.rank() == 0;
    if (kind != AttrKind::kInt && kind != AttrKind::kFloat && kind != AttrKind::kBool) {
      return InvalidArgument(
          "parameter %{}: expected an attribute of kind int, float or bool, got {}", name,
          AttrKindName(kind));
    }
    if (!scalar && !(f.params[i].mode == ParamMode::kDim && kind == AttrKind::kInt)) {
      return InvalidArgument("parameter %{}: an attribute comes as a 0-d tensor{}", name,
                             kind == AttrKind::kInt ? " or a dimension" : "");
    }
    params.push_back({-1, attr});
  }
  if (f.params.size() < row_.operands.size())
    return InvalidArgument("expected a parameter for each operand of {}, got {}", row_.Signature(),
                           f.params.size());
  if (f.results.size() != row_.results.size())
    return InvalidArgument("expected {} results, as in {}, got {}", row_.results.size(),
                           row_.Signature(), f.results.size());
  return params;
}

Status ReferenceProgram::CheckTypes(const Form& form, const Function& f) const {
  for (size_t i = 0; i < row_.operands.size(); ++i) {
    const DType expected = TypeIn(form.types, row_.operands[i].type);
    const TensorType& got = f.params[i].type;
    if (got.dtype != expected)
      return InvalidArgument("parameter %{}: expected {}, got {}", row_.operands[i].name,
                             DTypeName(expected), DTypeName(got.dtype));
    if (got.encoding != Encoding::kDense)
      return InvalidArgument("parameter %{}: expected dense elements, got blocks, {}",
                             row_.operands[i].name, EncodingName(got.encoding));
    const int rank = patterns_[i].extents + (patterns_[i].leading ? 1 : 0);
    if (got.rank() != rank)
      return InvalidArgument("parameter %{}: expected rank {}{}, got {}", row_.operands[i].name,
                             rank, patterns_[i].leading ? " (the leading extents come as one)" : "",
                             got.rank());
  }
  const ValueTypes values(f);
  for (size_t r = 0; r < row_.results.size(); ++r) {
    const DType expected = TypeIn(form.types, row_.results[r].type);
    const DType got = values.types[static_cast<size_t>(f.results[r].value)]->dtype;
    if (expected != DType::kInvalid && got != expected)
      return InvalidArgument("result {}: expected {}, got {}", f.results[r].name,
                             DTypeName(expected), DTypeName(got));
  }
  return absl::OkStatus();
}

opw_kernel ReferenceProgram::kernel() const {
  return {OPW_ABI_VERSION,
          OPW_DETERMINISTIC | OPW_CONTIGUOUS,
          Supports,
          Prepare,
          Release,
          RunCall,
          this};
}

const ReferenceProgram::Form* ReferenceProgram::FormOf(const opw_call* call) const {
  for (Form& form : forms_) {
    if (!HasTypes(call, row_, form.types)) continue;
    if (!form.planned) (void)Plan(form);  // on failure the form has the reason
    return &form;
  }
  return nullptr;
}

Shape ReferenceProgram::FlatShape(const opw_tensor& t, int operand) const {
  const OperandPattern& p = patterns_[static_cast<size_t>(operand)];
  Shape shape(t.shape, t.shape + t.rank);
  if (!p.leading) return shape;
  const auto own = shape.end() - p.extents;
  int64_t flat = 1;
  for (auto it = shape.begin(); it != own; ++it) flat *= *it;
  Shape out{flat};
  out.insert(out.end(), own, shape.end());
  return out;
}

StatusOr<std::vector<int64_t>> ReferenceProgram::SymbolsOf(const Program& program,
                                                           const opw_call* call) const {
  const Function& f = program.module.functions[0];
  const DimTable& dims = program.module.dims;
  std::vector<int64_t> symbols(dims.symbols().size(), -1);
  const auto bind = [&](Dim d, int64_t value) -> Status {
    const DimNode& n = dims.node(d);
    if (n.kind == DimKind::kConstant && n.value != value)
      return InvalidArgument("expected an extent {}, got {}", n.value, value);
    if (n.kind != DimKind::kSymbol) return absl::OkStatus();
    int64_t& known = symbols[static_cast<size_t>(n.value)];
    if (known >= 0 && known != value)
      return InvalidArgument("expected an extent {}, got {}", known, value);
    known = value;
    return dims.CheckSymbol(static_cast<size_t>(n.value), value);
  };
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].operand < 0) {
      if (f.params[i].mode == ParamMode::kDim)
        OPWIRE_RETURN_IF_ERROR(bind(f.params[i].dim, call->attrs[params_[i].attr].value.i));
      continue;
    }
    const Shape shape =
        FlatShape(call->operands[call->starts[params_[i].operand]], params_[i].operand);
    for (size_t a = 0; a < shape.size(); ++a)
      OPWIRE_RETURN_IF_ERROR(bind(f.params[i].type.shape[a], shape[a]));
  }
  for (int64_t& s : symbols) s = std::max<int64_t>(s, 0);
  return symbols;
}

const char* ReferenceProgram::Supports(const opw_call* call) {
  const auto& self = *static_cast<const ReferenceProgram*>(call->context);
  const Form* form = self.FormOf(call);
  if (!form) return "it has no such types";
  if (!form->program) return form->error.c_str();
  return self.SymbolsOf(*form->program, call).ok() ? nullptr
                                                   : "its program does not take these extents";
}

int ReferenceProgram::Prepare(const opw_call* call, void** state, int64_t* workspace_bytes) {
  const auto& self = *static_cast<const ReferenceProgram*>(call->context);
  const Program& program = *self.FormOf(call)->program;
  const Function& f = program.module.functions[0];
  auto made = std::make_unique<State>(self.device_);
  made->runtime.Bind(call->runtime, self.index_operand_);
  auto symbols = self.SymbolsOf(program, call);
  if (!symbols.ok()) return OPW_FAILED;
  auto instance = Instance::Build(program, 0, *std::move(symbols),
                                  {.runtime = &made->runtime, .device = self.device_});
  if (!instance.ok()) {
    NoteFailure(instance.status());
    return OPW_FAILED;
  }
  for (size_t r = 0; r < self.row_.results.size(); ++r) {
    const opw_tensor& result = call->results[r];
    if ((*instance)->results()[r].bytes !=
        result.elements * DTypeBytes(static_cast<DType>(result.dtype)))
      return OPW_FAILED;
  }
  made->scalars.resize(self.params_.size());
  for (size_t i = 0; i < self.params_.size(); ++i) {
    if (self.params_[i].operand >= 0 || f.params[i].mode == ParamMode::kDim) continue;
    const opw_attr& a = call->attrs[self.params_[i].attr];
    const DType dtype = f.params[i].type.dtype;
    made->scalars[i] =
        a.kind == OPW_ATTR_FLOAT ? ElementBits(dtype, a.value.f) : ElementBits(dtype, a.value.i);
  }
  const auto placed = made->Place();
  if (!placed.ok()) {
    NoteFailure(placed.status());
    return OPW_FAILED;
  }
  for (size_t i = 0; i < self.params_.size(); ++i) {
    if (self.params_[i].operand < 0 && f.params[i].mode != ParamMode::kDim)
      (*instance)->BindParam(static_cast<int>(i), *placed + i);
  }
  *workspace_bytes = (*instance)->scratch_bytes();
  made->instance = *std::move(instance);
  *state = made.release();
  return OPW_OK;
}

void ReferenceProgram::Release(void* state) { delete static_cast<State*>(state); }

int ReferenceProgram::RunCall(const opw_call* call) {
  const auto& self = *static_cast<const ReferenceProgram*>(call->context);
  State& state = *static_cast<State*>(call->state);
  Instance& instance = *state.instance;
  state.runtime.outer = call->runtime;
  instance.BindScratch(static_cast<uint8_t*>(call->workspace));
  for (size_t i = 0; i < self.params_.size(); ++i) {
    if (self.params_[i].operand >= 0)
      instance.BindParam(static_cast<int>(i),
                         call->operands[call->starts[self.params_[i].operand]].data);
  }
  for (size_t r = 0; r < self.row_.results.size(); ++r)
    instance.BindResult(static_cast<int>(r), call->results[r].data);
  for (const Step& step : instance.steps()) {
    if (step.run(&step.call) != OPW_OK) return OPW_FAILED;
    if (Stopped(call->runtime)) break;
  }
  return OPW_OK;
}

}  // namespace opwire::executor
