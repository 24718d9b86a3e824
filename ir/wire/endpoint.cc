// The user's runtime directory and its sockets.
#include "ir/wire/endpoint.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "ir/wire/trust.h"

namespace opwire {
namespace {

// The run, control and ring sockets add a suffix.
constexpr size_t kMostPath = sizeof(sockaddr_un::sun_path) - 16;
constexpr std::string_view kRegistry = "/registry";

}  // namespace

StatusOr<std::string> RuntimeDirectory() {
  std::string path;
  if (const char* own = std::getenv("OPWIRE_RUNTIME_DIR"); own && *own)
    path = own;
  else if (const char* xdg = std::getenv("XDG_RUNTIME_DIR"); xdg && *xdg)
    path = std::string(xdg) + "/opwire";
  else
    path = "/tmp/opwire-" + std::to_string(getuid());
  // The addresses of its sockets are told to processes in other working directories.
  std::error_code error;
  path = std::filesystem::absolute(path, error);
  if (error) return Unavailable("runtime directory: the working directory: {}", error.message());
  if (path.size() > kMostPath - kRegistry.size()) {
    return InvalidArgument(
        "runtime directory {}: its sockets would have longer paths than the system takes; set "
        "OPWIRE_RUNTIME_DIR to one of at most {} characters",
        path, kMostPath - kRegistry.size());
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Unavailable(
        "runtime directory {}: {}; set OPWIRE_RUNTIME_DIR to a directory of your own", path,
        std::strerror(errno));
  }
  struct stat st;
  if (lstat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid() ||
      (st.st_mode & 077) != 0) {
    return PermissionDenied("runtime directory {}: expected a directory of user {} with mode 0700",
                            path, getuid());
  }
  return path;
}

StatusOr<std::string> DefaultRegistryEndpoint() {
  OPWIRE_ASSIGN_OR_RETURN(const std::string directory, RuntimeDirectory());
  return fmt::format("ipc://{}{}", directory, kRegistry);
}

namespace {

// "127.0.0.1", "[::1]" of "tcp://[::1]:7000".
std::string HostOf(const std::string& address) { return address.substr(6, address.rfind(':') - 6); }

}  // namespace

Status CheckEndpoint(std::string_view endpoint) {
  if (IsIpc(endpoint)) {
    const size_t length = endpoint.size() - 6;
    if (length == 0 || length > kMostPath) {
      return InvalidArgument("endpoint {}: expected a path of 1 to {} characters", endpoint,
                             kMostPath);
    }
    return absl::OkStatus();
  }
  if (const size_t colon = endpoint.rfind(':'); endpoint.substr(0, 6) == "tcp://" && colon > 6) {
    const std::string_view port = endpoint.substr(colon + 1);
    uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (port != "*" && (error != std::errc() || end != port.data() + port.size())) {
      return InvalidArgument(
          "endpoint {}: expected a port from 0 to 65535, or * for any that is free, got '{}'",
          endpoint, port);
    }
    OPWIRE_ASSIGN_OR_RETURN(const KeyedAddress plain, SplitKey(endpoint));
    const std::string host = HostOf(plain.address);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (host.empty() || (!bracketed && host.find_first_of(":[]") != std::string::npos)) {
      return InvalidArgument(
          "endpoint {}: expected a host's name or number, of IPv6 in brackets, such as "
          "tcp://[::1]:7000",
          endpoint);
    }
    return absl::OkStatus();
  }
  return InvalidArgument("endpoint {}: expected ipc://PATH, tcp://HOST:PORT or tcp://KEY@HOST:PORT",
                         endpoint);
}

StatusOr<ZmqAddress> Resolve(const std::string& endpoint) {
  if (IsIpc(endpoint)) return ZmqAddress{endpoint, false};
  OPWIRE_RETURN_IF_ERROR(CheckEndpoint(endpoint));
  const std::string host = HostOf(endpoint), port = endpoint.substr(endpoint.rfind(':'));
  if (host == "*" || if_nametoindex(host.c_str()) != 0) return ZmqAddress{endpoint, false};
  if (host.front() == '[') return ZmqAddress{endpoint, true};
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    return Unavailable("endpoint {}: host {}: {}", endpoint, host, gai_strerror(error));
  const addrinfo* chosen = found;
  for (const addrinfo* a = found; a != nullptr && chosen->ai_family != AF_INET; a = a->ai_next) {
    if (a->ai_family == AF_INET) chosen = a;
  }
  char number[NI_MAXHOST] = "";
  const int told = getnameinfo(chosen->ai_addr, chosen->ai_addrlen, number, sizeof(number), nullptr,
                               0, NI_NUMERICHOST);
  const bool ipv6 = chosen->ai_family == AF_INET6;
  freeaddrinfo(found);
  if (told != 0) return Unavailable("endpoint {}: host {}: {}", endpoint, host, gai_strerror(told));
  return ZmqAddress{
      ipv6 ? fmt::format("tcp://[{}]{}", number, port) : fmt::format("tcp://{}{}", number, port),
      ipv6};
}

bool SomebodyListens(std::string_view endpoint) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  IpcPath(endpoint).copy(address.sun_path, sizeof(address.sun_path) - 1);
  const bool answers =
      fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (fd >= 0) close(fd);
  return answers;
}

Status ClearStaleSocket(std::string_view endpoint) {
  const std::string path = IpcPath(endpoint);
  struct stat st;
  if (lstat(path.c_str(), &st) != 0) return absl::OkStatus();
  if (!S_ISSOCK(st.st_mode))
    return AlreadyExists("endpoint {}: {} is there and is no socket", endpoint, path);
  if (SomebodyListens(endpoint))
    return AlreadyExists("endpoint {}: another process listens there", endpoint);
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace opwire
