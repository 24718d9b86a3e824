// The peers that may connect over TCP: Curve25519 keys, and the role of each. A server that is not
// --insecure accepts only keys that it knows. A client gets the server's key from its address,
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
// A file with one line, the secret key in hex. NOT_FOUND; PERMISSION_DENIED when others may read
// it.
StatusOr<KeyPair> ReadKeyPair(const std::string& path);
// Writes a new one with mode 0600. ALREADY_EXISTS: never replaces one.
StatusOr<KeyPair> CreateKeyPair(const std::string& path);

// Each role has the rights of those before it.
enum class Role : uint8_t {
  kUse,      // inspect: which executors exist, what they run and why
  kExecute,  // open sessions
  kAdmin,    // register executors
};
std::string_view RoleName(Role role);

struct AuthorizedKey {
  Key key{};
  std::string name;  // the principal is "key:NAME"
  Role role = Role::kUse;
};

// Lines of "KEY NAME ROLE"; '#' begins a comment. Keys with one name are one principal.
// INVALID_ARGUMENT with the line; PERMISSION_DENIED when others may write the file.
StatusOr<std::vector<AuthorizedKey>> ReadAuthorizedKeys(const std::string& path);

// The parts of "tcp://KEY@HOST:PORT": the address without the key, and the key if there is one.
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
