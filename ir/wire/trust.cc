// Keys in files and addresses.
#include "ir/wire/trust.h"

#include <fcntl.h>
#include <pwd.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "ir/base/owned_fd.h"

namespace opwire {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr int64_t kMostBytes = 1 << 20;

std::optional<Role> RoleOf(std::string_view name) {
  for (Role r : {Role::kUse, Role::kExecute, Role::kAdmin}) {
    if (name == RoleName(r)) return r;
  }
  return std::nullopt;
}

// Names become parts of principals, and so of directories. "self" is the server's own key.
bool IsName(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 64 && name != "self" &&
         std::all_of(name.begin(), name.end(), good);
}

// Reads a file of this user's (or root's). Other users must not have the permissions in
// `forbidden`.
StatusOr<std::string> ReadOwn(const std::string& path, mode_t forbidden, std::string_view advice) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return NotFound("file {}: {}", path, std::strerror(errno));
  struct stat st;
  if (fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > kMostBytes) {
    return InvalidArgument("file {}: expected a file of at most {} bytes", path, kMostBytes);
  }
  if ((st.st_uid != getuid() && st.st_uid != 0) || (st.st_mode & forbidden))
    return PermissionDenied("file {}: {}", path, advice);
  std::string text(static_cast<size_t>(st.st_size), '\0');
  const ssize_t n = read(fd.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

}  // namespace

std::string KeyToHex(const Key& key) {
  std::string hex(65, '\0');
  sodium_bin2hex(hex.data(), hex.size(), key.data(), key.size());
  hex.pop_back();
  return hex;
}

StatusOr<Key> KeyFromHex(std::string_view hex) {
  Key key;
  size_t length = 0;
  const char* end = nullptr;
  if (hex.size() != 64 ||
      sodium_hex2bin(key.data(), key.size(), hex.data(), hex.size(), nullptr, &length, &end) != 0 ||
      length != key.size()) {
    return InvalidArgument("a key has 64 hexadecimal digits, got '{}'", hex.substr(0, 80));
  }
  return key;
}

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kUse:
      return "use";
    case Role::kExecute:
      return "execute";
    case Role::kAdmin:
      break;
  }
  return "admin";
}

std::string OwnKeyPath() {
  if (const char* named = std::getenv("OPWIRE_KEY"); named && *named) return named;
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config && *config)
    return std::string(config) + "/opwire/key";
  const char* home = std::getenv("HOME");
  const passwd* user = home && *home ? nullptr : getpwuid(getuid());
  return std::string(user ? user->pw_dir : home ? home : "") + "/.config/opwire/key";
}

StatusOr<KeyPair> ReadKeyPair(const std::string& path) {
  OPWIRE_ASSIGN_OR_RETURN(std::string text,
                          ReadOwn(path, 077, "a secret key must be its owner's alone; chmod 600"));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  auto secret = KeyFromHex(text);
  sodium_memzero(text.data(), text.size());
  if (!secret.ok())
    return InvalidArgument("file {}: expected a secret key, 64 hexadecimal digits", path);
  if (sodium_init() < 0) return Internal("libsodium does not start");
  KeyPair pair;
  pair.secret_key = *secret;
  crypto_scalarmult_base(pair.public_key.data(), pair.secret_key.data());
  return pair;
}

StatusOr<KeyPair> CreateKeyPair(const std::string& path) {
  if (sodium_init() < 0) return Internal("libsodium does not start");
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return errno == EEXIST ? AlreadyExists("file {} is there already", path)
                           : PermissionDenied("file {}: {}", path, std::strerror(errno));
  }
  KeyPair pair;
  crypto_box_keypair(pair.public_key.data(), pair.secret_key.data());
  const std::string line = KeyToHex(pair.secret_key) + "\n";
  const bool written = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  close(fd);
  if (!written) {
    unlink(path.c_str());
    return ResourceExhausted("file {}: {}", path, std::strerror(errno));
  }
  return pair;
}

StatusOr<std::vector<AuthorizedKey>> ReadAuthorizedKeys(const std::string& path) {
  OPWIRE_ASSIGN_OR_RETURN(
      const std::string text,
      ReadOwn(path, 022, "other users must not be able to write a list of keys; chmod go-w"));
  std::vector<AuthorizedKey> out;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string key, name, role, more;
    if (!(words >> key)) continue;
    words >> name >> role;
    const auto bytes = KeyFromHex(key);
    const auto known = RoleOf(role);
    if (!bytes.ok() || !known || (words >> more) || !IsName(name)) {
      return InvalidArgument(
          "{}:{}: expected KEY NAME ROLE: 64 hexadecimal digits, a name of up to 64 letters, "
          "digits, '_' and '-' other than 'self', and "
          "use, execute or admin",
          path, number);
    }
    out.push_back({*bytes, name, *known});
  }
  return out;
}

StatusOr<KeyedAddress> SplitKey(std::string_view endpoint) {
  KeyedAddress out;
  const size_t at = endpoint.rfind('@');
  if (endpoint.substr(0, kTcp.size()) != kTcp || at == std::string_view::npos) {
    out.address = endpoint;
    return out;
  }
  OPWIRE_ASSIGN_OR_RETURN(out.key, KeyFromHex(endpoint.substr(kTcp.size(), at - kTcp.size())));
  out.address = fmt::format("{}{}", kTcp, endpoint.substr(at + 1));
  out.keyed = true;
  return out;
}

std::string WithKey(std::string_view address, const Key& key) {
  return fmt::format("{}{}@{}", kTcp, KeyToHex(key), address.substr(kTcp.size()));
}

}  // namespace opwire
