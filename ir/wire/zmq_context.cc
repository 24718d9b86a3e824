// A ZeroMQ context: the memory of its messages, and the gatekeeper that admits peers with keys.
#include <cstring>

#include "ir/wire/endpoint.h"
#include "ir/wire/log.h"
#include "ir/wire/zmq_socket.h"

namespace opwire {
namespace {

// Returns the user of messages from a peer with this key: its role's digit and its name. Empty: it
// is not admitted.
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

}  // namespace

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) { zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, 4096); }

ZmqContext::~ZmqContext() {
  zmq_ctx_shutdown(context_);  // the gatekeeper's receive ends with it
  if (gatekeeper_.joinable()) gatekeeper_.join();
  zmq_ctx_term(context_);
}

StatusOr<ZmqOptions> ZmqContext::Guard(const std::string& endpoint, bool insecure,
                                       const std::string& authorized_keys) {
  ZmqOptions options;
  if (IsIpc(endpoint) || insecure) return options;
  const auto own = ReadKeyPair(OwnKeyPath());
  if (absl::IsNotFound(own.status())) {
    return FailedPrecondition(
        "endpoint {}: tcp serves those with keys, and this user has none at {}; make one with "
        "`opwire keys` and name those that "
        "may come with --authorized FILE, or serve everybody who can reach it with --insecure",
        endpoint, OwnKeyPath());
  }
  if (!own.ok()) return own.status();
  if (!authorized_keys.empty())
    OPWIRE_RETURN_IF_ERROR(ReadAuthorizedKeys(authorized_keys).status());
  OPWIRE_RETURN_IF_ERROR(Authorize(own->public_key, authorized_keys));
  options.own = *own;
  return options;
}

// ZeroMQ sends a request to this address before it admits a peer (its RFC 27, ZAP).
Status ZmqContext::Authorize(const Key& own, std::string authorized_keys) {
  void* socket = zmq_socket(context_, ZMQ_REP);
  if (!socket) return ResourceExhausted("no socket for the gatekeeper: {}", zmq_strerror(errno));
  SetZmq(socket, ZMQ_LINGER, 0);
  if (zmq_bind(socket, "inproc://zeromq.zap.01") != 0) {
    const int error = errno;
    zmq_close(socket);
    return Unavailable("the gatekeeper cannot listen: {}", zmq_strerror(error));
  }
  gatekeeper_ = std::thread([socket, own, path = std::move(authorized_keys)] {
    while (true) {
      // version, request, domain, address, identity, mechanism, credentials
      std::vector<std::string> frames;
      ZmqFrame frame;
      bool more = true;
      for (; more; more = frame.more()) {
        if (zmq_msg_recv(frame.get(), socket, 0) < 0) break;
        frames.emplace_back(reinterpret_cast<const char*>(frame.bytes().data()),
                            frame.bytes().size());
      }
      if (more) break;
      std::string user;
      if (frames.size() == 7 && frames[5] == "CURVE" && frames[6].size() == sizeof(Key)) {
        Key key;
        std::memcpy(key.data(), frames[6].data(), key.size());
        user = UserOf(key, own, path);
      }
      frames.resize(2);
      const std::string answer[] = {
          "1.0", frames[1], user.empty() ? "400" : "200", user.empty() ? "unknown key" : "",
          user,  ""};
      for (size_t i = 0; i < std::size(answer); ++i) {
        zmq_send(socket, answer[i].data(), answer[i].size(),
                 i + 1 < std::size(answer) ? ZMQ_SNDMORE : 0);
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

}  // namespace opwire
