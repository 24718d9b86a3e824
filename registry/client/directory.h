// A frontend's view of the registries: uses the first one that answers.
#ifndef OPWIRE_REGISTRY_CLIENT_DIRECTORY_H_
#define OPWIRE_REGISTRY_CLIENT_DIRECTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "ir/wire/zmq_channel.h"

namespace opwire {

class Directory {
 public:
  // `context` outlives the directory.
  Directory(ZmqContext& context, std::vector<std::string> registries)
      : context_(context), registries_(std::move(registries)) {}

  // Returns the executors that match. UNAVAILABLE when no registry answers within the timeout, with
  // each one's reason. The reply of a registry that is still warming is used only if no other
  // registry answers.
  StatusOr<fb::QueryReplyT> Query(const fb::QueryT& query, Nanos timeout = kSecond);

  const std::vector<std::string>& registries() const { return registries_; }

 private:
  ZmqContext& context_;
  std::vector<std::string> registries_;
};

}  // namespace opwire

#endif  // OPWIRE_REGISTRY_CLIENT_DIRECTORY_H_
