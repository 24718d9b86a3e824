// Output, errors, and connections to executors.
#include "frontend/cli/cli.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/cord.h"
#include "frontend/cli/facts.h"
#include "frontend/cpp/embedded.h"
#include "frontend/cpp/ssh.h"
#include "ir/base/json.h"
#include "ir/ops/names.h"
#include "ir/text/text.h"
#include "ir/wire/endpoint.h"
#include "ir/wire/zmq_channel.h"

namespace opwire::cli {
namespace {

constexpr const char* kUsagePayload = "opwire/usage";
constexpr const char* kNextPayload = "opwire/next";
constexpr Nanos kJustStarted = 250 * kMillisecond;
constexpr Nanos kPingTimeout = 2 * kSecond;  // long enough for a busy machine
constexpr Nanos kAskTimeout = 30 * kSecond;

int ExitCodeOf(const Status& status) {
  if (status.GetPayload(kUsagePayload)) return kUsage;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kUnavailable:
      return kNothingReachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnauthenticated:
      return kRefused;
    default:
      return kRunFailed;
  }
}

// Returns what a user can do about this error; empty if the message says it.
std::string NextStep(const Status& status) {
  if (const auto next = status.GetPayload(kNextPayload)) return std::string(*next);
  const std::string message = MessageOf(status);
  const auto says = [&](std::string_view part) { return message.find(part) != std::string::npos; };
  if (says("protocol:")) return "install the same release on both sides";
  if (says("over quota"))
    return "free tensors, or ask for more with --memory; opwire sessions shows their memory";
  if (says("out of memory"))
    return "run with smaller sizes, or end sessions: opwire sessions; opwire devices shows what is "
           "free";
  if (says("sessions, got")) return "end one: opwire sessions --end NAME";
  if (says("unknown op")) return "list the ops: opwire ops";
  if (says("is gone ("))
    return "run it again: it goes to an executor that lives, and starts anew; opwire devices shows "
           "them";
  if (says("set OPWIRE_RUNTIME_DIR")) return "";
  if (absl::IsUnavailable(status)) return "see all executors: opwire explain --placement";
  if (absl::IsDeadlineExceeded(status)) return "allow it more time: --deadline-ms";
  return "";
}

std::vector<std::string> RegistriesOf(const Common& common) {
  if (!common.registries.empty()) return common.registries;
  if (const char* env = std::getenv("OPWIRE_REGISTRY"); env && *env) return {env};
  const auto own = DefaultRegistryEndpoint();
  return own.ok() ? std::vector<std::string>{*own} : std::vector<std::string>();
}

// UNAVAILABLE if the only registry is one of this host and has no listener: there is no registry,
// or it died and left its socket.
Status CheckRegistry(const Common& common) {
  const std::vector<std::string> registries = RegistriesOf(common);
  if (registries.size() != 1 || !IsIpc(registries[0])) return absl::OkStatus();
  // A registry that was started just now listens in a moment.
  const Nanos until = MonotonicNow() + kJustStarted;
  bool listens = SomebodyListens(registries[0]);
  for (; !listens && MonotonicNow() < until; listens = SomebodyListens(registries[0]))
    PollReadable({}, 10 * kMillisecond);
  if (listens || ComesBack(registries[0])) return absl::OkStatus();
  struct stat st;
  const std::string path = IpcPath(registries[0]);
  if (lstat(path.c_str(), &st) != 0) {
    return WithNext(Unavailable("no registry: nothing is at {}", path),
                    "start a registry and an executor: opwire up");
  }
  return WithNext(
      Unavailable("stale socket: {} exists, but nothing listens: its registry has ended", path),
      "start another, it takes the socket over: opwire up");
}

bool Matches(const ExecutorFacts& e, const std::string& device) {
  return device.empty() || device == e.device || device == e.device.substr(0, e.device.find(':')) ||
         device == e.id;
}

// Returns the place to which "FILE:LINE:COLUMN: ..." points, as two lines with a mark; empty if
// there is none.
std::string Excerpt(const std::string& message, const std::string& path, const std::string& text) {
  if (message.compare(0, path.size() + 1, path + ":") != 0) return "";
  const char *at = message.data() + path.size() + 1, *end = message.data() + message.size();
  size_t line = 0, column = 0;
  auto parsed = std::from_chars(at, end, line);
  if (parsed.ec != std::errc() || parsed.ptr == end || *parsed.ptr != ':') return "";
  parsed = std::from_chars(parsed.ptr + 1, end, column);
  if (parsed.ec != std::errc() || line == 0 || column == 0) return "";
  std::istringstream lines(text);
  std::string shown;
  for (size_t i = 0; i < line; ++i) {
    if (!std::getline(lines, shown)) return "";
  }
  if (shown.size() > 200 || column > shown.size() + 1) return "";
  return fmt::format("\n  {} | {}\n  {:>{}} | {:>{}}", line, shown, "", std::to_string(line).size(),
                     "^", column);
}

StatusOr<fb::ReplyT> Exchange(Dealer& dealer, const ExecutorFacts& executor,
                              const std::string& request, Nanos timeout) {
  OPWIRE_RETURN_IF_ERROR(dealer.Send(AsBytes(request)));
  ClientChannel::Message message;
  auto came = dealer.Receive(message, timeout);
  if (!came.ok() || !*came) {
    const std::string why =
        came.ok() ? std::string("it does not answer") : MessageOf(came.status());
    return WithNext(
        Unavailable("executor {}: {}", executor.id, why),
        "try again: a dead one leaves the list after three missed beats (opwire devices)");
  }
  AlignedBytes memory;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, DecodeReply(AsBytes(message.head), memory));
  OPWIRE_RETURN_IF_ERROR(StatusOf(*reply));
  fb::ReplyT out;
  reply->UnPackTo(&out);
  return out;
}

// Returns the reply of the executor's control socket.
StatusOr<fb::ReplyT> AskControl(const ExecutorFacts& executor, fb::RequestT request) {
  ZmqContext context;
  OPWIRE_ASSIGN_OR_RETURN(const auto dealer, Dealer::Connect(context, executor.control_endpoint));
  // The ping shows at once whether the executor lives, whatever it runs.
  fb::InfoT ping;
  ping.topic = "ping";
  OPWIRE_RETURN_IF_ERROR(
      Exchange(*dealer, executor, EncodeRequest(1, std::move(ping)), kPingTimeout).status());
  request.seq = 2;
  return Exchange(*dealer, executor, EncodeRequest(request), kAskTimeout);
}

}  // namespace

// ---- Errors
// -------------------------------------------------------------------------------------------------

Status AsUsage(const Status& status) {
  Status usage = status;
  if (!usage.ok()) usage.SetPayload(kUsagePayload, absl::Cord("1"));
  return usage;
}

Status WithNext(Status status, std::string_view next) {
  if (!status.ok()) status.SetPayload(kNextPayload, absl::Cord(std::string(next)));
  return status;
}

int Fail(const Common& common, const Status& status) {
  if (status.ok()) return kDone;
  const std::string next = NextStep(status);
  const int code = ExitCodeOf(status);
  if (!common.json) {
    fmt::print(stderr, "opwire: {}: {}\n", CodeName(status.code()), Printable(MessageOf(status)));
    if (!next.empty()) fmt::print(stderr, "  next: {}\n", Printable(next));
    return code;
  }
  const ErrorSite site = SiteOf(status);
  nlohmann::ordered_json error = {{"code", CodeName(status.code())},
                                  {"message", MessageOf(status)}};
  if (!site.program.empty() || site.node >= 0) {
    error["program"] = site.program;
    error["node"] = site.node;
    error["op"] = site.op;
    error["location"] = site.location;
  }
  error["next"] = next;
  error["exit"] = code;
  PrintJsonLine({{"error", error}}, stderr);
  return code;
}

// ---- Output
// -------------------------------------------------------------------------------------------------

std::string Table::ToString() const {
  std::vector<std::vector<std::string>> rows = rows_;
  std::vector<size_t> width;
  for (auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = Printable(row[i], true);
      width[i] = std::max(width[i], row[i].size());
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], width[i]);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

StatusOr<int64_t> BytesOf(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string_view unit = text.substr(digits);
  for (const std::string_view end : {"iB", "B"}) {
    if (unit.ends_with(end)) unit.remove_suffix(end.size());
  }
  const size_t power = std::string_view("KMGT").find(unit);
  const auto n = Number(text.substr(0, digits), "--memory");
  if (!n.ok() || *n == 0 || unit.size() > 1 || power == std::string_view::npos)
    return Usage("--memory: expected bytes such as 4096, 64MiB or 2GiB, got '{}'", text);
  const int shift = unit.empty() ? 0 : 10 * static_cast<int>(power + 1);
  return *n > (int64_t{1} << 62) >> shift ? int64_t{1} << 62 : *n << shift;
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

std::string HumanCount(double count) {
  static constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  int unit = 0;
  for (; count >= 1000 && unit < 5; ++unit) count /= 1000;
  return unit == 0 ? fmt::format("{:.0f}", count) : fmt::format("{:.1f}{}", count, kUnits[unit]);
}

std::string HumanNanos(int64_t nanos) {
  const double v = static_cast<double>(nanos);
  if (nanos < 1'000) return fmt::format("{} ns", nanos);
  if (nanos < 1'000'000) return fmt::format("{:.1f} us", v / 1e3);
  if (nanos < 1'000'000'000) return fmt::format("{:.1f} ms", v / 1e6);
  return fmt::format("{:.2f} s", v / 1e9);
}

// ---- Reaching executors
// -------------------------------------------------------------------------------------------------

StatusOr<Client> Connect(const Common& common) {
  ClientOptions options;
  options.registries = common.registries;
  options.name = "opwire";
  if (common.json) options.notice = [](std::string_view) {};
  auto client = Client::Connect(options);
  return client.ok() || !absl::IsInvalidArgument(client.status()) ? client
                                                                  : AsUsage(client.status());
}

StatusOr<std::vector<ExecutorFacts>> Executors(const Common& common, Client& client,
                                               bool with_ops) {
  OPWIRE_RETURN_IF_ERROR(CheckRegistry(common));
  auto all = client.Executors(with_ops);
  if (!all.ok()) {
    const std::vector<std::string> registries = RegistriesOf(common);
    const bool ssh = registries.size() == 1 && IsSsh(registries[0]);
    return WithNext(
        all.status(),
        ssh ? fmt::format("this has to work without a password: ssh {} opwire --version",
                          registries[0])
            : "check the address given by --registry or OPWIRE_REGISTRY, and that the registry "
              "runs");
  }
  std::string seen;
  for (const ExecutorFacts& e : *all) {
    if (!Matches(e, common.device))
      seen += fmt::format("{}{} ({})", seen.empty() ? "" : ", ", e.id, e.device);
  }
  std::erase_if(*all, [&](const ExecutorFacts& e) { return !Matches(e, common.device); });
  if (!all->empty()) return all;
  if (seen.empty()) {
    return WithNext(Unavailable("no executor is registered"),
                    fmt::format("start one: opwire-executor --device {}",
                                common.device.empty() ? "cpu" : common.device));
  }
  return WithNext(
      Unavailable("no executor is {}; there is {}", common.device, seen),
      "name one of these with --on, or start another: opwire-executor --device " + common.device);
}

StatusOr<std::string> Ask(const ExecutorFacts& executor, std::string_view topic,
                          std::string_view argument, DType dtype) {
  fb::InfoT info;
  info.topic = topic;
  info.argument = argument;
  info.dtype = static_cast<uint8_t>(dtype);
  fb::RequestT request;
  request.body.Set(std::move(info));
  OPWIRE_ASSIGN_OR_RETURN(fb::ReplyT reply, AskControl(executor, std::move(request)));
  fb::InfoReplyT* const body = reply.body.AsInfoReply();
  if (!body) return Internal("executor {} answered something else", executor.id);
  return std::move(body->json);
}

Status RevokeOn(const ExecutorFacts& executor, const std::vector<uint8_t>& capability) {
  fb::RevokeT revoke;
  revoke.capability = capability;
  fb::RequestT request;
  request.body.Set(std::move(revoke));
  return AskControl(executor, std::move(request)).status();
}

std::string Locate(const std::string& program) {
  std::error_code error;
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / program;
  return std::filesystem::is_regular_file(beside, error) ? beside.string() : program;
}

StatusOr<std::vector<std::pair<std::string, int64_t>>> NamedSizes(
    const DimTable& dims, const std::vector<std::string>& list) {
  OPWIRE_ASSIGN_OR_RETURN(const Pairs pairs, PairsOf(list, "--dim"));
  std::vector<std::string_view> symbols;
  for (const DimSymbol& s : dims.symbols()) symbols.push_back(s.name);
  OPWIRE_RETURN_IF_ERROR(CheckNames(pairs, "--dim", symbols, "dimension"));
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (const auto& [name, text] : pairs) {
    OPWIRE_ASSIGN_OR_RETURN(const int64_t size, Number(text, "--dim " + name));
    sizes.emplace_back(name, size);
  }
  return sizes;
}

StatusOr<Pairs> PairsOf(const std::vector<std::string>& list, std::string_view flag) {
  Pairs out;
  for (const std::string& s : list) {
    const size_t eq = s.find('=');
    if (eq == std::string::npos || eq == 0 || eq + 1 == s.size())
      return Usage("{} {}: expected NAME=VALUE", flag, s);
    if (!out.emplace(s.substr(0, eq), s.substr(eq + 1)).second)
      return Usage("{} {}: given twice", flag, s.substr(0, eq));
  }
  return out;
}

StatusOr<int64_t> Number(std::string_view text, std::string_view what) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size())
    return Usage("{}: expected a whole number, got '{}'", what, text);
  return n;
}

// Checks that every name is one of `known`; other names are typing errors.
Status CheckNames(const Pairs& given, std::string_view flag,
                  const std::vector<std::string_view>& known, std::string_view what) {
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = DidYouMean(NearestNames(name, known));
    return Usage("{} {}: the program has no {} {}{}", flag, name, what, name,
                 !nearest.empty() ? nearest
                 : known.empty()  ? std::string("; it has none")
                                  : fmt::format("; it has {}", fmt::join(known, ", ")));
  }
  return absl::OkStatus();
}

StatusOr<ProgramFile> ReadProgram(const Common& common, const std::string& path) {
  struct stat st;
  std::ifstream file(path);
  if (!file || stat(path.c_str(), &st) != 0 || S_ISDIR(st.st_mode)) {
    return WithNext(Usage("file {} cannot be read", path),
                    "give the path of a program in text form; docs/text-form.md says what that is");
  }
  std::stringstream text;
  text << file.rdbuf();
  std::vector<ExecutorFacts> executors;
  if (text.str().find(kUserPrefix) != std::string::npos) {
    OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
    OPWIRE_ASSIGN_OR_RETURN(executors, Executors(common, client, /*with_ops=*/true));
  }
  auto ops = CatalogueOf(executors);
  auto module = Parse(text.str(), path, {.ops = *ops});
  if (module.ok()) return ProgramFile{std::move(ops), *std::move(module)};
  return Status(module.status().code(),
                MessageOf(module.status()) + Excerpt(MessageOf(module.status()), path, text.str()));
}

}  // namespace opwire::cli
