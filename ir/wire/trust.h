// Who may come over TCP: Curve25519 keys, and what each may do. A server that is not --insecure
// takes only keys that it knows; a client knows the server's key from its address,
// "tcp://KEY@HOST:PORT".
#ifndef OPWIRE_IR_WIRE_TRUST_H_
#define OPWIRE_IR_WIRE_TRUST_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace opwire {

using Key = std::array<uint8_t, 32>;
std::string KeyToHex(const Key& key);            // 64 digits
StatusOr<Key> KeyFromHex(std::string_view hex);  // INVALID_ARGUMENT otherwise

struct KeyPair {
  Key public_key{}, secret_key{};
};

// $OPWIRE_KEY, else $XDG_CONFIG_HOME/opwire/key, else ~/.config/opwire/key.
std::string OwnKeyPath();
// One line, the secret key in hex. NOT_FOUND; PERMISSION_DENIED when others may read it.
StatusOr<KeyPair> ReadKeyPair(const std::string& path);
// Writes a new one, 0600. ALREADY_EXISTS rather than replacing one.
StatusOr<KeyPair> CreateKeyPair(const std::string& path);

// Each role may do what those before it may.
enum class Role : uint8_t {
  kUse,      // look: what is there, what it runs and why
  kExecute,  // open sessions
  kAdmin,    // register executors
};
std::string_view RoleName(Role role);

struct AuthorizedKey {
  Key key{};
  std::string name;  // the principal is "key:NAME"
  Role role = Role::kUse;
};

// Lines of "KEY NAME ROLE"; '#' begins a comment. Keys of one name are one principal.
// INVALID_ARGUMENT with the line; PERMISSION_DENIED when others may write the file.
StatusOr<std::vector<AuthorizedKey>> ReadAuthorizedKeys(const std::string& path);

// The parts of "tcp://KEY@HOST:PORT": the address without the key, and the key where there is one.
struct KeyedAddress {
  std::string address;
  bool keyed = false;
  Key key{};
};
StatusOr<KeyedAddress> SplitKey(std::string_view endpoint);
// REQUIRES: `address` begins with "tcp://".
std::string WithKey(std::string_view address, const Key& key);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_TRUST_H_
