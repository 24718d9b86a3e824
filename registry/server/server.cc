// The loop of the registry.
#include "registry/server/server.h"

#include <sodium.h>

#include <algorithm>

namespace opwire {
namespace {

constexpr int kMostASecond = 10'000;  // requests of one connection

}  // namespace

StatusOr<std::unique_ptr<RegistryServer>> RegistryServer::Start(const std::string& endpoint,
                                                                const RegistryOptions& options,
                                                                bool insecure,
                                                                const std::string& authorized_keys,
                                                                bool share) {
  auto context = std::make_unique<ZmqContext>();
  OPWIRE_ASSIGN_OR_RETURN(ZmqOptions guarded, context->Guard(endpoint, insecure, authorized_keys));
  guarded.own_user_only = !share;
  guarded.max_connections = options.max_connections;
  OPWIRE_ASSIGN_OR_RETURN(auto router, Router::Bind(*context, endpoint, guarded));
  uint64_t epoch;
  randombytes_buf(&epoch, sizeof(epoch));
  return std::unique_ptr<RegistryServer>(new RegistryServer(
      std::move(context), std::move(router), guarded.own.has_value(), epoch, options));
}

void RegistryServer::SendAll(const std::vector<Outgoing>& out) {
  for (const Outgoing& o : out) {
    // A peer that does not read or has disconnected misses its message. A watcher detects that by
    // the sequence.
    if (!router_->Send(o.peer, AsBytes(o.bytes)).ok()) state_.OnPeerGone(o.peer);
  }
}

void RegistryServer::Run(int stop_fd) {
  std::vector<PeerId> gone;
  while (!PollReadable({&stop_fd, 1}, 0)) {
    router_->TakeGone(gone);
    for (PeerId peer : gone) {
      state_.OnPeerGone(peer);
      roles_.erase(peer);
    }
    Incoming message;
    int received = 0;
    if (const Nanos now = MonotonicNow(); now >= second_) {
      second_ = now + kSecond;
      asked_.clear();
    }
    for (; received < 256 && router_->Receive(message); ++received) {
      // A peer that sends requests without limit would fill the memory with waiting messages.
      if (++asked_[message.peer] == kMostASecond) router_->Drop(message.peer);
      if (!message.key_name.empty()) roles_[message.peer] = message.role;
      const auto role = roles_.find(message.peer);
      const bool may_register = !keyed_ || (role != roles_.end() && role->second == Role::kAdmin);
      SendAll(state_.OnMessage(MonotonicNow(), message.peer, message.head, may_register));
    }
    if (received == 256) continue;
    // After the received messages: beats that waited while this was busy were not missed.
    SendAll(state_.OnTick(MonotonicNow()));
    const int fds[] = {router_->fd(), router_->monitor_fd(), stop_fd};
    const Nanos next = state_.NextDeadline();
    const Nanos wait =
        next == kNever ? kNever : std::max<Nanos>(next - MonotonicNow(), kMillisecond);
    PollReadable(fds, std::min(wait, router_->LookAgain()));
  }
}

}  // namespace opwire
