// The walk back, and the nodes that rules ask for.
#include "ir/passes/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/ops/names.h"
#include "ir/passes/backward.h"

namespace opwire {

// ---- Backward ----------------------------------------------------------------------------------------------------------------

ValueId Backward::Op(std::string_view op, std::vector<ValueId> operands, std::vector<NamedAttr> attrs) {
  return Ops(op, std::move(operands), 1, std::move(attrs))[0];
}

std::vector<ValueId> Backward::Ops(std::string_view op, std::vector<ValueId> operands, size_t results, std::vector<NamedAttr> attrs) {
  std::vector<ValueId> out;
  if (!failed_) out = r_.AppendAll(op, std::move(operands), std::move(attrs));
  failed_ |= out.size() != results;
  return failed_ ? std::vector<ValueId>(results, kAbsent) : out;
}

ValueId Backward::Reshape(ValueId v, const std::vector<Dim>& shape) {
  return failed_ || TypeOf(v).shape == shape ? v : Op("reshape", {v}, {{"shape", shape}});
}

ValueId Backward::Expand(ValueId v, const std::vector<Dim>& shape) {
  return failed_ || TypeOf(v).shape == shape ? v : Op("expand", {v}, {{"shape", shape}});
}

ValueId Backward::Full(const TensorType& type, double value) { return Op("full", {}, {{"shape", type.shape}, {"value", value}, {"dtype", type.dtype}}); }

ValueId Backward::FromTerm(std::string_view text, const NamedValues& bindings, ValueId like) {
  if (failed_) return kAbsent;
  const TensorType type = TypeOf(like);
  const ValueId v = Build(r_, ParseTerm(text), bindings, type);
  failed_ |= v == kAbsent;
  return v;
}

ValueId Backward::SumTo(ValueId v, const TensorType& type) {
  if (failed_ || TypeOf(v).shape == type.shape) return v;
  const std::vector<Dim> from = TypeOf(v).shape;
  const Dim one = dims().Constant(1);
  Ints folded;
  for (size_t a = 0; a < from.size(); ++a) {
    const size_t missing = from.size() - type.shape.size();
    if (a < missing || (type.shape[a - missing] == one && from[a] != one)) folded.push_back(static_cast<int64_t>(a));
  }
  if (!folded.empty()) v = Op("sum", {v}, {{"dims", folded}, {"keepdim", true}});
  return Reshape(v, type.shape);
}

ValueId Backward::Count(const std::vector<Dim>& shape, DType dtype) {
  const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  double known = 1;
  for (Dim d : shape) known *= dims().IsConstant(d) ? static_cast<double>(dims().ConstantValue(d)) : std::nan("");
  if (!std::isnan(known)) return Full({.dtype = wide}, known);
  const ValueId all = Op("sum", {Full({.dtype = DType::kI64, .shape = shape}, 1)});
  return Op("cast", {all}, {{"dtype", wide}});
}

void Backward::Add(ValueId v, ValueId g) {
  if (!Wants(v) || failed_) return;
  const TensorType type = TypeOf(v);
  // What has fewer elements than the value, such as a mean's, is the same for all of them.
  g = TypeOf(g).rank() < type.rank() ? Expand(g, type.shape) : SumTo(g, type);
  ValueId& sum = gradients_[static_cast<size_t>(v)];
  sum = sum == kAbsent ? g : Op("add", {sum, g});
}

// ---- Gradient ----------------------------------------------------------------------------------------------------------------

namespace {

StatusOr<ValueId> LossOf(const Function& f, const ValueTypes& values, const GradientOptions& options) {
  std::vector<std::string_view> names, fit;
  ValueId loss = kAbsent;
  for (const Result& r : f.results) {
    names.push_back(r.name);
    const TensorType& type = *values.types[static_cast<size_t>(r.value)];
    if (!kFloats.Has(type.dtype) || type.rank() != 0 || (!options.loss.empty() && r.name != options.loss)) continue;
    fit.push_back(r.name);
    loss = r.value;
  }
  if (fit.size() == 1) return loss;
  if (fit.empty() && !options.loss.empty()) {
    const bool there = std::ranges::find(names, options.loss) != names.end();
    if (!there) return InvalidArgument("gradient: the program has no result {}{}", Clip(options.loss), DidYouMean(NearestNames(options.loss, names)));
    return InvalidArgument("gradient: expected a loss that is a float of rank 0, {} is none", Clip(options.loss));
  }
  if (fit.empty()) return InvalidArgument("gradient: expected a result that is a float of rank 0, to be the loss");
  return InvalidArgument("gradient: expected one loss, {} could be it: {}", fit.size(), fmt::join(fit, ", "));
}

StatusOr<std::vector<ValueId>> ParamsOf(const Function& f, std::span<const std::string> wrt) {
  std::vector<ValueId> out;
  std::vector<std::string_view> names;
  for (const Param& p : f.params) names.push_back(p.name);
  for (const std::string& name : wrt) {
    const auto at = std::ranges::find(names, name);
    if (at == names.end()) return InvalidArgument("gradient: the program has no parameter {}{}", Clip(name), DidYouMean(NearestNames(name, names)));
    const Param& p = f.params[static_cast<size_t>(at - names.begin())];
    if (p.mode != ParamMode::kIn) return InvalidArgument("gradient: expected a parameter that is only read, {} is {}", name, p.mode == ParamMode::kDim ? "a dimension" : "inout");
    if (!kFloats.Has(p.type.dtype)) return InvalidArgument("gradient: expected a parameter of floats, {} is of {}", name, DTypeName(p.type.dtype));
    if (std::ranges::count(wrt, name) > 1) return InvalidArgument("gradient: {} is named twice", name);
    out.push_back(static_cast<ValueId>(at - names.begin()));
  }
  return out;
}

// The values between the parameters and the loss.
std::vector<bool> Between(const Function& f, const ValueTypes& values, std::span<const ValueId> wrt, ValueId loss) {
  std::vector<bool> from(values.size()), to(values.size());
  for (ValueId v : wrt) from[static_cast<size_t>(v)] = true;
  to[static_cast<size_t>(loss)] = true;
  const auto is_float = [&](ValueId v) { return values.types[static_cast<size_t>(v)] != nullptr && kFloats.Has(values.types[static_cast<size_t>(v)]->dtype); };
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    const bool reached = std::ranges::any_of(f.nodes[n].operands, [&](ValueId v) { return v != kAbsent && from[static_cast<size_t>(v)]; });
    for (size_t r = 0; r < f.nodes[n].results.size(); ++r) from[values.first_result[n] + r] = reached && is_float(static_cast<ValueId>(values.first_result[n] + r));
  }
  for (size_t n = f.nodes.size(); n-- > 0;) {
    bool read = false;
    for (size_t r = 0; r < f.nodes[n].results.size(); ++r) read |= to[values.first_result[n] + r] && from[values.first_result[n] + r];
    for (ValueId v : f.nodes[n].operands) {
      if (v != kAbsent && read) to[static_cast<size_t>(v)] = true;
    }
  }
  for (size_t v = 0; v < from.size(); ++v) from[v] = from[v] && to[v];
  return from;
}

}  // namespace

StatusOr<Module> Gradient(Module module, std::span<const std::string> wrt, const GradientOptions& options) {
  OPWIRE_ASSIGN_OR_RETURN(const Typing typing, VerifyModule(module, options.limits, options.ops));
  const Function f = module.functions[0];
  const ValueTypes values(f);
  OPWIRE_ASSIGN_OR_RETURN(const ValueId loss, LossOf(f, values, options));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ValueId> params, ParamsOf(f, wrt));
  const std::vector<bool> wanted = Between(f, values, params, loss);
  // Beyond its limits the module does not verify, which says so.
  PassContext context{.module = module, .typing = typing, .ops = options.ops, .limits = {.nodes = INT64_MAX}};
  Rewriter r(context, 0);
  for (uint32_t n = 0; n < f.nodes.size(); ++n) {
    r.Begin(n);
    r.Keep();
  }
  Backward b(r, wanted);
  b.Add(loss, b.Full(r.TypeOf(loss), 1));
  for (size_t n = f.nodes.size(); n-- > 0;) {
    const Node& node = f.nodes[n];
    const size_t first = values.first_result[n];
    std::vector<ValueId> results;
    bool reached = false;
    for (size_t i = 0; i < node.results.size(); ++i) {
      results.push_back(static_cast<ValueId>(first + i));
      reached |= b.GradientOf(results.back()) != kAbsent;
    }
    if (!reached) continue;
    r.Begin(static_cast<uint32_t>(n));  // for the place in the source
    const auto place = [&] { return fmt::format("{} (node {} of \"{}\"{}{})", node.op, ValueName(f, results[0]), f.name, node.location.empty() ? "" : ", ", node.location); };
    if (!AddGradients(b, node, results, typing.functions[0].nodes[n].attrs)) return Unimplemented("gradient: there is none of {}", place());
    if (b.failed()) return Internal("gradient: the rule of {} asks for a node that does not fit", place());
  }
  std::vector<ValueId> gradients;
  for (ValueId p : params) gradients.push_back(b.GradientOf(p) != kAbsent ? b.GradientOf(p) : b.Full(r.TypeOf(p), 0));
  r.Finish();
  for (size_t i = 0; i < params.size(); ++i) module.functions[0].results.push_back({"grad." + wrt[i], gradients[i]});
  OPWIRE_RETURN_IF_ERROR(VerifyModule(module, options.limits, options.ops).status());
  return module;
}

}  // namespace opwire
