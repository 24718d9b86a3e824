// Accepts clients of rings.
#include "executor/serve/ring_door.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ir/wire/endpoint.h"
#include "ir/wire/zmq_channel.h"

namespace opwire::executor {
namespace {

constexpr int kMostOfToken = 4;           // one, and those that its client has just closed
constexpr Nanos kPatience = 2 * kSecond;  // for a token

class ServerRing : public DeviceThread::Ring {
 public:
  ServerRing(PeerId peer, std::unique_ptr<RingEnd> end) : peer_(peer), end_(std::move(end)) {}

  bool Drain(Core& core, Nanos now) override {
    bool any = false;
    for (int i = 0; i < 64; ++i) {
      auto got = end_->Read(head_, bulk_);
      // A broken ring has no further messages. Its client detects the same and connects again. The
      // end of its socket removes the ring.
      if (!got.ok() || !*got) break;
      core.OnMessage(now, peer_, AsBytes(head_), AsBytes(bulk_));
      any = true;
    }
    return any;
  }
  Status Send(Bytes head, Bytes bulk) override { return end_->Write(head, bulk); }
  int fd() const override { return end_->fd(); }
  bool Park() override { return end_->Park(); }
  void Wake() override { end_->Unpark(); }

 private:
  const PeerId peer_;
  std::unique_ptr<RingEnd> end_;
  std::string head_, bulk_;
};

// False where the process is not known.
bool HasEnded(const OwnedFd& process) {
  const int fds[] = {process.get()};
  return fds[0] >= 0 && PollReadable(fds, 0) != 0;
}

}  // namespace

StatusOr<int> ListenForRings(const std::string& path) {
  OPWIRE_RETURN_IF_ERROR(ClearStaleSocket("ipc://" + path));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return InvalidArgument("ring: the path {} is too long", path);
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(fd, 64) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return Unavailable("ring: {}: {}", path, std::strerror(error));
  }
  return fd;
}

void RingDoor::Poll() {
  if (listener_.get() < 0) return;
  const Nanos now = MonotonicNow();
  for (int i = 0; i < 64; ++i) {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno == ECONNABORTED) continue;
    if (fd < 0) break;
    auto socket = std::make_shared<OwnedFd>(fd);
    // Rejected at once, so that the client does not wait for a ring: the run socket serves it.
    if (std::ssize(clients_) >= max_rings_) continue;
    ucred who{};
    socklen_t size = sizeof(who);
    // The socket is in a directory of the user's own. This check holds even if the directory's
    // permissions were widened.
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != getuid()) continue;
    Client c;
    c.socket = std::move(socket);
    c.process = std::make_shared<OwnedFd>(static_cast<int>(syscall(SYS_pidfd_open, who.pid, 0)));
    c.since = now;
    clients_.push_back(std::move(c));
  }
  std::erase_if(clients_, [&](Client& c) {
    // A child that the client forked may keep the socket open.
    const bool dead = HasEnded(*c.process);
    while (true) {
      uint8_t extra;
      const bool more = c.got < c.token.size();
      const ssize_t n = recv(c.socket->get(), more ? c.token.data() + c.got : &extra,
                             more ? c.token.size() - c.got : 1, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN && !dead) break;
      if (n <= 0 || !more) {  // its end, or more than a token
        if (c.peer) {
          if (const auto it = rings_of_.find(c.token); --it->second == 0) rings_of_.erase(it);
          device_.Post([&device = device_, peer = c.peer, process = c.process] {
            device.RemoveRing(peer, [process] { return HasEnded(*process); });
          });
        }
        return true;
      }
      c.got += static_cast<size_t>(n);
      if (c.got == c.token.size()) OnToken(c);
    }
    return c.peer == 0 && now - c.since > kPatience;
  });
}

void RingDoor::OnToken(Client& c) {
  int& of_token = rings_of_[c.token];
  if (of_token == kMostOfToken) {
    shutdown(c.socket->get(), SHUT_RDWR);
    return;
  }
  ++of_token;
  c.peer = DeviceThread::kRingBit | next_++;
  device_.Post([&device = device_, peer = c.peer, token = c.token, socket = c.socket] {
    auto segment = device.core().SegmentOf(token);
    auto end = segment.ok() ? RingEnd::Create() : segment.status();
    if (!end.ok() ||
        !SendRing(socket->get(), **end, (*segment)->fd(), (*segment)->capacity()).ok()) {
      shutdown(socket->get(), SHUT_RDWR);
      return;
    }
    device.AddRing(peer, std::make_unique<ServerRing>(peer, *std::move(end)));
  });
}

void RingDoor::AddDescriptors(std::vector<int>& fds) const {
  if (listener_.get() < 0) return;
  fds.push_back(listener_.get());
  for (const Client& c : clients_) {
    fds.push_back(c.socket->get());
    if (c.process->get() >= 0) fds.push_back(c.process->get());
  }
}

}  // namespace opwire::executor
