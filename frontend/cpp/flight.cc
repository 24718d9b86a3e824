// Requests and replies.
#include "frontend/cpp/flight.h"

#include <algorithm>

namespace opwire {

std::string Flight::Spare() {
  if (spare_.empty()) return {};
  std::string s = std::move(spare_.back());
  spare_.pop_back();
  return s;
}

uint64_t Flight::Sent(Bytes head, Bytes bulk) {
  Request r{Spare(), {}, false};
  r.head.assign(reinterpret_cast<const char*>(head.data()), head.size());
  r.bulk.assign(reinterpret_cast<const char*>(bulk.data()), bulk.size());
  ++in_flight_;
  bytes_in_flight_ += head.size() + bulk.size();
  waiting_.emplace(next_, std::move(r));
  return next_++;
}

void Flight::End(uint64_t ticket) {
  const auto it = waiting_.find(ticket);
  --in_flight_;
  bytes_in_flight_ -= it->second.head.size() + it->second.bulk.size();
  if (spare_.size() < 64) spare_.push_back(std::move(it->second.head));
  waiting_.erase(it);
}

StatusOr<bool> Flight::OnMessage(ClientChannel::Message& message) {
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, DecodeReply(AsBytes(message.head), decode_));
  const uint64_t ticket = reply->seq() + base_;
  const auto it = waiting_.find(ticket);
  if (it == waiting_.end()) return false;
  const bool abandoned = it->second.abandoned;
  End(ticket);
  if (!abandoned) ended_.emplace(ticket, std::move(message));
  return true;
}

StatusOr<ClientChannel::Message> Flight::Take(uint64_t ticket) {
  const auto it = ended_.find(ticket);
  if (it == ended_.end()) return Internal("request {} has no reply to take", ticket);
  StatusOr<ClientChannel::Message> message = std::move(it->second);
  ended_.erase(it);
  return message;
}

void Flight::Abandon(uint64_t ticket) {
  if (const auto it = waiting_.find(ticket); it != waiting_.end()) it->second.abandoned = true;
  ended_.erase(ticket);
}

std::vector<Flight::Again> Flight::Unanswered() const {
  std::vector<uint64_t> order;
  for (const auto& [ticket, r] : waiting_) order.push_back(ticket);
  std::sort(order.begin(), order.end());
  std::vector<Again> out;
  for (uint64_t ticket : order) out.push_back({AsBytes(waiting_.at(ticket).head), AsBytes(waiting_.at(ticket).bulk)});
  return out;
}

void Flight::FailAll(const Status& why) {
  std::vector<uint64_t> all;
  for (const auto& [ticket, r] : waiting_) all.push_back(ticket);
  for (uint64_t ticket : all) {
    const bool abandoned = waiting_.at(ticket).abandoned;
    End(ticket);
    if (!abandoned) ended_.emplace(ticket, why);
  }
}

}  // namespace opwire
