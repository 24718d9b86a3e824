// Channels over ZeroMQ: a Router serves, a Dealer asks.
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
  // A server's.
  std::optional<KeyPair> own;    // it takes only peers with keys; from ZmqContext::Guard
  bool own_user_only = false;    // over ipc: it takes only peers of the process's own user
  int max_connections = 512;     // more are shut down as they come
  Nanos silence = 10 * kSecond;  // a connection that has not sent anything for so long is shut down
  // A client's.
  Nanos heartbeat = 150 * kMillisecond;  // silence after which ZeroMQ itself asks the server
  Nanos heartbeat_timeout =
      600 * kMillisecond;  // after which the client takes a server that does not answer for lost
  Nanos heartbeat_ttl =
      2 * kSecond;  // after which the server takes a client that does not ask for lost
};

// One I/O thread. Sockets must be closed before it ends.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  void* get() const { return context_; }

  // Before the Router of a server at `endpoint`: over ipc, or where `insecure`, plain options. Else
  // ones with keys: peers come with this user's own (OwnKeyPath), which may do all, or with one of
  // the file `authorized_keys` (empty: none), which is read anew for each. FAILED_PRECONDITION
  // where the user has no key.
  StatusOr<ZmqOptions> Guard(const std::string& endpoint, bool insecure,
                             const std::string& authorized_keys);

  // Memory of a socket's outgoing messages, which the I/O thread gives back; kept here because it
  // may do so after the socket is closed.
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

// What a server received. The bytes are valid until the next call of the router.
struct Incoming {
  PeerId peer;
  Bytes head;
  Bytes bulk;
  uint32_t uid;  // of the peer's process, with its first message and where the kernel says so
                 // (ipc); else kNoUid
  // With the first message of a peer with a key: whose it is, and what it may do.
  std::string_view key_name;
  Role role;
};
inline constexpr uint32_t kNoUid = UINT32_MAX;

class Router : public ServerChannel {
 public:
  // The endpoint() of one with keys names its public key.
  static StatusOr<std::unique_ptr<Router>> Bind(ZmqContext& context, const std::string& endpoint,
                                                const ZmqOptions& options = {});
  ~Router() override;

  // RESOURCE_EXHAUSTED beyond about a thousand messages, or 4 MiB of larger ones, that the peer has
  // not read.
  Status Send(PeerId to, Bytes head, Bytes bulk = {}) override;
  // Ends its connection, if need be with its next message: the client sees it lost. TakeGone will
  // name the peer.
  void Drop(PeerId peer);

  // False when nothing is there. Messages of more than two frames, from peers with names of their
  // own, or beyond the frame limit are dropped.
  bool Receive(Incoming& message);
  // Peers whose connection ended since the last call, among those that sent something. To be called
  // at least every second or so, and as often as LookAgain says. Also ends connections over tcp
  // that send more than 16 MiB without the end of a message.
  void TakeGone(std::vector<PeerId>& gone);
  // How long the owner may wait before it calls TakeGone, for the sake of memory; kNever: it may.
  Nanos LookAgain() const;

  // Readable when Receive, or TakeGone, may have something. Edge-triggered: poll only after Receive
  // said false, with no Send since then.
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
  // Does not wait for the connection: Receive says UNAVAILABLE when it is refused or lost. An
  // address with a key needs the pair of OwnKeyPath: FAILED_PRECONDITION without one.
  static StatusOr<std::unique_ptr<Dealer>> Connect(ZmqContext& context, const std::string& endpoint,
                                                   const ZmqOptions& options = {});
  ~Dealer() override;

  Status Send(Bytes head, Bytes bulk = {}) override;
  StatusOr<bool> Receive(Message& message, Nanos timeout) override;
  // For callers that poll several things.
  int fd() const;

 private:
  Dealer();
  struct State;
  std::unique_ptr<State> s_;
};

// Waits until one of the descriptors is readable, up to `timeout` (kNever: without end). Which of
// the first 64 are, as bits; 0: none.
uint64_t PollReadable(std::span<const int> fds, Nanos timeout);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_ZMQ_CHANNEL_H_
