// devices, ops, explain, report, sessions: what runs where and why.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "frontend/cli/cli.h"
#include "ir/text/text.h"

namespace opwire::cli {
namespace {

using nlohmann::json;

// Runs `f`, which gives the exit code or a status.
template <typename F>
void Run(Common& common, F f) {
  const Status status = f();
  common.exit_code = status.ok() ? kDone : Report(common, status);
}

StatusOr<json> AskAny(const Common& common, std::string_view topic, std::string_view argument = "", DType dtype = DType::kInvalid) {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenAny(common, client));
  OPWIRE_ASSIGN_OR_RETURN(const std::string text, session.Info(topic, argument, dtype));
  return json::parse(text);
}

Status Devices(const Common& common) {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors, client.Executors());
  if (common.json) {
    json out = json::array();
    for (const ExecutorFacts& e : executors) {
      out.push_back({{"id", e.id}, {"device", e.device}, {"name", e.device_name}, {"arch", e.arch}, {"memory_bytes", e.memory_bytes},
                     {"free_memory", e.free_memory}, {"compute_units", e.compute_units}, {"labels", e.labels}, {"sessions", e.sessions},
                     {"queued", e.queued}, {"busy_ms", e.busy_ms}, {"running", e.running}, {"insecure", e.insecure},
                     {"endpoint", e.control_endpoint}, {"facts", json(e.facts)}});
    }
    fmt::print("{}\n", out.dump(2));
    return absl::OkStatus();
  }
  if (executors.empty()) return Unavailable("no executor is registered");
  Table table({"ID", "DEVICE", "NAME", "UNITS", "MEMORY", "FREE", "SESSIONS", "STATE", "TRUST"});
  for (const ExecutorFacts& e : executors) {
    table.Add({e.id, e.device, e.device_name, std::to_string(e.compute_units), HumanBytes(e.memory_bytes), HumanBytes(e.free_memory),
               std::to_string(e.sessions), e.busy_ms ? fmt::format("busy {} ms: {}", e.busy_ms, e.running) : "idle", e.insecure ? "insecure" : "local"});
  }
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

Status Ops(const Common& common, const std::string& name) {
  OPWIRE_ASSIGN_OR_RETURN(json ops, AskAny(common, "ops"));
  if (!name.empty()) {
    const OpAlias* alias = Catalogue().FindAlias(name);
    const std::string canonical = alias ? alias->name : name;
    json found = json::array();
    for (const json& op : ops) {
      if (op["op"] == canonical) found.push_back(op);
    }
    if (found.empty()) return NotFound("no op '{}'; the nearest are: {}", name, fmt::join(Catalogue().Nearest(name), ", "));
    ops = found;
  }
  if (common.json) {
    fmt::print("{}\n", ops.dump(2));
    return absl::OkStatus();
  }
  if (!name.empty()) {
    const json& op = ops[0];
    fmt::print("{}\n  {}\n  dtypes:   {}\n  variants: {}\n  version:  {}\n  effects:  {}\n", op["signature"].get<std::string>(),
               op["doc"].get<std::string>(), op["dtypes"].get<std::string>(), fmt::join(op["variants"].get<std::vector<std::string>>(), ", "),
               op["version"].get<int>(), op["effects"].get<std::string>());
    if (const OpRow* row = Catalogue().Find(op["op"].get<std::string>())) {
      for (const AttrSpec& a : row->attrs) fmt::print("  {} ({}{}): {}\n", a.name, AttrKindName(a.kind), a.fallback ? "" : ", required", a.doc);
    }
    return absl::OkStatus();
  }
  Table table({"OP", "DTYPES", "VARIANTS", "WHAT IT DOES"});
  for (const json& op : ops) {
    table.Add({op["op"], op["dtypes"], fmt::format("{}", fmt::join(op["variants"].get<std::vector<std::string>>(), " ")), op["doc"]});
  }
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

Status Explain(const Common& common, const std::string& op, const std::string& dtype_name) {
  DType dtype = DType::kInvalid;
  if (!dtype_name.empty()) {
    const auto parsed = ParseDType(dtype_name);
    if (!parsed) return InvalidArgument("expected an element type such as f32, got '{}'", dtype_name);
    dtype = *parsed;
  }
  OPWIRE_ASSIGN_OR_RETURN(const json explained, AskAny(common, "explain", op, dtype));
  if (common.json) {
    fmt::print("{}\n", explained.dump(2));
    return absl::OkStatus();
  }
  fmt::print("{}\n", explained["signature"].get<std::string>());
  Table table({"DTYPE", "VARIANT", "TIER", "SOURCE", "CHOSEN", "WHY"});
  for (const json& c : explained["candidates"]) {
    table.Add({c["dtype"], c["variant"], c["tier"], c["source"], c["chosen"] ? "yes" : "no", c["reason"]});
  }
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

Status Placement(const Common& common, const std::string& file) {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  std::optional<Module> program;
  if (!file.empty()) {
    std::ifstream in(file);
    if (!in) return NotFound("file {} cannot be read", file);
    std::stringstream text;
    text << in.rdbuf();
    OPWIRE_ASSIGN_OR_RETURN(program, Parse(text.str(), file));
  }
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors, client.Executors(program.has_value()));
  SessionOptions options;
  options.device = common.device;
  options.program = program ? &*program : nullptr;
  const std::vector<PlacementCandidate> candidates = Place(executors, options);
  if (common.json) {
    json out = json::array();
    for (const PlacementCandidate& c : candidates) out.push_back({{"id", c.executor->id}, {"fits", c.fits}, {"reason", c.reason}});
    fmt::print("{}\n", out.dump(2));
    return absl::OkStatus();
  }
  if (candidates.empty()) return Unavailable("no executor is registered");
  Table table({"EXECUTOR", "DEVICE", "TAKES IT", "WHY"});
  for (const PlacementCandidate& c : candidates) table.Add({c.executor->id, c.executor->device, c.fits ? "yes" : "no", c.reason});
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

Status ReportAll(const Common& common) {
  OPWIRE_ASSIGN_OR_RETURN(const json r, AskAny(common, "report"));
  if (common.json) {
    fmt::print("{}\n", r.dump(2));
    return absl::OkStatus();
  }
  const json& d = r["device"];
  fmt::print("executor  {} (protocol {})\n", r["executor"].get<std::string>(), r["protocol"].get<std::string>());
  fmt::print("device    {} {}: {}, {} units, {}\n", d["kind"].get<std::string>(), d["name"].get<std::string>(), d["arch"].get<std::string>(),
             d["compute_units"].get<int>(), HumanBytes(d["memory_bytes"].get<int64_t>()));
  for (const auto& [key, value] : d["facts"].items()) fmt::print("          {}: {}\n", key, value.get<std::string>());
  fmt::print("memory    {} in use, peak {}, limit {}\n", HumanBytes(r["memory"]["in_use"]), HumanBytes(r["memory"]["peak"]), HumanBytes(r["memory"]["limit"]));
  fmt::print("\n");
  Table table({"OP", "VARIANT", "TIER", "STATE", "DTYPES", "WHY NOT"});
  for (const json& op : r["ops"]) {
    for (const json& v : op["variants"]) table.Add({op["op"], v["name"], v["tier"], v["state"], v["dtypes"], v["reason"]});
  }
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

Status Sessions(const Common& common) {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors, client.Executors());
  json all = json::array();
  for (const ExecutorFacts& e : executors) {
    SessionOptions options;
    options.device = e.id;
    auto session = client.Open(options);
    if (!session.ok()) continue;  // it left meanwhile, or is full: it is listed by devices
    auto text = session->Info("sessions");
    if (!text.ok()) continue;
    for (json s : json::parse(*text)) {
      if (s["clients"].size() == 1 && s["clients"][0]["client"] == "opwire" && s["programs"] == 0 && s["name"] == "") continue;  // this one
      s["executor"] = e.id;
      all.push_back(std::move(s));
    }
  }
  if (common.json) {
    fmt::print("{}\n", all.dump(2));
    return absl::OkStatus();
  }
  Table table({"EXECUTOR", "ID", "NAME", "CLIENTS", "TENSORS", "HELD", "QUOTA", "QUEUED", "RUNS", "DEVICE TIME"});
  for (const json& s : all) {
    table.Add({s["executor"], std::to_string(s["id"].get<int64_t>()), s["name"] == "" ? "-" : s["name"].get<std::string>(),
               std::to_string(s["clients"].size()), std::to_string(s["tensors"].get<int64_t>()), HumanBytes(s["bytes"]), HumanBytes(s["quota"]),
               std::to_string(s["queued"].get<int64_t>()), std::to_string(s["runs"].get<int64_t>()),
               HumanNanos(static_cast<int64_t>(s["device_ms"].get<double>() * 1e6))});
  }
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddDevices(CLI::App& app, Common& common) {
  app.add_subcommand("devices", "Who is registered, and how busy\n\nExample:\n  opwire devices")->callback([&] {
    Run(common, [&] { return Devices(common); });
  });
}

void AddOps(CLI::App& app, Common& common) {
  CLI::App* command = app.add_subcommand("ops", "The ops that an executor can run\n\nExample:\n  opwire ops\n  opwire ops matmul");
  auto name = std::make_shared<std::string>();
  command->add_option("op", *name, "One op, with its attributes");
  command->callback([&common, name] { Run(common, [&] { return Ops(common, *name); }); });
}

void AddExplain(CLI::App& app, Common& common) {
  CLI::App* command = app.add_subcommand("explain",
                                         "Which variant runs an op, and why; or where a session would go\n\nExample:\n  opwire explain matmul f32\n  "
                                         "opwire explain --placement mlp.opw");
  struct Args {
    std::string op, dtype;
    bool placement = false;
  };
  auto args = std::make_shared<Args>();
  command->add_option("op", args->op, "An op (with --placement: a program's file)");
  command->add_option("dtype", args->dtype, "An element type: f32, bf16, ...");
  command->add_flag("--placement", args->placement, "Rank the executors for a session");
  command->callback([&common, args] {
    if (!args->placement && args->op.empty()) throw CLI::RequiredError("op");
    Run(common, [&] { return args->placement ? Placement(common, args->op) : Explain(common, args->op, args->dtype); });
  });
}

void AddReport(CLI::App& app, Common& common) {
  app.add_subcommand("report", "Every variant of every op: there, or why not\n\nExample:\n  opwire report")->callback([&] {
    Run(common, [&] { return ReportAll(common); });
  });
}

void AddSessions(CLI::App& app, Common& common) {
  app.add_subcommand("sessions", "Your sessions and what they hold\n\nExample:\n  opwire sessions")->callback([&] {
    Run(common, [&] { return Sessions(common); });
  });
}

}  // namespace opwire::cli
