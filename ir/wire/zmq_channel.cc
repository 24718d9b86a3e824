// ZeroMQ sockets with the channel interface.
#include "ir/wire/zmq_channel.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <deque>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "ir/wire/descriptors.h"
#include "ir/wire/endpoint.h"
#include "ir/wire/zmq_socket.h"

namespace opwire {
namespace {

void CommonOptions(void* socket) {
  SetZmq(socket, ZMQ_LINGER, 0);
  SetZmq(socket, ZMQ_HANDSHAKE_IVL, 2000);
  const int64_t max = kMaxFrameBytes;
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max, sizeof(max));
}

// What a client's socket, its monitor and, for the first one, ZeroMQ's threads take.
constexpr int kDescriptorsOfConnection = 16;
constexpr int64_t kMostHeld = 4 << 20;  // bytes of large messages, for one peer

// Parses ZeroMQ's address of a peer over ipc: ADDRESS:UID:GID:PID, as reported by the kernel when
// it connected.
uint32_t UidOf(std::string_view address) {
  const size_t pid = address.rfind(':'),
               gid = pid == 0 || pid == address.npos ? address.npos : address.rfind(':', pid - 1);
  const size_t uid = gid == 0 || gid == address.npos ? address.npos : address.rfind(':', gid - 1);
  uint32_t out = kNoUid;
  if (uid != address.npos) std::from_chars(address.data() + uid + 1, address.data() + gid, out);
  return out;
}

const char* WhyLost(int event, bool ipc) {
  switch (event) {
    case ZMQ_EVENT_DISCONNECTED:
      return "it was lost";
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      return "it does not take this key; its operator adds what `opwire keys` prints to "
             "--authorized";
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      if (ipc)
        return "it ended the handshake: it has all the connections that it takes, or is no process "
               "of Opwire";
      return "it ended the handshake; where it asks for keys, its address is tcp://KEY@HOST:PORT "
             "with the key that it logs";
    default:
      return "nobody answers there";
  }
}

}  // namespace

struct Router::State {
  struct Connection {
    Nanos since = 0;
    PeerId peer = kUnheard;
    bool sure = false;    // that it is the peer's, not that of an earlier connection
    bool to_end = false;  // end it once that is sure
    // Over tcp: the number of whole messages. At the last check: its time, the messages then, and
    // the bytes that may come until the next one.
    uint64_t messages = 0, messages_then = 0, bytes_then = 0;
    Nanos looked = 0;
  };
  // Earlier connections that had a descriptor.
  struct Past {
    PeerId last = kUnheard;   // their last peer that sent a message
    Nanos unheard_until = 0;  // when a silent one ended: its messages may still arrive
  };
  static constexpr PeerId kUnheard = UINT64_MAX;
  // Of an unfinished message. ZeroMQ keeps all of its frames; our messages have two, of 1 MiB.
  static constexpr uint64_t kMostUnfinished = 16 << 20;
  static constexpr uint64_t kIdleBytesASecond = 1024;  // heartbeats take less
  static constexpr Nanos kLookEvery = 100 * kMillisecond;
  // A connection that is to end does so after that time, even if by mistake: its client connects
  // again.
  static constexpr Nanos kMostUnsure = kSecond;
  // ZeroMQ numbers its peers in order.
  static bool Older(PeerId a, PeerId b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b)) < 0;
  }

  void ReadMonitor();
  // Handles a peer whose message came from another peer's connection, or from a new one.
  void Meet(PeerId peer, int descriptor);
  // Notes whether the connection that a message seems to come from is its peer's. Ends it if that
  // was pending.
  void MakeSure(int descriptor, Connection& c);
  // Ends connections over tcp whose message exceeds the limit.
  void EndUnfinished(Nanos now);

  ZmqSocket socket;
  std::string endpoint;
  ZmqOptions options;
  int fd = -1;
  std::unique_ptr<ZmqMonitor> monitor;
  ZmqFrame id, head, bulk;
  absl::flat_hash_map<int, Connection>
      connections;  // by descriptor; as of the last event of the monitor
  absl::flat_hash_map<int, Past>
      past;  // by descriptor; of those whose messages may still be unread
  std::deque<std::pair<Nanos, int>>
      unheard;  // when accepted, descriptor; some have sent messages or ended since
  absl::flat_hash_map<PeerId, ZmqHeld> held;  // of peers that were sent a large message
  std::vector<PeerId> gone;
  Nanos next_look = 0;
};

Router::Router() : s_(std::make_unique<State>()) {}

Router::~Router() {
  if (s_->socket.get()) zmq_socket_monitor(s_->socket.get(), nullptr, 0);
  s_->monitor.reset();
}

StatusOr<std::unique_ptr<Router>> Router::Bind(ZmqContext& context, const std::string& endpoint,
                                               const ZmqOptions& options) {
  if (IsIpc(endpoint)) OPWIRE_RETURN_IF_ERROR(ClearStaleSocket(endpoint));
  auto router = std::unique_ptr<Router>(new Router);
  State& s = *router->s_;
  if (!s.socket.Open(context, ZMQ_ROUTER))
    return ResourceExhausted("endpoint {}: {}", endpoint, zmq_strerror(errno));
  CommonOptions(s.socket.get());
  // Messages that a peer does not read are kept here. ZeroMQ learns of reads in steps of half of
  // this: a client with all its credit in flight never reaches the limit.
  SetZmq(s.socket.get(), ZMQ_SNDHWM, 1024);
  // libzmq fails an assertion, which ends the process, in one case: a heartbeat is due, or arrives,
  // on a lost connection whose messages waited for room in the queue. So only clients send
  // heartbeats, and the queue has room: servers drop clients that send too much.
  SetZmq(s.socket.get(), ZMQ_RCVHWM, 1'000'000);
  SetZmq(s.socket.get(), ZMQ_ROUTER_MANDATORY, 1);
  s.options = options;
  s.monitor = std::make_unique<ZmqMonitor>(
      context, s.socket.get(), ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED);
  if (options.own) {
    SetZmq(s.socket.get(), ZMQ_CURVE_SERVER, 1);
    SetZmq(s.socket.get(), ZMQ_CURVE_SECRETKEY, options.own->secret_key);
    zmq_setsockopt(s.socket.get(), ZMQ_ZAP_DOMAIN, "opwire", 6);
  }
  if (const uid_t own = getuid();
      options.own_user_only &&
      zmq_setsockopt(s.socket.get(), ZMQ_IPC_FILTER_UID, &own, sizeof own) != 0)
    return Unavailable("endpoint {}: no filter by users: {}", endpoint, zmq_strerror(errno));
  OPWIRE_ASSIGN_OR_RETURN(const ZmqAddress at, Resolve(endpoint));
  SetZmq(s.socket.get(), ZMQ_IPV6, at.ipv6 ? 1 : 0);
  if (zmq_bind(s.socket.get(), at.address.c_str()) != 0)
    return Unavailable("endpoint {}: {}", endpoint, zmq_strerror(errno));
  char bound[256];
  size_t size = sizeof(bound);
  zmq_getsockopt(s.socket.get(), ZMQ_LAST_ENDPOINT, bound, &size);
  s.endpoint = options.own ? WithKey(bound, options.own->public_key) : bound;
  s.fd = GetZmq(s.socket.get(), ZMQ_FD);
  return router;
}

Status Router::Send(PeerId to, Bytes head, Bytes bulk) {
  State& s = *s_;
  uint8_t id[5] = {0};
  for (int i = 0; i < 4; ++i) id[1 + i] = static_cast<uint8_t>(to >> (24 - 8 * i));
  ZmqHeld held;
  if (std::max(head.size(), bulk.size()) > ZmqContext::Pool::kBytes) {
    ZmqHeld& of_peer = s.held[to];
    if (!of_peer) of_peer = std::make_shared<std::atomic<int64_t>>(0);
    if (of_peer->load(std::memory_order_relaxed) > kMostHeld)
      return ResourceExhausted("the peer does not read its messages");
    held = of_peer;
  }
  // The identity decides: once it is accepted, the following frames are too.
  if (const Status known = s.socket.Send({id, 5}, ZMQ_SNDMORE); !known.ok()) {
    if (absl::IsUnavailable(known)) s.held.erase(to);
    return known;
  }
  OPWIRE_RETURN_IF_ERROR(s.socket.Send(head, bulk.empty() ? 0 : ZMQ_SNDMORE, held));
  return bulk.empty() ? absl::OkStatus() : s.socket.Send(bulk, 0, held);
}

bool Router::Receive(Incoming& m) {
  State& s = *s_;
  while (true) {
    if (zmq_msg_recv(s.id.get(), s.socket.get(), ZMQ_DONTWAIT) < 0) {
      s.past.clear();
      return false;
    }
    const Bytes id = s.id.bytes();
    // ZeroMQ's own names are five bytes that begin with 0. A peer that chose one could take another
    // peer's name.
    bool good = id.size() == 5 && id[0] == 0 && s.id.more();
    if (good) {
      m.peer = (PeerId{id[1]} << 24) | (PeerId{id[2]} << 16) | (PeerId{id[3]} << 8) | id[4];
      zmq_msg_recv(s.head.get(), s.socket.get(), ZMQ_DONTWAIT);
      s.bulk.Clear();
      if (s.head.more()) zmq_msg_recv(s.bulk.get(), s.socket.get(), ZMQ_DONTWAIT);
    }
    ZmqFrame* last = !good ? &s.id : s.head.more() ? &s.bulk : &s.head;
    while (last->more()) {
      good = false;
      zmq_msg_recv(last->get(), s.socket.get(), ZMQ_DONTWAIT);
    }
    if (!good) continue;
    const int descriptor = zmq_msg_get(s.head.get(), ZMQ_SRCFD);
    const auto connection = s.connections.find(descriptor);
    const bool fresh = connection == s.connections.end() || connection->second.peer != m.peer;
    if (fresh)
      s.Meet(m.peer, descriptor);
    else if (!connection->second.sure)
      s.MakeSure(descriptor, connection->second);
    if (!fresh) ++connection->second.messages;
    m.head = s.head.bytes();
    m.bulk = s.bulk.bytes();
    m.uid = kNoUid;
    m.key_name = {};
    m.role = Role::kUse;
    if (fresh) {
      if (const char* user = zmq_msg_gets(s.head.get(), "User-Id");
          user && *user >= '0' && *user <= '2') {
        m.role = static_cast<Role>(*user - '0');
        m.key_name = user + 1;
      }
      if (const char* address = zmq_msg_gets(s.head.get(), "Peer-Address");
          address && IsIpc(s.endpoint))
        m.uid = UidOf(address);
    }
    return true;
  }
}

void Router::State::ReadMonitor() {
  int event, descriptor;
  while (monitor->Next(event, descriptor)) {
    if (event == ZMQ_EVENT_ACCEPTED) {
      const Nanos now = MonotonicNow();
      connections[descriptor] = {now, kUnheard};
      // Beyond the descriptor limit ZeroMQ would accept in a busy loop. So connections over our
      // limit are rejected here.
      if (std::ssize(connections) > options.max_connections)
        shutdown(descriptor, SHUT_RDWR);
      else
        unheard.emplace_back(now, descriptor);
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
      const auto it = connections.find(descriptor);
      if (it == connections.end()) continue;
      Past& before = past[descriptor];
      if (it->second.peer == kUnheard) {
        before.unheard_until = MonotonicNow();
      } else {
        before.last = it->second.peer;
        gone.push_back(it->second.peer);
      }
      connections.erase(it);
    }
  }
}

void Router::State::Meet(PeerId peer, int descriptor) {
  // The monitor reports the end of a descriptor before it is used again, and the begin of its
  // connection before the first message. After all events are read, the connection of this
  // descriptor is the peer's, or a later one's. In the latter case the peer has disconnected, and
  // these are its remaining messages.
  ReadMonitor();
  const auto it = connections.find(descriptor);
  const auto before = past.find(descriptor);
  if (it == connections.end() || (it->second.peer != kUnheard && Older(peer, it->second.peer)) ||
      (before != past.end() && before->second.last != kUnheard &&
       !Older(before->second.last, peer))) {
    gone.push_back(peer);
    return;
  }
  if (it->second.peer != kUnheard) gone.push_back(it->second.peer);
  it->second = {it->second.since, peer};
  MakeSure(descriptor, it->second);
}

void Router::State::MakeSure(int descriptor, Connection& c) {
  const auto before = past.find(descriptor);
  c.sure = before == past.end() || before->second.unheard_until == 0 ||
           MonotonicNow() > before->second.unheard_until + kMostUnsure;
  if (c.sure && c.to_end) shutdown(descriptor, SHUT_RDWR);
}

void Router::State::EndUnfinished(Nanos now) {
  for (auto& [descriptor, c] : connections) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    const uint64_t bytes = info.tcpi_bytes_received, idle = static_cast<uint64_t>(now - c.looked) *
                                                            kIdleBytesASecond /
                                                            static_cast<uint64_t>(kSecond);
    c.bytes_then = c.messages == c.messages_then && c.looked != 0
                       ? std::min(bytes, c.bytes_then + idle)
                       : bytes;
    c.messages_then = c.messages;
    c.looked = now;
    if (bytes - c.bytes_then > kMostUnfinished) shutdown(descriptor, SHUT_RDWR);
  }
}

Nanos Router::LookAgain() const {
  return s_->connections.empty() || IsIpc(s_->endpoint) ? kNever : State::kLookEvery;
}

void Router::TakeGone(std::vector<PeerId>& gone) {
  State& s = *s_;
  s.ReadMonitor();
  if (const Nanos now = MonotonicNow(); now >= s.next_look && !IsIpc(s.endpoint)) {
    s.next_look = now + State::kLookEvery;
    s.EndUnfinished(now);
  }
  for (const Nanos late = MonotonicNow() - s.options.silence;
       !s.unheard.empty() && s.unheard.front().first < late; s.unheard.pop_front()) {
    const auto [since, descriptor] = s.unheard.front();
    const auto it = s.connections.find(descriptor);
    if (it != s.connections.end() && it->second.since == since &&
        it->second.peer == State::kUnheard)
      shutdown(descriptor, SHUT_RDWR);
  }
  gone = std::exchange(s.gone, {});
  for (PeerId peer : gone) s.held.erase(peer);
}

void Router::Drop(PeerId peer) {
  s_->ReadMonitor();
  for (auto& [descriptor, c] : s_->connections) {
    if (c.peer != peer) continue;
    c.to_end = true;
    if (c.sure) shutdown(descriptor, SHUT_RDWR);
  }
}

int Router::fd() const { return s_->fd; }
int Router::monitor_fd() const { return s_->monitor->fd(); }
const std::string& Router::endpoint() const { return s_->endpoint; }

struct Dealer::State {
  ZmqSocket socket;
  std::unique_ptr<ZmqMonitor> monitor;
  std::string endpoint;
  std::string lost;  // why; empty: it is not
  int fd = -1;
  int monitor_fd = -1;
  ZmqFrame frame;
};

Dealer::Dealer() : s_(std::make_unique<State>()) {}

Dealer::~Dealer() {
  if (s_->socket.get()) zmq_socket_monitor(s_->socket.get(), nullptr, 0);
  s_->monitor.reset();
}

StatusOr<std::unique_ptr<Dealer>> Dealer::Connect(ZmqContext& context, const std::string& endpoint,
                                                  const ZmqOptions& options) {
  auto dealer = std::unique_ptr<Dealer>(new Dealer);
  State& s = *dealer->s_;
  OPWIRE_ASSIGN_OR_RETURN(const KeyedAddress to, SplitKey(endpoint));
  OPWIRE_RETURN_IF_ERROR(CheckFreeDescriptors(kDescriptorsOfConnection));
  s.endpoint = to.address;
  if (!s.socket.Open(context, ZMQ_DEALER))
    return ResourceExhausted("endpoint {}: {}", endpoint, zmq_strerror(errno));
  CommonOptions(s.socket.get());
  SetZmq(s.socket.get(), ZMQ_SNDHWM, 300);  // a little more than the credit
  SetZmq(s.socket.get(), ZMQ_RCVHWM, 0);    // as for Router::Bind; the credit bounds it
  SetZmq(s.socket.get(), ZMQ_HEARTBEAT_IVL, static_cast<int>(options.heartbeat / kMillisecond));
  SetZmq(s.socket.get(), ZMQ_HEARTBEAT_TIMEOUT,
         static_cast<int>(options.heartbeat_timeout / kMillisecond));
  SetZmq(s.socket.get(), ZMQ_HEARTBEAT_TTL, static_cast<int>(options.heartbeat_ttl / kMillisecond));
  SetZmq(s.socket.get(), ZMQ_RECONNECT_IVL, -1);
  SetZmq(s.socket.get(), ZMQ_CONNECT_TIMEOUT, 2000);
  s.monitor = std::make_unique<ZmqMonitor>(
      context, s.socket.get(),
      ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_CONNECT_RETRIED |
          ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
          ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
  if (to.keyed) {
    auto own = ReadKeyPair(OwnKeyPath());
    if (absl::IsNotFound(own.status()))
      return FailedPrecondition("{} asks for a key, and there is none at {}; make one: opwire keys",
                                to.address, OwnKeyPath());
    if (!own.ok()) return own.status();
    SetZmq(s.socket.get(), ZMQ_CURVE_SERVERKEY, to.key);
    SetZmq(s.socket.get(), ZMQ_CURVE_PUBLICKEY, own->public_key);
    SetZmq(s.socket.get(), ZMQ_CURVE_SECRETKEY, own->secret_key);
  }
  OPWIRE_ASSIGN_OR_RETURN(const ZmqAddress at, Resolve(to.address));
  SetZmq(s.socket.get(), ZMQ_IPV6, at.ipv6 ? 1 : 0);
  if (zmq_connect(s.socket.get(), at.address.c_str()) != 0)
    return Unavailable("endpoint {}: {}", endpoint, zmq_strerror(errno));
  s.fd = GetZmq(s.socket.get(), ZMQ_FD);
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
      // Messages that arrived before the loss are delivered by the next iteration.
      s.lost =
          fmt::format("no connection to {}: {}", s.endpoint, WhyLost(event, IsIpc(s.endpoint)));
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
