// Writes the executor's facts as JSON.
#include "executor/serve/info.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "executor/plan/describe.h"
#include "ir/base/json.h"
#include "ir/ops/catalogue.h"
#include "ir/wire/capability.h"
#include "kernels/select/choices.h"

namespace opwire::executor {
namespace {

using nlohmann::json;

// Returns the element types by which variants of an op are chosen; {kInvalid} if it has no type
// variable.
std::vector<DType> KeyTypes(const OpDef& row) {
  if (row.variables.empty()) return {DType::kInvalid};
  std::vector<DType> out;
  for (int i = 1; i < kDTypeCount; ++i) {
    if (row.variables[0].types.Has(static_cast<DType>(i))) out.push_back(static_cast<DType>(i));
  }
  return out;
}

uint32_t Mask(DTypeSet set) {
  uint32_t mask = 0;
  for (int i = 1; i < kDTypeCount; ++i) mask |= set.Has(static_cast<DType>(i)) ? 1u << i : 0;
  return mask;
}

// Times of the variant, by class of calls: {"class": "f32[7,8] f32[8,6]", "ns": 812, "first":
// true}.
json Measured(const std::vector<std::pair<std::string, Choice>>& choices, const OpDef& row,
              DType dtype, const Variant& variant) {
  json out = json::array();
  const std::string prefix = fmt::format("{} {} ", row.name, DTypeName(dtype));
  for (const auto& [key, choice] : choices) {
    if (!key.starts_with(prefix)) continue;
    for (const auto& [name, ns] : choice.order) {
      if (name != variant.name) continue;
      out.push_back({{"class", key.substr(prefix.size(), key.rfind(" of ") - prefix.size())},
                     {"ns", ns},
                     {"first", name == choice.order[0].first}});
    }
  }
  return out;
}

// The signature, with shapes if a declaration has them.
std::string SignatureOf(const OpDef& row, const KernelSet& kernels) {
  for (const OpDeclaration& d : kernels.declarations) {
    const size_t arrow = d.signature.find("->");
    if (d.name != row.name || arrow == d.signature.npos) continue;
    std::string_view operands = std::string_view(d.signature).substr(0, arrow);
    while (operands.ends_with(' ')) operands.remove_suffix(1);
    return fmt::format("{}({}) {}", d.name, operands, d.signature.substr(arrow));
  }
  return row.Signature();
}

// "f32[4, 8]", "i8:q8_0[32, 64]".
std::string TypeOf(const Tensor& t) {
  const std::string encoding =
      t.encoding == Encoding::kDense ? "" : fmt::format(":{}", EncodingName(t.encoding));
  return fmt::format("{}{}{}", DTypeName(t.dtype), encoding, ShapeToString(t.shape.span()));
}

}  // namespace

std::vector<std::unique_ptr<fb::OpEntryT>> OpEntries(const KernelSet& kernels) {
  std::vector<std::unique_ptr<fb::OpEntryT>> out;
  for (const OpDef& row : kernels.catalogue().rows()) {
    auto entry = std::make_unique<fb::OpEntryT>();
    entry->name = row.name;
    entry->version = row.version;
    for (const Variant& v : kernels.variants.Of(row.name)) {
      if (!v.unavailable.empty()) continue;
      auto variant = std::make_unique<fb::VariantEntryT>();
      variant->name = v.name;
      variant->tier = static_cast<uint8_t>(v.tier);
      variant->priority = v.priority;
      variant->dtypes = Mask(v.dtypes);
      entry->dtypes |= variant->dtypes;
      entry->variants.push_back(std::move(variant));
    }
    for (const OpDeclaration& d : kernels.declarations) {
      if (d.name == row.name) entry->declaration = ToJson({&d, 1});
    }
    if (row.control != Control::kNone) entry->dtypes = Mask(kAll);
    if (!entry->variants.empty() || row.control != Control::kNone) out.push_back(std::move(entry));
  }
  return out;
}

StatusOr<std::string> InfoWriter::Write(const std::string& principal, const fb::Info& info) const {
  const std::string topic = info.topic() ? info.topic()->str().substr(0, 64) : "";
  if (topic == "report") return Report();
  if (topic == "ops") return Ops();
  if (topic == "explain")
    return Explain(info.argument() ? info.argument()->str().substr(0, 128) : "",
                   static_cast<DType>(info.dtype()));
  if (topic == "sessions") return Sessions(principal);
  if (topic == "grants") return Grants(principal);
  if (topic == "stats") return Stats();
  if (topic == "declarations") return Declarations(principal, info.token());
  if (topic == "plan") return Plan(principal, info);
  return NotFound(
      "info: expected report, ops, explain, sessions, grants, stats, declarations, plan or "
      "toolchains, got '{}'",
      topic);
}

StatusOr<std::string> InfoWriter::Declarations(const std::string& principal,
                                               const flatbuffers::Vector<uint8_t>* token) const {
  OPWIRE_ASSIGN_OR_RETURN(const Core::AttachmentRef ref, core_.AttachmentOf(token));
  const Session& session = *core_.sessions_.at(ref.session);
  if (session.principal != principal)
    return PermissionDenied("session: the token belongs to another principal");
  return ToJson(session.kernels->declarations);
}

StatusOr<std::string> InfoWriter::Plan(const std::string& principal, const fb::Info& info) const {
  OPWIRE_ASSIGN_OR_RETURN(const Core::AttachmentRef ref, core_.AttachmentOf(info.token()));
  const Session& session = *core_.sessions_.at(ref.session);
  if (session.principal != principal)
    return PermissionDenied("session: the token belongs to another principal");
  std::istringstream argument(info.argument() ? info.argument()->str() : "");
  uint32_t slot = 0, function = 0;
  if (!(argument >> slot >> function))
    return InvalidArgument(
        "plan: expected a slot, a function and the sizes of its dimensions, got '{}'",
        argument.str().substr(0, 64));
  const auto loaded = session.slots.find({ref.attachment, slot});
  if (loaded == session.slots.end()) return NotFound("program slot {} is empty", slot);
  const Program& program = *loaded->second.program;
  const DimTable& dims = program.module.dims;
  if (function >= program.module.functions.size())
    return InvalidArgument("plan: function {} is not among the {} of @{}", function,
                           program.module.functions.size(), program.name());
  std::vector<int64_t> sizes;
  for (int64_t size = 0; sizes.size() < dims.symbols().size() && argument >> size;
       sizes.push_back(size))
    OPWIRE_RETURN_IF_ERROR(dims.CheckSymbol(sizes.size(), size));
  if (sizes.size() != dims.symbols().size())
    return InvalidArgument("plan: expected {} sizes, got {}", dims.symbols().size(), sizes.size());
  OPWIRE_ASSIGN_OR_RETURN(
      const auto instance,
      Instance::Build(program, function, std::move(sizes), core_.environment_.instance_options()));
  return Describe(*instance);
}

std::string InfoWriter::Report() const {
  const DeviceInfo& d = core_.device_.info();
  json j;
  j["executor"] = core_.options_.executor_id;
  j["incarnation"] = core_.options_.incarnation;
  j["protocol"] = fmt::format("{}.{}", kProtocolMajor, kProtocolMinor);
  j["device"] = {{"kind", d.kind},
                 {"index", d.index},
                 {"name", d.name},
                 {"arch", d.arch},
                 {"memory_bytes", d.memory_bytes},
                 {"compute_units", d.compute_units},
                 {"uuid", d.uuid},
                 {"dtypes", d.dtypes.ToString()},
                 {"collective_backend", d.collective_backend},
                 {"facts", d.facts}};
  j["memory"] = {{"limit", core_.budget_.limit},
                 {"in_use", core_.budget_.in_use},
                 {"peak", core_.budget_.peak},
                 {"packed", core_.packed_ ? core_.packed_->bytes() : 0}};
  j["host_memory"] = {{"limit", core_.host_budget_.limit},
                      {"in_use", core_.host_budget_.in_use},
                      {"peak", core_.host_budget_.peak}};
  json limits = json::object();
  for (const ExecutorLimit& row : kExecutorLimits)
    limits[std::string(row.name)] = core_.options_.limits[row.id];
  j["limits"] = limits;
  j["epoch"] = core_.kernels_->epoch;
  json ops = json::array();
  for (const OpDef& row : core_.kernels_->catalogue().rows()) {
    if (row.control != Control::kNone) continue;
    json variants = json::array();
    for (const Variant& v : core_.kernels_->variants.Of(row.name)) {
      const std::string reason =
          v.unavailable.empty() && v.library ? v.library(/*open=*/false) : v.unavailable;
      variants.push_back({{"name", v.name},
                          {"backend", d.kind},
                          {"tier", TierName(v.tier)},
                          {"source", v.source},
                          {"dtypes", v.dtypes.ToString()},
                          {"state", reason.empty() ? OriginName(v.origin) : "unavailable"},
                          {"reason", reason}});
    }
    for (const OtherBackend& b : core_.kernels_->other_backends) {
      if (b.op != row.name) continue;
      const char* state = !b.tried ? "waiting" : b.reason.empty() ? "buildable" : "unavailable";
      variants.push_back(
          {{"name", b.variant},
           {"backend", b.backend},
           {"tier", TierName(Tier::kProduction)},
           {"source", ""},
           {"dtypes", row.variables.empty() ? "" : row.variables[0].types.ToString()},
           {"state", state},
           {"reason", b.reason.empty() ? "for " + b.arch : b.reason}});
    }
    ops.push_back({{"op", row.name}, {"variants", variants}});
  }
  j["ops"] = ops;
  return DumpJson(j);
}

std::string InfoWriter::Ops() const {
  json ops = json::array();
  for (const OpDef& row : core_.kernels_->catalogue().rows()) {
    DTypeSet dtypes;
    json names = json::array();
    for (const Variant& v : core_.kernels_->variants.Of(row.name)) {
      if (!v.unavailable.empty()) continue;
      dtypes = dtypes | v.dtypes;
      names.push_back(v.name);
    }
    if (row.control != Control::kNone) names.push_back("control"), dtypes = kAll;
    if (names.empty()) continue;
    json attrs = json::array();
    for (const AttrSpec& a : row.attrs)
      attrs.push_back({{"name", a.name},
                       {"kind", AttrKindName(a.kind)},
                       {"required", !a.fallback},
                       {"doc", a.doc}});
    ops.push_back({{"op", row.name},
                   {"version", row.version},
                   {"signature", SignatureOf(row, *core_.kernels_)},
                   {"dtypes", dtypes.ToString()},
                   {"variants", names},
                   {"effects", EffectsName(row.effects)},
                   {"doc", row.doc},
                   {"attributes", attrs}});
  }
  return DumpJson(ops);
}

StatusOr<std::string> InfoWriter::Explain(const std::string& op, DType dtype) const {
  const OpCatalogue& ops = core_.kernels_->catalogue();
  const OpAlias* alias = ops.FindAlias(op);
  const OpDef* row = ops.Find(alias ? alias->name : op);
  if (!row)
    return NotFound("no op '{}'; the nearest are: {}", op, fmt::join(ops.Nearest(op), ", "));
  const std::vector<DType> keys = KeyTypes(*row);
  const std::vector<std::pair<std::string, Choice>> measured =
      core_.kernels_->choices ? core_.kernels_->choices->Of(row->name + " ")
                              : std::vector<std::pair<std::string, Choice>>();
  json candidates = json::array();
  for (DType key : keys) {
    if (dtype != DType::kInvalid && key != DType::kInvalid && key != dtype) continue;
    for (const Candidate& c : core_.kernels_->variants.Explain(row->name, key)) {
      candidates.push_back({{"dtype", key == DType::kInvalid ? "-" : DTypeName(key)},
                            {"variant", c.variant->name},
                            {"tier", TierName(c.variant->tier)},
                            {"priority", c.variant->priority},
                            {"source", c.variant->source},
                            {"chosen", c.chosen},
                            {"reason", c.reason},
                            {"measured", Measured(measured, *row, key, *c.variant)}});
    }
  }
  if (candidates.empty()) {
    return InvalidArgument("{} {}, not {}", row->Signature(),
                           row->variables.empty() ? "has one form for all"
                                                  : "takes " + row->variables[0].types.ToString(),
                           DTypeName(dtype));
  }
  return DumpJson({{"op", row->name},
                   {"signature", SignatureOf(*row, *core_.kernels_)},
                   {"doc", row->doc},
                   {"candidates", candidates}});
}

std::string InfoWriter::Sessions(const std::string& principal) const {
  json out = json::array();
  for (const auto& [id, s] : core_.sessions_) {
    if (s->principal != principal) continue;
    int64_t program_bytes = 0;
    for (const auto& [key, slot] : s->slots) program_bytes += slot.of_quota.bytes();
    json clients = json::array();
    for (const auto& [number, a] : s->attachments) {
      clients.push_back({{"attachment", number},
                         {"client", a->client},
                         {"connected", a->peer != kNoPeer},
                         {"in_flight", a->in_flight}});
    }
    out.push_back({{"id", id},
                   {"name", s->name},
                   {"principal", s->principal},
                   {"clients", clients},
                   {"tensors", s->store->count()},
                   {"bytes", s->store->in_use()},
                   {"quota", s->store->quota()},
                   {"programs", s->slots.size()},
                   {"program_bytes", program_bytes},
                   {"queued", s->queue.size()},
                   {"runs", s->runs},
                   {"device_ms", static_cast<double>(s->device_time) / kMillisecond}});
  }
  return DumpJson(out);
}

std::string InfoWriter::Grants(const std::string& principal) const {
  size_t count = 0, bytes = 0;
  json grants = json::array();
  for (const auto& [id, s] : core_.sessions_) {
    if (s->principal != principal) continue;
    for (const Grant& g : s->grants) {
      ++count;
      json grant = {{"session", {{"id", id}, {"name", s->name}}},
                    {"name", g.name},
                    {"type", TypeOf(g.tensor)},
                    {"bytes", g.tensor.buffer->bytes()},
                    {"capability", CapabilityText(g.capability)},
                    {"to", {{"principal", g.principal}, {"session", g.session}}}};
      bytes += DumpJson(grant).size() + 1;
      if (bytes < kMostInfoBytes) grants.push_back(std::move(grant));
    }
  }
  return DumpJson({{"count", count}, {"grants", grants}});
}

std::string InfoWriter::Stats() const {
  return DumpJson({{"sessions", core_.sessions_.size()},
                   {"queued", core_.load_.queued.load()},
                   {"runs", core_.load_.runs.load()},
                   {"failed", core_.load_.failed.load()},
                   {"refused", core_.load_.refused.load()},
                   {"memory_in_use", core_.budget_.in_use},
                   {"memory_peak", core_.budget_.peak},
                   {"memory_limit", core_.budget_.limit},
                   {"memory_packed", core_.packed_ ? core_.packed_->bytes() : 0},
                   {"host_memory_in_use", core_.host_budget_.in_use}});
}

}  // namespace opwire::executor
