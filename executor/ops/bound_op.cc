// An op bound by way of a program of one node, and its reference called directly.
#include "executor/ops/bound_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/base/element.h"
#include "ir/ops/extents.h"
#include "ir/program/builder.h"
#include "kernels/select/key_types.h"

namespace opwire::executor {

std::string Describe(const TypeBinding& types) {
  std::string out;
  for (const auto& [name, dtype] : types)
    out += fmt::format("{}{}", out.empty() ? "" : " ", DTypeName(dtype));
  return out.empty() ? "-" : out;
}

StatusOr<OpUnderTrial> OpUnderTrial::Make(const jit::OpManifest& op,
                                          const jit::OpVariantSpec& variant,
                                          const opw_kernel& kernel, const TrialPlace& place) {
  OpUnderTrial t(op, variant, kernel, place);
  const bool says = (kernel.flags & OPW_DETERMINISTIC) != 0;
  if (variant.deterministic && !says)
    return FailedPrecondition(
        "{}@{}: the manifest calls it deterministic, its flags lack OPW_DETERMINISTIC", op.name(),
        variant.name);
  OPWIRE_ASSIGN_OR_RETURN(t.reference_, ReferenceProgram::Make(op.declaration, op.row, op.reference,
                                                               "reference", place.builtin));
  auto wide = ReferenceProgram::Make(op.declaration, op.row, op.reference, "reference",
                                     place.builtin, ReferenceProgram::When::kNow, /*wide=*/true);
  if (wide.ok())
    t.wide_ = *std::move(wide);  // else judged by the program as it is: it may insist on its types
  OPWIRE_ASSIGN_OR_RETURN(auto ops, ExtendCatalogue({op.row}));
  auto set = std::make_shared<KernelSet>();
  set->variants = VariantTable(*ops);
  set->ops = std::move(ops);
  const DTypeSet all = KeyTypesOf(op.row);
  set->variants.Add({op.name(), variant.name, Tier::kProduction, 0, all, "", op.folder, kernel});
  set->variants.Add(
      {op.name(), "reference", Tier::kReference, 0, all, "", op.folder, t.reference_->kernel()});
  t.set_ = std::move(set);
  return t;
}

std::string OpUnderTrial::Label() const {
  return fmt::format("{}@{}", op_->name(), variant_->name);
}

bool OpUnderTrial::HasIndices() const {
  return std::ranges::any_of(op_->row.operands,
                             [](const OperandSpec& o) { return o.domain != Domain::kAny; });
}

StatusOr<std::optional<BoundOp>> OpUnderTrial::Bind(const TypeBinding& types, const jit::OpCase& c,
                                                    const std::string& pin, FaultReporter& faults) {
  BoundOp b;
  b.what = Describe(types);
  b.extents = c.extents;
  for (const auto& [name, value] : c.extents) b.what += fmt::format(" {}={}", name, value);
  if (!c.leading.empty()) b.what += fmt::format(" ...={}", ShapeToString(c.leading));
  auto shapes = OperandShapes(op_->declaration, c.extents, c.leading, c.attrs);
  if (!shapes.ok()) return shapes.status();
  b.shapes = *std::move(shapes);
  ModuleBuilder m(*set_->ops);
  FunctionBuilder f = m.Function("check");
  std::vector<Value> operands;
  for (size_t i = 0; i < op_->row.operands.size(); ++i) {
    b.dtypes.push_back(TypeIn(types, op_->row.operands[i].type));
    operands.push_back(
        f.In("p" + std::to_string(i), b.dtypes.back(), {b.shapes[i].begin(), b.shapes[i].end()}));
  }
  std::vector<AttrArg> attrs;
  for (const NamedAttr& a : c.attrs) {
    attrs.emplace_back(a.name, a.value);
    b.what += fmt::format(" {}", a.name);
  }
  for (const auto& [name, dtype] : types) {
    if (op_->row.FindAttr(name) >= 0) attrs.emplace_back(name, AttrValue(dtype));
  }
  for (const AttrSpec& a : op_->row.attrs) {
    const bool given =
        std::ranges::any_of(attrs, [&](const AttrArg& have) { return have.name == a.name; });
    if (!given && !a.fallback)
      return FailedPrecondition("{}: attribute {} has no default: \"tests\" must name its values",
                                op_->name(), a.name);
  }
  const std::vector<Value> results = f.Ops(op_->name(), operands, attrs);
  f.Pin(pin);
  for (size_t r = 0; r < results.size(); ++r) f.Return("r" + std::to_string(r), results[r]);
  auto module = m.Finish();
  if (absl::IsInvalidArgument(module.status()))
    return std::optional<BoundOp>();  // a size that the signature excludes
  if (!module.ok()) return module.status();
  OPWIRE_ASSIGN_OR_RETURN(b.program, PrepareProgram(Serialise(*module), set_, ExecutorLimits()));
  FaultReporter::Watched watched(
      faults, fmt::format("{}, {}: in supports or prepare", Label(), b.what), {});
  auto instance =
      Instance::Build(*b.program, 0, {},
                      {.runtime = device().runtime(), .device = on_host() ? nullptr : &device()});
  if (absl::IsUnimplemented(instance.status()) || absl::IsFailedPrecondition(instance.status())) {
    ++refused_;
    last_refusal_ = MessageOf(instance.status());
    return std::optional<BoundOp>();
  }
  if (!instance.ok()) return instance.status();
  b.instance = *std::move(instance);
  return std::optional<BoundOp>(std::move(b));
}

int64_t OpUnderTrial::IndexExtent(const BoundOp& b, size_t operand) const {
  for (const auto& [name, extent] : op_->declaration.indices) {
    if (name == op_->row.operands[operand].name) return b.extents.at(extent);
  }
  return 0;
}

std::vector<uint8_t> OpUnderTrial::RandomInput(const BoundOp& b, size_t operand, Values values,
                                               std::mt19937_64& random) const {
  const bool index = op_->row.operands[operand].domain != Domain::kAny;
  return RandomOperand(b.dtypes[operand], b.shapes[operand],
                       index ? std::optional(IndexExtent(b, operand)) : std::nullopt, values,
                       random);
}

StatusOr<std::vector<std::vector<double>>> OpUnderTrial::Reference(
    const BoundOp& b, const std::vector<std::vector<uint8_t>>& inputs) const {
  // The same call, its floating tensors widened.
  opw_call call = b.step().call;
  std::vector<opw_tensor> operands(call.operands, call.operands + inputs.size()),
      results(call.results, call.results + op_->row.results.size());
  std::vector<std::vector<uint64_t>> memory;  // of 8 bytes, so that all is aligned
  const auto place = [&](opw_tensor& t) -> uint8_t* {
    memory.emplace_back(static_cast<size_t>(t.elements) + 8);
    t.data = memory.back().data();
    return static_cast<uint8_t*>(t.data);
  };
  const auto widens = [&](const std::string& type) {
    const DTypeSet* v = op_->row.Variable(type);
    return wide_ && v && (*v - kFloats).Empty();
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    uint8_t* to = place(operands[i]);
    if (!widens(op_->row.operands[i].type)) {
      if (!inputs[i].empty()) std::memcpy(to, inputs[i].data(), inputs[i].size());
      continue;
    }
    operands[i].dtype = OPW_F64;
    for (int64_t e = 0; e < operands[i].elements; ++e) {
      const double value =
          ElementValue(b.dtypes[i], inputs[i].data() + e * DTypeBytes(b.dtypes[i]));
      std::memcpy(to + e * 8, &value, 8);
    }
  }
  for (size_t r = 0; r < results.size(); ++r) {
    place(results[r]);
    if (widens(op_->row.results[r].type)) results[r].dtype = OPW_F64;
  }
  call.operands = operands.data();
  call.results = results.data();
  OPWIRE_RETURN_IF_ERROR(RunReference((wide_ ? wide_ : reference_)->kernel(), call, b.what));
  std::vector<std::vector<double>> out;
  for (const opw_tensor& t : results) {
    const auto dtype = static_cast<DType>(t.dtype);
    std::vector<double>& values = out.emplace_back();
    for (int64_t e = 0; e < t.elements; ++e)
      values.push_back(ElementValue(dtype, static_cast<uint8_t*>(t.data) + e * DTypeBytes(dtype)));
  }
  return out;
}

Status OpUnderTrial::RunReference(const opw_kernel& kernel, opw_call& call,
                                  const std::string& what) const {
  call.context = kernel.context;
  call.runtime = place_.host.runtime();
  if (const char* why = kernel.supports(&call))
    return FailedPrecondition("{}, {}: the reference refuses: {}", Label(), what, why);
  if (kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) {
    return FailedPrecondition(
        "{}, {}: the reference's results have other shapes than the signature says", Label(), what);
  }
  std::vector<uint64_t> workspace(static_cast<size_t>(call.workspace_bytes) / 8 + 16);
  call.workspace =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
  const int rc = kernel.run(&call);
  kernel.release(call.state);
  return rc == OPW_OK ? absl::OkStatus()
                      : FailedPrecondition("{}, {}: the reference failed", Label(), what);
}

}  // namespace opwire::executor
