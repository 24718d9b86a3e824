// The sorted table, and the choice from it.
#include "kernels/select/variant.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "ir/ops/names.h"
#include "kernels/select/choices.h"

namespace opwire {
namespace {

// In order of op, then preference.
bool Before(const Variant& a, const Variant& b) {
  if (a.op != b.op) return a.op < b.op;
  if (a.tier != b.tier) return a.tier > b.tier;
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.name < b.name;
}

// Why the variant cannot serve the element type on this machine; empty: it can, shapes permitting.
std::string ReasonAgainst(const Variant& v, DType dtype) {
  if (!v.unavailable.empty()) return v.unavailable;
  if (dtype != DType::kInvalid && !v.dtypes.Has(dtype)) {
    return fmt::format("takes {}, not {}", v.dtypes.ToString(), DTypeName(dtype));
  }
  return "";
}

// Also null if there is no call to ask about.
const char* ReasonAgainstCall(const Variant& v, const opw_call* call,
                              const VariantTable::Asks& asks) {
  if (call == nullptr || v.kernel.supports == nullptr) return nullptr;
  if (asks) asks(v);
  opw_call asked = *call;
  asked.context = v.kernel.context;
  return v.kernel.supports(&asked);
}

// Equal to both reasons being empty, but builds no text: it runs for every binding.
bool Runs(const Variant& v, DType dtype, const opw_call* call, const VariantTable::Asks& asks) {
  return v.unavailable.empty() && (dtype == DType::kInvalid || v.dtypes.Has(dtype)) &&
         ReasonAgainstCall(v, call, asks) == nullptr;
}

// In the fixed order, except that the fastest comes first if it is clearly faster.
Choice Measure(const std::vector<const Variant*>& rivals, const opw_call& call, const OpDef& row,
               const VariantTable::Asks& asks) {
  Choice choice;
  for (const Variant* v : rivals) {
    if (asks) asks(*v);
    if (const auto ns = MeasureCall(v->kernel, call, row)) choice.order.emplace_back(v->name, *ns);
  }
  if (choice.order.empty()) return {{{rivals[0]->name, 0}}};
  const auto fastest =
      std::ranges::min_element(choice.order, {}, [](const auto& o) { return o.second; });
  const double first = choice.order[0].second;
  if (fastest->second * kFasterBy < first && fastest->second + kFasterByNs < first)
    std::rotate(choice.order.begin(), fastest, fastest + 1);
  return choice;
}

}  // namespace

std::string_view TierName(Tier tier) {
  switch (tier) {
    case Tier::kReference:
      return "reference";
    case Tier::kLibtorch:
      return "libtorch";
    case Tier::kProduction:
      return "production";
    case Tier::kPinned:
      return "pinned";
  }
  return "invalid";
}

std::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kPrebuilt:
      return "prebuilt";
    case Origin::kCached:
      return "cached";
    case Origin::kBuilt:
      return "built";
  }
  return "invalid";
}

void VariantTable::Add(Variant v) {
  const std::span<const Variant> others = Of(v.op);
  const bool known =
      std::any_of(others.begin(), others.end(), [&](const Variant& o) { return o.name == v.name; });
  if (known || ops_->Find(v.op) == nullptr) {
    fmt::print(stderr, "variant {}@{}: {}\n", v.op, v.name,
               known ? "added twice" : "no such row in the catalogue");
    std::abort();
  }
  const std::string label = v.op + "@" + v.name;
  const auto [at, added] = label_of_.emplace(label, static_cast<uint32_t>(labels_.size()));
  v.label = at->second;
  if (added) labels_.push_back(label);
  variants_.insert(std::upper_bound(variants_.begin(), variants_.end(), v, Before), std::move(v));
}

Status VariantTable::CheckSteering(const Steering& steering, bool user_ops) const {
  const auto check = [&](std::string_view flag, const std::string& entry) -> Status {
    const bool of_one_op = entry.find('@') != std::string::npos;
    if (user_ops && (!of_one_op || entry.starts_with("user."))) return absl::OkStatus();
    std::vector<std::string_view> names;
    for (const Variant& v : variants_)
      names.push_back(of_one_op ? std::string_view(labels_[v.label]) : v.name);
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (std::ranges::binary_search(names, entry)) return absl::OkStatus();
    return InvalidArgument("{} {}: there is no such variant{}", flag, Clip(entry),
                           DidYouMean(NearestNames(entry, names)));
  };
  for (const std::string& entry : steering.prefer) OPWIRE_RETURN_IF_ERROR(check("--prefer", entry));
  for (const std::string& entry : steering.forbid) OPWIRE_RETURN_IF_ERROR(check("--forbid", entry));
  return absl::OkStatus();
}

void VariantTable::Withdraw(std::string_view label, const std::string& reason) {
  for (Variant& v : variants_) {
    if (labels_[v.label] == label && v.tier != Tier::kReference && v.unavailable.empty())
      v.unavailable = reason;
  }
}

void VariantTable::Steer(const Steering& steering) {
  const auto names = [](const std::vector<std::string>& list, const Variant& v) {
    return std::ranges::any_of(list, [&](const std::string& entry) {
      return entry == v.name || entry == v.op + "@" + v.name;
    });
  };
  for (Variant& v : variants_) {
    if (!v.unavailable.empty()) continue;
    if (names(steering.forbid, v))
      v.unavailable = "forbidden by --forbid";
    else if (steering.deterministic && !(v.kernel.flags & OPW_DETERMINISTIC))
      v.unavailable = "not deterministic, and --deterministic is given";
    else if (names(steering.prefer, v))
      v.tier = Tier::kPinned;
  }
  std::ranges::stable_sort(variants_, Before);
}

std::span<const Variant> VariantTable::Of(std::string_view op) const {
  const auto begin =
      std::lower_bound(variants_.begin(), variants_.end(), op,
                       [](const Variant& v, std::string_view name) { return v.op < name; });
  const auto end =
      std::upper_bound(begin, variants_.end(), op,
                       [](std::string_view name, const Variant& v) { return name < v.op; });
  return {begin, end};
}

StatusOr<const Variant*> VariantTable::Choose(std::string_view op, DType dtype,
                                              const opw_call& call, std::string_view pin,
                                              const Asks& asks) const {
  return Pick(op, dtype, &call, pin, asks);
}

StatusOr<const Variant*> VariantTable::Choose(std::string_view op, DType dtype,
                                              const opw_call& call, std::string_view pin,
                                              Choices& choices, double expected_ns,
                                              const Asks& asks) const {
  OPWIRE_ASSIGN_OR_RETURN(const Variant* const first, Pick(op, dtype, &call, pin, asks));
  if (!pin.empty() || expected_ns > kMeasureBelowNs) return first;
  std::vector<const Variant*> rivals;
  std::vector<std::string_view>
      covered;  // the rivals, and variants of the same code for narrower instruction sets
  for (const Variant& v : Of(op)) {
    const bool lesser = std::ranges::find(covered, v.wider) != covered.end();
    if (v.tier != first->tier || (!lesser && &v != first && !Runs(v, dtype, &call, asks))) continue;
    covered.push_back(v.name);
    if (!lesser) rivals.push_back(&v);
  }
  if (rivals.size() < 2) return first;
  const OpDef& row = *ops_->Find(op);
  std::string key = fmt::format("{} {} {} of", op, DTypeName(dtype), ClassOf(call, row));
  for (const Variant* v : rivals)
    key += fmt::format(" {}{}{}", v->name, v->build.empty() ? "" : ":", v->build);
  const Choice* choice = choices.Find(key);
  if (!choice) choice = choices.Keep(key, Measure(rivals, call, row, asks));
  for (const auto& [name, ns] : choice->order) {
    const auto found = std::ranges::find_if(
        rivals, [&, &name = name](const Variant* v) { return v->name == name; });
    if (found != rivals.end()) return *found;
  }
  return first;
}

StatusOr<const Variant*> VariantTable::FirstRunnable(std::string_view op, DType dtype,
                                                     std::string_view pin) const {
  return Pick(op, dtype, nullptr, pin, nullptr);
}

StatusOr<const Variant*> VariantTable::Pick(std::string_view op, DType dtype, const opw_call* call,
                                            std::string_view pin, const Asks& asks) const {
  const std::span<const Variant> all = Of(op);
  const auto found = std::ranges::find_if(all, [&](const Variant& v) {
    return (pin.empty() || v.name == pin) && Runs(v, dtype, call, asks);
  });
  if (found != all.end()) return &*found;

  std::string reasons, able;
  for (const Variant& v : all) {
    std::string reason = ReasonAgainst(v, dtype);
    if (const char* why = reason.empty() ? ReasonAgainstCall(v, call, asks) : nullptr) reason = why;
    if (reason.empty()) able += fmt::format("{}{}", able.empty() ? "" : ", ", v.name);
    if (pin.empty() || v.name == pin)
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", v.name, reason);
  }
  if (pin.empty()) {
    return Unimplemented("{}: no variant runs {} here ({})", op, DTypeName(dtype),
                         reasons.empty() ? "there is none" : reasons);
  }
  return FailedPrecondition("{}@{} cannot run: {}; these can: {}", op, pin,
                            reasons.empty() ? "no such variant" : reasons,
                            able.empty() ? "none" : able);
}

std::vector<Candidate> VariantTable::Explain(std::string_view op, DType dtype) const {
  std::vector<Candidate> candidates;
  bool chosen = false;
  for (const Variant& v : Of(op)) {
    std::string reason = ReasonAgainst(v, dtype);
    if (reason.empty() && v.library) reason = v.library(/*open=*/true);
    const bool first = reason.empty() && !chosen;
    if (reason.empty()) {
      reason = first ? fmt::format("first of tier {}", TierName(v.tier))
                     : fmt::format("can run; tier {}, priority {} comes later", TierName(v.tier),
                                   v.priority);
      if (!v.restriction.empty()) reason += "; " + v.restriction;
    }
    chosen |= first;
    candidates.push_back({&v, first, std::move(reason)});
  }
  return candidates;
}

}  // namespace opwire
