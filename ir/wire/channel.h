// Channels carry messages of up to two frames between a client and a server. Carriers: ZeroMQ
// (zmq_channel.h), shared memory on one host (ring.h), and the simulator's.
#ifndef OPWIRE_IR_WIRE_CHANNEL_H_
#define OPWIRE_IR_WIRE_CHANNEL_H_

#include <cstdint>
#include <string>

#include "ir/wire/clock.h"
#include "ir/wire/message.h"

namespace opwire {

// A client's connection, unique within one server channel for its lifetime.
using PeerId = uint64_t;

// A channel with many peers. Not thread-safe: one thread owns it.
class ServerChannel {
 public:
  virtual ~ServerChannel() = default;
  // Never blocks. RESOURCE_EXHAUSTED when the peer does not read, UNAVAILABLE when it has
  // disconnected. In both cases nothing was sent.
  virtual Status Send(PeerId to, Bytes head, Bytes bulk = {}) = 0;
};

// One connection to a server. Not thread-safe: the calling thread owns it.
class ClientChannel {
 public:
  struct Message {
    std::string head;
    std::string bulk;
  };

  virtual ~ClientChannel() = default;
  // Never blocks. RESOURCE_EXHAUSTED when the channel is full, UNAVAILABLE when the connection is
  // lost.
  virtual Status Send(Bytes head, Bytes bulk = {}) = 0;
  // Waits up to `timeout` (0: checks once). Returns true with a message, false if none came.
  // UNAVAILABLE when the connection is lost: then no more messages will come, and a new channel
  // must be made. `message` keeps its capacity.
  virtual StatusOr<bool> Receive(Message& message, Nanos timeout) = 0;
};

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_CHANNEL_H_
