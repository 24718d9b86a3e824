// Output and errors of the commands.
#include "frontend/cli/cli.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace opwire::cli {

std::string NextStep(const Status& status) {
  const std::string message = MessageOf(status);
  const auto says = [&](std::string_view part) { return message.find(part) != std::string::npos; };
  if (says("no executor is registered")) return "start one: opwire-executor --device cpu";
  if (says("no executor takes the session: ")) return "see what is there and why: opwire explain --placement";
  if (absl::IsUnavailable(status)) return "start a registry and an executor: opwire up";
  if (says("over quota")) return "free tensors, or open the session with a larger quota: opwire sessions shows what is held";
  if (says("out of memory")) return "free tensors or end sessions: opwire sessions";
  if (says("protocol:")) return "install the same release on both sides";
  if (says("unknown op") || says("no op '")) return "list the ops: opwire ops";
  return "";
}

int Report(const Common& common, const Status& status) {
  int code = kRunFailed;
  switch (status.code()) {
    case absl::StatusCode::kOk: return kDone;
    case absl::StatusCode::kUnavailable: code = kNothingReachable; break;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnauthenticated: code = kRefused; break;
    default: break;
  }
  const std::string next = NextStep(status);
  if (common.json) {
    const nlohmann::json j = {{"error", {{"code", CodeName(status.code())}, {"message", MessageOf(status)}, {"next", next}}}};
    fmt::print(stderr, "{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return code;
  }
  fmt::print(stderr, "opwire: {}: {}\n", CodeName(status.code()), MessageOf(status));
  if (!next.empty()) fmt::print(stderr, "  next: {}\n", next);
  return code;
}

std::string Table::ToString() const {
  std::vector<size_t> width;
  for (const auto& row : rows_) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], width[i]);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string HumanBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double v = static_cast<double>(bytes);
  int unit = 0;
  while (v >= 1024 && unit < 5) {
    v /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", v, kUnits[unit]);
}

std::string HumanNanos(int64_t nanos) {
  const double v = static_cast<double>(nanos);
  if (nanos < 1'000) return fmt::format("{} ns", nanos);
  if (nanos < 1'000'000) return fmt::format("{:.1f} us", v / 1e3);
  if (nanos < 1'000'000'000) return fmt::format("{:.1f} ms", v / 1e6);
  return fmt::format("{:.2f} s", v / 1e9);
}

StatusOr<Client> Connect(const Common& common) {
  ClientOptions options;
  options.registries = common.registries;
  options.name = "opwire";
  return Client::Connect(options);
}

StatusOr<Session> OpenAny(const Common& common, Client& client, const Module* program) {
  SessionOptions options;
  options.device = common.device;
  options.program = program;
  return client.Open(options);
}

}  // namespace opwire::cli
