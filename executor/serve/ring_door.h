// Creates rings: accepts on a Unix socket, checks the client and its session, and detects the end
// of clients.
#ifndef OPWIRE_EXECUTOR_SERVE_RING_DOOR_H_
#define OPWIRE_EXECUTOR_SERVE_RING_DOOR_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/serve/device_thread.h"
#include "ir/wire/ring.h"

namespace opwire::executor {

// Listens on a socket at the path, of mode 0600. Replaces a stale one.
StatusOr<int> ListenForRings(const std::string& path);

// Used by the host thread. Takes the listener.
class RingDoor {
 public:
  RingDoor(int listener, int max_rings, DeviceThread& device)
      : listener_(listener), max_rings_(max_rings), device_(device) {}

  // Accepts, reads tokens, detects ends. Never blocks.
  void Poll();
  void AddDescriptors(std::vector<int>& fds) const;

 private:
  struct Client {
    std::shared_ptr<OwnedFd> socket;
    std::shared_ptr<OwnedFd> process;  // readable once it has ended
    PeerId peer = 0;                   // 0: its token has not arrived
    Nanos since = 0;
    Token token{};
    size_t got = 0;
  };
  void OnToken(Client& c);

  OwnedFd listener_;
  const int max_rings_;
  DeviceThread& device_;
  std::vector<Client> clients_;
  std::map<Token, int> rings_of_;
  PeerId next_ = 1;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_RING_DOOR_H_
