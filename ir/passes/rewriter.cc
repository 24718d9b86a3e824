// Renaming, and the rules of inout parameters.
#include "ir/passes/rewriter.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace opwire {

Rewriter::Rewriter(PassContext& context, uint32_t function)
    : context_(context),
      function_(function),
      old_(std::exchange(context.module.functions[function], {})) {
  room_ = context.limits.nodes - static_cast<int64_t>(old_.nodes.size());
  for (const Function& f : context.module.functions) room_ -= static_cast<int64_t>(f.nodes.size());
  for (const std::string& b : context.module.blobs) blob_bytes_ += static_cast<int64_t>(b.size());
  new_.name = old_.name;
  new_.params = old_.params;
  const ValueTypes values(old_);
  first_result_ = values.first_result;
  uses_.resize(values.size());
  renamed_.assign(values.size(), kAbsent);
  const size_t params = old_.params.size();
  read_until_.assign(params, std::numeric_limits<uint32_t>::max());
  for (size_t p = 0; p < params; ++p) {
    renamed_[p] = static_cast<ValueId>(p);
    types_.push_back(old_.params[p].type);
    producer_.push_back(-1);
    first_.push_back(false);
    replaces_.push_back(false);
    reads_.push_back(0);
  }
  for (uint32_t n = 0; n < old_.nodes.size(); ++n) {
    for (ValueId v : old_.nodes[n].operands) {
      if (v == kAbsent) continue;
      Use& use = uses_[v];
      if (use.count++ == 0) use.first = n;
      use.last = n;
    }
  }
  for (const Result& r : old_.results) uses_[r.value].returned = true;
  const auto& replaced_by = context_.typing.functions[function_].replaced_by;
  for (size_t p = 0; p < params; ++p) {
    if (replaced_by[p] < 0) continue;
    const ValueId by = old_.results[replaced_by[p]].value;
    uses_[by].replaces = true;
    const auto after =
        std::upper_bound(first_result_.begin(), first_result_.end(), static_cast<uint32_t>(by));
    read_until_[p] = static_cast<uint32_t>(after - first_result_.begin()) - 1;
  }
}

Node& Rewriter::Begin(uint32_t node) {
  current_ = node;
  begun_ = new_.nodes.size();
  begun_blobs_ = context_.module.blobs.size();
  node_ = old_.nodes[node];
  for (ValueId& v : node_.operands) {
    if (v != kAbsent) v = renamed_[v];
  }
  return node_;
}

void Rewriter::Define(const Node& node) {
  for (size_t r = 0; r < node.results.size(); ++r) {
    types_.push_back(node.results[r]);
    producer_.push_back(static_cast<int32_t>(new_.nodes.size()));
    first_.push_back(r == 0);
    replaces_.push_back(false);
    reads_.push_back(0);
  }
  for (const ValueId v : node.operands) {
    if (v != kAbsent) ++reads_[static_cast<size_t>(v)];
  }
}

ValueId Rewriter::Keep() {
  const auto first = static_cast<ValueId>(types_.size());
  const size_t old_results = old_.nodes[current_].results.size();
  for (size_t r = 0; r < old_results; ++r) {
    const size_t from = first_result_[current_] + r;
    renamed_[from] = static_cast<ValueId>(types_.size() + r);
  }
  Define(node_);
  for (size_t r = 0; r < old_results; ++r) {
    const size_t from = first_result_[current_] + r;
    if (uses_[from].replaces) replaces_[renamed_[from]] = true;
  }
  new_.nodes.push_back(std::move(node_));
  return first;
}

bool Rewriter::MayBecome(size_t from, ValueId v) const {
  const Use& use = uses_[from];
  if (types_[v] != node_.results[from - first_result_[current_]]) return false;
  if (static_cast<size_t>(v) < old_.params.size()) {
    return !use.replaces && (old_.params[v].mode != ParamMode::kInout ||
                             (!use.returned && use.last <= read_until_[v]));
  }
  // A node of its own, so that the parameter is read no longer than before.
  if (use.replaces && static_cast<size_t>(producer_[v]) < begun_) return false;
  return !use.returned || !replaces_[v];
}

bool Rewriter::Replace(ValueId v) {
  const size_t from = first_result_[current_];
  if (node_.results.size() != 1 || !MayBecome(from, v)) return false;
  renamed_[from] = v;
  if (uses_[from].replaces) replaces_[v] = true;
  ++context_.changes;
  return true;
}

bool Rewriter::ReplaceAll(const std::vector<ValueId>& values) {
  const size_t from = first_result_[current_];
  for (size_t i = 0; i < values.size(); ++i) {
    if (uses_[from + i].replaces || !MayBecome(from + i, values[i])) return false;
  }
  for (size_t i = 0; i < values.size(); ++i) renamed_[from + i] = values[i];
  ++context_.changes;
  return true;
}

bool Rewriter::ReplaceWithOperand(ValueId v, int i, ValueId operand) {
  if (!Replace(v)) return false;
  renamed_[old_.nodes[current_].operands[static_cast<size_t>(i)]] = operand;
  return true;
}

void Rewriter::Drop() { ++context_.changes; }

ValueId Rewriter::Append(std::string_view op, std::vector<ValueId> operands,
                         std::vector<NamedAttr> attrs) {
  const std::vector<ValueId> results = AppendAll(op, std::move(operands), std::move(attrs));
  return results.size() == 1 ? results[0] : kAbsent;
}

std::vector<ValueId> Rewriter::AppendAll(std::string_view op, std::vector<ValueId> operands,
                                         std::vector<NamedAttr> attrs) {
  const OpDef* const row = context_.ops.Find(op);
  if (row == nullptr || !HasRoom()) return {};
  while (operands.size() < row->operands.size() && row->operands[operands.size()].optional)
    operands.push_back(kAbsent);
  Node node{.op = row->name,
            .version = row->version,
            .operands = std::move(operands),
            .location = node_.location};
  if (row->HasLists()) {
    // One, which is last: operands do not say at which place several lists end.
    const size_t before = row->operands.size() - 1, given = node.operands.size();
    if (std::ranges::count(row->operands, true, &OperandSpec::variadic) != 1 ||
        !row->operands.back().variadic || given < before)
      return {};
    node.segments.assign(before, 1);
    node.segments.push_back(static_cast<uint32_t>(given - before));
  }
  auto canonical = CanonicalAttrs(*row, attrs, dims());
  if (!canonical.ok()) return {};
  node.attrs = *std::move(canonical);
  std::vector<const TensorType*> types;
  for (ValueId v : node.operands)
    types.push_back(v == kAbsent ? nullptr : &types_[static_cast<size_t>(v)]);
  const auto resolved = ResolveAttrs(*row, node.attrs, dims());
  if (!resolved.ok()) return {};
  auto inferred = InferTypes(*row, dims(), types, node.segments, *resolved);
  if (!inferred.ok()) return {};
  node.results = std::move(inferred->results);
  return AppendNode(std::move(node));
}

std::vector<ValueId> Rewriter::AppendNode(Node node) {
  std::vector<ValueId> results;
  for (size_t i = 0; i < node.results.size(); ++i)
    results.push_back(static_cast<ValueId>(types_.size() + i));
  Define(node);
  new_.nodes.push_back(std::move(node));
  return results;
}

void Rewriter::TakeBack() {
  while (new_.nodes.size() > begun_) {
    const size_t left = types_.size() - new_.nodes.back().results.size();
    types_.resize(left);
    producer_.resize(left);
    first_.resize(left);
    replaces_.resize(left);
    reads_.resize(left);
    for (const ValueId v : new_.nodes.back().operands) {
      if (v != kAbsent) --reads_[static_cast<size_t>(v)];
    }
    new_.nodes.pop_back();
  }
  std::vector<std::string>& blobs = context_.module.blobs;
  for (; blobs.size() > begun_blobs_; blobs.pop_back())
    blob_bytes_ -= static_cast<int64_t>(blobs.back().size());
}

bool Rewriter::ReplaceOrTakeBack(ValueId v) {
  if (v != kAbsent && Replace(v)) return true;
  TakeBack();
  return false;
}

bool Rewriter::ReadOnce(int i) const {
  const Use& use =
      uses_[static_cast<size_t>(old_.nodes[current_].operands[static_cast<size_t>(i)])];
  return use.count == 1 && !use.returned;
}

bool Rewriter::ReadFirst(int i) const {
  const Use& use =
      uses_[static_cast<size_t>(old_.nodes[current_].operands[static_cast<size_t>(i)])];
  return use.first == current_ && !use.replaces;
}

const Node* Rewriter::Producer(ValueId v) const {
  if (!first_[v]) return nullptr;
  const Node& node = new_.nodes[producer_[v]];
  const auto gone = [&](ValueId o) {
    return o >= 0 && static_cast<size_t>(o) < old_.params.size() && current_ > read_until_[o];
  };
  return std::ranges::any_of(node.operands, gone) ? nullptr : &node;
}

std::vector<AttrValue> Rewriter::Resolved(const Node& node) const {
  const OpDef* const row = context_.ops.Find(node.op);
  auto attrs = ResolveAttrs(*row, node.attrs, context_.module.dims);
  return attrs.ok() ? *std::move(attrs) : std::vector<AttrValue>();
}

std::optional<BlobRef> Rewriter::AddBlob(std::string bytes) {
  std::vector<std::string>& blobs = context_.module.blobs;
  const auto size = static_cast<int64_t>(bytes.size());
  if (static_cast<int64_t>(blobs.size()) >= context_.limits.blobs ||
      size > context_.limits.blob_bytes - blob_bytes_)
    return std::nullopt;
  blobs.push_back(std::move(bytes));
  blob_bytes_ += size;
  return BlobRef{static_cast<uint32_t>(blobs.size() - 1)};
}

void Rewriter::Finish() {
  new_.results = old_.results;
  for (Result& r : new_.results) r.value = renamed_[r.value];
  context_.module.functions[function_] = std::move(new_);
}

bool SameBits(const AttrValue& a, const AttrValue& b, std::span<const std::string> blobs) {
  if (a.index() != b.index()) return false;
  const auto same = [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  };
  if (const auto* x = std::get_if<double>(&a)) return same(*x, std::get<double>(b));
  if (const auto* x = std::get_if<Doubles>(&a))
    return std::ranges::equal(*x, std::get<Doubles>(b), same);
  if (const auto* x = std::get_if<BlobRef>(&a); x != nullptr && !blobs.empty())
    return blobs[x->index] == blobs[std::get<BlobRef>(b).index];
  return a == b;
}

}  // namespace opwire
