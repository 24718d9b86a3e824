// Appends nodes with the types that the catalogue infers.
#include "ir/program/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>

#include "ir/ops/names.h"
#include "ir/verify/verify.h"

namespace opwire {

struct FunctionBuilder::State {
  Module* module;
  const OpCatalogue* const* ops;  // the module's
  Status* status;                 // the module's first error
  std::deque<State>* functions;   // of the module
  uint32_t number;                // in the module
  Function f;
  std::vector<TensorType> types;  // by ValueId: parameters, then results
  bool has_outside = false;

  void Fail(Status s) {
    if (status->ok()) *status = std::move(s);
  }
};

struct ModuleBuilder::State {
  const OpCatalogue* ops;
  std::shared_ptr<const OpCatalogue> held = nullptr;  // keeps `ops` alive
  Module module = {};                                 // its functions stay empty until Finish
  Status status = absl::OkStatus();
  std::deque<FunctionBuilder::State> functions = {};
};

namespace {

// The type of a value that carries an error.
const TensorType& NoType() {
  static const TensorType* const type = new TensorType;
  return *type;
}

}  // namespace

ModuleBuilder::ModuleBuilder(const OpCatalogue& ops) : s_(new State{.ops = &ops}) {}
ModuleBuilder::~ModuleBuilder() = default;
ModuleBuilder::ModuleBuilder(ModuleBuilder&&) noexcept = default;

FunctionBuilder ModuleBuilder::Function(std::string_view name) {
  s_->functions.push_back({&s_->module,
                           &s_->ops,
                           &s_->status,
                           &s_->functions,
                           static_cast<uint32_t>(s_->functions.size()),
                           {.name = std::string(name)},
                           {},
                           false});
  return FunctionBuilder(&s_->functions.back());
}

void ModuleBuilder::UseOps(std::shared_ptr<const OpCatalogue> ops) {
  s_->held = std::move(ops);
  s_->ops = s_->held.get();
}

StatusOr<Module> ModuleBuilder::Finish() {
  OPWIRE_RETURN_IF_ERROR(s_->status);
  Module out = s_->module;
  for (const FunctionBuilder::State& f : s_->functions) {
    if (f.has_outside)
      return FailedPrecondition("function {} uses values of outside", Clip(f.f.name));
    out.functions.push_back(f.f);
  }
  OPWIRE_RETURN_IF_ERROR(VerifyModule(out, {}, *s_->ops).status());
  return out;
}

DimTable& FunctionBuilder::dims() { return s_->module->dims; }

Dim FunctionBuilder::Symbol(std::string_view name, int64_t lower, int64_t upper, int64_t multiple) {
  StatusOr<Dim> dim = dims().Symbol(name, lower, upper, multiple);
  if (dim.ok()) return *dim;
  s_->Fail(dim.status());
  return dims().Constant(0);
}

Value FunctionBuilder::Param(std::string_view name, ParamMode mode, DType dtype,
                             const std::vector<Extent>& shape, Encoding encoding) {
  if (!s_->f.nodes.empty()) {
    s_->Fail(InvalidArgument("{}: parameter {} comes after the first node", Clip(s_->f.name),
                             Clip(name)));
    return {};
  }
  TensorType type{.dtype = dtype, .encoding = encoding};
  for (const Extent& e : shape) type.shape.push_back(e.is_dim ? e.dim : dims().Constant(e.number));
  s_->types.push_back(type);
  s_->f.params.push_back({.name = std::string(name), .mode = mode, .type = std::move(type)});
  return {static_cast<ValueId>(s_->types.size() - 1)};
}

Value FunctionBuilder::In(std::string_view name, DType dtype, const std::vector<Extent>& shape,
                          Encoding encoding) {
  return Param(name, ParamMode::kIn, dtype, shape, encoding);
}

Value FunctionBuilder::Inout(std::string_view name, DType dtype, const std::vector<Extent>& shape) {
  return Param(name, ParamMode::kInout, dtype, shape);
}

Value FunctionBuilder::Outside(TensorType type) {
  s_->has_outside = true;
  s_->types.push_back(std::move(type));
  return {static_cast<ValueId>(s_->types.size() - 1)};
}

Dim FunctionBuilder::DimParam(std::string_view name, Dim symbol) {
  Param(name, ParamMode::kDim, DType::kInvalid, {});
  if (!s_->f.params.empty() && s_->f.params.back().name == name) s_->f.params.back().dim = symbol;
  return symbol;
}

std::vector<Value> FunctionBuilder::Append(std::string_view op, std::vector<ValueId> operands,
                                           std::vector<uint32_t> segments,
                                           const std::vector<AttrArg>& attrs,
                                           std::vector<uint32_t> calls,
                                           std::vector<TensorType> declared) {
  const OpDef* row = (*s_->ops)->Find(op);
  if (row == nullptr) {
    s_->Fail(Unimplemented("unknown op {}{}", Clip(op), DidYouMean((*s_->ops)->Nearest(op))));
    return {};
  }
  // On an error the op still has that many results, which carry the error.
  const std::vector<Value> failed(row->DeclaresResults() ? declared.size()
                                  : segments.size() == row->operands.size()
                                      ? row->CountResults(row->OperandStarts(segments).data())
                                      : row->results.size());
  if (!s_->status->ok()) return failed;
  const size_t first = s_->types.size();
  const auto append = [&]() -> Status {
    Node node{.op = row->name,
              .version = row->version,
              .operands = std::move(operands),
              .segments = std::move(segments),
              .calls = std::move(calls)};
    std::vector<const TensorType*> types;
    for (ValueId v : node.operands) {
      if (v != kAbsent && (v < 0 || static_cast<size_t>(v) >= first)) {
        return InvalidArgument("{}: operand {} is no value of function {}", op, v,
                               Clip(s_->f.name));
      }
      types.push_back(v == kAbsent ? nullptr : &s_->types[v]);
    }
    std::vector<NamedAttr> given;
    for (const AttrArg& a : attrs) given.push_back({a.name, a.value});
    OPWIRE_ASSIGN_OR_RETURN(node.attrs, CanonicalAttrs(*row, given, dims()));
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<AttrValue> resolved,
                            ResolveAttrs(*row, node.attrs, dims()));
    OPWIRE_ASSIGN_OR_RETURN(Inferred inferred,
                            InferTypes(*row, dims(), types, node.segments, resolved, declared));
    s_->types.insert(s_->types.end(), inferred.results.begin(), inferred.results.end());
    node.results = std::move(inferred.results);
    s_->f.nodes.push_back(std::move(node));
    return absl::OkStatus();
  };
  if (const Status s = append(); !s.ok()) {
    s_->Fail(Status(s.code(),
                    fmt::format("{} (node {} of \"{}\")", MessageOf(s),
                                ValueName(s_->f, static_cast<ValueId>(first)), Clip(s_->f.name))));
    return failed;
  }
  std::vector<Value> out;
  for (size_t v = first; v < s_->types.size(); ++v) out.push_back({static_cast<ValueId>(v)});
  return out;
}

std::vector<Value> FunctionBuilder::Ops(std::string_view op, const std::vector<Value>& operands,
                                        const std::vector<AttrArg>& attrs) {
  std::vector<ValueId> ids;
  for (Value v : operands) ids.push_back(v.id);
  // Optional operands at the end may be left out.
  if (const OpDef* row = (*s_->ops)->Find(op)) {
    while (ids.size() < row->operands.size() && row->operands[ids.size()].optional)
      ids.push_back(kAbsent);
  }
  return Append(op, std::move(ids), {}, attrs);
}

Value FunctionBuilder::Op(std::string_view op, const std::vector<Value>& operands,
                          const std::vector<AttrArg>& attrs) {
  return One(op, Ops(op, operands, attrs));
}

Value FunctionBuilder::One(std::string_view op, const std::vector<Value>& results) {
  if (results.size() == 1) return results[0];
  s_->Fail(
      InvalidArgument("{}: expected an op of one result, it has {}", Clip(op), results.size()));
  return {};
}

std::vector<Value> FunctionBuilder::Call(std::string_view op,
                                         const std::vector<std::vector<Value>>& operands,
                                         std::vector<const FunctionBuilder*> functions,
                                         const std::vector<AttrArg>& attrs,
                                         std::vector<TensorType> declared) {
  std::vector<ValueId> ids;
  std::vector<uint32_t> segments, calls;
  for (const std::vector<Value>& list : operands) {
    segments.push_back(static_cast<uint32_t>(list.size()));
    for (Value v : list) ids.push_back(v.id);
  }
  for (const FunctionBuilder* f : functions) calls.push_back(f->s_->number);
  return Append(op, std::move(ids), std::move(segments), attrs, std::move(calls),
                std::move(declared));
}

std::vector<Value> FunctionBuilder::If(Value condition, const std::vector<Value>& inputs,
                                       const FunctionBuilder& then,
                                       const FunctionBuilder& otherwise) {
  std::vector<TensorType> declared;
  for (const Result& r : then.s_->f.results) declared.push_back(then.TypeOf({r.value}));
  return Call("if", {{condition}, inputs}, {&then, &otherwise}, {}, std::move(declared));
}

std::vector<Value> FunctionBuilder::While(const std::vector<Value>& carried,
                                          const std::vector<Value>& inputs,
                                          const FunctionBuilder& condition,
                                          const FunctionBuilder& body, int64_t max_trips) {
  return Call("while", {carried, inputs}, {&condition, &body}, {{"max_trips", max_trips}});
}

std::vector<Value> FunctionBuilder::Repeat(Value times, const std::vector<Value>& carried,
                                           const std::vector<Value>& inputs,
                                           const FunctionBuilder& body) {
  return Call("repeat", {{times}, carried, inputs}, {&body});
}

void FunctionBuilder::Emit(std::string_view name, Value v) {
  Append("emit", {v.id}, {}, {{"name", AttrValue(std::string(name))}});
}

std::vector<Value> FunctionBuilder::OpsWithLists(std::string_view op,
                                                 const std::vector<std::vector<Value>>& operands,
                                                 const std::vector<AttrArg>& attrs) {
  std::vector<std::vector<Value>> all = operands;
  // Optional operands at the end may be left out.
  if (const OpDef* row = (*s_->ops)->Find(op)) {
    while (all.size() < row->operands.size() && row->operands[all.size()].optional)
      all.push_back({Value{kAbsent}});
  }
  return Call(op, all, {}, attrs);
}

Value FunctionBuilder::OpWithLists(std::string_view op,
                                   const std::vector<std::vector<Value>>& operands,
                                   const std::vector<AttrArg>& attrs) {
  return One(op, OpsWithLists(op, operands, attrs));
}

namespace {

// Converts extents, attributes and called functions of one module for another one.
class Inliner {
 public:
  // `add`: adds a function to the other module; returns its number there.
  Inliner(const Module& from, Module& to, std::function<uint32_t(Function)> add)
      : from_(from),
        to_(to),
        add_(std::move(add)),
        bound_(from.dims.symbols().size()),
        numbers_(from.functions.size()) {}

  // Binds symbols in a parameter's type to the extents of the given type, if they are not part of
  // an expression.
  void Bind(const TensorType& param, const TensorType& given) {
    for (size_t i = 0; i < std::min(param.shape.size(), given.shape.size()); ++i) {
      const DimNode& d = from_.dims.node(param.shape[i]);
      if (d.kind == DimKind::kSymbol && !bound_[static_cast<size_t>(d.value)])
        bound_[static_cast<size_t>(d.value)] = given.shape[i];
    }
  }
  StatusOr<Dim> Of(Dim d) {
    DimNode node = from_.dims.node(d);
    if (node.kind == DimKind::kFromValue) return Unimplemented("an extent comes from a value");
    if (node.kind == DimKind::kSymbol) {
      if (const auto& bound = bound_[static_cast<size_t>(node.value)]) return *bound;
      return InvalidArgument("no parameter has ?{} as an extent",
                             Clip(from_.dims.symbols()[static_cast<size_t>(node.value)].name));
    }
    if (node.kind != DimKind::kConstant) {
      OPWIRE_ASSIGN_OR_RETURN(node.a, Of(node.a));
      OPWIRE_ASSIGN_OR_RETURN(node.b, Of(node.b));
    }
    return to_.dims.Make(node);
  }
  StatusOr<TensorType> Of(const TensorType& type) {
    TensorType out = type;
    for (Dim& d : out.shape) {
      OPWIRE_ASSIGN_OR_RETURN(d, Of(d));
    }
    return out;
  }
  StatusOr<AttrValue> Of(const AttrValue& value) {
    switch (KindOf(value)) {
      case AttrKind::kDim: {
        OPWIRE_ASSIGN_OR_RETURN(const Dim d, Of(std::get<Dim>(value)));
        return AttrValue(d);
      }
      case AttrKind::kDims: {
        Dims out = std::get<Dims>(value);
        for (Dim& d : out) {
          OPWIRE_ASSIGN_OR_RETURN(d, Of(d));
        }
        return AttrValue(std::move(out));
      }
      case AttrKind::kType: {
        OPWIRE_ASSIGN_OR_RETURN(TensorType type, Of(std::get<TensorType>(value)));
        return AttrValue(std::move(type));
      }
      case AttrKind::kBlob:
        to_.blobs.push_back(from_.blobs[std::get<BlobRef>(value).index]);
        return AttrValue(BlobRef{static_cast<uint32_t>(to_.blobs.size() - 1)});
      default:
        return value;
    }
  }
  // Returns the numbers of the functions that a node of the first module calls. Adds them, and the
  // functions that they call.
  StatusOr<std::vector<uint32_t>> Called(const Node& node) {
    std::vector<uint32_t> out;
    for (const uint32_t callee : node.calls) {
      if (!numbers_[callee]) {
        OPWIRE_ASSIGN_OR_RETURN(Function f, Of(from_.functions[callee]));
        numbers_[callee] = add_(std::move(f));
      }
      out.push_back(*numbers_[callee]);
    }
    return out;
  }

 private:
  StatusOr<Function> Of(Function f) {
    for (Param& p : f.params) {
      OPWIRE_ASSIGN_OR_RETURN(p.type, Of(p.type));
    }
    for (Node& node : f.nodes) {
      for (NamedAttr& a : node.attrs) {
        OPWIRE_ASSIGN_OR_RETURN(a.value, Of(a.value));
      }
      for (TensorType& type : node.results) {
        OPWIRE_ASSIGN_OR_RETURN(type, Of(type));
      }
      OPWIRE_ASSIGN_OR_RETURN(node.calls, Called(node));
    }
    return f;
  }

  const Module& from_;
  Module& to_;
  const std::function<uint32_t(Function)> add_;
  std::vector<std::optional<Dim>> bound_;         // by symbol
  std::vector<std::optional<uint32_t>> numbers_;  // by function
};

}  // namespace

std::vector<Value> FunctionBuilder::Inline(const Module& module,
                                           const std::vector<Value>& arguments) {
  const opwire::Function& f = module.functions[0];
  std::vector<Value> results(f.results.size());
  if (!s_->status->ok()) return results;
  const auto fail = [&](const Status& why) {
    s_->Fail(Status(why.code(), fmt::format("inline of @{}: {}", Clip(f.name), MessageOf(why))));
    return results;
  };
  if (f.params.size() != arguments.size())
    return fail(InvalidArgument("expected {} values, got {}", f.params.size(), arguments.size()));
  // Named "entry.name", with a number after it if that name is taken.
  const auto add = [&](opwire::Function called) {
    const std::string name = called.name = fmt::format("{}.{}", f.name, called.name);
    const auto taken = [&](const State& other) { return other.f.name == called.name; };
    for (int i = 2; std::ranges::any_of(*s_->functions, taken); ++i)
      called.name = fmt::format("{}.{}", name, i);
    const auto number = static_cast<uint32_t>(s_->functions->size());
    s_->functions->push_back(
        {s_->module, s_->ops, s_->status, s_->functions, number, std::move(called), {}, false});
    return number;
  };
  Inliner importer(module, *s_->module, add);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (f.params[i].mode == ParamMode::kDim)
      return fail(Unimplemented("parameter %{} is a dimension", Clip(f.params[i].name)));
    importer.Bind(f.params[i].type, TypeOf(arguments[i]));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const StatusOr<TensorType> type = importer.Of(f.params[i].type);
    if (!type.ok()) return fail(type.status());
    if (*type == TypeOf(arguments[i])) continue;
    return fail(InvalidArgument("parameter %{}: expected {}, got {}", Clip(f.params[i].name),
                                ToString(*type, dims()), ToString(TypeOf(arguments[i]), dims())));
  }
  std::vector<Value> values = arguments;
  for (const Node& node : f.nodes) {
    std::vector<ValueId> operands;
    for (const ValueId v : node.operands)
      operands.push_back(v == kAbsent ? kAbsent : values[static_cast<size_t>(v)].id);
    std::vector<AttrArg> attrs;
    for (const NamedAttr& a : node.attrs) {
      StatusOr<AttrValue> value = importer.Of(a.value);
      if (!value.ok()) return fail(value.status());
      attrs.push_back({a.name, *std::move(value)});
    }
    StatusOr<std::vector<uint32_t>> calls = importer.Called(node);
    if (!calls.ok()) return fail(calls.status());
    std::vector<TensorType> declared;
    for (size_t i = 0; i < node.results.size() && !node.calls.empty(); ++i) {
      StatusOr<TensorType> type = importer.Of(node.results[i]);
      if (!type.ok()) return fail(type.status());
      declared.push_back(*std::move(type));
    }
    const std::vector<Value> made = Append(node.op, std::move(operands), node.segments, attrs,
                                           *std::move(calls), std::move(declared));
    if (!s_->status->ok()) return results;
    if (!node.pin.empty()) Pin(node.pin);
    if (!node.location.empty()) Location(node.location);
    values.insert(values.end(), made.begin(), made.end());
  }
  for (size_t r = 0; r < results.size(); ++r)
    results[r] = values[static_cast<size_t>(f.results[r].value)];
  return results;
}

Value FunctionBuilder::Scalar(DType dtype, double value) {
  return Op("full", {}, {{"value", AttrValue(value)}, {"dtype", AttrValue(dtype)}});
}

void FunctionBuilder::Pin(std::string_view variant) {
  if (!s_->f.nodes.empty()) s_->f.nodes.back().pin = variant;
}

void FunctionBuilder::Location(std::string_view where) {
  if (!s_->f.nodes.empty()) s_->f.nodes.back().location = where;
}

BlobRef FunctionBuilder::Blob(std::string bytes) {
  std::vector<std::string>& blobs = s_->module->blobs;
  blobs.push_back(std::move(bytes));
  return {static_cast<uint32_t>(blobs.size() - 1)};
}

bool FunctionBuilder::UsesBehind(Value v, Value operand) const {
  auto made = static_cast<ValueId>(s_->f.params.size());
  return std::ranges::any_of(s_->f.nodes, [&](const Node& n) {
    const bool behind = made > v.id;
    made += static_cast<ValueId>(n.results.size());
    return behind && std::ranges::find(n.operands, operand.id) != n.operands.end();
  });
}

void FunctionBuilder::Return(std::string_view name, Value v) {
  s_->f.results.push_back({std::string(name), v.id});
}

const TensorType& FunctionBuilder::TypeOf(Value v) const {
  return v.id >= 0 && static_cast<size_t>(v.id) < s_->types.size() ? s_->types[v.id] : NoType();
}

}  // namespace opwire
