// Gradients through `repeat` and `if`. A loop also stores its carried values at the begin of each
// iteration. Its backward pass is a loop from the last iteration to the first. The body computes an
// iteration again from the stored values and goes back through it. The backward pass of an `if` is
// an `if` with two branches. Each of them computes its own forward branch again from its inputs and
// goes back through it.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/passes/backward.h"
#include "ir/passes/constants.h"

namespace opwire {
namespace {

// Adds the nodes of `from` to `to`. `values`: its parameters as values of `to`; afterwards all of
// its values.
void AppendNodes(Function& to, const Function& from, std::vector<ValueId>& values) {
  size_t next = ValueTypes(to).size();
  for (Node node : from.nodes) {
    for (ValueId& v : node.operands) {
      if (v != kAbsent) v = values[static_cast<size_t>(v)];
    }
    for (size_t r = 0; r < node.results.size(); ++r) values.push_back(static_cast<ValueId>(next++));
    to.nodes.push_back(std::move(node));
  }
}

// Returns `begins`, or `begins` with a number if that name is taken. Adds the name to `taken`.
std::string UniqueName(std::unordered_set<std::string>& taken, std::string begins) {
  std::string name = begins;
  for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}.{}", begins, i);
  return name;
}

// The names of parameters and results, for a function that gets them and others.
std::unordered_set<std::string> NamesIn(const Function& f) {
  std::unordered_set<std::string> names;
  for (const Param& p : f.params) names.insert(p.name);
  for (const Result& r : f.results) names.insert(r.name);
  return names;
}

// The shape of one stored value.
std::vector<Dim> RowShape(DimTable& dims, const TensorType& type) {
  return {dims.Constant(1), dims.Constant(1), Product(dims, type.shape)};
}

}  // namespace

uint32_t Differentiator::AddFunction(Function f, std::string_view name) {
  f.name = UniqueName(names_, std::string(name));
  typing_.functions.push_back({.replaced_by = std::vector<int32_t>(f.params.size(), -1)});
  module_.functions.push_back(std::move(f));
  return static_cast<uint32_t>(module_.functions.size() - 1);
}

void Differentiator::AddTyping(uint32_t function) {
  for (const Node& node : module_.functions[function].nodes) {
    const OpDef* const row = ops_.Find(node.op);
    typing_.functions[function].nodes.push_back(
        {row, *ResolveAttrs(*row, node.attrs, module_.dims)});
  }
}

uint32_t Differentiator::Silent(uint32_t function) {
  if (const auto it = silent_.find(function); it != silent_.end()) return it->second;
  Function copy = module_.functions[function];
  // Emits have no results, so values keep their numbers.
  bool differs = std::erase_if(copy.nodes, [&](const Node& node) {
                   return ops_.Find(node.op)->control == Control::kEmit;
                 }) > 0;
  for (Node& node : copy.nodes) {
    for (uint32_t& callee : node.calls) {
      const uint32_t silent = Silent(callee);
      differs |= silent != callee;
      callee = silent;
    }
  }
  uint32_t out = function;
  if (differs) {
    const std::string name = copy.name;
    out = AddFunction(std::move(copy), name + ".silent");
    written_as_.emplace(out, name);
  }
  silent_.emplace(function, out);
  silent_.emplace(out, out);
  return out;
}

std::string Differentiator::WrittenName(uint32_t silent) const {
  const auto written = written_as_.find(silent);
  return written == written_as_.end() ? module_.functions[silent].name : written->second;
}

Marks Differentiator::AppendAgain(uint32_t back, const Function& from, const Marks& wanted,
                                  std::vector<ValueId>& values) {
  AppendNodes(module_.functions[back], from, values);
  AddTyping(back);
  Marks out(ValueTypes(module_.functions[back]).size());
  for (size_t v = 0; v < wanted.size(); ++v) {
    if (values[v] != kAbsent) out[static_cast<size_t>(values[v])] = wanted[v];
  }
  return out;
}

// `body(iteration, carried, kept, inputs) -> (carried, kept)`: each of `kept`, by carried value,
// gets a row for the iteration.
uint32_t Differentiator::AddKeepingBody(uint32_t number,
                                        const std::vector<std::optional<TensorType>>& kept) {
  const Function body = module_.functions[number];
  const auto first_input = body.params.begin() + 1 + static_cast<ptrdiff_t>(kept.size());
  std::unordered_set<std::string> names = NamesIn(body);
  Function f{.params = {body.params.begin(), first_input}};
  std::vector<Result> results = body.results;
  for (size_t c = 0; c < kept.size(); ++c) {
    if (kept[c])
      f.params.push_back(
          {.name = UniqueName(names, "kept." + body.params[1 + c].name), .type = *kept[c]});
  }
  std::vector<ValueId> values;
  for (size_t p = 0; p < body.params.size(); ++p)
    values.push_back(
        static_cast<ValueId>(p <= kept.size() ? p : p + f.params.size() - 1 - kept.size()));
  f.params.insert(f.params.end(), first_input, body.params.end());
  const uint32_t out = AddFunction(std::move(f), body.name + ".kept");
  PassContext context = Context();
  Rewriter r(context, out);
  auto at = static_cast<ValueId>(1 + kept.size());
  for (size_t c = 0; c < kept.size(); ++c) {
    if (!kept[c]) continue;
    const ValueId row = r.Append("reshape", {static_cast<ValueId>(1 + c)},
                                 {{"shape", RowShape(module_.dims, body.params[1 + c].type)}});
    results.push_back(
        {r.old().params[static_cast<size_t>(at)].name, r.Append("kv_append", {at, row, 0})});
    ++at;
  }
  r.Finish();
  AppendNodes(module_.functions[out], body, values);
  for (size_t c = 0; c < kept.size(); ++c)
    results[c].value = values[static_cast<size_t>(results[c].value)];
  module_.functions[out].results = std::move(results);
  return out;
}

StatusOr<std::optional<Differentiator::Loop>> Differentiator::KeepCarried(
    Rewriter& r, Node& node, const std::string& place) {
  const size_t carried = node.results.size();
  const std::optional<Constant> iterations = ConstantOf(r, node.operands[0]);
  Loop loop{.kept = std::vector<ValueId>(carried, kAbsent)};
  if (iterations) loop.iterations = SignedOf(*iterations);
  if (loop.iterations <= 0) {
    r.Keep();
    return iterations ? std::optional(std::move(loop)) : std::nullopt;
  }
  if (loop.iterations > kMaxExtent)
    return ResourceExhausted(
        "gradient: expected at most {} iterations, as carried values are kept for each, got {} for "
        "{}",
        kMaxExtent, loop.iterations, place);
  std::vector<std::optional<TensorType>> kept(carried);
  std::vector<ValueId> begin;
  for (size_t c = 0; c < carried; ++c) {
    const auto reads = [&](const Node& n) {
      return std::ranges::find(n.operands, static_cast<ValueId>(1 + c)) != n.operands.end();
    };
    if (std::ranges::none_of(module_.functions[node.calls[0]].nodes, reads)) continue;
    const TensorType& type = node.results[c];
    if (type.encoding != Encoding::kDense) {
      return Unimplemented("gradient: expected dense tensors as carried values, got {} for {}",
                           ToString(type, module_.dims), place);
    }
    kept[c] = {.dtype = type.dtype, .shape = RowShape(module_.dims, type)};
    kept[c]->shape[1] = module_.dims.Constant(loop.iterations);
    begin.push_back(r.Append("zeros", {}, {{"shape", kept[c]->shape}, {"dtype", type.dtype}}));
  }
  node.calls[0] = AddKeepingBody(node.calls[0], kept);
  node.operands.insert(node.operands.begin() + 1 + static_cast<ptrdiff_t>(carried), begin.begin(),
                       begin.end());
  node.segments[1] += static_cast<uint32_t>(begin.size());
  for (const std::optional<TensorType>& type : kept) {
    if (type) node.results.push_back(*type);
  }
  ValueId next = r.Keep() + static_cast<ValueId>(carried);
  for (size_t c = 0; c < carried; ++c) {
    if (kept[c]) loop.kept[c] = next++;
  }
  return loop;
}

// The body of the backward pass is `grad(iteration, gradients by carried values, gradients by
// inputs so far, kept, inputs)`. Its results are those gradients, one iteration earlier.
Status Differentiator::AddLoopGradients(Backward& b, const Node& node,
                                        std::span<const ValueId> results, const Loop& loop) {
  const size_t carried = results.size();
  if (loop.iterations <= 0) {
    for (size_t c = 0; c < carried; ++c) {
      if (b.GradientOf(results[c]) != kAbsent)
        b.Add(node.operands[1 + c], b.GradientOf(results[c]));
    }
    return absl::OkStatus();
  }
  const uint32_t silent = Silent(node.calls[0]);
  const Function body = module_.functions[silent];
  const ValueTypes types(body);
  const auto made_by_body = [&](size_t c) { return static_cast<size_t>(body.results[c].value); };

  // A carried value matters if it depends on wanted operands and leads, after some number of
  // iterations, to a result with a gradient.
  Marks made(types.size()), leads(carried), wanted;
  for (size_t p = 1; p < body.params.size(); ++p) made[p] = b.Wants(node.operands[p]);
  for (bool more = true; more;) {
    more = false;
    MarkMade(body, types, made);
    for (size_t c = 0; c < carried; ++c) {
      if (made[made_by_body(c)] && !made[1 + c]) made[1 + c] = more = true;
    }
  }
  for (size_t c = 0; c < carried; ++c) leads[c] = b.GradientOf(results[c]) != kAbsent;
  for (bool more = true; more;) {
    more = false;
    Marks to(types.size());
    for (size_t c = 0; c < carried; ++c) {
      if (leads[c]) to[made_by_body(c)] = true;
    }
    wanted = Between(body, types, made, std::move(to));
    for (size_t c = 0; c < carried; ++c) {
      if (wanted[1 + c] && !leads[c]) leads[c] = more = true;
    }
  }
  std::vector<size_t> by;  // parameters of the body, carried ones first
  for (size_t p = 1; p < body.params.size(); ++p) {
    if (p <= carried ? made[p] && leads[p - 1] : static_cast<bool>(wanted[p])) by.push_back(p);
  }

  if (by.empty()) return absl::OkStatus();

  std::unordered_set<std::string> names = NamesIn(body);
  Function f{.params = {body.params[0]}};
  for (const size_t p : by)
    f.params.push_back(
        {.name = UniqueName(names, "grad." + body.params[p].name), .type = body.params[p].type});
  std::vector<ValueId> inputs;
  for (size_t c = 0; c < carried; ++c) {
    if (loop.kept[c] == kAbsent) continue;
    f.params.push_back({.name = UniqueName(names, "kept." + body.params[1 + c].name),
                        .type = b.TypeOf(loop.kept[c])});
    inputs.push_back(loop.kept[c]);
  }
  std::vector<ValueId> values(1 + carried, kAbsent);
  for (size_t p = 1 + carried; p < body.params.size(); ++p) {
    values.push_back(static_cast<ValueId>(f.params.size()));
    f.params.push_back(body.params[p]);
    inputs.push_back(node.operands[p]);
  }
  const uint32_t back = AddFunction(std::move(f), WrittenName(silent) + ".grad");
  PassContext context = Context();
  Rewriter r(context, back);
  const auto scalar = [&](int64_t value) {
    return r.Append("full", {}, {{"value", static_cast<double>(value)}, {"dtype", DType::kI64}});
  };
  values[0] = r.Append("sub", {scalar(loop.iterations - 1), 0});
  auto kept = static_cast<ValueId>(1 + by.size());
  for (size_t c = 0; c < carried; ++c) {
    const TensorType& type = body.params[1 + c].type;
    if (loop.kept[c] == kAbsent) {
      // No node reads it, but gradients by it are summed.
      if (made[1 + c] && leads[c])
        values[1 + c] = r.Append("zeros", {}, {{"shape", type.shape}, {"dtype", type.dtype}});
      continue;
    }
    const ValueId row = r.Append("slice", {kept++, values[0]},
                                 {{"dim", int64_t{1}}, {"length", module_.dims.Constant(1)}});
    values[1 + c] = r.Append("reshape", {row}, {{"shape", type.shape}});
  }
  const Origin origin{WrittenName(silent), r.size()};
  r.Finish();
  const Marks wanted_back = AppendAgain(back, body, wanted, values);
  std::vector<Seed> seeds;
  std::vector<ValueId> by_values;
  for (size_t i = 0; i < by.size(); ++i) {
    // A value that is only passed on has no value here if it is not wanted.
    const ValueId end = values[by[i] <= carried ? made_by_body(by[i] - 1) : by[i]];
    if (end != kAbsent) seeds.push_back({end, static_cast<ValueId>(1 + i)});
    by_values.push_back(values[by[i]]);
  }
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ValueId> gradients,
                          AddWayBack(back, wanted_back, seeds, by_values, origin));
  for (size_t i = 0; i < by.size(); ++i)
    module_.functions[back].results.push_back(
        {module_.functions[back].params[1 + i].name, gradients[i]});

  std::vector<ValueId> begin;
  for (const size_t p : by) {
    const ValueId g = p <= carried ? b.GradientOf(results[p - 1]) : kAbsent;
    begin.push_back(g != kAbsent ? g : b.Full(body.params[p].type, 0));
  }
  std::vector<TensorType> types_by;
  for (const size_t p : by) types_by.push_back(body.params[p].type);
  const std::vector<ValueId> out =
      b.Call("repeat", {std::span(node.operands).first(1), begin, inputs}, {back},
             std::move(types_by), node.location);
  for (size_t i = 0; i < by.size(); ++i) b.Add(node.operands[by[i]], out[i]);
  return absl::OkStatus();
}

// branch.grad(inputs, gradients by results) -> (gradients by inputs). `from`: the results that have
// a gradient; `by`: the inputs that get one.
StatusOr<uint32_t> Differentiator::AddBranchBack(uint32_t silent, const Marks& wanted,
                                                 std::span<const size_t> from,
                                                 std::span<const size_t> by) {
  const Function branch = module_.functions[silent];
  const ValueTypes types(branch);
  std::unordered_set<std::string> names = NamesIn(branch);
  Function f{.params = branch.params};
  for (const size_t r : from) {
    const Result& result = branch.results[r];
    f.params.push_back({.name = UniqueName(names, "grad." + result.name),
                        .type = *types.types[static_cast<size_t>(result.value)]});
  }
  const Origin origin{WrittenName(silent), f.params.size()};
  const uint32_t back = AddFunction(std::move(f), origin.name + ".grad");
  std::vector<ValueId> values(branch.params.size());
  std::iota(values.begin(), values.end(), 0);
  const Marks wanted_back = AppendAgain(back, branch, wanted, values);
  std::vector<Seed> seeds;
  for (size_t i = 0; i < from.size(); ++i)
    seeds.push_back({values[static_cast<size_t>(branch.results[from[i]].value)],
                     static_cast<ValueId>(branch.params.size() + i)});
  OPWIRE_ASSIGN_OR_RETURN(
      const std::vector<ValueId> gradients,
      AddWayBack(back, wanted_back, seeds, std::vector<ValueId>(by.begin(), by.end()), origin));
  for (size_t i = 0; i < by.size(); ++i)
    module_.functions[back].results.push_back({"grad." + branch.params[by[i]].name, gradients[i]});
  return back;
}

Status Differentiator::AddBranchGradients(Backward& b, const Node& node,
                                          std::span<const ValueId> results) {
  const std::span<const ValueId> condition = std::span(node.operands).first(1),
                                 inputs = std::span(node.operands).subspan(1);
  std::vector<size_t> from, by;
  std::vector<ValueId> given(inputs.begin(), inputs.end());
  for (size_t r = 0; r < results.size(); ++r) {
    if (b.GradientOf(results[r]) == kAbsent) continue;
    from.push_back(r);
    given.push_back(b.GradientOf(results[r]));
  }
  // An input gets a gradient if one of the branches leads from it to a result that has one.
  std::vector<uint32_t> silent;
  std::vector<Marks> wanted;
  for (const uint32_t callee : node.calls) {
    silent.push_back(Silent(callee));
    const Function& branch = module_.functions[silent.back()];
    const ValueTypes types(branch);
    Marks made(types.size()), to(types.size());
    for (size_t i = 0; i < inputs.size(); ++i) made[i] = b.Wants(inputs[i]);
    MarkMade(branch, types, made);
    for (const size_t r : from) to[static_cast<size_t>(branch.results[r].value)] = true;
    wanted.push_back(Between(branch, types, made, std::move(to)));
  }
  std::vector<TensorType> types_by;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!wanted[0][i] && !wanted[1][i]) continue;
    by.push_back(i);
    types_by.push_back(b.TypeOf(inputs[i]));
  }
  if (by.empty()) return absl::OkStatus();

  OPWIRE_ASSIGN_OR_RETURN(const uint32_t then, AddBranchBack(silent[0], wanted[0], from, by));
  uint32_t otherwise = then;
  if (silent[1] != silent[0]) {
    OPWIRE_ASSIGN_OR_RETURN(otherwise, AddBranchBack(silent[1], wanted[1], from, by));
  }
  const std::vector<ValueId> out =
      b.Call("if", {condition, given}, {then, otherwise}, std::move(types_by), node.location);
  for (size_t i = 0; i < by.size(); ++i) b.Add(inputs[by[i]], out[i]);
  return absl::OkStatus();
}

}  // namespace opwire
