// An executor's connection to one registry, as a state machine: it registers, then sends beats. It
// registers again when the registry forgot it.
#ifndef OPWIRE_REGISTRY_CLIENT_ANNOUNCER_H_
#define OPWIRE_REGISTRY_CLIENT_ANNOUNCER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/wire/channel.h"
#include "ir/wire/message.h"

namespace opwire {

class Announcer {
 public:
  // `claim`: of the name, 16 bytes. While the executor lives, the registry gives its name only to
  // registrations with this claim.
  Announcer(fb::ExecutorInfoT info, std::vector<uint8_t> claim)
      : info_(std::move(info)), claim_(std::move(claim)) {}

  // Returns the message to send now, if any.
  std::optional<std::string> OnTick(Nanos now, const fb::LoadInfoT& load);
  void OnReply(Nanos now, Bytes bytes);
  // A new connection: everything is sent again.
  void OnConnected(Nanos now);
  // Replaces the list of ops that the executor can run.
  void SetOps(std::vector<std::unique_ptr<fb::OpEntryT>> ops);
  // The message of an orderly end.
  std::string Goodbye();

  // When OnTick next has something to send.
  Nanos next() const { return next_; }
  bool registered() const { return registered_; }
  // OK, or why the registry refused last. It is asked again at each beat.
  const Status& refusal() const { return refusal_; }
  // Whether it was silent for three beats: the connection is unusable.
  bool Silent(Nanos now) const { return now - heard_ > 3 * beat_; }

 private:
  fb::ExecutorInfoT info_;
  const std::vector<uint8_t> claim_;
  bool registered_ = false;
  bool changed_ = false;  // since the last registration
  Status refusal_;
  Nanos beat_ = kSecond;
  Nanos next_ = 0;
  Nanos heard_ = 0;
  uint64_t seq_ = 0;
};

}  // namespace opwire

#endif  // OPWIRE_REGISTRY_CLIENT_ANNOUNCER_H_
