// Begin and end of sessions: Hello, Bye, leases, tokens, quotas.
#include <sodium.h>

#include "executor/serve/core.h"
#include "executor/serve/info.h"

namespace opwire::executor {
namespace {

std::string TokenText(const flatbuffers::Vector<uint8_t>& token) {
  return std::string(reinterpret_cast<const char*>(token.data()), token.size());
}
std::string TokenText(const Token& token) {
  return std::string(reinterpret_cast<const char*>(token.data()), token.size());
}

std::string Cut(const flatbuffers::String* s, size_t limit) {
  return s ? s->str().substr(0, limit) : std::string();
}

constexpr size_t kClientNameBytes = 128;
// Clients connect to the run socket within that time after Hello, or after their connection broke.
constexpr Nanos kReturn = kSecond;

}  // namespace

Token Core::NewToken() {
  Token token{};
  if (options_.token_seed == 0) {
    randombytes_buf(token.data(), token.size());
    return token;
  }
  const uint64_t words[2] = {options_.token_seed, ++token_counter_};
  std::memcpy(token.data(), words, sizeof(words));
  return token;
}

StatusOr<Core::AttachmentRef> Core::AttachmentOf(const flatbuffers::Vector<uint8_t>* token) const {
  const auto it = token ? tokens_.find(TokenText(*token)) : tokens_.end();
  if (it != tokens_.end()) return it->second;
  return Aborted(
      "session: the token is not of this executor's incarnation {}; the session ended or the "
      "executor was restarted",
      options_.incarnation);
}

StatusOr<RunIdentity> Core::IdentityOf(const fb::Cancel& cancel) {
  std::lock_guard lock(token_mutex_);
  OPWIRE_ASSIGN_OR_RETURN(const AttachmentRef ref, AttachmentOf(cancel.token()));
  return RunIdentity{ref.session, ref.attachment, cancel.seq()};
}

StatusOr<Segment*> Core::SegmentOf(const Token& token) {
  const auto it = tokens_.find(TokenText(token));
  if (it == tokens_.end()) return NotFound("session: no such token");
  return &sessions_.at(it->second.session)->store->segment();
}

void Core::OnControl(Nanos now, PeerId peer, const std::string& principal, Bytes head) {
  auto request = DecodeRequest(head, decode_);
  if (!request.ok()) return shell_.SendControl(peer, EncodeError(0, request.status()));
  const fb::Request& r = **request;
  const auto done = [&](const Status& status) {
    shell_.SendControl(
        peer, status.ok() ? EncodeReply(r.seq(), fb::DoneT()) : EncodeError(r.seq(), status));
  };
  switch (r.body_type()) {
    case fb::Body::Hello: {
      auto reply = Hello(now, r.seq(), principal, *r.body_as_Hello());
      return shell_.SendControl(
          peer, reply.ok() ? *std::move(reply) : EncodeError(r.seq(), reply.status()));
    }
    case fb::Body::Bye:
      return done(Bye(now, *r.body_as_Bye()));
    case fb::Body::Cancel:
      return done(CancelQueued(*r.body_as_Cancel()));
    case fb::Body::CloseTransfer: {
      CloseTransfer(r.body_as_CloseTransfer()->ticket());
      return done(absl::OkStatus());
    }
    case fb::Body::Revoke:
      return done(RevokeOf(principal, *r.body_as_Revoke()));
    case fb::Body::Info: {
      if (r.body_as_Info()->topic() && r.body_as_Info()->topic()->string_view() == "toolchains")
        return SendToolchains(peer, r.seq());
      fb::InfoReplyT reply;
      gate_.Enter({}, now, kNever);  // a plan prepares kernels: the watchdog observes that
      auto json = InfoWriter(*this).Write(principal, *r.body_as_Info());
      gate_.Leave();
      if (!json.ok()) return done(json.status());
      reply.json = *std::move(json);
      return shell_.SendControl(peer, EncodeReply(r.seq(), std::move(reply)));
    }
    default:
      return done(
          InvalidArgument("wire: {} is no request of the control socket", BodyName(r.body_type())));
  }
}

// A search for compilers takes a while, so a worker does it.
void Core::SendToolchains(PeerId peer, uint64_t seq) {
  auto json = std::make_shared<std::string>("{}");
  ++jobs_;
  shell_.Submit(
      [json, ask = options_.toolchains] {
        if (ask) *json = ask();
      },
      [this, json, peer, seq] {
        fb::InfoReplyT reply;
        reply.json = std::move(*json);
        shell_.SendControl(peer, EncodeReply(seq, std::move(reply)));
      });
}

StatusOr<std::string> Core::Hello(Nanos now, uint64_t seq, const std::string& principal,
                                  const fb::Hello& hello) {
  if (hello.major() != kProtocolMajor) {
    return FailedPrecondition(
        "protocol: the executor speaks {}.{}, the client {}.{}; their major versions must match",
        kProtocolMajor, kProtocolMinor, hello.major(), hello.minor());
  }
  if (hello.token() && hello.token()->size() > 0) {
    // A known client that lost its connection.
    OPWIRE_ASSIGN_OR_RETURN(const AttachmentRef ref, AttachmentOf(hello.token()));
    const Session& s = *sessions_.at(ref.session);
    if (s.principal != principal)
      return PermissionDenied("session: the token belongs to another principal");
    return HelloReplyFor(seq, s, *s.attachments.at(ref.attachment));
  }
  OPWIRE_ASSIGN_OR_RETURN(Session* const s, SessionFor(now, principal, hello));
  if (static_cast<int64_t>(s->attachments.size()) >= options_.limits[LimitId::kAttachments]) {
    return ResourceExhausted("session '{}': expected at most {} clients, got {}", s->name,
                             options_.limits[LimitId::kAttachments], s->attachments.size() + 1);
  }
  auto a = std::make_unique<Attachment>(
      static_cast<size_t>(2 * options_.limits[LimitId::kCreditRequests]));
  a->id = s->next_attachment++;
  a->token = NewToken();
  a->client = Cut(hello.client(), kClientNameBytes);
  a->lost_at = now;
  {
    std::lock_guard lock(token_mutex_);
    tokens_[TokenText(a->token)] = {s->id, a->id};
  }
  std::string reply = HelloReplyFor(seq, *s, *a);
  s->attachments[a->id] = std::move(a);
  s->last_used = now;
  return reply;
}

StatusOr<Session*> Core::SessionFor(Nanos now, const std::string& principal,
                                    const fb::Hello& hello) {
  const std::string name = hello.session() ? hello.session()->str() : "";
  OPWIRE_RETURN_IF_ERROR(CheckName("a session", name, kSessionNameBytes));
  const int64_t longest = options_.limits[LimitId::kSessionTtlSeconds];
  if (hello.ttl_s() > longest) {
    return ResourceExhausted("session '{}': expected a time to live of at most {} s, got {}", name,
                             longest, hello.ttl_s());
  }
  // Names belong to a principal: equal names of two principals are different sessions.
  if (Session* const known = name.empty() ? nullptr : FindSession(principal, name)) return known;
  if (draining_) return Unavailable("the executor is shutting down and takes no new sessions");
  // Before a refusal, a session ends that would soon end by its lease.
  for (int64_t n;
       (n = CountSessions(principal)) >= options_.limits[LimitId::kSessionsPerPrincipal];) {
    if (EndLostSession(now, principal)) continue;
    return ResourceExhausted(
        "{}: expected at most {} sessions, got {}; end some ('opwire sessions'), or free what "
        "others took of those that ended",
        principal, options_.limits[LimitId::kSessionsPerPrincipal], n + 1);
  }
  for (int64_t n; (n = CountSessions("")) >= options_.limits[LimitId::kSessions];) {
    if (EndLostSession(now, "")) continue;
    return ResourceExhausted("the executor: expected at most {} sessions, got {}",
                             options_.limits[LimitId::kSessions], n + 1);
  }
  const int64_t most = std::max<int64_t>(
      budget_.limit / 100 * options_.limits[LimitId::kSessionMemoryPercent], 1 << 20);
  const int64_t quota = hello.memory_bytes() == 0
                            ? most
                            : static_cast<int64_t>(std::min<uint64_t>(hello.memory_bytes(),
                                                                      static_cast<uint64_t>(most)));
  auto s = std::make_unique<Session>();
  OPWIRE_ASSIGN_OR_RETURN(s->store, Store::Create(quota, options_.limits[LimitId::kTensors],
                                                  device_, &budget_, &host_budget_));
  s->kernels = kernels_;
  s->id = next_session_++;
  s->principal = principal;
  s->name = name;
  s->ttl = (hello.ttl_s() ? hello.ttl_s() : longest) * kSecond;
  s->empty_since = now;
  s->last_used = now;
  Session* made = s.get();
  sessions_[s->id] = std::move(s);
  load_.sessions.store(static_cast<uint32_t>(sessions_.size()), std::memory_order_relaxed);
  return made;
}

Session* Core::FindSession(const std::string& principal, const std::string& name) const {
  for (const auto& [id, s] : sessions_) {
    if (s->principal == principal && s->name == name) return s.get();
  }
  return nullptr;
}

int64_t Core::CountSessions(const std::string& principal) {
  std::erase_if(granted_stores_, [](const GrantedStore& r) { return r.store.expired(); });
  const auto counts = [&](const std::string& of) { return principal.empty() || of == principal; };
  return std::ranges::count_if(granted_stores_,
                               [&](const GrantedStore& r) { return counts(r.principal); }) +
         std::ranges::count_if(sessions_,
                               [&](const auto& s) { return counts(s.second->principal); });
}

bool Core::EndLostSession(Nanos now, const std::string& principal) {
  Session* longest = nullptr;
  Nanos lost_at = now - kReturn + 1;
  for (const auto& [id, s] : sessions_) {
    if (!s->name.empty() || (!principal.empty() && s->principal != principal)) continue;
    Nanos last = s->attachments.empty() ? s->empty_since : 0;
    for (const auto& [number, a] : s->attachments)
      last = std::max(last, a->peer == kNoPeer ? a->lost_at : now);
    if (last >= lost_at) continue;
    longest = s.get();
    lost_at = last;
  }
  if (longest) EndSession(*longest);
  return longest != nullptr;
}

std::string Core::HelloReplyFor(uint64_t seq, const Session& s, const Attachment& a) const {
  fb::HelloReplyT reply;
  reply.major = kProtocolMajor;
  reply.minor = kProtocolMinor;
  reply.executor = options_.executor_id;
  reply.incarnation = options_.incarnation;
  reply.session = s.id;
  reply.token.assign(a.token.begin(), a.token.end());
  reply.attachment = a.id;
  reply.run_endpoint = options_.run_endpoint;
  reply.ring_path = options_.ring_path;
  reply.credit_requests = static_cast<uint32_t>(options_.limits[LimitId::kCreditRequests]);
  reply.credit_bytes = static_cast<uint64_t>(options_.limits[LimitId::kCreditBytes]);
  for (const ExecutorLimit& row : kExecutorLimits)
    reply.limits.emplace_back(static_cast<uint16_t>(row.id), options_.limits[row.id]);
  reply.next_seq = a.next_seq;
  reply.device = device_.info().kind;
  return EncodeReply(seq, std::move(reply));
}

Status Core::Bye(Nanos now, const fb::Bye& bye) {
  OPWIRE_ASSIGN_OR_RETURN(const AttachmentRef ref, AttachmentOf(bye.token()));
  Session& s = *sessions_.at(ref.session);
  EndAttachment(now, s, *s.FindAttachment(ref.attachment));
  if (bye.free() || (s.attachments.empty() && s.name.empty())) EndSession(s);
  return absl::OkStatus();
}

void Core::EndAttachment(Nanos now, Session& s, Attachment& a) {
  {
    std::lock_guard lock(token_mutex_);
    tokens_.erase(TokenText(a.token));
  }
  Disconnect(now, a);
  CloseTransfersOf(s, a.id);
  absl::erase_if(s.slots, [&](const auto& slot) { return slot.first.first == a.id; });
  host_budget_.in_use -= a.replies.held();
  // Its unanswered requests, the one in progress included, are processed without it. Those of an
  // unnamed session are dropped with the session.
  s.attachments.erase(a.id);
  if (s.attachments.empty()) s.empty_since = now;
}

void Core::EndSession(Session& s) {
  WaitForSuspended();
  std::vector<Attachment*> all;
  for (auto& [id, a] : s.attachments) all.push_back(a.get());
  for (Attachment* a : all) EndAttachment(0, s, *a);
  if (s.run.active()) {
    s.run.Abort(Cancelled("the session ended"));
    (void)s.run.Finish(*s.store);
    s.run.End(environment_);
  }
  s.batch.Clear();
  s.staged.reset();
  load_.queued.fetch_sub(static_cast<uint32_t>(s.queue.size()), std::memory_order_relaxed);
  for (const auto& q : s.queue) host_budget_.in_use -= static_cast<int64_t>(q->bytes());
  s.queue.clear();
  s.grants.clear();
  UpdateReady(s);
  if (s.store.use_count() > 1) granted_stores_.push_back({s.principal, s.store});
  const auto it = sessions_.find(s.id);
  if (s.waiting) ended_[s.id] = std::move(it->second);
  sessions_.erase(it);
  load_.sessions.store(static_cast<uint32_t>(sessions_.size()), std::memory_order_relaxed);
}

Status Core::CancelQueued(const fb::Cancel& cancel) {
  OPWIRE_ASSIGN_OR_RETURN(const AttachmentRef ref, AttachmentOf(cancel.token()));
  Session& s = *sessions_.at(ref.session);
  for (auto it = s.queue.begin(); it != s.queue.end(); ++it) {
    QueuedRequest& q = **it;
    if (q.attachment != ref.attachment || q.request->seq() != cancel.seq()) continue;
    if (it == s.queue.begin() && s.run.active()) {
      s.run.Abort(Cancelled("@{} was cancelled", s.run.program()->name()));
      UpdateReady(s);
      return absl::OkStatus();
    }
    if (it == s.queue.begin() && s.waiting)
      return absl::OkStatus();  // a worker has it and will end it
    // It is answered in its order, because earlier requests may use what it frees and later ones
    // its results.
    q.refusal = Cancelled("request {} was cancelled", cancel.seq());
    return absl::OkStatus();
  }
  return absl::OkStatus();  // it has ended already
}

}  // namespace opwire::executor
