// The thin server around RegistryState: one socket, one thread.
#ifndef OPWIRE_REGISTRY_SERVER_SERVER_H_
#define OPWIRE_REGISTRY_SERVER_SERVER_H_

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "ir/wire/zmq_channel.h"
#include "registry/state/state.h"

namespace opwire {

class RegistryServer {
 public:
  // UNAVAILABLE or ALREADY_EXISTS when the endpoint cannot be bound.
  // Over ipc it serves the process's own user, or where `share` everybody. A tcp endpoint serves
  // those with keys (ZmqContext::Guard), or where `insecure` everybody.
  static StatusOr<std::unique_ptr<RegistryServer>> Start(const std::string& endpoint,
                                                         const RegistryOptions& options,
                                                         bool insecure = false,
                                                         const std::string& authorized_keys = "",
                                                         bool share = false);

  const std::string& endpoint() const { return router_->endpoint(); }
  // Serves on the calling thread until `stop_fd` becomes readable.
  void Run(int stop_fd);

 private:
  RegistryServer(std::unique_ptr<ZmqContext> context, std::unique_ptr<Router> router, bool keyed,
                 uint64_t epoch, const RegistryOptions& options)
      : context_(std::move(context)),
        router_(std::move(router)),
        keyed_(keyed),
        state_(epoch, MonotonicNow(), options) {}
  void SendAll(const std::vector<Outgoing>& out);

  std::unique_ptr<ZmqContext> context_;
  std::unique_ptr<Router> router_;
  const bool keyed_;                         // every peer came with a key
  absl::flat_hash_map<PeerId, Role> roles_;  // theirs
  absl::flat_hash_map<PeerId, int> asked_;   // in this second
  Nanos second_ = 0;                         // when it ends
  RegistryState state_;
};

}  // namespace opwire

#endif  // OPWIRE_REGISTRY_SERVER_SERVER_H_
