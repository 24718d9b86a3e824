// libzmq's sockets as objects: frames, a socket with the memory of what it sends, the events of its
// connections. For zmq_*.cc, the only files that call libzmq.
#ifndef OPWIRE_IR_WIRE_ZMQ_SOCKET_H_
#define OPWIRE_IR_WIRE_ZMQ_SOCKET_H_

#include <zmq.h>

#include <atomic>
#include <memory>

#include "ir/wire/zmq_channel.h"

namespace opwire {

// One frame being received.
class ZmqFrame {
 public:
  ZmqFrame() { zmq_msg_init(&message_); }
  ~ZmqFrame() { zmq_msg_close(&message_); }
  ZmqFrame(const ZmqFrame&) = delete;
  zmq_msg_t* get() { return &message_; }
  Bytes bytes() {
    return {static_cast<const uint8_t*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  bool more() { return zmq_msg_more(&message_) != 0; }
  void Clear() {
    zmq_msg_close(&message_);
    zmq_msg_init(&message_);
  }

 private:
  zmq_msg_t message_;
};

void SetZmq(void* socket, int option, int value);
void SetZmq(void* socket, int option, const Key& key);
int GetZmq(void* socket, int option);

// Events of a socket's connections, read from a PAIR inside the process.
class ZmqMonitor {
 public:
  ZmqMonitor(ZmqContext& context, void* socket, int events);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  // False when nothing is left.
  bool Next(int& event, int& value);
  int fd() const { return fd_; }

 private:
  void* pair_;
  int fd_;
};

// Bytes of large messages that ZeroMQ holds for one peer. Messages that are on their way share it.
using ZmqHeld = std::shared_ptr<std::atomic<int64_t>>;

// What a thread allocates and another frees makes both wait for one lock of the allocator, up to a
// fifth of the time of a busy executor. Buffers of one size go round instead: the socket's owner
// takes them, the I/O thread pushes them back.
class ZmqContext::Pool {
 public:
  Pool() = default;
  ~Pool();
  Pool(const Pool&) = delete;

  static constexpr size_t kBytes = 1000;  // of a buffer; larger messages have memory of their own
  // As zmq_send, without waiting. `held` (may be null) counts a larger one while it is on its way.
  int Send(void* socket, Bytes bytes, int flags, const ZmqHeld& held);

 private:
  struct Buffer;
  static void Release(void*, void* hint);

  Buffer* mine_ = nullptr;
  alignas(64) std::atomic<Buffer*> returned_{nullptr};
};

// A socket, and the memory of what it sends.
class ZmqSocket {
 public:
  ZmqSocket() = default;
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  bool Open(ZmqContext& context, int type);
  void* get() const { return socket_; }
  Status Send(Bytes bytes, int flags, const ZmqHeld& held = nullptr);

 private:
  void* socket_ = nullptr;
  ZmqContext* context_ = nullptr;
  ZmqContext::Pool* pool_ = nullptr;
};

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_ZMQ_SOCKET_H_
