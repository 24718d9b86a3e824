// The loop of the device thread.
#include "executor/serve/device_thread.h"

#include <sched.h>

#include <algorithm>

namespace opwire::executor {
namespace {

constexpr int kDrainAtMost = 64;
constexpr Nanos kTick = kSecond;
constexpr Nanos kUntilEnded =
    20 * kMillisecond;  // from the end of a process's sockets to the end of the process
constexpr Nanos kSpin = 50 * kMicrosecond;    // after ring traffic and its work
constexpr Nanos kGather = 50 * kMicrosecond;  // the longest that a reply waits for others
constexpr Nanos kLookAgain = kMillisecond;    // interval of checks whether a client has read
constexpr Nanos kRouterEvery = 10 * kMicrosecond;

}  // namespace

DeviceThread::DeviceThread(CoreOptions options, std::unique_ptr<Router> router, Device& device,
                           std::shared_ptr<const KernelSet> kernels, CrashRecord* crash,
                           std::function<void(PeerId, std::string)> send_control)
    : router_(std::move(router)),
      send_control_(std::move(send_control)),
      slice_(options.slice),
      core_(std::move(options), device, std::move(kernels), crash, *this),
      workers_(std::make_unique<Workers>(2)) {}

DeviceThread::~DeviceThread() {
  // The results of workers may hold sessions' memory, so they are delivered before the core is
  // destroyed.
  workers_.reset();
  mailbox_.Drain();
}

Status DeviceThread::Send(PeerId peer, Bytes head, Bytes bulk) {
  if (peer & kRingBit) {
    const auto ring = rings_.find(peer);
    return ring == rings_.end() ? Unavailable("the ring is closed")
                                : ring->second->Send(head, bulk);
  }
  return router_->Send(peer, head, bulk);
}

void DeviceThread::Submit(std::function<void()> work, std::function<void()> done) {
  workers_->Submit([this, work = std::move(work), done = std::move(done)]() mutable {
    work();
    mailbox_.Post([this, done = std::move(done)] { core_.OnJobDone(MonotonicNow(), done); });
  });
}

void DeviceThread::Drop(PeerId peer) {
  // A caller may be using the ring, so its removal waits.
  if (peer & kRingBit)
    dropped_rings_.push_back(peer);
  else
    router_->Drop(peer);
}

void DeviceThread::AddRing(PeerId peer, std::unique_ptr<Ring> ring) {
  rings_[peer] = std::move(ring);
}

void DeviceThread::RemoveRing(PeerId peer, std::function<bool()> has_ended) {
  if (!rings_.erase(peer)) return;
  const Nanos now = MonotonicNow();
  core_.OnPeerGone(now, peer, std::move(has_ended));
  next_tick_ = std::min(next_tick_, now + kUntilEnded);
}

bool DeviceThread::Drain() {
  bool any = false;
  mailbox_.Drain();
  const Nanos now = MonotonicNow();
  if (core_.HasReplies()) core_.Flush(now);
  for (auto& [peer, ring] : rings_) {
    if (!ring->Drain(core_, now)) continue;
    any = true;
    spin_until_ = now + kSpin;
  }
  // A look at an empty socket is a system call, so it is rare during ring traffic.
  router_seen_ = now >= spin_until_ || now >= router_next_;
  if (router_seen_) {
    router_next_ = now + kRouterEvery;
    Incoming message;
    for (int i = 0; i < kDrainAtMost && router_->Receive(message); ++i) {
      core_.OnMessage(now, message.peer, message.head, message.bulk);
      any = true;
    }
  }
  for (PeerId peer : dropped_rings_) rings_.erase(peer);
  dropped_rings_.clear();
  if (now >= next_tick_) {
    next_tick_ = now + std::min(kTick, router_->LookAgain());
    TakeGone();
    core_.OnTick(now);
  }
  return any;
}

void DeviceThread::TakeGone() {
  router_->TakeGone(gone_);
  for (PeerId peer : gone_) core_.OnPeerGone(MonotonicNow(), peer);
}

void DeviceThread::Park() {
  if (!router_seen_ || (!rings_.empty() && MonotonicNow() < spin_until_)) {
    sched_yield();
    return;
  }
  bool quiet = true;
  for (auto& [peer, ring] : rings_) quiet = ring->Park() && quiet;
  uint64_t ready = 0;
  if (quiet) {
    fds_.assign({router_->monitor_fd(), router_->fd(), mailbox_.fd()});
    for (auto& [peer, ring] : rings_) fds_.push_back(ring->fd());
    const Nanos most = core_.HasReplies() ? kLookAgain : kTick;
    ready = PollReadable(fds_, std::clamp<Nanos>(next_tick_ - MonotonicNow(), 0, most));
  }
  for (auto& [peer, ring] : rings_) ring->Wake();
  if (ready & 1) TakeGone();
}

void DeviceThread::Run() {
  while (!stopped_) {
    const bool any = Drain();
    if (core_.HasWork()) {
      const Nanos begun = MonotonicNow();
      Nanos now = begun, flushed = begun;
      do {
        core_.Work(now);
        now = MonotonicNow();
        if (core_.HasReplies() && now - flushed > kGather) core_.Flush(flushed = now);
      } while (core_.HasWork() && now - begun < slice_);
      if (begun < spin_until_) spin_until_ = now + kSpin;
    } else if (!any && !stopped_) {
      Park();
    }
  }
}

}  // namespace opwire::executor
