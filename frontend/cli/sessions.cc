// sessions, grants: what this user's sessions hold, and what they share with others.
#include <fmt/format.h>

#include "frontend/cli/cli.h"
#include "frontend/cli/facts.h"
#include "ir/wire/capability.h"

namespace opwire::cli {
namespace {

// "lab of uid:1000", "all of key:ada".
std::string Takers(const json& to) {
  const std::string session = Text(to.at("session"));
  return fmt::format("{} of {}", session.empty() ? "all" : session, Text(to.at("principal")));
}

Status Revoke(const Common& common, const std::vector<ExecutorFacts>& executors,
              const std::string& text) {
  const StatusOr<std::vector<uint8_t>> capability = CapabilityOf(text);
  if (!capability.ok())
    return WithNext(AsUsage(capability.status()), "copy it from the list: opwire grants");
  Status status;
  for (const ExecutorFacts& e : executors) {
    status = RevokeOn(e, *capability);
    if (absl::IsNotFound(status)) continue;
    if (absl::IsUnavailable(status) && executors.size() > 1) continue;  // it left meanwhile
    OPWIRE_RETURN_IF_ERROR(status);
    if (common.json)
      PrintJson({{"revoked", text}, {"executor", e.id}});
    else
      fmt::print("revoked on {}; who took it keeps it\n", e.id);
    return absl::OkStatus();
  }
  return WithNext(status, "list yours: opwire grants");
}

}  // namespace

StatusOr<std::string> HolderOf(const std::vector<ExecutorFacts>& executors,
                               const std::string& session) {
  for (const ExecutorFacts& e : executors) {
    const auto sessions = AskJson(e, "sessions");
    if (!sessions.ok()) continue;  // one that died is still listed for a moment
    for (const json& s : *sessions) {
      if (s.at("name") == session) return e.id;
    }
  }
  return std::string();
}

Status Sessions(const Common& common, const SessionsArgs& args) {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors, Executors(common, client));
  if (!args.end.empty()) {
    SessionOptions options;
    options.name = args.end;
    options.ring = false;
    OPWIRE_ASSIGN_OR_RETURN(options.device, HolderOf(executors, args.end));
    if (options.device.empty())
      return WithNext(NotFound("no executor holds a session '{}'", args.end),
                      "list yours: opwire sessions");
    OPWIRE_ASSIGN_OR_RETURN(Session session, client.Open(options));
    OPWIRE_RETURN_IF_ERROR(session.Close(/*free=*/true));
    if (common.json)
      PrintJson({{"ended", args.end}, {"executor", options.device}});
    else
      fmt::print("ended session {} on {}\n", args.end, options.device);
    return absl::OkStatus();
  }
  json all = json::array();
  for (const ExecutorFacts& e : executors) {
    auto sessions = AskJson(e, "sessions");
    if (absl::IsUnavailable(sessions.status()) && executors.size() > 1)
      continue;  // it left meanwhile
    if (!sessions.ok()) return sessions.status();
    for (json s : *sessions) {
      s["executor"] = e.id;
      all.push_back(std::move(s));
    }
  }
  if (common.json) {
    PrintJson(all);
    return absl::OkStatus();
  }
  if (all.empty()) {
    fmt::print("no sessions\n");
    return absl::OkStatus();
  }
  Table table({"EXECUTOR", "ID", "NAME", "CLIENTS", "TENSORS", "HELD", "QUOTA", "QUEUED", "RUNS",
               "DEVICE TIME"});
  for (const json& s : all) {
    std::vector<std::string> clients;
    for (const json& c : s.at("clients"))
      clients.push_back(Text(c.at("client")) + (c.at("connected") ? "" : " (lost)"));
    table.Add({s.at("executor"), std::to_string(Count(s.at("id"))),
               s.at("name") == "" ? "-" : Text(s.at("name")),
               clients.empty() ? "none" : fmt::format("{}", fmt::join(clients, ", ")),
               std::to_string(Count(s.at("tensors"))), HumanBytes(s.at("bytes")),
               HumanBytes(s.at("quota")), std::to_string(Count(s.at("queued"))),
               std::to_string(Count(s.at("runs"))),
               HumanNanos(static_cast<int64_t>(s.at("device_ms").get<double>() * 1e6))});
  }
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

Status Grants(const Common& common, const GrantsArgs& args) {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors, Executors(common, client));
  if (!args.revoke.empty()) return Revoke(common, executors, args.revoke);
  json all = json::array();
  int64_t left_out = 0;
  for (const ExecutorFacts& e : executors) {
    auto grants = AskJson(e, "grants");
    if (absl::IsUnavailable(grants.status()) && executors.size() > 1)
      continue;  // it left meanwhile
    if (!grants.ok()) return grants.status();
    left_out += Count(grants->at("count")) - static_cast<int64_t>(grants->at("grants").size());
    for (json g : grants->at("grants")) {
      g["executor"] = e.id;
      all.push_back(std::move(g));
    }
  }
  if (common.json) {
    PrintJson(all);
    return absl::OkStatus();
  }
  if (all.empty()) {
    fmt::print("no grants\n");
    return absl::OkStatus();
  }
  Table table({"EXECUTOR", "SESSION", "NAME", "TENSOR", "SIZE", "CAPABILITY", "TO"});
  for (const json& g : all) {
    const json& session = g.at("session");
    table.Add({g.at("executor"),
               session.at("name") == "" ? fmt::format("unnamed {}", Count(session.at("id")))
                                        : Text(session.at("name")),
               g.at("name") == "" ? "-" : Text(g.at("name")), g.at("type"),
               HumanBytes(g.at("bytes")), g.at("capability"), Takers(g.at("to"))});
  }
  fmt::print("{}", table.ToString());
  if (left_out > 0) fmt::print("and {} more\n", left_out);
  return absl::OkStatus();
}

}  // namespace opwire::cli
