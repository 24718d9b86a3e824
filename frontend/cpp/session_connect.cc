// Clients, and how sessions open, break and reconnect.
#include <algorithm>
#include <cstdlib>

#include "frontend/cpp/embedded.h"
#include "frontend/cpp/session_state.h"
#include "ir/wire/endpoint.h"

namespace opwire::client {
namespace {

constexpr Nanos kFirstBackoff = 50 * kMillisecond;
constexpr Nanos kMostBackoff = 32 * kSecond;
// A live executor answers a ping at once, whatever it runs, except on an overloaded machine.
constexpr Nanos kQuickPing = 200 * kMillisecond;
constexpr Nanos kPatientPing = 2 * kSecond;
constexpr Nanos kFarPing = 10 * kSecond;

ExecutorFacts FactsOf(const fb::ExecutorInfoT& i) {
  ExecutorFacts f;
  f.id = i.id;
  f.device = i.device;
  f.device_name = i.device_name;
  f.arch = i.arch;
  f.control_endpoint = i.control_endpoint;
  f.incarnation = i.incarnation;
  f.memory_bytes = i.memory_bytes;
  f.free_memory = i.free_memory;
  f.compute_units = i.compute_units;
  f.labels = i.labels;
  f.insecure = i.insecure;
  for (const auto& fact : i.facts) f.facts.emplace_back(fact->key, fact->value);
  for (const auto& op : i.ops) {
    OpFacts o{.name = op->name, .version = op->version};
    for (int t = 1; t < kDTypeCount; ++t) {
      if ((op->dtypes >> t) & 1u) o.dtypes = o.dtypes | DTypeSet{static_cast<DType>(t)};
    }
    for (const auto& v : op->variants) o.variants.push_back(v->name);
    o.declaration = op->declaration;
    f.ops.push_back(std::move(o));
  }
  if (i.load) {
    f.sessions = i.load->sessions;
    f.queued = i.load->queued;
    f.queued_ns = static_cast<int64_t>(i.load->queued_ns);
    f.busy_ms = static_cast<int64_t>(i.load->busy_since_ms);
    f.running = i.load->op;
    f.runs = i.load->runs;
  }
  return f;
}

}  // namespace

StatusOr<Client> Client::Connect(const ClientOptions& options) {
  Client client;
  client.state_ = std::make_shared<State>();
  client.state_->options = options;
  client.state_->registries = options.registries;
  std::vector<std::string>& registries = client.state_->registries;
  if (const char* env = std::getenv("OPWIRE_REGISTRY"); registries.empty() && env && *env)
    registries.push_back(env);
  if (registries.empty()) {
    OPWIRE_ASSIGN_OR_RETURN(const std::string own, DefaultRegistryEndpoint());
    registries.push_back(own);
    client.state_->own = true;
  }
  for (const std::string& r : registries) {
    OPWIRE_RETURN_IF_ERROR(IsSsh(r) ? CheckSsh(r) : CheckEndpoint(r));
    if (!IsSsh(r)) continue;
    if (registries.size() > 1)
      return InvalidArgument(
          "address {}: a host that is reached by ssh is asked alone, got {} addresses", r,
          registries.size());
    SshHost::Options reach{
        .start = options.embedded, .interrupted = options.interrupted, .notice = options.notice};
    if (!reach.notice)
      reach.notice = [](std::string_view line) { fmt::print(stderr, "opwire: {}\n", line); };
    client.state_->ssh = std::make_unique<SshHost>(r, std::move(reach));
  }
  return client;
}

StatusOr<fb::QueryReplyT> Client::State::Query(const fb::QueryT& query) {
  if (!ssh) return Directory(context, registries).Query(query);
  StatusOr<fb::QueryReplyT> answer = Unavailable("not asked");
  // The processes there may have ended, or the connection may date from before this machine slept.
  // Then it is made again, once.
  for (const bool anew : {false, true}) {
    if (anew) ssh->Disconnect();
    OPWIRE_ASSIGN_OR_RETURN(const std::string registry, ssh->Registry());
    answer = Directory(context, {registry}).Query(query);
    if (answer.ok()) break;
  }
  return answer.ok() ? std::move(answer)
                     : Unavailable("{}: {}", registries[0], MessageOf(answer.status()));
}

StatusOr<std::vector<ExecutorFacts>> Client::State::Executors(bool with_ops) {
  fb::QueryT query;
  query.with_ops = with_ops;
  auto answer = Query(query);
  if (!answer.ok() && std::any_of(registries.begin(), registries.end(),
                                  [](const std::string& r) { return IsIpc(r) && ComesBack(r); })) {
    answer = Query(query);
  }
  // Executors of a registry that has just started are about to find it.
  for (const Nanos until = MonotonicNow() + options.patience_us * kMicrosecond;
       answer.ok() && answer->warming && answer->executors.empty() && MonotonicNow() < until;) {
    PollReadable({}, 20 * kMillisecond);
    answer = Query(query);
  }
  OPWIRE_RETURN_IF_ERROR(answer.status());
  const fb::QueryReplyT& reply = *answer;
  std::vector<ExecutorFacts> out;
  for (const auto& e : reply.executors) {
    out.push_back(FactsOf(*e));
    if (ssh) out.back().host = ssh->name();
  }
  return out;
}

StatusOr<std::vector<ExecutorFacts>> Client::Executors(bool with_ops) {
  return state_->Executors(with_ops);
}

Status Client::StartIfNone(std::string_view device) {
  if (!state_->own || !state_->options.embedded) return absl::OkStatus();
  // Even if a registry listens: another client may be about to start the executor for it.
  OPWIRE_ASSIGN_OR_RETURN(const bool started, StartEmbedded(state_->registries[0], device));
  if (!started) return absl::OkStatus();
  OPWIRE_ASSIGN_OR_RETURN(const auto executors, state_->Executors(false));
  std::string what;
  for (const ExecutorFacts& e : executors) {
    const auto why = std::find_if(e.facts.begin(), e.facts.end(),
                                  [](const auto& fact) { return fact.first == "chosen"; });
    what += fmt::format("{}{} ({})", what.empty() ? "" : ", ", e.id,
                        why != e.facts.end() ? why->second : e.device_name);
  }
  const std::string line =
      fmt::format("nothing ran here: started {}; it leaves after {} s without a session", what,
                  kEmbeddedIdleSeconds);
  if (state_->options.notice)
    state_->options.notice(line);
  else
    fmt::print(stderr, "opwire: {}\n", line);
  return absl::OkStatus();
}

StatusOr<Session> Client::Open(const SessionOptions& options) {
  OPWIRE_RETURN_IF_ERROR(StartIfNone(options.device));
  Session session;
  session.state_ = std::make_shared<SessionState>();
  SessionState& s = *session.state_;
  s.client = state_;
  s.options = options;
  if (options.program) s.placed_for = *options.program;
  s.options.program = s.placed_for ? &*s.placed_for : nullptr;
  OPWIRE_RETURN_IF_ERROR(s.Open());
  return session;
}

Status SessionState::ConnectTo(const std::string& endpoint, const std::vector<uint8_t>* token,
                               Nanos ping_timeout) {
  ConnectOptions connect;
  connect.ping_timeout = ping_timeout;
  connect.ring = options.ring && !client->ssh;
  if (client->ssh)
    connect.reach = [ssh = client->ssh.get()](const std::string& there) {
      return ssh->Reach(there);
    };
  connect.hello.major = kProtocolMajor;
  connect.hello.minor = kProtocolMinor;
  connect.hello.client = client->options.name;
  connect.hello.session = options.name;
  connect.hello.ttl_s = static_cast<uint32_t>(options.ttl_s);
  connect.hello.memory_bytes = static_cast<uint64_t>(options.memory_bytes);
  if (token) connect.hello.token = *token;
  OPWIRE_ASSIGN_OR_RETURN(connection, Connection::Open(client->context, endpoint, connect));
  control_endpoint = endpoint;
  flight.SetCredit(connection->hello().credit_requests, connection->hello().credit_bytes);
  return absl::OkStatus();
}

Status SessionState::Open() {
  OPWIRE_ASSIGN_OR_RETURN(const auto executors, client->Executors(options.program != nullptr));
  const std::vector<PlacementCandidate> candidates = Place(executors, options);
  std::vector<Status> refusals(candidates.size(), Unavailable("not asked"));
  // Silent executors are asked once more, after all others: the wait for a stopped one then affects
  // only users without another one.
  for (const Nanos patience :
       {client->ssh ? kPatientPing : kQuickPing, client->ssh ? kFarPing : kPatientPing}) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      const PlacementCandidate& c = candidates[i];
      if (!absl::IsUnavailable(refusals[i])) continue;
      refusals[i] = c.fits ? ConnectTo(c.executor->control_endpoint, nullptr, patience)
                           : Status(c.code, c.reason);
      if (!refusals[i].ok()) continue;
      executor_id = c.executor->id;
      attachment = connection->hello().attachment;
      ++generation;
      next_counter = 1;
      frees.clear();
      closes.clear();
      drops.clear();
      live_tensors = 0;
      flight.Restart();
      lost = absl::OkStatus();
      backoff = 0;
      return absl::OkStatus();
    }
  }
  if (candidates.empty()) return Unavailable("no executor is registered");
  std::string reasons;
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!absl::IsUnavailable(refusals[i])) code = refusals[i].code();
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", candidates[i].executor->id,
                           MessageOf(refusals[i]));
  }
  return Status(code, fmt::format("no executor takes the session: {}", reasons));
}

Status SessionState::Ensure() {
  if (sending)
    return FailedPrecondition(
        "a request waits to be sent: a signal handler or on_emit cannot use the session now");
  if (connection) return absl::OkStatus();
  const Nanos now = MonotonicNow();
  if (now < retry_at) return lost;
  Status status = Open();
  if (!status.ok()) {
    backoff = backoff == 0 ? kFirstBackoff : std::min(2 * backoff, kMostBackoff);
    retry_at = now + backoff;
    lost = status;
  }
  return status;
}

// Sends requests without a reply again. The channel may have less room: then replies are taken in
// between.
Status SessionState::SendAgain() {
  for (const uint64_t ticket : flight.Unanswered()) {
    while (const std::optional<Flight::Again> r = flight.Find(ticket)) {
      const Status sent = connection->Send(r->head, r->bulk);
      if (sent.ok()) break;
      if (!absl::IsResourceExhausted(sent)) return sent;
      OPWIRE_ASSIGN_OR_RETURN(const bool came, connection->Receive(incoming, kMillisecond));
      Status stray;
      if (came) OPWIRE_RETURN_IF_ERROR(Dispatch(stray).status());
    }
  }
  return absl::OkStatus();
}

void SessionState::OnLost(const Status& why) {
  const std::vector<uint8_t> token = connection->hello().token;
  connection.reset();
  // A short interruption: the session still exists, and so do the replies that did not arrive.
  Status again = ConnectTo(control_endpoint, &token, client->ssh ? kPatientPing : kQuickPing);
  if (again.ok()) again = SendAgain();
  if (again.ok()) return;
  connection.reset();
  lost = Unavailable(
      "executor {} is gone ({}); lost with it: session {}, {} tensors. Programs are uploaded again "
      "by themselves; make the tensors "
      "anew",
      executor_id, MessageOf(why), options.name.empty() ? "(unnamed)" : "'" + options.name + "'",
      live_tensors);
  flight.FailAll(lost);
  ClearQueue();
  retry_at = 0;
  ++generation;  // tensors of the lost session are known to be gone before the next one opens
}

void SessionState::Leave() {
  if (!connection) return;
  // A named session stays: before the client leaves, its queued runs are run, and its dropped
  // tensors are freed.
  if (!options.name.empty() && !(frees.empty() && queue.runs.empty()))
    (void)Ask(fb::FlushT()).status();
  if (!connection) return;
  fb::ByeT bye;
  bye.token = connection->hello().token;
  // An executor that does not receive it ends the session when the connection closes.
  (void)connection->Control(std::move(bye), {}, kSecond);
  EndHere();
}

void SessionState::EndHere() {
  connection.reset();
  lost = FailedPrecondition("the session is closed");
  retry_at = kNever;
  flight.FailAll(lost);
}

SessionState::~SessionState() { Leave(); }

void Session::Leave() { state_->Leave(); }

Status Session::Close(bool free) {
  const bool stays = !state_->options.name.empty() &&
                     !free;  // with results of its runs; without a name, no client would use them
  if (!stays)
    (void)CancelAll();
  else if (!state_->frees.empty() || !state_->queue.runs.empty())
    (void)state_->Ask(fb::FlushT()).status();
  if (!state_->connection) return state_->lost;
  fb::ByeT bye;
  bye.token = state_->connection->hello().token;
  bye.free = free;
  const Status status = state_->connection->Control(std::move(bye)).status();
  state_->EndHere();
  return status;
}

const std::string& Session::executor() const { return state_->executor_id; }
bool Session::on_ring() const { return state_->connection && state_->connection->on_ring(); }

StatusOr<std::string> Session::Info(std::string_view topic, std::string_view argument,
                                    DType dtype) {
  return state_->Info(topic, argument, dtype);
}

StatusOr<std::string> SessionState::Info(std::string_view topic, std::string_view argument,
                                         DType dtype) {
  OPWIRE_RETURN_IF_ERROR(Ensure());
  fb::InfoT info;
  info.topic = topic;
  info.argument = argument;
  info.dtype = static_cast<uint8_t>(dtype);
  info.token = connection->hello().token;
  OPWIRE_ASSIGN_OR_RETURN(const ClientChannel::Message message,
                          connection->Control(std::move(info)));
  AlignedBytes memory;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, DecodeReply(AsBytes(message.head), memory));
  const fb::InfoReply* body = reply->body_as_InfoReply();
  if (!body || !body->json()) return Internal("executor {} answered something else", executor_id);
  return body->json()->str();
}

}  // namespace opwire::client
