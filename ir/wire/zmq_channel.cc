// ZeroMQ sockets behind the channel interface. This is the only file that calls libzmq.
#include "ir/wire/zmq_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "ir/wire/endpoint.h"
#include "ir/wire/log.h"

namespace opwire {
namespace {

// One frame being received.
class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  ~Frame() { zmq_msg_close(&message_); }
  Frame(const Frame&) = delete;
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

void SetInt(void* socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof(value)); }

int GetInt(void* socket, int option) {
  int value = 0;
  size_t size = sizeof(value);
  zmq_getsockopt(socket, option, &value, &size);
  return value;
}

void CommonOptions(void* socket, const ZmqOptions& options) {
  SetInt(socket, ZMQ_LINGER, 0);
  SetInt(socket, ZMQ_SNDHWM, 1000);
  SetInt(socket, ZMQ_RCVHWM, 1000);
  SetInt(socket, ZMQ_HEARTBEAT_IVL, static_cast<int>(options.heartbeat / kMillisecond));
  SetInt(socket, ZMQ_HEARTBEAT_TIMEOUT, static_cast<int>(options.heartbeat_timeout / kMillisecond));
  SetInt(socket, ZMQ_HEARTBEAT_TTL, static_cast<int>(options.heartbeat_timeout / kMillisecond));
  SetInt(socket, ZMQ_HANDSHAKE_IVL, 2000);
  const int64_t max = kMaxFrameBytes;
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max, sizeof(max));
}

// Events of a socket's connections, read from a PAIR inside the process.
class Monitor {
 public:
  Monitor(ZmqContext& context, void* socket, int events) {
    static std::atomic<uint64_t> next{0};
    const std::string address = "inproc://monitor-" + std::to_string(next++);
    zmq_socket_monitor(socket, address.c_str(), events);
    pair_ = zmq_socket(context.get(), ZMQ_PAIR);
    SetInt(pair_, ZMQ_LINGER, 0);
    zmq_connect(pair_, address.c_str());
    fd_ = GetInt(pair_, ZMQ_FD);
    // A reader counts as awake until it found nothing once; only then does a writer signal the descriptor.
    int event, value;
    Next(event, value);
  }
  ~Monitor() { zmq_close(pair_); }

  bool Next(int& event, int& value) {
    Frame frame;
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

// What messages of a peer with this key carry: its role's digit and its name; empty: it may not come.
std::string UserOf(const Key& key, const Key& own, const std::string& authorized_keys) {
  if (key == own) return fmt::format("{}self", static_cast<int>(Role::kAdmin));
  if (authorized_keys.empty()) return "";
  const auto known = ReadAuthorizedKeys(authorized_keys);
  if (!known.ok()) {
    Log(LogLevel::kError, "no peer is let in", {{"why", MessageOf(known.status())}});
    return "";
  }
  for (const AuthorizedKey& k : *known) {
    if (k.key == key) return fmt::format("{}{}", static_cast<int>(k.role), k.name);
  }
  Log(LogLevel::kWarning, "a peer with an unknown key was turned away", {{"key", KeyToHex(key)}});
  return "";
}

const char* WhyLost(int event) {
  switch (event) {
    case ZMQ_EVENT_DISCONNECTED: return "it was lost";
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: return "it does not take this key; its operator adds what `opwire keys` prints to --authorized";
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      return "it ended the handshake; where it asks for keys, its address is tcp://KEY@HOST:PORT with the key that it logs";
    default: return "nobody answers there";
  }
}

void SetKey(void* socket, int option, const Key& key) { zmq_setsockopt(socket, option, key.data(), key.size()); }

}  // namespace

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

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) { zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, 4096); }
ZmqContext::~ZmqContext() {
  zmq_ctx_shutdown(context_);  // the gatekeeper's receive ends with it
  if (gatekeeper_.joinable()) gatekeeper_.join();
  zmq_ctx_term(context_);
}

StatusOr<ZmqOptions> ZmqContext::Guard(const std::string& endpoint, bool insecure, const std::string& authorized_keys) {
  ZmqOptions options;
  if (IsIpc(endpoint) || insecure) return options;
  const auto own = ReadKeyPair(OwnKeyPath());
  if (absl::IsNotFound(own.status())) {
    return FailedPrecondition("endpoint {}: tcp serves those with keys, and this user has none at {}; make one with `opwire keys` and name those that "
                              "may come with --authorized FILE, or serve everybody who can reach it with --insecure",
                              endpoint, OwnKeyPath());
  }
  if (!own.ok()) return own.status();
  if (!authorized_keys.empty()) OPWIRE_RETURN_IF_ERROR(ReadAuthorizedKeys(authorized_keys).status());
  OPWIRE_RETURN_IF_ERROR(Authorize(own->public_key, authorized_keys));
  options.secure = true;
  return options;
}

// ZeroMQ asks on this address before it lets a peer in (its RFC 27, ZAP).
Status ZmqContext::Authorize(const Key& own, std::string authorized_keys) {
  void* socket = zmq_socket(context_, ZMQ_REP);
  if (!socket) return ResourceExhausted("no socket for the gatekeeper: {}", zmq_strerror(errno));
  SetInt(socket, ZMQ_LINGER, 0);
  if (zmq_bind(socket, "inproc://zeromq.zap.01") != 0) {
    const int error = errno;
    zmq_close(socket);
    return Unavailable("the gatekeeper cannot listen: {}", zmq_strerror(error));
  }
  gatekeeper_ = std::thread([socket, own, path = std::move(authorized_keys)] {
    while (true) {
      // version, request, domain, address, identity, mechanism, credentials
      std::vector<std::string> frames;
      Frame frame;
      bool more = true;
      for (; more; more = frame.more()) {
        if (zmq_msg_recv(frame.get(), socket, 0) < 0) break;
        frames.emplace_back(reinterpret_cast<const char*>(frame.bytes().data()), frame.bytes().size());
      }
      if (more) break;
      std::string user;
      if (frames.size() == 7 && frames[5] == "CURVE" && frames[6].size() == sizeof(Key)) {
        Key key;
        std::memcpy(key.data(), frames[6].data(), key.size());
        user = UserOf(key, own, path);
      }
      frames.resize(2);
      const std::string answer[] = {"1.0", frames[1], user.empty() ? "400" : "200", user.empty() ? "unknown key" : "", user, ""};
      for (size_t i = 0; i < std::size(answer); ++i) {
        zmq_send(socket, answer[i].data(), answer[i].size(), i + 1 < std::size(answer) ? ZMQ_SNDMORE : 0);
      }
    }
    zmq_close(socket);
  });
  return absl::OkStatus();
}

ZmqContext::Pool* ZmqContext::TakePool() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) {
    pools_.push_back(std::make_unique<Pool>());
    return pools_.back().get();
  }
  Pool* pool = idle_.back();
  idle_.pop_back();
  return pool;
}

void ZmqContext::ReturnPool(Pool* pool) {
  std::lock_guard lock(mutex_);
  idle_.push_back(pool);
}

namespace {

// A socket, and the memory of what it sends.
class Socket {
 public:
  Socket() = default;
  ~Socket() {
    if (!socket_) return;
    zmq_close(socket_);
    context_->ReturnPool(pool_);
  }
  Socket(const Socket&) = delete;
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

}  // namespace

struct Router::State {
  Socket socket;
  std::string endpoint;
  int max_connections = 0;
  int connections = 0;
  int fd = -1;
  std::unique_ptr<Monitor> monitor;
  Frame id, head, bulk;
  std::unordered_map<int, PeerId> peer_of_descriptor;
  std::unordered_map<int, int> stale;  // ends still to come from the monitor that were noticed already
  std::vector<PeerId> gone;
};

Router::Router() : s_(std::make_unique<State>()) {}

Router::~Router() {
  if (s_->socket.get()) zmq_socket_monitor(s_->socket.get(), nullptr, 0);
  s_->monitor.reset();
}

StatusOr<std::unique_ptr<Router>> Router::Bind(ZmqContext& context, const std::string& endpoint, const ZmqOptions& options) {
  if (IsIpc(endpoint)) OPWIRE_RETURN_IF_ERROR(ClearStaleSocket(endpoint));
  auto router = std::unique_ptr<Router>(new Router);
  State& s = *router->s_;
  if (!s.socket.Open(context, ZMQ_ROUTER)) return ResourceExhausted("endpoint {}: {}", endpoint, zmq_strerror(errno));
  CommonOptions(s.socket.get(), options);
  SetInt(s.socket.get(), ZMQ_ROUTER_MANDATORY, 1);
  s.max_connections = options.max_connections;
  s.monitor = std::make_unique<Monitor>(context, s.socket.get(), ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED);
  KeyPair own;
  if (options.secure) {
    OPWIRE_ASSIGN_OR_RETURN(own, ReadKeyPair(OwnKeyPath()));
    SetInt(s.socket.get(), ZMQ_CURVE_SERVER, 1);
    SetKey(s.socket.get(), ZMQ_CURVE_SECRETKEY, own.secret_key);
    zmq_setsockopt(s.socket.get(), ZMQ_ZAP_DOMAIN, "opwire", 6);
  }
  if (zmq_bind(s.socket.get(), endpoint.c_str()) != 0) return Unavailable("endpoint {}: {}", endpoint, zmq_strerror(errno));
  char bound[256];
  size_t size = sizeof(bound);
  zmq_getsockopt(s.socket.get(), ZMQ_LAST_ENDPOINT, bound, &size);
  s.endpoint = options.secure ? WithKey(bound, own.public_key) : bound;
  s.fd = GetInt(s.socket.get(), ZMQ_FD);
  return router;
}

Status Router::Send(PeerId to, Bytes head, Bytes bulk) {
  uint8_t id[5] = {0};
  for (int i = 0; i < 4; ++i) id[1 + i] = static_cast<uint8_t>(to >> (24 - 8 * i));
  // The identity decides; once it is accepted the frames that follow are too.
  OPWIRE_RETURN_IF_ERROR(s_->socket.Send({id, 5}, ZMQ_SNDMORE));
  OPWIRE_RETURN_IF_ERROR(s_->socket.Send(head, bulk.empty() ? 0 : ZMQ_SNDMORE));
  return bulk.empty() ? absl::OkStatus() : s_->socket.Send(bulk, 0);
}

bool Router::Receive(Incoming& m) {
  State& s = *s_;
  while (true) {
    if (zmq_msg_recv(s.id.get(), s.socket.get(), ZMQ_DONTWAIT) < 0) return false;
    const Bytes id = s.id.bytes();
    // ZeroMQ's own names are five bytes that begin with 0; a peer that chose one could take another's.
    bool good = id.size() == 5 && id[0] == 0 && s.id.more();
    if (good) {
      m.peer = (PeerId{id[1]} << 24) | (PeerId{id[2]} << 16) | (PeerId{id[3]} << 8) | id[4];
      zmq_msg_recv(s.head.get(), s.socket.get(), ZMQ_DONTWAIT);
      s.bulk.Clear();
      if (s.head.more()) zmq_msg_recv(s.bulk.get(), s.socket.get(), ZMQ_DONTWAIT);
    }
    Frame* last = !good ? &s.id : s.head.more() ? &s.bulk : &s.head;
    while (last->more()) {
      good = false;
      zmq_msg_recv(last->get(), s.socket.get(), ZMQ_DONTWAIT);
    }
    if (!good) continue;
    const int descriptor = zmq_msg_get(s.head.get(), ZMQ_SRCFD);
    auto [it, added] = s.peer_of_descriptor.try_emplace(descriptor, m.peer);
    const bool fresh = added || it->second != m.peer;
    if (!added && fresh) {
      // The descriptor was closed and used anew before its end was read from the monitor: that event is then an old one.
      s.gone.push_back(it->second);
      ++s.stale[descriptor];
    }
    it->second = m.peer;
    m.head = s.head.bytes();
    m.bulk = s.bulk.bytes();
    m.uid = kNoUid;
    m.key_name = {};
    m.role = Role::kUse;
    if (fresh) {
      if (const char* user = zmq_msg_gets(s.head.get(), "User-Id"); user && *user >= '0' && *user <= '2') {
        m.role = static_cast<Role>(*user - '0');
        m.key_name = user + 1;
      }
      ucred credentials{};
      socklen_t size = sizeof(credentials);
      if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && credentials.pid != 0) m.uid = credentials.uid;
    }
    return true;
  }
}

void Router::TakeGone(std::vector<PeerId>& gone) {
  State& s = *s_;
  gone = std::exchange(s.gone, {});
  int event, descriptor;
  while (s.monitor->Next(event, descriptor)) {
    if (event == ZMQ_EVENT_ACCEPTED) {
      // Beyond the descriptor limit ZeroMQ would accept in a busy loop: those over ours are turned away here.
      if (++s.connections > s.max_connections) shutdown(descriptor, SHUT_RDWR);
      continue;
    }
    if (event != ZMQ_EVENT_DISCONNECTED) continue;
    --s.connections;
    if (const auto old = s.stale.find(descriptor); old != s.stale.end()) {
      if (--old->second == 0) s.stale.erase(old);
      continue;
    }
    const auto it = s.peer_of_descriptor.find(descriptor);
    if (it == s.peer_of_descriptor.end()) continue;
    gone.push_back(it->second);
    s.peer_of_descriptor.erase(it);
  }
}

int Router::fd() const { return s_->fd; }
int Router::monitor_fd() const { return s_->monitor->fd(); }
const std::string& Router::endpoint() const { return s_->endpoint; }

struct Dealer::State {
  Socket socket;
  std::unique_ptr<Monitor> monitor;
  std::string endpoint;
  std::string lost;  // why; empty: it is not
  int fd = -1;
  int monitor_fd = -1;
  Frame frame;
};

Dealer::Dealer() : s_(std::make_unique<State>()) {}

Dealer::~Dealer() {
  if (s_->socket.get()) zmq_socket_monitor(s_->socket.get(), nullptr, 0);
  s_->monitor.reset();
}

StatusOr<std::unique_ptr<Dealer>> Dealer::Connect(ZmqContext& context, const std::string& endpoint, const ZmqOptions& options) {
  auto dealer = std::unique_ptr<Dealer>(new Dealer);
  State& s = *dealer->s_;
  OPWIRE_ASSIGN_OR_RETURN(const KeyedAddress to, SplitKey(endpoint));
  s.endpoint = to.address;
  if (!s.socket.Open(context, ZMQ_DEALER)) return ResourceExhausted("endpoint {}: {}", endpoint, zmq_strerror(errno));
  CommonOptions(s.socket.get(), options);
  SetInt(s.socket.get(), ZMQ_RECONNECT_IVL, -1);
  SetInt(s.socket.get(), ZMQ_CONNECT_TIMEOUT, 2000);
  s.monitor = std::make_unique<Monitor>(
      context, s.socket.get(),
      ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
  if (to.keyed) {
    auto own = ReadKeyPair(OwnKeyPath());
    if (absl::IsNotFound(own.status())) return FailedPrecondition("{} asks for a key, and there is none at {}; make one: opwire keys", to.address, OwnKeyPath());
    if (!own.ok()) return own.status();
    SetKey(s.socket.get(), ZMQ_CURVE_SERVERKEY, to.key);
    SetKey(s.socket.get(), ZMQ_CURVE_PUBLICKEY, own->public_key);
    SetKey(s.socket.get(), ZMQ_CURVE_SECRETKEY, own->secret_key);
  }
  if (zmq_connect(s.socket.get(), to.address.c_str()) != 0) return Unavailable("endpoint {}: {}", endpoint, zmq_strerror(errno));
  s.fd = GetInt(s.socket.get(), ZMQ_FD);
  s.monitor_fd = s.monitor->fd();
  return dealer;
}

Status Dealer::Send(Bytes head, Bytes bulk) {
  if (!s_->lost.empty()) return Unavailable("{}", s_->lost);
  OPWIRE_RETURN_IF_ERROR(s_->socket.Send(head, bulk.empty() ? 0 : ZMQ_SNDMORE));
  return bulk.empty() ? absl::OkStatus() : s_->socket.Send(bulk, 0);
}

StatusOr<bool> Dealer::Receive(Message& m, Nanos timeout) {
  State& s = *s_;
  Nanos deadline = timeout == kNever ? kNever : 0;
  while (true) {
    if (zmq_msg_recv(s.frame.get(), s.socket.get(), ZMQ_DONTWAIT) >= 0) {
      const Bytes head = s.frame.bytes();
      m.head.assign(reinterpret_cast<const char*>(head.data()), head.size());
      m.bulk.clear();
      for (int frames = 1; s.frame.more(); ++frames) {
        zmq_msg_recv(s.frame.get(), s.socket.get(), 0);
        const Bytes bulk = s.frame.bytes();
        if (frames == 1) m.bulk.assign(reinterpret_cast<const char*>(bulk.data()), bulk.size());
      }
      return true;
    }
    if (!s.lost.empty()) return Unavailable("{}", s.lost);
    Nanos left = timeout;
    if (timeout != kNever && timeout != 0) {
      const Nanos now = MonotonicNow();
      if (deadline == 0) deadline = now + timeout;
      left = std::max<Nanos>(deadline - now, 0);
    }
    const int fds[] = {s.fd, s.monitor_fd};
    const uint64_t ready = PollReadable(fds, left);
    int event, value;
    if ((ready & 2) && s.monitor->Next(event, value)) {
      // What arrived before the loss is still delivered by the next turn.
      s.lost = fmt::format("no connection to {}: {}", s.endpoint, WhyLost(event));
      continue;
    }
    if (ready == 0 && left == 0) return false;
  }
}

int Dealer::fd() const { return s_->fd; }

uint64_t PollReadable(std::span<const int> fds, Nanos timeout) {
  pollfd polled[8 + 1];
  std::vector<pollfd> many;
  pollfd* p = polled;
  if (fds.size() > 8) {
    many.resize(fds.size());
    p = many.data();
  }
  for (size_t i = 0; i < fds.size(); ++i) p[i] = {fds[i], POLLIN, 0};
  timespec ts{timeout / kSecond, timeout % kSecond};
  if (ppoll(p, fds.size(), timeout == kNever ? nullptr : &ts, nullptr) <= 0) return 0;
  uint64_t ready = 0;
  for (size_t i = 0; i < fds.size() && i < 64; ++i) ready |= p[i].revents ? uint64_t{1} << i : 0;
  return ready;
}

}  // namespace opwire
