// Classes for libzmq's sockets.
#include "ir/wire/zmq_socket.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "ir/base/handover.h"

namespace opwire {

void SetZmq(void* socket, int option, int value) {
  zmq_setsockopt(socket, option, &value, sizeof(value));
}

void SetZmq(void* socket, int option, const Key& key) {
  zmq_setsockopt(socket, option, key.data(), key.size());
}

int GetZmq(void* socket, int option) {
  int value = 0;
  size_t size = sizeof(value);
  zmq_getsockopt(socket, option, &value, &size);
  return value;
}

// ---- Monitor
// -------------------------------------------------------------------------------------------------

ZmqMonitor::ZmqMonitor(ZmqContext& context, void* socket, int events) {
  static std::atomic<uint64_t> next{0};
  const std::string address = "inproc://monitor-" + std::to_string(next++);
  zmq_socket_monitor(socket, address.c_str(), events);
  pair_ = zmq_socket(context.get(), ZMQ_PAIR);
  SetZmq(pair_, ZMQ_LINGER, 0);
  zmq_connect(pair_, address.c_str());
  fd_ = GetZmq(pair_, ZMQ_FD);
  // A reader counts as awake until a read found no event. Only then does a writer signal the
  // descriptor.
  int event, value;
  Next(event, value);
}

ZmqMonitor::~ZmqMonitor() { zmq_close(pair_); }

bool ZmqMonitor::Next(int& event, int& value) {
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

// ---- Memory of messages
// -------------------------------------------------------------------------------------------------

struct ZmqContext::Pool::Buffer {
  explicit Buffer(Pool* p) : pool(p) {}
  Pool* const pool;
  Buffer* next = nullptr;
  uint8_t bytes[kBytes];
};

namespace {

constexpr size_t kInMessage = 33;  // ZeroMQ stores that many bytes in the message itself

struct Large {
  ZmqHeld held;
  int64_t size;
  std::unique_ptr<uint8_t[]> bytes;
};

void ReleaseLarge(void*, void* hint) {
  TakeOver(hint);
  const std::unique_ptr<Large> large(static_cast<Large*>(hint));
  if (large->held) large->held->fetch_sub(large->size, std::memory_order_relaxed);
}

// Takes ownership of the object of `hint`, also if sending fails.
int SendOwned(void* socket, void* bytes, size_t size, zmq_free_fn* release, void* hint, int flags) {
  zmq_msg_t message;
  HandOver(hint);
  if (zmq_msg_init_data(&message, bytes, size, release, hint) != 0) {
    release(nullptr, hint);
    errno = ENOMEM;
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

}  // namespace

ZmqContext::Pool::~Pool() {
  for (Buffer* list : {mine_, returned_.load()}) {
    while (list) delete std::exchange(list, list->next);
  }
}

void ZmqContext::Pool::Release(void*, void* hint) {
  TakeOver(hint);
  auto* b = static_cast<Buffer*>(hint);
  b->next = b->pool->returned_.load(std::memory_order_relaxed);
  while (!b->pool->returned_.compare_exchange_weak(b->next, b, std::memory_order_release,
                                                   std::memory_order_relaxed)) {
  }
}

int ZmqContext::Pool::Send(void* socket, Bytes bytes, int flags, const ZmqHeld& held) {
  if (bytes.size() <= kInMessage)
    return zmq_send(socket, bytes.data(), bytes.size(), flags | ZMQ_DONTWAIT);
  if (bytes.size() > kBytes) {
    std::unique_ptr<Large> large(
        new Large{held, static_cast<int64_t>(bytes.size()),
                  std::make_unique_for_overwrite<uint8_t[]>(bytes.size())});
    std::memcpy(large->bytes.get(), bytes.data(), bytes.size());
    if (held) held->fetch_add(large->size, std::memory_order_relaxed);
    uint8_t* const copy = large->bytes.get();
    return SendOwned(socket, copy, bytes.size(), &ReleaseLarge, large.release(), flags);
  }
  if (!mine_) mine_ = returned_.exchange(nullptr, std::memory_order_acquire);
  Buffer* b = mine_ ? std::exchange(mine_, mine_->next) : new Buffer(this);
  std::memcpy(b->bytes, bytes.data(), bytes.size());
  return SendOwned(socket, b->bytes, bytes.size(), &Release, b, flags);
}

// ---- Socket
// -------------------------------------------------------------------------------------------------

ZmqSocket::~ZmqSocket() {
  if (!socket_) return;
  zmq_close(socket_);
  context_->ReturnPool(pool_);
}

bool ZmqSocket::Open(ZmqContext& context, int type) {
  socket_ = zmq_socket(context.get(), type);
  if (!socket_) return false;
  context_ = &context;
  pool_ = context.TakePool();
  return true;
}

Status ZmqSocket::Send(Bytes bytes, int flags, const ZmqHeld& held) {
  if (pool_->Send(socket_, bytes, flags, held) >= 0) return absl::OkStatus();
  if (errno == EAGAIN) return ResourceExhausted("the peer does not read its messages");
  return Unavailable("the connection is gone: {}", zmq_strerror(errno));
}

}  // namespace opwire
