// Sending requests and waiting for their replies.
#include "frontend/cpp/session_state.h"

namespace opwire {

StatusOr<uint64_t> SessionState::SendBuilt(fb::Body type, flatbuffers::Offset<void> body, Bytes bulk) {
  const auto frees_at = frees.empty() ? flatbuffers::Offset<flatbuffers::Vector<const fb::TensorId*>>() : builder.CreateVectorOfStructs(frees);
  const auto closes_at = closes.empty() ? flatbuffers::Offset<flatbuffers::Vector<uint64_t>>() : builder.CreateVector(closes);
  builder.Finish(fb::CreateRequest(builder, flight.next_seq(), frees_at, type, body, flight.acked(), closes_at));
  const Bytes head = AsBytes(builder);
  if (head.size() > kMaxFrameBytes) {
    return InvalidArgument("request: {} bytes are more than a message's {}; put large arrays as tensors", head.size(), kMaxFrameBytes);
  }
  while (!flight.HasCredit(head.size() + bulk.size())) {
    OPWIRE_RETURN_IF_ERROR(Pump(0, kNever).status());
    if (!connection) return lost;
  }
  frees.clear();
  closes.clear();
  const uint64_t ticket = flight.Sent(head, bulk);
  Status status = connection->Send(head, bulk);
  // A full ring or socket: the executor reads on as its replies are taken.
  while (absl::IsResourceExhausted(status)) {
    OPWIRE_RETURN_IF_ERROR(Pump(0, kMillisecond).status());
    if (!connection) return ticket;
    status = connection->Send(head, bulk);
  }
  if (!status.ok()) OnLost(status);
  return ticket;
}

// Ticket 0: until anything came.
StatusOr<bool> SessionState::Pump(uint64_t ticket, Nanos timeout) {
  const Nanos deadline = timeout == kNever || timeout == 0 ? timeout : MonotonicNow() + timeout;
  while (ticket == 0 || !flight.Ended(ticket)) {
    if (!connection) return ticket == 0 ? StatusOr<bool>(lost) : flight.Ended(ticket);
    const Nanos left = deadline == kNever || deadline == 0 ? deadline : std::max<Nanos>(deadline - MonotonicNow(), 0);
    auto came = connection->Receive(incoming, left);
    if (!came.ok()) {
      OnLost(came.status());
      continue;
    }
    if (!*came) return false;
    Status stray;
    const auto known = flight.OnMessage(incoming, stray);
    // "Attach first" comes so, when the executor dropped a client that did not read.
    if (!known.ok()) OnLost(known.status());
    else if (!*known && absl::IsAborted(stray)) OnLost(stray);
    if (ticket == 0) return true;
  }
  return true;
}

StatusOr<const fb::Reply*> SessionState::Wait(uint64_t ticket, std::string* bulk) {
  OPWIRE_RETURN_IF_ERROR(Pump(ticket, kNever).status());
  OPWIRE_ASSIGN_OR_RETURN(const Flight::Answer answer, flight.Take(ticket));
  OPWIRE_RETURN_IF_ERROR(StatusOf(*answer.reply));
  if (bulk) *bulk = std::move(*answer.bulk);
  return answer.reply;
}

}  // namespace opwire
