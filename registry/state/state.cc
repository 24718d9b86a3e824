// The table of executors and its watchers.
#include "registry/state/state.h"

#include <algorithm>
#include <utility>

namespace opwire {
namespace {

constexpr size_t kIdBytes = 128;
constexpr size_t kClaimBytes = 16;
constexpr size_t kRunningBytes = 256;  // of the name of the op that runs
constexpr size_t kEnvelopeBytes =
    1024;  // of a reply without its executors, and for changes of these by heartbeats

// The facts that an executor reports are limited, so that no reply exceeds a frame and no executor
// fills the table with text.
Status CheckInfo(const fb::ExecutorInfo& info) {
  const auto length = [](const flatbuffers::String* s) { return s ? s->size() : 0; };
  if (length(info.id()) == 0 || length(info.id()) > kIdBytes) {
    return InvalidArgument("register: expected an id of 1 to {} characters, got {}", kIdBytes,
                           length(info.id()));
  }
  const auto printable = [](char c) { return static_cast<unsigned char>(c) > ' ' && c != 0x7f; };
  if (!std::all_of(info.id()->begin(), info.id()->end(), printable))
    return InvalidArgument("register: expected an id without spaces and control characters");
  if (length(info.control_endpoint()) == 0 || length(info.control_endpoint()) > 512)
    return InvalidArgument("register: expected a control endpoint");
  const size_t labels = info.labels() ? info.labels()->size() : 0,
               ops = info.ops() ? info.ops()->size() : 0;
  if (labels > 64 || ops > 4096)
    return InvalidArgument("register: expected at most 64 labels and 4096 ops, got {} and {}",
                           labels, ops);
  return absl::OkStatus();
}

// Ops are most of the info: if they are not requested, they are moved out and not copied.
std::unique_ptr<fb::ExecutorInfoT> CopyInfo(fb::ExecutorInfoT& info, bool with_ops) {
  if (with_ops) return std::make_unique<fb::ExecutorInfoT>(info);
  auto ops = std::exchange(info.ops, {});
  auto copy = std::make_unique<fb::ExecutorInfoT>(info);
  info.ops = std::move(ops);
  return copy;
}

size_t PackedBytes(const fb::ExecutorInfoT& info) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::CreateExecutorInfo(builder, &info));
  return builder.GetSize() + kRunningBytes;
}

// Whether both have the same variants of the same ops.
bool SameOps(const fb::ExecutorInfoT& a, const fb::ExecutorInfoT& b) {
  const auto same_variant = [](const auto& x, const auto& y) {
    return x->name == y->name && x->tier == y->tier && x->dtypes == y->dtypes;
  };
  const auto same_op = [&](const auto& x, const auto& y) {
    return x->name == y->name && x->version == y->version && x->declaration == y->declaration &&
           std::ranges::equal(x->variants, y->variants, same_variant);
  };
  return std::ranges::equal(a.ops, b.ops, same_op);
}

}  // namespace

RegistryState::RegistryState(uint64_t epoch, Nanos now, const RegistryOptions& options)
    : epoch_(epoch), born_(now), options_(options) {}

std::vector<Outgoing> RegistryState::OnMessage(Nanos now, PeerId peer, Bytes bytes,
                                               bool may_register) {
  std::vector<Outgoing> out;
  auto decoded = DecodeRequest(bytes, decode_);
  if (!decoded.ok()) {
    out.push_back({peer, EncodeError(0, decoded.status())});
    return out;
  }
  const fb::Request& r = **decoded;
  if (const auto w = watchers_.find(peer); w != watchers_.end())
    w->second.expires = now + options_.missed_beats * options_.beat;
  const bool registers = r.body_type() == fb::Body::Register ||
                         r.body_type() == fb::Body::Heartbeat ||
                         r.body_type() == fb::Body::Unregister;
  if (registers && !may_register) {
    out.push_back(
        {peer, EncodeError(
                   r.seq(),
                   PermissionDenied("executors need a key with the role admin to register here"))});
    return out;
  }
  switch (r.body_type()) {
    case fb::Body::Register:
      Register(now, peer, r.seq(), *r.body_as_Register(), out);
      break;
    case fb::Body::Heartbeat:
      Heartbeat(now, peer, r.seq(), *r.body_as_Heartbeat(), out);
      break;
    case fb::Body::Unregister: {
      const fb::Unregister& body = *r.body_as_Unregister();
      const auto it = executors_.find(body.id() ? body.id()->str() : "");
      if (it != executors_.end() && it->second.peer == peer &&
          it->second.info.incarnation == body.incarnation())
        Remove(it->first, "it left", out);
      out.push_back({peer, EncodeReply(r.seq(), fb::DoneT())});
      break;
    }
    case fb::Body::Query:
      Query(now, peer, r.seq(), *r.body_as_Query(), out);
      break;
    case fb::Body::Watch:
      Watch(now, peer, r.seq(), out);
      break;
    default:
      out.push_back(
          {peer, EncodeError(r.seq(), InvalidArgument("wire: {} is no request of a registry",
                                                      BodyName(r.body_type())))});
  }
  return out;
}

void RegistryState::Register(Nanos now, PeerId peer, uint64_t seq, const fb::Register& body,
                             std::vector<Outgoing>& out) {
  const Status status =
      body.info() ? CheckInfo(*body.info()) : InvalidArgument("register: expected facts");
  if (!status.ok()) {
    out.push_back({peer, EncodeError(seq, status)});
    return;
  }
  const std::string claim =
      body.claim() ? std::string(body.claim()->begin(), body.claim()->end()) : std::string();
  if (claim.size() != kClaimBytes) {
    out.push_back(
        {peer, EncodeError(seq, InvalidArgument("register: expected a claim of {} bytes, got {}",
                                                kClaimBytes, claim.size()))});
    return;
  }
  fb::ExecutorInfoT info;
  body.info()->UnPackTo(&info);
  const size_t bytes = PackedBytes(info);
  if (bytes > kMaxFrameBytes - kEnvelopeBytes) {
    out.push_back(
        {peer,
         EncodeError(seq, InvalidArgument("register: expected facts of at most {} bytes, got {}",
                                          kMaxFrameBytes - kEnvelopeBytes, bytes))});
    return;
  }
  const auto it = executors_.find(info.id);
  uint64_t replaced = 0;
  if (it != executors_.end()) {
    // An executor that sends beats keeps the name. A registration with the same claim comes from
    // the same executor, or from its restart: only one process at a time has the claim. An old
    // message of the predecessor must not be accepted again.
    const Executor& known = it->second;
    if (known.claim != claim) {
      out.push_back(
          {peer, EncodeError(seq, AlreadyExists("register: an executor named {} is alive, at {}; "
                                                "stop it, or take another name",
                                                info.id, known.info.control_endpoint))});
      return;
    }
    replaced = known.replaced;
    if (replaced == info.incarnation && replaced != 0) {
      out.push_back({peer, EncodeError(seq, FailedPrecondition("register: {} was restarted since",
                                                               info.id))});
      return;
    }
    if (known.info.incarnation != info.incarnation) {
      replaced = known.info.incarnation;
      Remove(info.id, "it was restarted", out);
    }
  } else if (executors_.size() >= options_.max_executors) {
    out.push_back(
        {peer, EncodeError(seq, ResourceExhausted("register: the registry holds {} executors",
                                                  executors_.size()))});
    return;
  }
  const bool news = !executors_.contains(info.id) || !SameOps(executors_.at(info.id).info, info);
  Executor& e = executors_[info.id];
  e.bytes = bytes;
  e.bytes_without_ops = PackedBytes(*CopyInfo(info, false));
  e.info = std::move(info);
  e.expires = now + options_.missed_beats * options_.beat;
  e.peer = peer;
  e.claim = claim;
  e.replaced = replaced;
  out.push_back({peer, BeatReply(seq, false)});
  if (!news) return;
  fb::ChangeT change;
  if (!watchers_.empty()) change.joined = CopyInfo(e.info, true);
  Tell(change, out);
}

void RegistryState::Heartbeat(Nanos now, PeerId peer, uint64_t seq, const fb::Heartbeat& body,
                              std::vector<Outgoing>& out) {
  const auto it = executors_.find(body.id() ? body.id()->str() : "");
  const bool known = it != executors_.end() && it->second.peer == peer &&
                     it->second.info.incarnation == body.incarnation();
  if (known) {
    it->second.expires = now + options_.missed_beats * options_.beat;
    if (body.load()) {
      it->second.info.load.reset(body.load()->UnPack());
      it->second.info.load->op.resize(std::min(it->second.info.load->op.size(), kRunningBytes / 2));
      it->second.info.free_memory = body.load()->free_memory();
    }
    if (body.draining()) Remove(it->first, "it is shutting down", out);
  }
  out.push_back({peer, BeatReply(seq, !known && !body.draining())});
}

void RegistryState::Query(Nanos now, PeerId peer, uint64_t seq, const fb::Query& query,
                          std::vector<Outgoing>& out) {
  const auto text = [](const flatbuffers::String* s) { return s ? s->str() : std::string(); };
  const std::string device = text(query.device()), label = text(query.label()),
                    op = text(query.op());
  fb::QueryReplyT reply;
  reply.epoch = epoch_;
  reply.sequence = sequence_;
  reply.warming = Warming(now);
  size_t bytes = 0;
  for (auto it = executors_.upper_bound(text(query.after())); it != executors_.end(); ++it) {
    fb::ExecutorInfoT& i = it->second.info;
    // "cuda" means any of that kind, "cuda:1" just that one.
    if (!device.empty() && i.device != device && i.device.substr(0, i.device.find(':')) != device &&
        i.id != device)
      continue;
    if (!label.empty() && std::find(i.labels.begin(), i.labels.end(), label) == i.labels.end())
      continue;
    if (query.free_memory() > i.free_memory) continue;
    if (!op.empty()) {
      const auto runs = std::find_if(i.ops.begin(), i.ops.end(), [&](const auto& o) {
        return o->name == op && (query.dtype() == 0 || o->dtypes == 0 ||
                                 (query.dtype() < 32 && ((o->dtypes >> query.dtype()) & 1u)));
      });
      if (runs == i.ops.end()) continue;
    }
    const size_t of_one = query.with_ops() ? it->second.bytes : it->second.bytes_without_ops;
    if (!reply.executors.empty() && bytes + of_one > kMaxFrameBytes - kEnvelopeBytes) {
      reply.more = true;
      break;
    }
    bytes += of_one;
    reply.executors.push_back(CopyInfo(i, query.with_ops()));
  }
  out.push_back({peer, EncodeReply(seq, reply)});
}

// The first part is the whole state as changes. A client that was away compares epoch and sequence
// and asks again.
void RegistryState::Watch(Nanos now, PeerId peer, uint64_t seq, std::vector<Outgoing>& out) {
  if (!watchers_.contains(peer) && watchers_.size() >= options_.max_watchers) {
    out.push_back({peer, EncodeError(seq, ResourceExhausted("watch: the registry has {} watchers",
                                                            watchers_.size()))});
    return;
  }
  Watcher& w = watchers_[peer];
  w = {seq, 0, now + options_.missed_beats * options_.beat};
  for (auto& [id, e] : executors_) {
    fb::ChangeT change;
    change.epoch = epoch_;
    change.sequence = sequence_;
    change.joined = CopyInfo(e.info, true);
    fb::ReplyT reply;
    reply.seq = seq;
    reply.part = w.part++;
    reply.last = false;
    reply.body.Set(std::move(change));
    out.push_back({peer, EncodeReply(reply)});
  }
}

void RegistryState::Remove(const std::string& id, const std::string& reason,
                           std::vector<Outgoing>& out) {
  fb::ChangeT change;
  change.left = id;  // before the erasure: `id` may be the key itself
  change.reason = reason;
  executors_.erase(change.left);
  Tell(change, out);
}

void RegistryState::Tell(const fb::ChangeT& change, std::vector<Outgoing>& out) {
  ++sequence_;
  for (auto& [peer, w] : watchers_) {
    fb::ReplyT reply;
    reply.seq = w.seq;
    reply.part = w.part++;
    reply.last = false;
    fb::ChangeT copy;
    copy.epoch = epoch_;
    copy.sequence = sequence_;
    if (change.joined) copy.joined = CopyInfo(*change.joined, true);
    copy.left = change.left;
    copy.reason = change.reason;
    reply.body.Set(std::move(copy));
    out.push_back({peer, EncodeReply(reply)});
  }
}

std::vector<Outgoing> RegistryState::OnTick(Nanos now) {
  std::vector<Outgoing> out;
  std::vector<std::string> gone;
  for (const auto& [id, e] : executors_) {
    if (now >= e.expires) gone.push_back(id);
  }
  for (const std::string& id : gone)
    Remove(id, fmt::format("it missed {} beats", options_.missed_beats), out);
  std::erase_if(watchers_, [&](const auto& w) { return now >= w.second.expires; });
  return out;
}

Nanos RegistryState::NextDeadline() const {
  Nanos next = kNever;
  for (const auto& [id, e] : executors_) next = std::min(next, e.expires);
  for (const auto& [peer, w] : watchers_) next = std::min(next, w.expires);
  return next;
}

std::string RegistryState::BeatReply(uint64_t seq, bool again) const {
  fb::BeatT beat;
  beat.epoch = epoch_;
  beat.beat_ms = static_cast<uint32_t>(options_.beat / kMillisecond);
  beat.again = again;
  return EncodeReply(seq, std::move(beat));
}

}  // namespace opwire
