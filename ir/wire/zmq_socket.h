// libzmq's sockets as objects: frames, a socket with the memory of what it sends, the events of its connections. For zmq_*.cc, the only
// files that call libzmq.
#ifndef OPWIRE_IR_WIRE_ZMQ_SOCKET_H_
#define OPWIRE_IR_WIRE_ZMQ_SOCKET_H_

#include <zmq.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "ir/wire/zmq_channel.h"

namespace opwire {

// One frame being received.
class ZmqFrame {
 public:
  ZmqFrame() { zmq_msg_init(&message_); }
  ~ZmqFrame() { zmq_msg_close(&message_); }
  ZmqFrame(const ZmqFrame&) = delete;
  zmq_msg_t* get() { return &message_; }
  Bytes bytes() { return {static_cast<const uint8_t*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)}; }
  bool more() { return zmq_msg_more(&message_) != 0; }
  void Clear() {
    zmq_msg_close(&message_);
    zmq_msg_init(&message_);
  }

 private:
  zmq_msg_t message_;
};

inline void SetZmq(void* socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof(value)); }

inline int GetZmq(void* socket, int option) {
  int value = 0;
  size_t size = sizeof(value);
  zmq_getsockopt(socket, option, &value, &size);
  return value;
}

inline void SetZmq(void* socket, int option, const Key& key) { zmq_setsockopt(socket, option, key.data(), key.size()); }

// Events of a socket's connections, read from a PAIR inside the process.
class ZmqMonitor {
 public:
  ZmqMonitor(ZmqContext& context, void* socket, int events) {
    static std::atomic<uint64_t> next{0};
    const std::string address = "inproc://monitor-" + std::to_string(next++);
    zmq_socket_monitor(socket, address.c_str(), events);
    pair_ = zmq_socket(context.get(), ZMQ_PAIR);
    SetZmq(pair_, ZMQ_LINGER, 0);
    zmq_connect(pair_, address.c_str());
    fd_ = GetZmq(pair_, ZMQ_FD);
    // A reader counts as awake until it found nothing once; only then does a writer signal the descriptor.
    int event, value;
    Next(event, value);
  }
  ~ZmqMonitor() { zmq_close(pair_); }

  bool Next(int& event, int& value) {
    ZmqFrame frame;
    if (zmq_msg_recv(frame.get(), pair_, ZMQ_DONTWAIT) < 0) return false;
    const Bytes b = frame.bytes();
    uint16_t e = 0;
    int32_t v = 0;
    if (b.size() >= 6) {
      std::memcpy(&e, b.data(), 2);
      std::memcpy(&v, b.data() + 2, 4);
    }
    event = e;
    value = v;
    while (frame.more()) zmq_msg_recv(frame.get(), pair_, 0);  // the address
    return true;
  }
  int fd() const { return fd_; }

 private:
  void* pair_;
  int fd_;
};

// What a thread allocates and another frees makes both wait for one lock of the allocator, up to a fifth of the time of a busy executor.
// Buffers of one size go round instead: the socket's owner takes them, the I/O thread pushes them back.
class ZmqContext::Pool {
 public:
  ~Pool() {
    for (Buffer* list : {mine_, returned_.load()}) {
      while (list) delete std::exchange(list, list->next);
    }
  }

  // As zmq_send, without waiting.
  int Send(void* socket, Bytes bytes, int flags) {
    if (bytes.size() <= kInMessage || bytes.size() > kBytes) return zmq_send(socket, bytes.data(), bytes.size(), flags | ZMQ_DONTWAIT);
    if (!mine_) mine_ = returned_.exchange(nullptr, std::memory_order_acquire);
    Buffer* b = mine_ ? std::exchange(mine_, mine_->next) : new Buffer(this);
    std::memcpy(b->bytes, bytes.data(), bytes.size());
    zmq_msg_t message;
    if (zmq_msg_init_data(&message, b->bytes, bytes.size(), &Release, b) != 0) {
      Release(nullptr, b);
      return -1;
    }
    const int sent = zmq_msg_send(&message, socket, flags | ZMQ_DONTWAIT);
    if (sent < 0) {
      const int error = errno;
      zmq_msg_close(&message);
      errno = error;
    }
    return sent;
  }

 private:
  static constexpr size_t kInMessage = 33;  // ZeroMQ keeps so many bytes in the message itself
  static constexpr size_t kBytes = 1000;
  struct Buffer {
    explicit Buffer(Pool* p) : pool(p) {}
    Pool* const pool;
    Buffer* next = nullptr;
    uint8_t bytes[kBytes];
  };
  static void Release(void*, void* hint) {
    auto* b = static_cast<Buffer*>(hint);
    b->next = b->pool->returned_.load(std::memory_order_relaxed);
    while (!b->pool->returned_.compare_exchange_weak(b->next, b, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  Buffer* mine_ = nullptr;
  alignas(64) std::atomic<Buffer*> returned_{nullptr};
};

// A socket, and the memory of what it sends.
class ZmqSocket {
 public:
  ZmqSocket() = default;
  ~ZmqSocket() {
    if (!socket_) return;
    zmq_close(socket_);
    context_->ReturnPool(pool_);
  }
  ZmqSocket(const ZmqSocket&) = delete;
  bool Open(ZmqContext& context, int type) {
    socket_ = zmq_socket(context.get(), type);
    if (!socket_) return false;
    context_ = &context;
    pool_ = context.TakePool();
    return true;
  }
  void* get() const { return socket_; }
  Status Send(Bytes bytes, int flags) {
    if (pool_->Send(socket_, bytes, flags) >= 0) return absl::OkStatus();
    if (errno == EAGAIN) return ResourceExhausted("the peer does not read its messages");
    return Unavailable("the connection is gone: {}", zmq_strerror(errno));
  }

 private:
  void* socket_ = nullptr;
  ZmqContext* context_ = nullptr;
  ZmqContext::Pool* pool_ = nullptr;
};

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_ZMQ_SOCKET_H_
