// Channels over ZeroMQ: Router for servers, Dealer for clients.
#ifndef OPWIRE_IR_WIRE_ZMQ_CHANNEL_H_
#define OPWIRE_IR_WIRE_ZMQ_CHANNEL_H_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ir/wire/channel.h"
#include "ir/wire/trust.h"

namespace opwire {

struct ZmqOptions {
  // For a server.
  std::optional<KeyPair> own;  // it accepts only peers with keys; from ZmqContext::Guard
  bool own_user_only = false;  // over ipc: it accepts only peers of the process's own user
  int max_connections = 512;   // further ones are shut down when they connect
  Nanos silence =
      10 * kSecond;  // a connection that has not sent anything for that time is shut down
  // For a client.
  Nanos heartbeat = 150 * kMillisecond;  // silence after which ZeroMQ itself pings the server
  Nanos heartbeat_timeout =
      600 * kMillisecond;  // without a reply, after which the client considers the server lost
  Nanos heartbeat_ttl =
      2 * kSecond;  // without a ping, after which the server considers the client lost
};

// One I/O thread. Sockets must be closed before it ends.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  void* get() const { return context_; }

  // Call before the Router of a server at `endpoint`. Over ipc, or if `insecure`, returns plain
  // options. Otherwise returns options with keys. Peers must have this user's own key (OwnKeyPath),
  // which has all rights, or a key of the file `authorized_keys` (empty: none). The file is read
  // again for each peer. FAILED_PRECONDITION if the user has no key.
  StatusOr<ZmqOptions> Guard(const std::string& endpoint, bool insecure,
                             const std::string& authorized_keys);

  // Memory of a socket's outgoing messages, which the I/O thread frees. It is kept here because
  // that may happen after the socket is closed.
  class Pool;
  Pool* TakePool();
  void ReturnPool(Pool* pool);

 private:
  Status Authorize(const Key& own, std::string authorized_keys);

  void* context_;
  std::thread gatekeeper_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<Pool*> idle_;
};

// A message that a server received. The bytes are valid until the next call of the router.
struct Incoming {
  PeerId peer;
  Bytes head;
  Bytes bulk;
  uint32_t uid;  // of the peer's process, with its first message and if the kernel reports it
                 // (ipc); else kNoUid
  // With the first message of a peer with a key: the key's name and role.
  std::string_view key_name;
  Role role;
};
inline constexpr uint32_t kNoUid = UINT32_MAX;

class Router : public ServerChannel {
 public:
  // If `options` has keys, endpoint() contains the public key.
  static StatusOr<std::unique_ptr<Router>> Bind(ZmqContext& context, const std::string& endpoint,
                                                const ZmqOptions& options = {});
  ~Router() override;

  // RESOURCE_EXHAUSTED beyond about a thousand messages, or 4 MiB of larger ones, that the peer has
  // not read.
  Status Send(PeerId to, Bytes head, Bytes bulk = {}) override;
  // Ends its connection, if necessary at its next message. The client sees that it is lost.
  // TakeGone will return the peer.
  void Drop(PeerId peer);

  // Returns false if there is no message. Drops messages of more than two frames, from peers with
  // names of their own, or beyond the frame limit.
  bool Receive(Incoming& message);
  // Returns peers whose connection ended since the last call, among those that sent something. Call
  // it at least about every second, and as often as LookAgain says. Also ends connections over tcp
  // that send more than 16 MiB without the end of a message.
  void TakeGone(std::vector<PeerId>& gone);
  // How long the owner may wait before it calls TakeGone, to limit memory; kNever: no limit.
  Nanos LookAgain() const;

  // Readable when Receive, or TakeGone, may have something. Edge-triggered: poll only after Receive
  // returned false, with no Send since then.
  int fd() const;
  int monitor_fd() const;
  const std::string& endpoint() const;

 private:
  Router();
  struct State;
  std::unique_ptr<State> s_;
};

class Dealer : public ClientChannel {
 public:
  // Does not wait for the connection: Receive returns UNAVAILABLE when it is refused or lost. An
  // address with a key needs the pair of OwnKeyPath: FAILED_PRECONDITION without one.
  static StatusOr<std::unique_ptr<Dealer>> Connect(ZmqContext& context, const std::string& endpoint,
                                                   const ZmqOptions& options = {});
  ~Dealer() override;

  Status Send(Bytes head, Bytes bulk = {}) override;
  StatusOr<bool> Receive(Message& message, Nanos timeout) override;
  // For callers that poll several descriptors.
  int fd() const;

 private:
  Dealer();
  struct State;
  std::unique_ptr<State> s_;
};

// Waits until one of the descriptors is readable, up to `timeout` (kNever: without limit). Returns
// a bit for each readable one of the first 64; 0: none.
uint64_t PollReadable(std::span<const int> fds, Nanos timeout);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_ZMQ_CHANNEL_H_
