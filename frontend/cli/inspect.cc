// devices, ops, explain, report: which executors and kernels run, and why.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "frontend/cli/cli.h"
#include "frontend/cli/facts.h"
#include "ir/base/json.h"
#include "ir/ops/names.h"
#include "ir/passes/pipeline.h"
#include "ir/wire/endpoint.h"

namespace opwire::cli {
namespace {

// Asks the executor that a session would use.
StatusOr<json> AskBest(const Common& common, std::string_view topic, std::string_view argument = "",
                       DType dtype = DType::kInvalid) {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors, Executors(common, client));
  StatusOr<json> answer = Unavailable("no executor is registered");
  for (const PlacementCandidate& c : Place(executors, {})) {
    answer = AskJson(*c.executor, topic, argument, dtype);
    if (!absl::IsUnavailable(answer.status())) break;  // a dead one is still listed for a moment
  }
  return answer;
}

// "f64, f32, f16, bf16, i64, i32, i16, i8" as "float int".
std::string Classes(const std::string& dtypes) {
  static const std::vector<std::pair<std::string, std::string>> kClasses = {
      {"float", "f64, f32, f16, bf16"},
      {"f8", "f8e4m3, f8e5m2"},
      {"int", "i64, i32, i16, i8"},
      {"uint", "u64, u32, u16, u8"}};
  std::string out = dtypes;
  for (const auto& [name, members] : kClasses) {
    if (const size_t at = out.find(members); at != std::string::npos)
      out.replace(at, members.size(), name);
  }
  return out;
}

constexpr const char* kClassesNote =
    "float: f64 f32 f16 bf16 · f8: f8e4m3 f8e5m2 · int: i64 i32 i16 i8 · uint: u64 u32 u16 u8";

Status NoOp(const std::string& op) {
  const std::string nearest = DidYouMean(Catalogue().Nearest(op));
  return WithNext(Usage("unknown op '{}'{}", Clip(op), nearest), "list the ops: opwire ops");
}

std::string JoinTexts(const json& list, std::string_view separator) {
  std::vector<std::string> texts;
  for (const json& j : list) texts.push_back(Text(j));
  return fmt::format("{}", fmt::join(texts, separator));
}

void PrintOp(const json& op) {
  fmt::print("{}\n  {}\n\n  dtypes:   {}\n  variants: {}\n  version:  {}\n  effects:  {}\n",
             Text(op.at("signature")), Text(op.at("doc")), Text(op.at("dtypes")),
             JoinTexts(op.at("variants"), ", "), Count(op.at("version")), Text(op.at("effects")));
  std::string aliases;
  for (const OpAlias& a : Catalogue().aliases()) {
    if (a.name == Text(op.at("op")))
      aliases += fmt::format("{}{}", aliases.empty() ? "" : ", ", a.alias);
  }
  if (!aliases.empty()) fmt::print("  aliases:  {}\n", aliases);
  if (op.at("attributes").empty()) return;
  fmt::print("\n");
  Table table({"ATTRIBUTE", "KIND", "GIVEN", "MEANING"});
  for (const json& a : op.at("attributes"))
    table.Add({Text(a.at("name")), Text(a.at("kind")), a.at("required") ? "required" : "optional",
               Text(a.at("doc"))});
  fmt::print("{}", table.ToString());
}

}  // namespace

Status Devices(const Common& common) {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors, Executors(common, client));
  if (common.json) {
    json out = json::array();
    for (const ExecutorFacts& e : executors) {
      json facts = json::object();
      for (const auto& [key, value] : e.facts) facts[key] = value;
      out.push_back({{"id", e.id},
                     {"device", e.device},
                     {"name", e.device_name},
                     {"arch", e.arch},
                     {"memory_bytes", e.memory_bytes},
                     {"free_memory", e.free_memory},
                     {"compute_units", e.compute_units},
                     {"labels", e.labels},
                     {"sessions", e.sessions},
                     {"queued", e.queued},
                     {"busy_ms", e.busy_ms},
                     {"running", e.running},
                     {"insecure", e.insecure},
                     {"endpoint", e.control_endpoint},
                     {"facts", facts}});
    }
    PrintJson(out);
    return absl::OkStatus();
  }
  Table table({"ID", "DEVICE", "NAME", "UNITS", "MEMORY", "FREE", "SESSIONS", "STATE", "TRUST"});
  for (const ExecutorFacts& e : executors) {
    table.Add({e.id, e.device, e.device_name, std::to_string(e.compute_units),
               HumanBytes(e.memory_bytes), HumanBytes(e.free_memory), std::to_string(e.sessions),
               e.busy_ms ? fmt::format("busy {} ms: {}", e.busy_ms, e.running) : "idle",
               e.insecure                  ? "insecure"
               : IsIpc(e.control_endpoint) ? "local"
                                           : "keys"});
  }
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

Status Ops(const Common& common, const std::string& name) {
  OPWIRE_ASSIGN_OR_RETURN(json ops, AskBest(common, "ops"));
  if (!name.empty()) {
    const OpAlias* alias = Catalogue().FindAlias(name);
    json found = json::array();
    for (const json& op : ops) {
      if (op.at("op") == (alias ? alias->name : name)) found.push_back(op);
    }
    if (found.empty()) return NoOp(name);
    ops = std::move(found);
  }
  if (common.json) {
    PrintJson(ops);
  } else if (!name.empty()) {
    PrintOp(ops.at(0));
  } else {
    Table table({"OP", "DTYPES", "VARIANTS", "WHAT IT DOES"});
    for (const json& op : ops)
      table.Add({op.at("op"), Classes(Text(op.at("dtypes"))), JoinTexts(op.at("variants"), " "),
                 op.at("doc")});
    fmt::print("{}\n{}\n", table.ToString(), kClassesNote);
  }
  return absl::OkStatus();
}

// "0.8 us to 12 us, first in 2 of 3 classes of calls".
std::string MeasuredText(const json& measured) {
  if (measured.empty()) return "-";
  double least = 1e300, most = 0;
  int first = 0;
  for (const json& m : measured) {
    least = std::min(least, m.at("ns").get<double>());
    most = std::max(most, m.at("ns").get<double>());
    first += m.at("first").get<bool>() ? 1 : 0;
  }
  const std::string range = measured.size() == 1
                                ? HumanNanos(static_cast<int64_t>(least))
                                : fmt::format("{} to {}", HumanNanos(static_cast<int64_t>(least)),
                                              HumanNanos(static_cast<int64_t>(most)));
  return fmt::format("{}, first in {} of {} {}", range, first, measured.size(),
                     measured.size() == 1 ? "class of calls" : "classes of calls");
}

// "%0, %1"; only the first of a long list, because a joint group has hundreds.
std::string SomeOf(const std::vector<std::string>& all) {
  constexpr size_t kMost = 6;
  const std::string first =
      fmt::format("{}", fmt::join(std::span(all).first(std::min(all.size(), kMost)), ", "));
  return all.size() > kMost ? fmt::format("{} and {} more", first, all.size() - kMost) : first;
}

std::vector<std::string> Names(std::string_view list) {
  std::vector<std::string> out;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(", ", at), list.size());
    out.emplace_back(list.substr(at, end - at));
    at = end + 2;
  }
  return out;
}

// "scratch + 4096, result y".
std::string WritesText(const json& writes) {
  std::vector<std::string> out;
  for (const json& w : writes) {
    out.push_back(Text(w.at("to")));
    if (w.at("at") > 0) out.back() += fmt::format(" + {}", w.at("at").get<int64_t>());
  }
  return SomeOf(out);
}

Status ExplainProgram(const Common& common, const ExplainArgs& args) {
  OPWIRE_ASSIGN_OR_RETURN(ProgramFile file, ReadProgram(common, args.op));
  OPWIRE_ASSIGN_OR_RETURN(const auto named, NamedSizes(file.module.dims, args.dims));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesOf(file.module.dims, named));
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_RETURN_IF_ERROR(client.StartIfNone(common.device));
  SessionOptions options;
  options.device = common.device;
  options.program = &file.module;
  OPWIRE_ASSIGN_OR_RETURN(Session session, client.Open(options));
  OPWIRE_ASSIGN_OR_RETURN(const Program program, session.Load(file.module, args.passes.load()));
  OPWIRE_ASSIGN_OR_RETURN(const std::string text, program.Plan(sizes));
  const json plan = ParseJson(text);
  if (plan.is_discarded())
    return Internal("executor {} answered something else", session.executor());
  if (common.json) {
    PrintJson(plan);
    return absl::OkStatus();
  }
  Table table({"STEP", "NODE", "OP@VARIANT", "WRITES", "BYTES", "MOVES", "FLOPS", "MEASURED"});
  int64_t number = 0;
  double all_flops = 0, all_moved = 0;
  for (const json& step : plan.at("steps")) {
    int64_t bytes = 0;
    for (const json& w : step.at("writes")) bytes += w.at("bytes").get<int64_t>();
    const bool control = step.contains("goes_to");
    const std::string where = Text(step.at("function")) == Text(plan.at("function"))
                                  ? ""
                                  : "@" + Text(step.at("function")) + " ";
    std::string what = Text(step.at("label"));
    if (control && what != Text(step.at("op")))
      what = fmt::format("{}: {}", Text(step.at("op")), what);
    if (control && step.at("goes_to") >= 0)
      what += fmt::format(" {}", step.at("goes_to").get<int64_t>());
    table.Add({std::to_string(number++), where + SomeOf(Names(Text(step.at("value")))), what,
               WritesText(step.at("writes")), control ? "" : HumanBytes(bytes),
               control ? "" : HumanBytes(static_cast<int64_t>(step.at("moved").get<double>())),
               control ? "" : HumanCount(step.at("flops")),
               step.contains("measured_ns")
                   ? HumanNanos(static_cast<int64_t>(step.at("measured_ns").get<double>()))
                   : ""});
    all_flops += step.at("flops").get<double>();
    all_moved += step.at("moved").get<double>();
  }
  fmt::print("{}", table.ToString());
  for (size_t i = 0; i < plan.at("steps").size(); ++i) {
    const json& step = plan.at("steps")[i];
    for (const json& end : step.value("alone", json::array()))
      fmt::print("step {} is {} alone: {}\n", i, Text(step.at("op")), Text(end));
    if (!step.contains("group")) continue;
    std::vector<std::string> ops;
    for (const json& op : step.at("group").at("ops")) ops.push_back(Text(op));
    const int64_t members = step.at("group").value("members", int64_t{1});
    fmt::print("step {} is {}{} as one kernel\n", i, fmt::join(ops, ", "),
               members > 1 ? fmt::format(" for each of {} sets of tensors", members) : "");
    for (const json& end : step.at("group").at("ends"))
      fmt::print("  it ends here: {}\n", Text(end));
  }
  const int64_t count = plan.at("count").get<int64_t>(), loops = plan.at("loops").get<int64_t>();
  if (count > number)
    fmt::print("and {} steps more\n", count - number);
  else
    fmt::print("all steps once: {} flops, {} moved\n", HumanCount(all_flops),
               HumanBytes(static_cast<int64_t>(all_moved)));
  std::string at;
  for (size_t s = 0; s < sizes.size(); ++s)
    at += fmt::format("{} {} = {}", s == 0 ? " with" : ",", file.module.dims.symbols()[s].name,
                      sizes[s]);
  fmt::print("{} steps{} on {}{}, {} of scratch memory (at least {})\n", count,
             loops > 0 ? fmt::format(" with loops ({})", loops) : "", session.executor(), at,
             HumanBytes(plan.at("scratch_bytes").get<int64_t>()),
             HumanBytes(plan.at("scratch_bound").get<int64_t>()));
  return absl::OkStatus();
}

Status Explain(const Common& common, const ExplainArgs& args) {
  if (args.op.empty())
    return WithNext(Usage("opwire explain: expected an op, a program's file, or --placement"),
                    "opwire explain matmul f32");
  if (args.op.ends_with(".opw")) {
    if (!args.dtype.empty())
      return Usage("expected nothing behind a program's file, got '{}'", Clip(args.dtype));
    return ExplainProgram(common, args);
  }
  if (!args.dims.empty())
    return Usage("--dim {}: expected a program's file as well, got '{}'", Clip(args.dims[0]),
                 Clip(args.op));
  DType dtype = DType::kInvalid;
  if (!args.dtype.empty()) {
    const auto parsed = ParseDType(args.dtype);
    if (!parsed) {
      std::vector<std::string_view> names;
      for (int i = 1; i < kDTypeCount; ++i) names.push_back(DTypeName(static_cast<DType>(i)));
      return Usage("expected an element type, got '{}'; there are {}", Clip(args.dtype),
                   fmt::join(names, ", "));
    }
    dtype = *parsed;
  }
  if (!Catalogue().Find(args.op) && !Catalogue().FindAlias(args.op) &&
      !args.op.starts_with(kUserPrefix))
    return NoOp(args.op);
  auto explained = AskBest(common, "explain", args.op, dtype);
  if (absl::IsInvalidArgument(explained.status())) return AsUsage(explained.status());
  if (absl::IsNotFound(explained.status()))
    return WithNext(AsUsage(explained.status()), "list the ops: opwire ops");
  if (!explained.ok()) return explained.status();
  if (common.json) {
    PrintJson(*explained);
    return absl::OkStatus();
  }
  fmt::print("{}\n  {}\n\n", Text((*explained).at("signature")), Text((*explained).at("doc")));
  const json& candidates = (*explained).at("candidates");
  if (dtype == DType::kInvalid && candidates.at(0).at("dtype") != candidates.back().at("dtype")) {
    Table table({"DTYPE", "CHOSEN", "TIER", "SOURCE"});
    for (const json& c : candidates) {
      if (c.at("chosen")) table.Add({c.at("dtype"), c.at("variant"), c.at("tier"), c.at("source")});
    }
    fmt::print("{}\nevery candidate and why: opwire explain {} {}\n", table.ToString(), args.op,
               Text(candidates.at(0).at("dtype")));
    return absl::OkStatus();
  }
  Table table({"DTYPE", "VARIANT", "TIER", "SOURCE", "CHOSEN", "MEASURED", "WHY"});
  for (const json& c : candidates)
    table.Add({c.at("dtype"), c.at("variant"), c.at("tier"), c.at("source"),
               c.at("chosen") ? "yes" : "no", MeasuredText(c.at("measured")), c.at("reason")});
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

Status Placement(const Common& common, const std::string& file) {
  std::optional<Module> program;
  if (!file.empty()) {
    OPWIRE_ASSIGN_OR_RETURN(ProgramFile read, ReadProgram(common, file));
    program = std::move(read.module);
  }
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  Common all = common;  // show those that --on excludes, with the reason
  all.device.clear();
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors,
                          Executors(all, client, program.has_value()));
  SessionOptions options;
  options.device = common.device;
  options.program = program ? &*program : nullptr;
  const std::vector<PlacementCandidate> candidates = Place(executors, options);
  if (common.json) {
    json out = json::array();
    for (const PlacementCandidate& c : candidates)
      out.push_back({{"id", c.executor->id},
                     {"device", c.executor->device},
                     {"fits", c.fits},
                     {"reason", c.reason}});
    PrintJson(out);
    return absl::OkStatus();
  }
  Table table({"EXECUTOR", "DEVICE", "TAKES IT", "WHY"});
  for (const PlacementCandidate& c : candidates)
    table.Add({c.executor->id, c.executor->device, c.fits ? "yes" : "no", c.reason});
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

// Prints how many of the kernels that an executor compiles ahead are ready.
void PrintAhead(const json& ahead) {
  const std::string state = Text(ahead.at("state")), all = Text(ahead.at("reason")),
                    reason = all.substr(0, all.find('\n'));
  if (state == "off") {
    fmt::print("ahead     off: {}\n", reason);
    return;
  }
  fmt::print("ahead     {}: {} of {} kernels in {:.1f} s, {} of {} units from the cache{}{}\n",
             state, Count(ahead.at("ready")), Count(ahead.at("kernels")),
             ahead.at("seconds").get<double>(), Count(ahead.at("cached_units")),
             Count(ahead.at("units")), reason.empty() ? "" : "; ", reason);
}

// Prints the toolchains, the folder of built kernels, and folders with errors.
void PrintToolchains(const json& facts) {
  if (!facts.contains("toolchains")) return;
  fmt::print("\n");
  Table table({"TOOLCHAIN", "BACKEND", "VERSION", "PATH", "ARCHITECTURES", "WHY NOT"});
  for (const json& t : facts.at("toolchains")) {
    const json& archs = t.at("architectures");
    const std::string range =
        archs.empty()       ? ""
        : archs.size() == 1 ? Text(archs.at(0))
                            : fmt::format("{} to {}", Text(archs.front()), Text(archs.back()));
    table.Add(
        {t.at("name"), t.at("backend"), t.at("version"), t.at("path"), range, t.at("reason")});
  }
  fmt::print("{}", table.ToString());
  if (const json& cache = facts.at("cache"); cache.is_object()) {
    fmt::print("\ncache     {}: {} objects, {} of {}{}{}\n", Text(cache.at("directory")),
               Count(cache.at("entries")), HumanBytes(Count(cache.at("bytes"))),
               HumanBytes(Count(cache.at("limit"))), cache.at("warning") == "" ? "" : "; ",
               Text(cache.at("warning")));
  }
  if (facts.contains("ahead")) PrintAhead(facts.at("ahead"));
  for (const json& f : facts.at("folders")) {
    const std::string problem = Text(f.at("problem"));
    fmt::print("folder    {}: {}{}{}\n", Text(f.at("folder")),
               f.at("op") == "" ? "no op" : Text(f.at("op")), problem.empty() ? "" : ": ", problem);
  }
}

Status ReportAll(const Common& common) {
  OPWIRE_ASSIGN_OR_RETURN(json r, AskBest(common, "report"));
  // From the same executor, which looks for its compilers now.
  Common same = common;
  same.device = Text(r.at("executor"));
  OPWIRE_ASSIGN_OR_RETURN(r["toolchains"], AskBest(same, "toolchains"));
  if (common.json) {
    PrintJson(r);
    return absl::OkStatus();
  }
  const json& d = r.at("device");
  fmt::print("executor  {} (protocol {})\n", Text(r.at("executor")), Text(r.at("protocol")));
  fmt::print("device    {}: {}, {}, {} units, {}\n", Text(d.at("kind")), Text(d.at("name")),
             Text(d.at("arch")), Count(d.at("compute_units")),
             HumanBytes(Count(d.at("memory_bytes"))));
  for (const auto& [key, value] : d.at("facts").items()) {
    // Facts are an object of strings, or a list of pairs.
    if (value.is_string())
      fmt::print("          {}: {}\n", key, Text(value));
    else if (value.is_array() && value.size() == 2)
      fmt::print("          {}: {}\n", Text(value.at(0)), Text(value.at(1)));
  }
  fmt::print("memory    {} in use, peak {}, limit {}\n", HumanBytes(r.at("memory").at("in_use")),
             HumanBytes(r.at("memory").at("peak")), HumanBytes(r.at("memory").at("limit")));
  fmt::print("limits   ");
  for (const auto& [name, value] : r.at("limits").items()) fmt::print(" {}={}", name, Count(value));
  fmt::print("\n\n");
  Table table({"OP", "VARIANT", "BACKEND", "TIER", "STATE", "DTYPES", "NOTE"});
  std::string long_reasons;
  for (const json& op : r.at("ops")) {
    for (const json& v : op.at("variants")) {
      const std::string reason = Text(v.at("reason"));
      const size_t line = reason.find('\n');
      if (line != reason.npos)
        long_reasons += fmt::format("\n{}@{}: {}\n", Text(op.at("op")), Text(v.at("name")), reason);
      table.Add({op.at("op"), v.at("name"), v.at("backend"), v.at("tier"), v.at("state"),
                 Classes(Text(v.at("dtypes"))), reason.substr(0, line)});
    }
  }
  fmt::print(
      "{}\n{}\nbuilt-in ops have kernels for {} only: none of them has sources for another "
      "backend\n",
      table.ToString(), kClassesNote, Text(d.at("kind")));
  PrintToolchains(r.at("toolchains"));
  fmt::print("{}", long_reasons);
  return absl::OkStatus();
}

}  // namespace opwire::cli
