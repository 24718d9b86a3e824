// The loop of the host thread.
#include "executor/serve/host_thread.h"

#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "executor/serve/info.h"
#include "executor/serve/ring_door.h"
#include "ir/wire/endpoint.h"
#include "ir/wire/log.h"
#include "ir/wire/trust.h"

namespace opwire::executor {
namespace {

constexpr Nanos kHostTick = 100 * kMillisecond;
constexpr Nanos kDrainTick = 10 * kMillisecond;
constexpr int kMostUnanswered = 16;
constexpr int kFailedRunsASecond = 10;  // in the log
constexpr int kMostRefused = 1024;      // of one connection
constexpr size_t kMostControlBytes = 64 << 10;

}  // namespace

HostThread::HostThread(HostOptions options, ZmqContext& context, std::unique_ptr<Router> control,
                       CrashRecord* crash)
    : options_(std::move(options)),
      context_(context),
      control_(std::move(control)),
      keyed_(SplitKey(control_->endpoint())->keyed),
      crash_(crash),
      alarm_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  for (const std::string& registry : options_.registries)
    links_.push_back({registry, Announcer(options_.info, options_.claim), nullptr});
}

HostThread::~HostThread() { close(alarm_); }

void HostThread::SendControl(PeerId peer, std::string reply) {
  // A client that does not read its replies misses them, and asks again.
  mailbox_.Post([this, peer, reply = std::move(reply)] {
    if (const auto it = peers_.find(peer); it != peers_.end()) --it->second.unanswered;
    (void)control_->Send(peer, AsBytes(reply));
  });
}

// The log may be a pipe without a reader, which must not block the device.
void HostThread::NoteFailedRun(FailedRun failed) {
  if (const Nanos now = MonotonicNow(); now >= second_) {
    second_ = now + kSecond;
    lines_ = 0;
  }
  if (++lines_ > kFailedRunsASecond) {
    ++left_out_;
    return;
  }
  mailbox_.Post([failed = std::move(failed), left_out = std::exchange(left_out_, 0)] {
    Log(LogLevel::kWarning, "run failed",
        {{"session", std::to_string(failed.session)},
         {"principal", failed.principal},
         {"program", failed.program},
         {"code", absl::StatusCodeToString(failed.why.code())},
         {"why", MessageOf(failed.why)},
         {"left_out", std::to_string(left_out)}});
  });
}

void HostThread::SetOps(std::shared_ptr<const KernelSet> kernels) {
  mailbox_.Post([this, kernels = std::move(kernels)] {
    for (Link& link : links_) link.announcer.SetOps(OpEntries(*kernels));
    options_.info.ops = OpEntries(*kernels);
  });
}

// Reads the peer from its first message.
HostThread::Peer HostThread::PeerOf(const Incoming& m) const {
  if (!m.key_name.empty()) return {fmt::format("key:{}", m.key_name), true, m.role};
  // For a peer that has disconnected, neither is known: over ipc the kernel names the users of
  // connected peers only.
  if (keyed_ || (m.uid == kNoUid && IsIpc(control_->endpoint())))
    return {"nobody", false, Role::kUse};
  if (m.uid != kNoUid)
    return {fmt::format("uid:{}", m.uid), options_.share || m.uid == getuid(), Role::kExecute};
  return {"tcp", true, Role::kExecute};
}

void HostThread::OnControl(DeviceThread& device, const Incoming& m) {
  const auto [it, fresh] = peers_.try_emplace(m.peer);
  if (fresh) {
    it->second = PeerOf(m);
    it->second.gone = std::make_shared<std::atomic<bool>>(false);
  }
  Peer& peer = it->second;
  const auto refuse = [&](uint64_t seq, const Status& status) {
    (void)control_->Send(m.peer, AsBytes(EncodeError(seq, status)));
    if (++peer.refused != kMostRefused) return;
    peer.gone->store(true, std::memory_order_relaxed);
    control_->Drop(m.peer);
  };
  auto decoded = DecodeRequest(m.head, decode_);
  if (!decoded.ok()) return refuse(0, decoded.status());
  const fb::Request& r = **decoded;
  if (!peer.served)
    return refuse(r.seq(), PermissionDenied(
                               "this executor serves user {} only; it was started without --share",
                               getuid()));
  if (peer.role < Role::kExecute && r.body_type() != fb::Body::Info) {
    return refuse(r.seq(), PermissionDenied("{} has the role {} here; {} needs {}", peer.principal,
                                            RoleName(peer.role), BodyName(r.body_type()),
                                            RoleName(Role::kExecute)));
  }
  Core& core = device.core();
  switch (r.body_type()) {
    case fb::Body::WriteChunk: {
      const fb::WriteChunk& chunk = *r.body_as_WriteChunk();
      const Status status = core.transfers().Write(chunk.ticket(), chunk.offset(), m.bulk);
      if (!status.ok()) return refuse(r.seq(), status);
      (void)control_->Send(m.peer, AsBytes(EncodeReply(r.seq(), fb::DoneT())));
      return;
    }
    case fb::Body::ReadChunk: {
      const fb::ReadChunk& chunk = *r.body_as_ReadChunk();
      std::string bytes;
      const Status status =
          core.transfers().Read(chunk.ticket(), chunk.offset(), chunk.size(), bytes);
      if (!status.ok()) return refuse(r.seq(), status);
      (void)control_->Send(m.peer, AsBytes(EncodeReply(r.seq(), fb::DoneT())), AsBytes(bytes));
      return;
    }
    case fb::Body::Info:
      // "ping" is answered here, so it shows whether the process lives, whatever the device does.
      if (const fb::Info& info = *r.body_as_Info();
          info.topic() && info.topic()->string_view() == "ping") {
        (void)control_->Send(m.peer, AsBytes(EncodeReply(r.seq(), fb::DoneT())));
        return;
      }
      break;
    case fb::Body::Cancel: {
      auto run = core.IdentityOf(*r.body_as_Cancel());
      if (!run.ok()) return refuse(r.seq(), run.status());
      core.gate().Cancel(*run);
      break;  // the core searches the waiting requests, and answers
    }
    default:
      break;
  }
  // Runs come first on the device thread: a client must not fill it with requests.
  if (peer.unanswered >= kMostUnanswered || m.head.size() > kMostControlBytes) {
    return refuse(r.seq(), ResourceExhausted("control: expected at most {} requests without their "
                                             "reply, of at most {} bytes each, got {} and {}",
                                             kMostUnanswered, kMostControlBytes,
                                             peer.unanswered + 1, m.head.size()));
  }
  ++peer.unanswered;
  const bool question = r.body_type() == fb::Body::Info;
  device.Post([&device, peer = m.peer, principal = peer.principal, gone = peer.gone, question,
               head = std::string(reinterpret_cast<const char*>(m.head.data()), m.head.size())] {
    if (question && gone->load(std::memory_order_relaxed)) return;
    device.core().OnControl(MonotonicNow(), peer, principal, AsBytes(head));
  });
}

fb::LoadInfoT HostThread::LoadOf(DeviceThread& device, Nanos now) const {
  CoreLoad& load = device.core().load();
  fb::LoadInfoT out;
  out.sessions = load.sessions.load();
  out.queued = load.queued.load();
  out.queued_ns = out.queued * static_cast<uint64_t>(load.request_ns.load());
  out.runs = load.runs.load();
  out.free_memory = load.free_memory.load();
  if (const Nanos since = device.core().gate().busy_since(); since > 0 && now > since) {
    out.busy_since_ms = static_cast<uint64_t>((now - since) / kMillisecond) + 1;
    if (crash_) out.op = crash_->label();
  }
  return out;
}

void HostThread::Disconnect(Link& link, Nanos now, const std::string& why) {
  if (link.announcer.registered())
    Log(LogLevel::kWarning, "registry lost", {{"registry", link.registry}, {"why", why}});
  link.announcer.OnConnected(now);
  link.dealer.reset();
  link.retry_at = now + link.backoff;
  link.backoff =
      std::min(2 * link.backoff, 4 * kSecond);  // so that a registry that restarts is found soon
}

// Connects when it is time, and sends due messages.
void HostThread::Announce(DeviceThread& device, Link& link, Nanos now) {
  if (!link.dealer) {
    if (now < link.retry_at) return;
    auto dealer = Dealer::Connect(context_, link.registry);
    if (!dealer.ok()) return Disconnect(link, now, MessageOf(dealer.status()));
    link.dealer = *std::move(dealer);
    link.announcer.OnConnected(now);
  }
  if (auto out = link.announcer.OnTick(now, LoadOf(device, now)))
    (void)link.dealer->Send(AsBytes(*out));
  if (link.announcer.Silent(now)) {
    link.dealer.reset();
    link.retry_at = now;
  }
}

void HostThread::Hear(Link& link, Nanos now) {
  ClientChannel::Message message;
  while (link.dealer) {
    auto came = link.dealer->Receive(message, 0);
    if (!came.ok()) return Disconnect(link, now, MessageOf(came.status()));
    if (!*came) return;
    const bool before = link.announcer.registered();
    link.announcer.OnReply(now, AsBytes(message.head));
    const Status& refusal = link.announcer.refusal();
    if (!refusal.ok() && refusal != link.refusal)
      Log(LogLevel::kError, "registry refused",
          {{"registry", link.registry}, {"why", MessageOf(refusal)}});
    link.refusal = refusal;
    if (!refusal.ok()) {
      // An executor that serves continues, and retries. At the start a refusal is an error to
      // report.
      const bool waits = absl::IsAlreadyExists(refusal) && now < begun_ + kNamePatience;
      refused_ = refused_ || !(served_ || waits);
      return;
    }
    served_ = served_ || link.announcer.registered();
    if (!before && link.announcer.registered())
      Log(LogLevel::kInfo, "registered", {{"registry", link.registry}});
    link.backoff = kFirstBackoff;
  }
}

void HostThread::OnTick(DeviceThread& device, Nanos now) {
  if (!drain_until_) {  // else goodbye was sent
    for (Link& link : links_) Announce(device, link, now);
  }
  if (options_.kernel_timeout > 0) Watch(device, now);
}

// A kernel that does not return is a device fault. Only the reason can be saved.
void HostThread::Watch(DeviceThread& device, Nanos now) {
  // A slice ends within milliseconds unless a kernel does not return.
  const Nanos since = device.core().gate().busy_since();
  if (since == 0 || now - since < options_.kernel_timeout) return;
  Log(LogLevel::kError, "device fault: a kernel does not return",
      {{"kernel", crash_->label()},
       {"seconds", fmt::format("{:.1f}", static_cast<double>(now - since) / kSecond)}});
  crash_->NoteFault(SIGXCPU);
  _exit(kDeviceFault);
}

bool HostThread::Drained(DeviceThread& device, Nanos now) {
  device.Post([this, &device] {
    const bool idle = device.core().Idle();
    mailbox_.Post([this, idle] { idle_ = idle; });
  });
  if (idle_) return true;
  if (now < drain_until_) return false;
  Log(LogLevel::kWarning, "drain timeout: cancelling what runs");
  device.core().gate().Drain();
  return true;
}

int HostThread::Run(DeviceThread& device, int signal_fd) {
  RingDoor door(options_.ring_listener, options_.max_rings, device);
  RunGate& gate = device.core().gate();
  gate.SetAlarm([this](Nanos when) {
    const itimerspec at{{}, {when / kSecond, when % kSecond}};
    timerfd_settime(alarm_, TFD_TIMER_ABSTIME, &at, nullptr);
  });
  std::vector<PeerId> gone;
  std::vector<int> fds;
  Nanos next_tick = 0, due = 0;
  int code = kDrained;
  begun_ = MonotonicNow();
  while (true) {
    mailbox_.Drain();
    served_ = served_ || device.core().load().sessions.load() > 0;
    control_->TakeGone(gone);
    for (PeerId peer : gone) {
      if (auto left = peers_.extract(peer))
        left.mapped().gone->store(true, std::memory_order_relaxed);
    }
    Incoming message;
    int received = 0;
    for (; received < 64 && control_->Receive(message); ++received) OnControl(device, message);
    door.Poll();
    const Nanos now = MonotonicNow();
    uint64_t rang;
    if (read(alarm_, &rang, sizeof(rang)) == static_cast<ssize_t>(sizeof(rang)))
      gate.CheckDeadline(now);
    if (now >= due) {
      next_tick = now + (drain_until_ ? kDrainTick : kHostTick);
      OnTick(device, now);
      if (drain_until_ && Drained(device, now)) break;
    }
    for (Link& link : links_) Hear(link, now);
    if (refused_) {
      code = kRegistryRefused;
      break;
    }
    signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      if (drain_until_) break;  // a second signal ends it at once
      drain_until_ = now + options_.drain_timeout;
      next_tick = now + kDrainTick;
      Log(LogLevel::kInfo, "draining");
      for (Link& link : links_) {
        if (link.dealer) (void)link.dealer->Send(AsBytes(link.announcer.Goodbye()));
      }
      device.Post([&device] { device.core().Drain(); });
    }
    if (received == 64) continue;
    due = next_tick;
    fds.assign({control_->fd(), control_->monitor_fd(), mailbox_.fd(), signal_fd, alarm_});
    for (const Link& link : links_) {
      if (drain_until_) break;  // goodbye was sent
      due = std::min(due, link.dealer ? link.announcer.next() : link.retry_at);
      if (link.dealer) fds.push_back(link.dealer->fd());
    }
    door.AddDescriptors(fds);
    PollReadable(fds, std::clamp<Nanos>(due - MonotonicNow(), 0, control_->LookAgain()));
  }
  gate.SetAlarm(nullptr);
  device.Post([&device] { device.Stop(); });
  return code;
}

}  // namespace opwire::executor
