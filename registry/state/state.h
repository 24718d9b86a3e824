// The registry as a state machine: live executors, their ops, and watchers. It uses no socket and
// no clock. Nothing is stored on disk, because executors register again with a new registry.
//
//   RegistryState state(epoch, now, {});
//   for (auto& out : state.OnMessage(now, peer, bytes)) router.Send(out.peer, out.bytes);
//   for (auto& out : state.OnTick(now)) ...
#ifndef OPWIRE_REGISTRY_STATE_STATE_H_
#define OPWIRE_REGISTRY_STATE_STATE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/wire/channel.h"
#include "ir/wire/message.h"

namespace opwire {

struct RegistryOptions {
  Nanos beat = kSecond;  // executors are asked to send one each
  int missed_beats = 3;  // after which an executor is removed
  size_t max_executors = 1024;
  size_t max_watchers = 4096;
  int max_connections = 512;
};

struct Outgoing {
  PeerId peer;
  std::string bytes;
};

class RegistryState {
 public:
  // `epoch` differs between any two registries that a client may meet.
  RegistryState(uint64_t epoch, Nanos now, const RegistryOptions& options);

  // Handles any bytes from any peer. Returns replies and messages to watchers. A peer that may not
  // register gets PERMISSION_DENIED when it tries.
  std::vector<Outgoing> OnMessage(Nanos now, PeerId peer, Bytes bytes, bool may_register = true);
  // Removes executors that missed their beats and watchers that are silent.
  std::vector<Outgoing> OnTick(Nanos now);
  void OnPeerGone(PeerId peer) { watchers_.erase(peer); }
  // The time when OnTick has something to do next.
  Nanos NextDeadline() const;

  // Younger than three beats: executors may not have found it yet.
  bool Warming(Nanos now) const { return now < born_ + options_.missed_beats * options_.beat; }
  size_t executors() const { return executors_.size(); }
  uint64_t sequence() const { return sequence_; }

 private:
  struct Executor {
    fb::ExecutorInfoT info;
    size_t bytes = 0, bytes_without_ops = 0;  // of the info in an answer
    Nanos expires = 0;
    PeerId peer = 0;        // the peer that registered it and may send for it
    std::string claim;      // of its name
    uint64_t replaced = 0;  // the incarnation before it
  };
  struct Watcher {
    uint64_t seq;  // of its request; every part is a reply to it
    uint32_t part;
    Nanos expires;
  };

  void Register(Nanos now, PeerId peer, uint64_t seq, const fb::Register& body,
                std::vector<Outgoing>& out);
  void Heartbeat(Nanos now, PeerId peer, uint64_t seq, const fb::Heartbeat& body,
                 std::vector<Outgoing>& out);
  void Query(Nanos now, PeerId peer, uint64_t seq, const fb::Query& query,
             std::vector<Outgoing>& out);
  void Watch(Nanos now, PeerId peer, uint64_t seq, std::vector<Outgoing>& out);
  void Remove(const std::string& id, const std::string& reason, std::vector<Outgoing>& out);
  void Tell(const fb::ChangeT& change, std::vector<Outgoing>& out);
  std::string BeatReply(uint64_t seq, bool again) const;

  const uint64_t epoch_;
  const Nanos born_;
  const RegistryOptions options_;
  uint64_t sequence_ = 0;  // counts changes
  std::map<std::string, Executor> executors_;
  std::map<PeerId, Watcher> watchers_;
  AlignedBytes decode_;
};

}  // namespace opwire

#endif  // OPWIRE_REGISTRY_STATE_STATE_H_
