// Sending requests and waiting for their replies.
#include <algorithm>

#include "frontend/cpp/session_state.h"

namespace opwire::client {

namespace {

constexpr size_t kMostRidersBytes = 64 << 10;  // on one message

}  // namespace

StatusOr<uint64_t> SessionState::SendBuilt(fb::Body type, flatbuffers::Offset<void> body,
                                           Bytes bulk) {
  OPWIRE_RETURN_IF_ERROR(SendRiders(builder.GetSize()));
  return SendWith(builder, type, body, bulk, frees.size(), closes.size());
}

size_t SessionState::RidersBytes() const {
  return frees.size() * sizeof(fb::TensorId) + closes.size() * sizeof(uint64_t);
}

Status SessionState::SendRiders(size_t body_bytes) {
  const size_t taken = std::min(body_bytes + kRequestBytes, kMaxFrameBytes);
  const size_t room = std::min(kMaxFrameBytes - taken, kMostRidersBytes);
  while (RidersBytes() > room) {
    flatbuffers::FlatBufferBuilder own;
    OPWIRE_ASSIGN_OR_RETURN(
        const uint64_t ticket,
        SendWith(own, fb::Body::Flush, fb::CreateFlush(own).Union(), {},
                 std::min(frees.size(), kMostRidersBytes / sizeof(fb::TensorId)),
                 std::min(closes.size(), kMostRidersBytes / sizeof(uint64_t))));
    flight.Abandon(ticket);
  }
  return absl::OkStatus();
}

namespace {

// While a request waits to be sent, callbacks must not send others: its bytes are in the builder,
// and its sequence number is the next.
class SendingScope {
 public:
  explicit SendingScope(SessionState& s) : s_(s) { s_.sending = true; }
  ~SendingScope() { s_.sending = false; }
  SendingScope(const SendingScope&) = delete;

 private:
  SessionState& s_;
};

}  // namespace

Status SessionState::WaitForCredit(size_t bytes) {
  const SendingScope scope(*this);
  while (!flight.HasCredit(bytes)) {
    OPWIRE_RETURN_IF_ERROR(Pump(0, kNever).status());
    if (!connection) return lost;
  }
  return absl::OkStatus();
}

StatusOr<uint64_t> SessionState::SendWith(flatbuffers::FlatBufferBuilder& b, fb::Body type,
                                          flatbuffers::Offset<void> body, Bytes bulk,
                                          size_t free_count, size_t close_count) {
  if (!connection) return lost;
  const auto frees_at = free_count == 0
                            ? flatbuffers::Offset<flatbuffers::Vector<const fb::TensorId*>>()
                            : b.CreateVectorOfStructs(frees.data(), free_count);
  const auto closes_at = close_count == 0 ? flatbuffers::Offset<flatbuffers::Vector<uint64_t>>()
                                          : b.CreateVector(closes.data(), close_count);
  b.Finish(
      fb::CreateRequest(b, flight.next_seq(), frees_at, type, body, flight.acked(), closes_at));
  const Bytes head = AsBytes(b);
  if (head.size() > kMaxFrameBytes) {
    return InvalidArgument(
        "request: {} bytes are more than a message's {}; put large arrays as tensors", head.size(),
        kMaxFrameBytes);
  }
  OPWIRE_RETURN_IF_ERROR(WaitForCredit(head.size() + bulk.size()));
  // What was dropped while this waited rides on the next one.
  frees.erase(frees.begin(), frees.begin() + static_cast<ptrdiff_t>(free_count));
  closes.erase(closes.begin(), closes.begin() + static_cast<ptrdiff_t>(close_count));
  const uint64_t ticket = flight.Sent(head, bulk);
  Status status = connection->Send(head, bulk);
  // A full ring or socket: the executor reads on as its replies are taken.
  while (absl::IsResourceExhausted(status)) {
    const SendingScope scope(*this);
    OPWIRE_RETURN_IF_ERROR(Pump(0, kMillisecond).status());
    if (!connection) return ticket;
    status = connection->Send(head, bulk);
  }
  if (!status.ok()) OnLost(status);
  return ticket;
}

// Ticket 0: until anything came.
StatusOr<bool> SessionState::Pump(uint64_t ticket, Nanos timeout) {
  constexpr Nanos kBetweenQuestions = 50 * kMillisecond, kBusy = kMillisecond;
  const auto& interrupted = client->options.interrupted;
  const Nanos begun = MonotonicNow(),
              deadline = timeout == kNever || timeout == 0 ? timeout : begun + timeout;
  const Nanos enough = timeout == kNever
                           ? kNever
                           : begun + std::max(timeout, kBusy);  // of messages that keep coming
  Nanos next_question = begun + kBetweenQuestions;
  const auto stops = [&] {
    next_question = MonotonicNow() + kBetweenQuestions;
    if (!interrupted || !interrupted()) return false;
    if (ticket != 0) flight.Abandon(ticket);
    return true;
  };
  while (ticket == 0 || !flight.Ended(ticket)) {
    if (!connection) return ticket == 0 ? StatusOr<bool>(lost) : flight.Ended(ticket);
    Nanos left = deadline == kNever || deadline == 0
                     ? deadline
                     : std::max<Nanos>(deadline - MonotonicNow(), 0);
    if (deadline == kNever && interrupted) left = kBetweenQuestions;
    StatusOr<bool> came = false;
    const auto receive = [&] { came = connection->Receive(incoming, left); };
    if (left != 0 && client->options.waiting)
      client->options.waiting(receive);
    else
      receive();
    if (!came.ok()) {
      OnLost(came.status());
      continue;
    }
    if (!*came) {
      if (deadline != kNever) return false;
      if (stops()) return Cancelled("interrupted while executor {} was waited for", executor_id);
      continue;
    }
    Status stray;
    const auto known = Dispatch(stray);
    // "Attach first" comes so, when the executor dropped a client that did not read.
    if (!known.ok())
      OnLost(known.status());
    else if (!*known && absl::IsAborted(stray))
      OnLost(stray);
    if (ticket == 0) return true;
    const Nanos now = MonotonicNow();
    if (now >= enough) return flight.Ended(ticket);
    if (deadline == kNever && now >= next_question && stops())
      return Cancelled("interrupted while executor {} was waited for", executor_id);
  }
  return true;
}

StatusOr<bool> SessionState::Dispatch(Status& stray) {
  OPWIRE_ASSIGN_OR_RETURN(const bool known, flight.OnMessage(incoming, stray));
  const auto& [ticket, reply] = flight.part();
  const auto handler = reply ? on_emit.find(ticket) : on_emit.end();
  const fb::Emitted* const emitted = handler != on_emit.end() ? reply->body_as_Emitted() : nullptr;
  if (!emitted) return known;
  const fb::TensorType* const type = emitted->type();
  const auto dtype = static_cast<DType>(type ? type->dtype() : 0);
  std::vector<int64_t> shape;
  if (type && type->shape()) shape.assign(type->shape()->begin(), type->shape()->end());
  const auto bytes = IsValid(dtype) ? TensorBytes(dtype, Encoding::kDense, shape) : std::nullopt;
  const size_t got = emitted->payload() ? emitted->payload()->size() : 0;
  if (!bytes || static_cast<uint64_t>(*bytes) != got)
    return Internal("executor {}: an emitted value of {} bytes is no {}{}", executor_id, got,
                    DTypeName(dtype), ShapeToString(shape));
  Array value = Array::Uninitialised(dtype, std::move(shape));
  if (got > 0) std::memcpy(value.bytes().data(), emitted->payload()->data(), got);
  connection->MayNap();
  handler->second(emitted->name() ? emitted->name()->string_view() : std::string_view(), value);
  return known;
}

StatusOr<const fb::Reply*> SessionState::Wait(uint64_t ticket, std::string* bulk) {
  OPWIRE_RETURN_IF_ERROR(Pump(ticket, kNever).status());
  OPWIRE_ASSIGN_OR_RETURN(const Flight::Answer answer, flight.Take(ticket));
  OPWIRE_RETURN_IF_ERROR(StatusOf(*answer.reply));
  if (bulk) *bulk = std::move(*answer.bulk);
  return answer.reply;
}

}  // namespace opwire::client
