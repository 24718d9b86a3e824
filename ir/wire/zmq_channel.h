// Channels over ZeroMQ: a Router serves, a Dealer asks.
#ifndef OPWIRE_IR_WIRE_ZMQ_CHANNEL_H_
#define OPWIRE_IR_WIRE_ZMQ_CHANNEL_H_

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ir/wire/channel.h"

namespace opwire {

// One I/O thread. Sockets must be closed before it ends.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  void* get() const { return context_; }

  // Memory of a socket's outgoing messages, which the I/O thread gives back; kept here because it may do so after the socket is closed.
  class Pool;
  Pool* TakePool();
  void ReturnPool(Pool* pool);

 private:
  void* context_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<Pool*> idle_;
};

struct ZmqOptions {
  Nanos heartbeat = 150 * kMillisecond;          // silence after which ZeroMQ itself asks the other side
  Nanos heartbeat_timeout = 350 * kMillisecond;  // silence after which a connection counts as lost
  int max_connections = 512;                     // a server's; more are shut down as they come
};

// What a server received. The bytes are valid until the next call of the router.
struct Incoming {
  PeerId peer;
  Bytes head;
  Bytes bulk;
  uint32_t uid;  // of the peer's process, with its first message and where the kernel says so (ipc); else kNoUid
};
inline constexpr uint32_t kNoUid = UINT32_MAX;

class Router : public ServerChannel {
 public:
  static StatusOr<std::unique_ptr<Router>> Bind(ZmqContext& context, const std::string& endpoint, const ZmqOptions& options = {});
  ~Router() override;

  Status Send(PeerId to, Bytes head, Bytes bulk = {}) override;

  // False when nothing is there. Messages of more than two frames, from peers with names of their own, or beyond the frame limit are
  // dropped.
  bool Receive(Incoming& message);
  // Peers whose connection ended since the last call, among those that sent something.
  void TakeGone(std::vector<PeerId>& gone);

  // Readable when Receive, or TakeGone, may have something. Edge-triggered: poll only after Receive said false, with no Send since then.
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
  // Does not wait for the connection: Receive says UNAVAILABLE when it is refused or lost.
  static StatusOr<std::unique_ptr<Dealer>> Connect(ZmqContext& context, const std::string& endpoint, const ZmqOptions& options = {});
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

// Waits until one of the descriptors is readable, up to `timeout` (kNever: without end). Which of the first 64 are, as bits; 0: none.
uint64_t PollReadable(std::span<const int> fds, Nanos timeout);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_ZMQ_CHANNEL_H_
