// The sockets of one attachment: control, and run or ring. Open sends the Hello and the Attach.
#ifndef OPWIRE_FRONTEND_CPP_CONNECTION_H_
#define OPWIRE_FRONTEND_CPP_CONNECTION_H_

#include <functional>
#include <memory>
#include <string>

#include "ir/wire/ring.h"
#include "ir/wire/zmq_channel.h"

namespace opwire::client {

struct ConnectOptions {
  fb::HelloT hello;  // without a token: a new attachment
  bool ring = true;  // if the executor offers one
  Nanos ping_timeout =
      kSecond;  // for the first reply, which comes from the host thread, whatever runs
  std::function<StatusOr<std::string>(const std::string&)>
      reach;  // maps the executor's endpoints to addresses here; empty: they are used unchanged
};

class Connection {
 public:
  // UNAVAILABLE when there is no reply, ABORTED when the token is of another incarnation, or the
  // executor's error.
  static StatusOr<std::unique_ptr<Connection>> Open(ZmqContext& context,
                                                    const std::string& control_endpoint,
                                                    const ConnectOptions& options);

  const fb::HelloReplyT& hello() const { return hello_; }

  // The run socket or ring.
  Status Send(Bytes head, Bytes bulk) { return run_->Send(head, bulk); }
  // As ClientChannel::Receive. Detects a dead or stopped executor within a second on every carrier.
  StatusOr<bool> Receive(ClientChannel::Message& message, Nanos timeout);
  // As RingChannel::MayNap, if there is a ring.
  void MayNap() {
    if (ring_) ring_->MayNap();
  }

  // Sends one request on the control socket and returns its reply, verified and without error.
  template <typename BodyT>
  StatusOr<ClientChannel::Message> Control(BodyT body, Bytes bulk = {},
                                           Nanos timeout = 30 * kSecond) {
    const uint64_t seq = ++control_seq_;
    return ControlBytes(seq, EncodeRequest(seq, std::move(body)), bulk, timeout);
  }
  // The same in two halves, so that several can be outstanding.
  template <typename BodyT>
  Status SendControl(BodyT body, Bytes bulk = {}) {
    return control_->Send(AsBytes(EncodeRequest(++control_seq_, std::move(body))), bulk);
  }
  StatusOr<ClientChannel::Message> ReceiveControl(Nanos timeout = 30 * kSecond);

  // The session's segment, if it is mapped. The mapping lasts until the last holder ends.
  std::shared_ptr<uint8_t> segment() const { return ring_ ? ring_->segment() : nullptr; }
  // Returns `bytes` bytes at an offset in it; null: there is no segment, or no such range.
  uint8_t* InSegment(int64_t offset, size_t bytes) const {
    if (!segment() || offset < 0 || static_cast<uint64_t>(ring_->segment_bytes()) < bytes)
      return nullptr;
    return offset <= ring_->segment_bytes() - static_cast<int64_t>(bytes)
               ? ring_->segment().get() + offset
               : nullptr;
  }
  bool on_ring() const { return ring_ != nullptr; }

 private:
  Connection() = default;
  StatusOr<ClientChannel::Message> ControlBytes(uint64_t seq, const std::string& head, Bytes bulk,
                                                Nanos timeout);

  std::unique_ptr<Dealer> control_;
  std::unique_ptr<ClientChannel> run_;
  RingChannel* ring_ = nullptr;  // run_, if it is a ring
  fb::HelloReplyT hello_;
  uint64_t control_seq_ = 0;
};

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_CONNECTION_H_
