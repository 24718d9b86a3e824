// Handles messages and schedules work.
#include "executor/serve/core.h"

#include <algorithm>

#include "executor/serve/files.h"
#include "kernels/device/host_facts.h"

namespace opwire::executor {
namespace {

constexpr int kMostTolerated = 1024;

// Other processes do not use a device's own memory, but its driver and libraries take some.
constexpr int64_t kDevicePercent = 95;

MemoryBudget DeviceBudget(const DeviceInfo& info, const ExecutorLimits& limits) {
  MemoryBudget budget;
  budget.limit = info.memory_bytes / 100 *
                 (info.host_memory ? limits[LimitId::kHostMemoryPercent] : kDevicePercent);
  return budget;
}

MemoryBudget HostBudget(const DeviceInfo& info, const ExecutorLimits& limits) {
  MemoryBudget budget;
  if (!info.host_memory)
    budget.limit = AvailableMemory() / 100 * limits[LimitId::kHostMemoryPercent];
  return budget;
}

}  // namespace

Core::Core(CoreOptions options, Device& device, std::shared_ptr<const KernelSet> kernels,
           CrashRecord* crash, Shell& shell)
    : options_(std::move(options)),
      device_(device),
      crash_(crash),
      shell_(shell),
      budget_(DeviceBudget(device.info(), options_.limits)),
      host_memory_(HostBudget(device.info(), options_.limits)),
      host_budget_(device.info().host_memory ? budget_ : host_memory_),
      arenas_(device, std::max<int64_t>(budget_.limit, 4096), &budget_),
      staging_(device, &host_budget_),
      gate_(device.stop()),
      headers_(std::make_shared<FileHeaders>()) {
  environment_ = {&device_,          &arenas_,      crash_, options_.limits[LimitId::kInstances],
                  options_.no_arena, options_.clock};
  environment_.on_fault = options_.on_device_fault;
  environment_.emit = [this](const Emission& e) { return Emit(e); };
  load_.free_memory = budget_.limit;
  budget_.reclaim = [this](int64_t missing) {
    if (missing > arenas_.IdleBytes() + (packed_ ? packed_->IdleBytes() : 0))
      return;  // freeing that would not be enough
    const int64_t before = budget_.in_use;
    arenas_.Trim();
    if (packed_) packed_->GiveUp(missing - (before - budget_.in_use));
  };
  if (device.info().host_memory) {
    environment_.packed = &packed_.emplace(
        device_, &budget_, budget_.limit / 100 * options_.limits[LimitId::kPackedMemoryPercent]);
  } else {
    // If there is too little memory left, the first run reports it.
    if (auto memory =
            device.Allocate(static_cast<int64_t>(kMaxFrameBytes), MemoryKind::kPinnedHost);
        memory.ok())
      environment_.inline_results = static_cast<uint8_t*>(*memory);
  }
  SetKernels(std::move(kernels));
}

void Core::SetKernels(std::shared_ptr<const KernelSet> kernels) {
  if (crash_) crash_->SetLabels(kernels->variants.labels());
  kernels_ = std::move(kernels);
}

Core::~Core() {
  while (!sessions_.empty()) EndSession(*sessions_.begin()->second);
  device_.Free(environment_.inline_results);
}

// ---- Messages
// -------------------------------------------------------------------------------------------------

std::unique_ptr<QueuedRequest> Core::NewRequest() {
  if (spare_requests_.empty()) return std::make_unique<QueuedRequest>();
  auto q = std::move(spare_requests_.back());
  spare_requests_.pop_back();
  return q;
}

void Core::Recycle(std::unique_ptr<QueuedRequest> q) {
  if (spare_requests_.size() < 256 && q->Small()) spare_requests_.push_back(std::move(q));
}

void Core::Refuse(PeerId peer, uint64_t seq, const Status& status) {
  load_.refused.fetch_add(1, std::memory_order_relaxed);
  // Whether this peer receives the reply does not matter.
  (void)shell_.Send(peer, AsBytes(EncodeError(seq, status)), {});
  CountInvalid(peer);
}

void Core::CountInvalid(PeerId peer) {
  if (++invalid_messages_[peer] < kMostTolerated) return;
  shell_.Drop(peer);
  OnPeerGone(options_.clock(), peer);
}

void Core::OnMessage(Nanos now, PeerId peer, Bytes head, Bytes bulk) {
  auto q = NewRequest();
  auto request = DecodeRequest(head, q->head);
  if (!request.ok() || bulk.size() > kMaxFrameBytes) {
    Refuse(peer, 0,
           request.ok()
               ? InvalidArgument("wire: expected a second frame of at most {} bytes, got {}",
                                 kMaxFrameBytes, bulk.size())
               : request.status());
    Recycle(std::move(q));
    return;
  }
  q->request = *request;
  if (const fb::Attach* attach = q->request->body_as_Attach()) {
    Attach(now, peer, *attach, q->request->seq());
    Recycle(std::move(q));
    return;
  }
  const auto ref = peers_.find(peer);
  if (ref == peers_.end()) {
    // Number 0: not a reply to this request. A client sends the request again once it is attached.
    Refuse(peer, 0,
           Aborted("this connection speaks for no session of incarnation {}; attach first",
                   options_.incarnation));
    Recycle(std::move(q));
    return;
  }
  Session& s = *sessions_.at(ref->second.session);
  q->bulk.assign(reinterpret_cast<const char*>(bulk.data()), bulk.size());
  Accept(now, peer, s, *s.FindAttachment(ref->second.attachment), std::move(q));
}

void Core::Attach(Nanos now, PeerId peer, const fb::Attach& attach, uint64_t seq) {
  const auto ref = AttachmentOf(attach.token());
  if (!ref.ok()) return Refuse(peer, seq, ref.status());
  // A connection has one attachment: the previous one has lost its client.
  if (const auto before = peers_.find(peer);
      before != peers_.end() &&
      (before->second.session != ref->session || before->second.attachment != ref->attachment)) {
    OnPeerGone(now, peer);
  }
  Session& s = *sessions_.at(ref->session);
  Attachment& a = *s.FindAttachment(ref->attachment);
  if (a.peer != peer) Disconnect(now, a);
  a.peer = peer;
  a.has_ended = nullptr;
  peers_[peer] = *ref;
  Deliver(s, a, AsBytes(EncodeReply(seq, fb::DoneT())), {});
  UpdateReady(s);
}

// Whether a request that is no longer in the window is still to be answered.
bool Core::Waits(const Session& s, const Attachment& a, uint64_t seq) const {
  return std::any_of(s.queue.begin(), s.queue.end(), [&](const auto& q) {
    return q->attachment == a.id && q->request->seq() == seq;
  });
}

void Core::Accept(Nanos now, PeerId peer, Session& s, Attachment& a,
                  std::unique_ptr<QueuedRequest> q) {
  const uint64_t seq = q->request->seq();
  q->attachment = a.id;
  q->arrival = now;
  q->deadline = kNever;
  q->refusal = absl::OkStatus();
  if (seq != a.next_seq) {
    if (seq > a.next_seq) {
      Refuse(peer, seq,
             FailedPrecondition("sequence: expected request {}, got {}; those between were lost",
                                a.next_seq, seq));
    } else if (const ReplyWindow::Entry& known = a.replies.Find(seq);
               known.state == ReplyWindow::State::kDone) {
      Deliver(s, a, AsBytes(known.head), AsBytes(known.bulk));
    } else if (known.state == ReplyWindow::State::kUnknown && !Waits(s, a, seq)) {
      Refuse(peer, seq,
             Aborted("sequence: request {} was done long before {}; its reply is forgotten", seq,
                     a.next_seq));
    }
    Recycle(std::move(q));
    return;
  }
  ++a.next_seq;
  host_budget_.in_use += a.replies.Acknowledge(std::min(q->request->acked(), seq));
  a.replies.Begin(seq);
  s.last_used = now;
  if (const auto size = static_cast<int64_t>(q->bytes()); !host_budget_.Fits(size)) {
    q->refusal =
        ResourceExhausted("out of memory: a request of {} bytes, the executor holds {} of {}", size,
                          host_budget_.in_use, host_budget_.limit);
    Drop(q->bulk);
  }
  const auto bytes = static_cast<int64_t>(q->bytes());
  Status refusal;
  if (a.in_flight >= options_.limits[LimitId::kCreditRequests]) {
    refusal = ResourceExhausted("credit: expected at most {} requests in flight, got {}",
                                options_.limits[LimitId::kCreditRequests], a.in_flight + 1);
  } else if (a.bytes_in_flight + bytes > options_.limits[LimitId::kCreditBytes]) {
    refusal = ResourceExhausted("credit: expected at most {} bytes in flight, got {}",
                                options_.limits[LimitId::kCreditBytes], a.bytes_in_flight + bytes);
  }
  ++a.in_flight;
  a.bytes_in_flight += bytes;
  if (!refusal.ok()) {
    if (a.in_flight > options_.limits[LimitId::kCreditRequests]) CountInvalid(peer);
    ReplyStatus(s, *q, refusal);
    --a.in_flight;
    a.bytes_in_flight -= bytes;
    Recycle(std::move(q));
    return;
  }
  if (const fb::Run* run = q->request->body_as_Run()) q->deadline = DeadlineOf(now, *run);
  load_.queued.fetch_add(1, std::memory_order_relaxed);
  host_budget_.in_use += bytes;
  s.queue.push_back(std::move(q));
  UpdateReady(s);
}

void Core::OnPeerGone(Nanos now, PeerId peer, std::function<bool()> has_ended) {
  invalid_messages_.erase(peer);
  const auto it = peers_.find(peer);
  if (it == peers_.end()) return;
  const AttachmentRef ref = it->second;
  peers_.erase(it);
  Session& s = *sessions_.at(ref.session);
  Attachment& a = *s.FindAttachment(ref.attachment);
  ClearOutbox(a);
  a.peer = kNoPeer;
  a.lost_at = now;
  a.has_ended = std::move(has_ended);
  UpdateReady(s);
}

void Core::OnJobDone(Nanos, const std::function<void()>& done) {
  --jobs_;
  WaitForSuspended();
  done();
}

void Core::OnTick(Nanos now) {
  WaitForSuspended();
  const Nanos lease = options_.limits[LimitId::kLeaseSeconds] * kSecond;
  std::vector<Session*> ended;
  bool quiet = ready_.empty();
  for (auto& [id, s] : sessions_) {
    std::vector<Attachment*> lost;
    for (auto& [number, a] : s->attachments) {
      if (a->peer != kNoPeer) continue;
      if (now - a->lost_at >= lease || (a->has_ended && a->has_ended())) lost.push_back(a.get());
    }
    for (Attachment* a : lost) EndAttachment(now, *s, *a);
    UpdateReady(*s);
    if (s->attachments.empty() && (s->name.empty() || now - s->empty_since >= s->ttl)) {
      ended.push_back(s.get());
      continue;
    }
    if (now - s->last_used < kSecond)
      quiet = false;
    else if (!s->run.active())
      s->store->Trim();
  }
  for (Session* s : ended) EndSession(*s);
  absl::erase_if(ended_, [](const auto& s) { return !s.second->waiting; });
  if (quiet) arenas_.Trim(), staging_.Trim();
  load_.free_memory.store(budget_.limit - budget_.in_use + (packed_ ? packed_->bytes() : 0),
                          std::memory_order_relaxed);
}

// ---- Scheduling
// -------------------------------------------------------------------------------------------------

void Core::UpdateReady(Session& s) {
  const bool ready = s.HasWork();
  if (ready == s.in_ready_list) return;
  s.in_ready_list = ready;
  if (ready) {
    // A session that was idle gets no credit for that time.
    s.virtual_time = std::max(s.virtual_time, virtual_now_);
    ready_.push_back(&s);
  } else {
    ready_.erase(std::find(ready_.begin(), ready_.end(), &s));
  }
}

void Core::Work(Nanos now) {
  Session* next = ready_.front();
  for (Session* s : ready_) {
    if (s->virtual_time < next->virtual_time) next = s;
  }
  virtual_now_ = next->virtual_time;
  Process(now, *next);
  const Nanos used = options_.clock() - now;
  next->virtual_time += std::max<Nanos>(used, 1);
}

void Core::WaitForSuspended() {
  Session* const s = std::exchange(under_way_, nullptr);
  if (s == nullptr) return;
  const QueuedRequest& q = *s->queue.front();
  gate_.Enter({s->id, q.attachment, q.request->seq()}, options_.clock(), kNever);
  s->run.Await(environment_);
  gate_.Leave();
}

void Core::Process(Nanos now, Session& s) {
  if (under_way_ != &s) WaitForSuspended();
  if (!s.Begun()) s.queue.BringForward(s.Next());
  const QueuedRequest& q = *s.queue.front();
  if (s.batch.active) return ProcessBatch(now, s, q, *q.request->body_as_Batch());
  if (s.run.active()) return ContinueRun(now, s);
  if (!s.staged) Release(s, *q.request);
  if (!q.refusal.ok() || now >= q.deadline) {
    s.staged.reset();
    const Status ended =
        !q.refusal.ok() ? q.refusal : DeadlineExceeded("the deadline passed before the run began");
    FailResults(s, q, ended);
    ReplyStatus(s, q, ended);
    return Pop(s);
  }
  const fb::Request& r = *q.request;
  switch (r.body_type()) {
    // These reply and pop on their own.
    case fb::Body::Run:
      return ProcessRun(now, s, q, *r.body_as_Run());
    case fb::Body::PutProgram:
      return ProcessProgram(s, q, *r.body_as_PutProgram());
    case fb::Body::Save:
      return ProcessSave(s, q, *r.body_as_Save());
    case fb::Body::Load:
      return ProcessLoad(s, q, *r.body_as_Load());
    case fb::Body::Batch:
      return ProcessBatch(now, s, q, *r.body_as_Batch());
    case fb::Body::Seal:
      return ProcessSeal(s, q, *r.body_as_Seal());
    case fb::Body::Get:
      return ProcessGet(s, q, *r.body_as_Get());
    case fb::Body::Put:
      ReplySmall(s, q, PutTensor(s, q, *r.body_as_Put()));
      break;
    case fb::Body::Rename:
      ReplySmall(s, q, RenameTensor(s, *r.body_as_Rename()));
      break;
    case fb::Body::Copy:
      ReplySmall(s, q, CopyTensor(s, q, *r.body_as_Copy()));
      break;
    case fb::Body::Grant:
      ReplySmall(s, q, GrantTensor(s, *r.body_as_Grant()));
      break;
    case fb::Body::Revoke:
      ReplyStatus(s, q, RevokeGrant(s, *r.body_as_Revoke()));
      break;
    case fb::Body::Take:
      ReplySmall(s, q, TakeTensor(s, q, *r.body_as_Take()));
      break;
    case fb::Body::List:
      ReplySmall(s, q, ListTensors(s));
      break;
    case fb::Body::Print:
      ReplySmall(s, q, PrintTensor(s, *r.body_as_Print()));
      break;
    case fb::Body::Flush:
      ReplyStatus(s, q, absl::OkStatus());
      break;
    case fb::Body::DropProgram:
      ReplyStatus(s, q,
                  s.slots.erase({q.attachment, r.body_as_DropProgram()->slot()})
                      ? absl::OkStatus()
                      : NotFound("program slot {} is empty", r.body_as_DropProgram()->slot()));
      break;
    default:
      ReplyStatus(
          s, q,
          InvalidArgument("wire: {} is no request of the run socket", BodyName(r.body_type())));
  }
  Pop(s);
}

// Ending an object that does not exist is no error: a retry may end it again.
void Core::Release(Session& s, const fb::Request& request) {
  if (request.closes()) {
    for (const uint64_t ticket : *request.closes()) CloseTransfer(ticket);
  }
  if (!request.frees()) return;
  for (const fb::TensorId* id : *request.frees()) {
    const TensorKey key{id->attachment(), id->counter()};
    if (const Tensor* t = s.store->FindAny(key); t && t->state == TensorState::kWritable)
      CloseFilling(s, *t);
    s.store->Erase(key);
  }
}

void Core::Pop(Session& s) {
  auto q = std::move(s.queue.front());
  s.queue.pop_front();
  s.parts = 0;
  load_.queued.fetch_sub(1, std::memory_order_relaxed);
  const int64_t took = s.device_time - std::exchange(s.device_time_before, s.device_time);
  const int64_t of_late = load_.request_ns.load(std::memory_order_relaxed);
  load_.request_ns.store(of_late + (took - of_late) / 8, std::memory_order_relaxed);
  if (Attachment* a = s.FindAttachment(q->attachment)) {
    --a->in_flight;
    a->bytes_in_flight -= static_cast<int64_t>(q->bytes());
  }
  host_budget_.in_use -= static_cast<int64_t>(q->bytes());
  Recycle(std::move(q));
  UpdateReady(s);
}

// ---- Replies
// -------------------------------------------------------------------------------------------------

void Core::Reply(Session& s, const QueuedRequest& q, const Status& status, fb::ReplyBody type,
                 flatbuffers::Offset<void> body, Bytes bulk,
                 flatbuffers::FlatBufferBuilder& builder) {
  builder.Finish(BuildReply(builder, q.request->seq(), status, type, body));
  const Bytes head = AsBytes(builder);
  if (Attachment* a = s.FindAttachment(q.attachment)) {
    host_budget_.in_use += a->replies.Finish(q.request->seq(), head, bulk);
    Deliver(s, *a, head, bulk);
  }
  builder.Clear();
}

// A client that is away misses the value: only last parts are kept for a retry.
bool Core::Emit(const Emission& e) {
  Session& s = *emitting_;
  const QueuedRequest& q = *s.queue.front();
  Attachment* const a = s.FindAttachment(q.attachment);
  if (!a || a->peer == kNoPeer) return true;
  if (!a->TakesEmitted()) return false;
  fb::EmittedT emitted;
  emitted.name = e.name;
  emitted.type = std::make_unique<fb::TensorTypeT>();
  emitted.type->dtype = static_cast<uint8_t>(e.dtype);
  emitted.type->encoding = static_cast<uint8_t>(e.encoding);
  emitted.type->shape.assign(e.shape.begin(), e.shape.end());
  emitted.payload.assign(e.bytes.begin(), e.bytes.end());
  fb::ReplyT reply;
  reply.seq = q.request->seq();
  reply.part = s.parts++;
  reply.last = false;
  reply.body.Set(std::move(emitted));
  const std::string head = EncodeReply(reply);
  Deliver(s, *a, AsBytes(head), {});
  return true;
}

void Core::Deliver(const Session& s, Attachment& a, Bytes head, Bytes bulk) {
  if (a.peer == kNoPeer) return;  // the window has it
  Outbox& o = a.outbox;
  if (o.empty()) {
    const bool more_follow = s.queue.size() > 1 || ready_.size() > 1;
    const bool small = static_cast<int64_t>(head.size() + bulk.size()) <= Outbox::kSmall;
    if (!more_follow || !small || !shell_.Gathers(a.peer)) {
      const Status sent = shell_.Send(a.peer, head, bulk);
      if (sent.ok()) return;
      if (!absl::IsResourceExhausted(sent)) return Disconnect(options_.clock(), a);
    }
    const bool known = std::any_of(unsent_.begin(), unsent_.end(), [&](const AttachmentRef& b) {
      return b.session == s.id && b.attachment == a.id;
    });
    if (!known) unsent_.push_back({s.id, a.id});
  }
  // More than its credit allows: it violates the protocol.
  if (static_cast<int64_t>(o.size()) >= 2 * options_.limits[LimitId::kCreditRequests])
    return Disconnect(options_.clock(), a);
  host_budget_.in_use -= o.bytes();
  o.push_back(head, bulk);
  host_budget_.in_use += o.bytes();
}

void Core::Flush(Nanos now) {
  std::erase_if(unsent_, [&](const AttachmentRef& ref) {
    const auto it = sessions_.find(ref.session);
    Attachment* a = it == sessions_.end() ? nullptr : it->second->FindAttachment(ref.attachment);
    if (!a) return true;
    Outbox& o = a->outbox;
    host_budget_.in_use -= o.bytes();
    Status sent;
    while (sent.ok() && !o.empty()) {
      sent = shell_.Send(a->peer, AsBytes(o.front().head), AsBytes(o.front().bulk));
      if (sent.ok()) o.pop_front();
    }
    host_budget_.in_use += o.bytes();
    if (!sent.ok() && !absl::IsResourceExhausted(sent)) Disconnect(now, *a);
    Session& s = *it->second;
    if (s.Blocked() && now >= s.queue.front()->deadline)
      s.run.Abort(DeadlineExceeded("the deadline passed while @{} ran", s.run.program()->name()));
    UpdateReady(s);
    return o.empty();
  });
}

void Core::ClearOutbox(Attachment& a) {
  host_budget_.in_use -= a.outbox.bytes();
  a.outbox = {};
}

// The session stays: a client that is still alive attaches again, and the window has the replies.
void Core::Disconnect(Nanos now, Attachment& a) {
  ClearOutbox(a);
  if (a.peer == kNoPeer) return;
  peers_.erase(a.peer);
  shell_.Drop(a.peer);
  a.peer = kNoPeer;
  a.lost_at = now;
}

void Core::ReplyStatus(Session& s, const QueuedRequest& q, const Status& status) {
  const auto body = status.ok() ? fb::CreateDone(builder_).Union() : flatbuffers::Offset<void>();
  Reply(s, q, status, status.ok() ? fb::ReplyBody::Done : fb::ReplyBody::NONE, body);
}

void Core::ReplySmall(Session& s, const QueuedRequest& q, StatusOr<fb::ReplyT> reply, Bytes bulk) {
  if (!reply.ok()) return ReplyStatus(s, q, reply.status());
  const auto body = reply->body.Pack(builder_);
  Reply(s, q, absl::OkStatus(), reply->body.type, body, bulk);
}

}  // namespace opwire::executor
