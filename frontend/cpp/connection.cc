// Opening and pumping the sockets of an attachment.
#include "frontend/cpp/connection.h"

#include <algorithm>

#include "ir/wire/endpoint.h"

namespace opwire::client {
namespace {

constexpr Nanos kLookAtControl = 100 * kMillisecond;

// An executor that listens on all addresses names none: then the host is the one that was dialled.
std::string RunEndpoint(const std::string& told, const std::string& control) {
  for (const char* any : {"0.0.0.0:", "[::]:"}) {
    const size_t host = told.find('@') == std::string::npos ? std::string_view("tcp://").size()
                                                            : told.find('@') + 1;
    if (told.compare(host, std::string_view(any).size(), any) == 0)
      return control.substr(0, control.rfind(':')) + told.substr(told.rfind(':'));
  }
  return told;
}

}  // namespace

StatusOr<std::unique_ptr<Connection>> Connection::Open(ZmqContext& context,
                                                       const std::string& control_endpoint,
                                                       const ConnectOptions& options) {
  auto c = std::unique_ptr<Connection>(new Connection);
  const auto reach = [&](const std::string& endpoint) -> StatusOr<std::string> {
    return options.reach ? options.reach(endpoint) : endpoint;
  };
  OPWIRE_ASSIGN_OR_RETURN(const std::string control, reach(control_endpoint));
  OPWIRE_ASSIGN_OR_RETURN(c->control_, Dealer::Connect(context, control));
  fb::InfoT ping;
  ping.topic = "ping";
  auto pong = c->Control(std::move(ping), {}, options.ping_timeout);
  // An executor that refuses this user says so even to a ping.
  if (!pong.ok()) return pong.status();
  OPWIRE_ASSIGN_OR_RETURN(const ClientChannel::Message message, c->Control(options.hello));
  AlignedBytes memory;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, DecodeReply(AsBytes(message.head), memory));
  const fb::HelloReply* hello = reply->body_as_HelloReply();
  if (!hello) return Internal("{} did not answer Hello with its reply", control_endpoint);
  hello->UnPackTo(&c->hello_);
  if (c->hello_.major != kProtocolMajor) {
    return FailedPrecondition(
        "protocol: the client speaks {}.{}, the executor {}.{}; their major versions must match",
        kProtocolMajor, kProtocolMinor, c->hello_.major, c->hello_.minor);
  }
  if (c->hello_.token.size() != 16)
    return Internal("{} gave a token of {} bytes", control_endpoint, c->hello_.token.size());

  if (options.ring && !c->hello_.ring_path.empty()) {
    RingToken token;
    std::copy(c->hello_.token.begin(), c->hello_.token.end(), token.begin());
    // Without a ring the run socket serves: another host's path, say, that happens to look like
    // ours.
    if (auto ring = RingChannel::Connect(c->hello_.ring_path, token); ring.ok()) {
      c->ring_ = ring->get();
      c->run_ = *std::move(ring);
    }
  }
  if (!c->run_) {
    OPWIRE_ASSIGN_OR_RETURN(const std::string run,
                            reach(RunEndpoint(c->hello_.run_endpoint, control_endpoint)));
    OPWIRE_ASSIGN_OR_RETURN(c->run_, Dealer::Connect(context, run));
  }
  fb::AttachT attach;
  attach.token = c->hello_.token;
  attach.attachment = c->hello_.attachment;
  OPWIRE_RETURN_IF_ERROR(c->run_->Send(AsBytes(EncodeRequest(0, std::move(attach)))));
  ClientChannel::Message attached;
  OPWIRE_ASSIGN_OR_RETURN(const bool came, c->Receive(attached, 30 * kSecond));
  if (!came) return Unavailable("{} does not answer on its run socket", control_endpoint);
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const done, DecodeReply(AsBytes(attached.head), memory));
  OPWIRE_RETURN_IF_ERROR(StatusOf(*done));
  return c;
}

StatusOr<bool> Connection::Receive(ClientChannel::Message& message, Nanos timeout) {
  if (!ring_) return run_->Receive(message, timeout);
  // A stopped process keeps its ring open; the control connection's heartbeats tell.
  Nanos left = timeout;
  while (true) {
    const Nanos slice = std::min(left, kLookAtControl);
    OPWIRE_ASSIGN_OR_RETURN(const bool came, run_->Receive(message, slice));
    if (came) return true;
    if (left != kNever) left -= slice;
    if (left <= 0) return false;
    ClientChannel::Message stray;
    if (auto control = control_->Receive(stray, 0); !control.ok()) return control.status();
  }
}

StatusOr<ClientChannel::Message> Connection::ReceiveControl(Nanos timeout) {
  ClientChannel::Message message;
  OPWIRE_ASSIGN_OR_RETURN(const bool came, control_->Receive(message, timeout));
  if (!came) return Unavailable("the executor does not answer");
  AlignedBytes memory;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, DecodeReply(AsBytes(message.head), memory));
  OPWIRE_RETURN_IF_ERROR(StatusOf(*reply));
  return message;
}

StatusOr<ClientChannel::Message> Connection::ControlBytes(uint64_t seq, const std::string& head,
                                                          Bytes bulk, Nanos timeout) {
  OPWIRE_RETURN_IF_ERROR(control_->Send(AsBytes(head), bulk));
  const Nanos deadline = MonotonicNow() + timeout;
  AlignedBytes memory;
  while (true) {
    ClientChannel::Message message;
    OPWIRE_ASSIGN_OR_RETURN(
        const bool came, control_->Receive(message, std::max<Nanos>(deadline - MonotonicNow(), 0)));
    if (!came) return Unavailable("the executor does not answer");
    OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply,
                            DecodeReply(AsBytes(message.head), memory));
    if (reply->seq() != seq && reply->seq() != 0) continue;  // of a request that was given up
    OPWIRE_RETURN_IF_ERROR(StatusOf(*reply));
    return message;
  }
}

}  // namespace opwire::client
