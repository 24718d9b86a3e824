// Builds the backward pass, with the nodes of gradient rules.
#include "ir/passes/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "ir/ops/names.h"
#include "ir/passes/backward.h"
#include "ir/passes/recompute.h"

namespace opwire {

// ---- Backward
// -------------------------------------------------------------------------------------------------

ValueId Backward::Op(std::string_view op, std::vector<ValueId> operands,
                     std::vector<NamedAttr> attrs) {
  return Ops(op, std::move(operands), 1, std::move(attrs))[0];
}

std::vector<ValueId> Backward::Ops(std::string_view op, std::vector<ValueId> operands,
                                   size_t results, std::vector<NamedAttr> attrs) {
  std::vector<ValueId> out;
  if (!failed_) out = r_.AppendAll(op, std::move(operands), std::move(attrs));
  failed_ |= out.size() != results;
  return failed_ ? std::vector<ValueId>(results, kAbsent) : out;
}

std::vector<ValueId> Backward::Call(std::string_view op,
                                    std::initializer_list<std::span<const ValueId>> lists,
                                    std::vector<uint32_t> functions, std::vector<TensorType> types,
                                    const std::string& location) {
  const OpDef& row = *r_.FindRow(op);
  const size_t results = types.size();
  Node node{.op = row.name,
            .version = row.version,
            .calls = std::move(functions),
            .results = std::move(types),
            .location = location};
  for (const std::span<const ValueId> list : lists) {
    node.operands.insert(node.operands.end(), list.begin(), list.end());
    node.segments.push_back(static_cast<uint32_t>(list.size()));
  }
  failed_ |= std::ranges::find(node.operands, kAbsent) != node.operands.end();
  return failed_ ? std::vector<ValueId>(results, kAbsent) : r_.AppendNode(std::move(node));
}

ValueId Backward::Reshape(ValueId v, const std::vector<Dim>& shape) {
  return failed_ || TypeOf(v).shape == shape ? v : Op("reshape", {v}, {{"shape", shape}});
}

ValueId Backward::Expand(ValueId v, const std::vector<Dim>& shape) {
  return failed_ || TypeOf(v).shape == shape ? v : Op("expand", {v}, {{"shape", shape}});
}

ValueId Backward::Full(const TensorType& type, double value) {
  return Op("full", {}, {{"shape", type.shape}, {"value", value}, {"dtype", type.dtype}});
}

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
  Ints reduced;
  for (size_t a = 0; a < from.size(); ++a) {
    const size_t missing = from.size() - type.shape.size();
    if (a < missing || (type.shape[a - missing] == one && from[a] != one))
      reduced.push_back(static_cast<int64_t>(a));
  }
  if (!reduced.empty()) v = Op("sum", {v}, {{"dims", reduced}, {"keepdim", true}});
  return Reshape(v, type.shape);
}

ValueId Backward::Count(const std::vector<Dim>& shape, DType dtype) {
  const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  double known = 1;
  ValueId all = kAbsent;
  for (const Dim d : shape) {
    if (dims().IsConstant(d)) {
      known *= static_cast<double>(dims().ConstantValue(d));
      continue;
    }
    const ValueId extent = Op("sum", {Full({.dtype = DType::kI64, .shape = {d}}, 1)});
    all = all == kAbsent ? extent : Op("mul", {all, extent});
  }
  if (all == kAbsent) return Full({.dtype = wide}, known);
  if (known != 1) all = Op("mul", {all, Full({.dtype = DType::kI64}, known)});
  return Op("cast", {all}, {{"dtype", wide}});
}

void Backward::Add(ValueId v, ValueId g) {
  if (!Wants(v) || failed_) return;
  const TensorType type = TypeOf(v);
  // A gradient with fewer elements than the value, such as a mean's, is the same for all of them.
  g = TypeOf(g).rank() < type.rank() ? Expand(g, type.shape) : SumTo(g, type);
  added_.push_back(g);
  ValueId& sum = gradients_[static_cast<size_t>(v)];
  sum = sum == kAbsent ? g : Op("add", {sum, g});
}

ValueId Backward::CountNans(ValueId v) {
  const ValueId count = Op("sum", {Op("cast", {Op("isnan", {v})}, {{"dtype", DType::kI64}})});
  return Op("reshape", {count}, {{"shape", Ints{1}}});
}

void Backward::AddStretch(ValueId v, int64_t axis, int64_t start, ValueId g) {
  if (!Wants(v) || failed_) return;
  if (ExtentOf(g, axis) == ExtentOf(v, axis)) return Add(v, g);
  added_.push_back(g);
  stretches_[v].push_back({axis, start, ExtentOf(g, axis), g});
}

ValueId Backward::GradientOf(ValueId v) {
  const auto found = stretches_.find(v);
  if (found == stretches_.end()) return gradients_[static_cast<size_t>(v)];
  std::vector<Stretch> left = std::move(found->second);
  stretches_.erase(found);
  std::ranges::stable_sort(left, {}, [](const Stretch& s) { return std::pair(s.axis, s.start); });
  while (!left.empty() && !failed_) {
    // Joins ranges of one axis, from the first remaining one: those that begin at the end of the
    // previous one, or later, with zeros between them.
    const int64_t axis = left[0].axis;
    int64_t end = 0;
    std::vector<ValueId> parts;
    const auto zeros_until = [&](int64_t next) {
      if (next == end) return;
      TensorType gap = TypeOf(v);
      gap.shape[static_cast<size_t>(axis)] = dims().Constant(next - end);
      parts.push_back(Full(gap, 0));
    };
    std::vector<Stretch> others;
    for (const Stretch& s : left) {
      if (s.axis != axis || s.start < end) {
        others.push_back(s);
        continue;
      }
      zeros_until(s.start);
      parts.push_back(s.g);
      end = s.start + s.length;
    }
    zeros_until(ExtentOf(v, axis));
    Add(v, Op("cat", std::move(parts), {{"dim", axis}}));
    left = std::move(others);
  }
  return gradients_[static_cast<size_t>(v)];
}

// ---- Options
// -------------------------------------------------------------------------------------------------

namespace {

StatusOr<ValueId> LossOf(const Function& f, const ValueTypes& values,
                         const GradientOptions& options) {
  std::vector<std::string_view> names, fit;
  ValueId loss = kAbsent;
  for (const Result& r : f.results) {
    names.push_back(r.name);
    const TensorType& type = *values.types[static_cast<size_t>(r.value)];
    if (!kFloats.Has(type.dtype) || type.rank() != 0 ||
        (!options.loss.empty() && r.name != options.loss))
      continue;
    fit.push_back(r.name);
    loss = r.value;
  }
  if (fit.size() == 1) return loss;
  if (fit.empty() && !options.loss.empty()) {
    const bool there = std::ranges::find(names, options.loss) != names.end();
    if (!there)
      return InvalidArgument("gradient: the program has no result {}{}", Clip(options.loss),
                             DidYouMean(NearestNames(options.loss, names)));
    return InvalidArgument("gradient: expected a loss that is a float of rank 0, {} is not",
                           Clip(options.loss));
  }
  if (fit.empty())
    return InvalidArgument("gradient: expected a result that is a float of rank 0, to be the loss");
  return InvalidArgument("gradient: expected one loss, {} could be it: {}", fit.size(),
                         fmt::join(fit, ", "));
}

StatusOr<std::vector<ValueId>> ParamsOf(const Function& f, std::span<const std::string> wrt) {
  std::vector<ValueId> out;
  std::vector<std::string_view> names;
  for (const Param& p : f.params) names.push_back(p.name);
  for (const std::string& name : wrt) {
    const auto at = std::ranges::find(names, name);
    if (at == names.end())
      return InvalidArgument("gradient: the program has no parameter {}{}", Clip(name),
                             DidYouMean(NearestNames(name, names)));
    const Param& p = f.params[static_cast<size_t>(at - names.begin())];
    if (p.mode != ParamMode::kIn)
      return InvalidArgument("gradient: expected a parameter that is only read, {} is {}", name,
                             p.mode == ParamMode::kDim ? "a dimension" : "inout");
    if (!kFloats.Has(p.type.dtype))
      return InvalidArgument("gradient: expected a parameter of floats, {} is of {}", name,
                             DTypeName(p.type.dtype));
    if (std::ranges::count(wrt, name) > 1)
      return InvalidArgument("gradient: {} is named twice", name);
    out.push_back(static_cast<ValueId>(at - names.begin()));
  }
  return out;
}

// Nodes of a backward pass may read an inout parameter after it was replaced. They read an earlier
// copy instead. `replaced_by`: by parameter, the result that replaces it; -1: none.
void KeepReplaced(Function& f, std::span<const int32_t> replaced_by, const OpDef& copy) {
  const ValueTypes values(f);
  std::vector<bool> reads(f.params.size());  // after it was replaced
  std::vector<std::vector<ValueId>> ending(f.nodes.size());
  for (size_t p = 0; p < f.params.size(); ++p) {
    if (replaced_by[p] < 0) continue;
    const auto by = static_cast<uint32_t>(f.results[static_cast<size_t>(replaced_by[p])].value);
    const size_t end = static_cast<size_t>(std::ranges::upper_bound(values.first_result, by) -
                                           values.first_result.begin()) -
                       1;
    for (size_t n = end + 1; n < f.nodes.size() && !reads[p]; ++n)
      reads[p] = std::ranges::find(f.nodes[n].operands, static_cast<ValueId>(p)) !=
                 f.nodes[n].operands.end();
    if (reads[p]) ending[end].push_back(static_cast<ValueId>(p));
  }
  std::vector<ValueId> now(values.size());
  std::iota(now.begin(), now.begin() + static_cast<ptrdiff_t>(f.params.size()), 0);
  auto next = static_cast<ValueId>(f.params.size());
  std::vector<Node> nodes;
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    for (const ValueId p : ending[n]) {
      nodes.push_back({.op = copy.name,
                       .version = copy.version,
                       .operands = {p},
                       .results = {f.params[static_cast<size_t>(p)].type},
                       .location = f.nodes[n].location});
    }
    const ValueId copies = next;
    next += static_cast<ValueId>(ending[n].size());
    Node node = std::move(f.nodes[n]);
    for (ValueId& v : node.operands) v = v == kAbsent ? v : now[static_cast<size_t>(v)];
    for (size_t r = 0; r < node.results.size(); ++r) now[values.first_result[n] + r] = next++;
    for (size_t i = 0; i < ending[n].size(); ++i)
      now[static_cast<size_t>(ending[n][i])] = copies + static_cast<ValueId>(i);
    nodes.push_back(std::move(node));
  }
  for (Result& r : f.results) r.value = now[static_cast<size_t>(r.value)];
  f.nodes = std::move(nodes);
}

}  // namespace

void MarkMade(const Function& f, const ValueTypes& values, Marks& made) {
  const auto is_float = [&](ValueId v) {
    return values.types[static_cast<size_t>(v)] != nullptr &&
           kFloats.Has(values.types[static_cast<size_t>(v)]->dtype);
  };
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    const bool reached = std::ranges::any_of(f.nodes[n].operands, [&](ValueId v) {
      return v != kAbsent && made[static_cast<size_t>(v)];
    });
    for (size_t r = 0; r < f.nodes[n].results.size(); ++r)
      made[values.first_result[n] + r] =
          reached && is_float(static_cast<ValueId>(values.first_result[n] + r));
  }
}

Marks Between(const Function& f, const ValueTypes& values, const Marks& made, Marks to) {
  for (size_t n = f.nodes.size(); n-- > 0;) {
    bool read = false;
    for (size_t r = 0; r < f.nodes[n].results.size(); ++r)
      read |= to[values.first_result[n] + r] && made[values.first_result[n] + r];
    for (ValueId v : f.nodes[n].operands) {
      if (v != kAbsent && read) to[static_cast<size_t>(v)] = true;
    }
  }
  for (size_t v = 0; v < to.size(); ++v) to[v] = to[v] && made[v];
  return to;
}

// ---- Differentiator
// -------------------------------------------------------------------------------------------------

Differentiator::Differentiator(Module& module, Typing typing, const OpCatalogue& ops)
    : module_(module), typing_(std::move(typing)), ops_(ops) {
  for (const Function& f : module.functions) names_.insert(f.name);
}

StatusOr<std::vector<ValueId>> Differentiator::AddWayBack(uint32_t function, const Marks& wanted,
                                                          std::span<const Seed> seeds,
                                                          std::span<const ValueId> by,
                                                          const Origin& origin, NanCounts* nans) {
  const Function f = module_.functions[function];
  const ValueTypes values(f);
  PassContext context = Context();
  Rewriter r(context, function);
  const auto place = [&](uint32_t n) {
    const Node& node = f.nodes[n];
    const std::string at = node.location.empty() ? "" : ", " + node.location;
    return fmt::format("{} (node %{} of \"{}\"{})", node.op,
                       values.first_result[n] - origin.first_value, origin.name, at);
  };
  std::map<uint32_t, Loop> loops;
  for (uint32_t n = 0; n < f.nodes.size(); ++n) {
    Node& node = r.Begin(n);
    const auto first = wanted.begin() + values.first_result[n],
               end = first + static_cast<ptrdiff_t>(node.results.size());
    if (r.RowOf(n).control != Control::kRepeat || std::find(first, end, true) == end) {
      r.Keep();
      continue;
    }
    OPWIRE_ASSIGN_OR_RETURN(std::optional<Loop> loop, KeepCarried(r, node, place(n)));
    if (loop) loops.emplace(n, *std::move(loop));
  }
  Marks renamed(r.size());
  for (size_t v = 0; v < wanted.size(); ++v) {
    if (wanted[v]) renamed[static_cast<size_t>(r.Renamed(static_cast<ValueId>(v)))] = true;
  }
  ways_.push_back({function, r.nodes()});
  Backward b(r, renamed);
  std::vector<ValueId> counts;
  if (nans != nullptr) counts.push_back(r.Renamed(nans->value));
  for (const Seed& s : seeds)
    b.Add(r.Renamed(s.value),
          s.gradient != kAbsent ? s.gradient : b.Full(r.TypeOf(r.Renamed(s.value)), 1));
  for (uint32_t n = static_cast<uint32_t>(f.nodes.size()); n-- > 0;) {
    std::vector<ValueId> results;
    std::vector<std::string_view> reached;  // results
    for (size_t i = 0; i < f.nodes[n].results.size(); ++i) {
      results.push_back(r.Renamed(static_cast<ValueId>(values.first_result[n] + i)));
      const std::vector<ResultSpec>& specs = r.RowOf(n).results;
      if (b.GradientOf(results.back()) != kAbsent)
        reached.push_back(i < specs.size() ? std::string_view(specs[i].name) : "");
    }
    if (reached.empty()) continue;
    const Node& node = r.Begin(n);  // for the location in the source
    b.TakeAdded();
    if (std::ranges::none_of(node.operands, [&](ValueId v) { return b.Wants(v); })) continue;
    if (r.RowOf(n).control == Control::kRepeat) {
      const auto loop = loops.find(n);
      if (loop == loops.end())
        return Unimplemented(
            "gradient: expected a constant number of iterations, got one that only a run knows, "
            "for {}",
            place(n));
      OPWIRE_RETURN_IF_ERROR(AddLoopGradients(b, node, results, loop->second));
    } else if (r.RowOf(n).control == Control::kIf) {
      OPWIRE_RETURN_IF_ERROR(AddBranchGradients(b, node, results));
    } else if (!AddGradients(b, node, results, r.AttrsOf(n))) {
      return Unimplemented("gradient: there is none of {}{}", place(n),
                           f.nodes[n].results.size() > 1
                               ? fmt::format(" by its {}", fmt::join(reached, " and "))
                               : "");
    }
    if (b.failed())
      return Internal("gradient: the rule of {} asks for a node that does not fit", place(n));
    if (nans == nullptr) continue;
    for (const ValueId g : b.TakeAdded()) {
      counts.push_back(b.CountNans(g));
      nans->counted.push_back(
          fmt::format("gradient of {} {}{}", node.op, ToString(r.TypeOf(g), r.dims()),
                      node.location.empty() ? "" : fmt::format(" ({})", node.location)));
    }
  }
  std::vector<ValueId> out;
  for (const ValueId v : by) {
    const ValueId value = r.Renamed(v);
    out.push_back(b.GradientOf(value) != kAbsent ? b.GradientOf(value)
                                                 : b.Full(r.TypeOf(value), 0));
  }
  if (nans != nullptr) nans->value = b.Op("cat", std::move(counts), {{"dim", int64_t{0}}});
  r.Finish();
  return out;
}

void Differentiator::ComputeMarkedAgain() {
  for (const auto& [function, begin] : ways_)
    RecomputeMarked(module_.functions[function], begin, ops_);
}

// ---- Gradient
// -------------------------------------------------------------------------------------------------

StatusOr<Module> Gradient(Module module, std::span<const std::string> wrt,
                          const GradientOptions& options) {
  OPWIRE_ASSIGN_OR_RETURN(Typing typing, VerifyModule(module, options.limits, options.ops));
  const Function f = module.functions[0];
  const ValueTypes values(f);
  OPWIRE_ASSIGN_OR_RETURN(const ValueId loss, LossOf(f, values, options));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ValueId> params, ParamsOf(f, wrt));
  Marks made(values.size()), to(values.size());
  for (ValueId v : params) made[static_cast<size_t>(v)] = true;
  to[static_cast<size_t>(loss)] = true;
  MarkMade(f, values, made);
  const std::vector<int32_t> replaced_by = typing.functions[0].replaced_by;
  std::vector<bool> called = CalledFunctions(module);
  Differentiator differentiator(module, std::move(typing), options.ops);
  const Differentiator::Seed seed{loss, kAbsent};
  const auto counted = std::ranges::find(f.results, options.nans, &Result::name);
  Differentiator::NanCounts nans;
  if (!options.nans.empty()) {
    if (counted == f.results.end())
      return InvalidArgument("gradient: there is no result '{}' that counts NaNs", options.nans);
    nans.value = counted->value;
  }
  OPWIRE_ASSIGN_OR_RETURN(
      const std::vector<ValueId> gradients,
      differentiator.AddWayBack(0, Between(f, values, made, std::move(to)), std::span(&seed, 1),
                                params, {f.name, f.params.size()},
                                options.nans.empty() ? nullptr : &nans));
  if (!options.nans.empty()) {
    module.functions[0].results[static_cast<size_t>(counted - f.results.begin())].value =
        nans.value;
    if (options.counted != nullptr) *options.counted = std::move(nans.counted);
  }
  for (size_t i = 0; i < params.size(); ++i)
    module.functions[0].results.push_back({"grad." + wrt[i], gradients[i]});
  differentiator.ComputeMarkedAgain();
  KeepReplaced(module.functions[0], replaced_by, *options.ops.Find("copy"));
  // Some of the added functions may have been written only for other functions.
  called.resize(module.functions.size(), true);
  RemoveUncalled(module, std::move(called));
  OPWIRE_RETURN_IF_ERROR(VerifyModule(module, options.limits, options.ops).status());
  return module;
}

}  // namespace opwire
