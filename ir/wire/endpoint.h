// Where processes listen: the user's runtime directory, and valid addresses.
#ifndef OPWIRE_IR_WIRE_ENDPOINT_H_
#define OPWIRE_IR_WIRE_ENDPOINT_H_

#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace opwire {

// Returns $OPWIRE_RUNTIME_DIR, else $XDG_RUNTIME_DIR/opwire, else /tmp/opwire-UID. Creates it with
// mode 0700, and returns an absolute path. PERMISSION_DENIED when another user owns it or may enter
// it.
StatusOr<std::string> RuntimeDirectory();

// "ipc:///run/user/1000/opwire/registry".
StatusOr<std::string> DefaultRegistryEndpoint();

// INVALID_ARGUMENT unless "ipc://PATH" (a path short enough for a Unix socket), "tcp://HOST:PORT"
// or "tcp://KEY@HOST:PORT" (trust.h).
Status CheckEndpoint(std::string_view endpoint);

// An address in ZeroMQ's form: it resolves no name to listen on, and accepts IPv6 only if enabled.
struct ZmqAddress {
  std::string address;  // "tcp://127.0.0.1:7000", "tcp://[::1]:7000"
  bool ipv6 = false;
};
// Returns "tcp://HOST:PORT" with the host's number. Both sides prefer IPv4, so that clients find a
// server that listens on a name by that name. "*", names of interfaces and ipc endpoints stay
// unchanged. UNAVAILABLE for an unknown name, INVALID_ARGUMENT as CheckEndpoint. REQUIRES: it has
// no key.
StatusOr<ZmqAddress> Resolve(const std::string& endpoint);

inline bool IsIpc(std::string_view endpoint) { return endpoint.substr(0, 6) == "ipc://"; }
// REQUIRES: IsIpc(endpoint).
inline std::string IpcPath(std::string_view endpoint) { return std::string(endpoint.substr(6)); }

// Whether a process listens at this ipc endpoint.
bool SomebodyListens(std::string_view endpoint);

// Removes the socket file of an ipc endpoint without a listener, so that it can be bound again.
// ALREADY_EXISTS if a process listens.
Status ClearStaleSocket(std::string_view endpoint);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_ENDPOINT_H_
