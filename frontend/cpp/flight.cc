// Requests and replies.
#include "frontend/cpp/flight.h"

#include <algorithm>

namespace opwire::client {

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

uint64_t Flight::acked() const {
  while (oldest_ < next_ && !waiting_.contains(oldest_)) ++oldest_;
  return oldest_ > base_ ? oldest_ - base_ : 1;
}

void Flight::End(uint64_t ticket) {
  const auto it = waiting_.find(ticket);
  --in_flight_;
  bytes_in_flight_ -= it->second.head.size() + it->second.bulk.size();
  if (spare_.size() < 64) spare_.push_back(std::move(it->second.head));
  waiting_.erase(it);
}

std::unique_ptr<Flight::Reply> Flight::NewReply() {
  if (spare_replies_.empty()) return std::make_unique<Reply>();
  auto r = std::move(spare_replies_.back());
  spare_replies_.pop_back();
  r->failed = absl::OkStatus();
  return r;
}

StatusOr<bool> Flight::OnMessage(const ClientChannel::Message& message, Status& stray) {
  part_ = {};
  auto r = NewReply();
  OPWIRE_ASSIGN_OR_RETURN(r->reply, DecodeReply(AsBytes(message.head), r->head));
  const uint64_t ticket = r->reply->seq() + base_;
  const auto it = waiting_.find(ticket);
  if (it == waiting_.end()) {
    stray = StatusOf(*r->reply);
    spare_replies_.push_back(std::move(r));
    return false;
  }
  const bool abandoned = it->second.abandoned;
  if (!r->reply->last()) {
    if (partial_) spare_replies_.push_back(std::move(partial_));
    partial_ = std::move(r);
    if (!abandoned) part_ = {ticket, partial_->reply};
    return true;
  }
  End(ticket);
  if (abandoned) {
    spare_replies_.push_back(std::move(r));
  } else {
    r->bulk = message.bulk;
    ended_.emplace(ticket, std::move(r));
  }
  return true;
}

StatusOr<Flight::Answer> Flight::Take(uint64_t ticket) {
  const auto it = ended_.find(ticket);
  if (it == ended_.end()) return Internal("request {} has no reply to take", ticket);
  if (taken_ && spare_replies_.size() < 64) spare_replies_.push_back(std::move(taken_));
  taken_ = std::move(it->second);
  ended_.erase(it);
  if (!taken_->failed.ok()) return taken_->failed;
  return Answer{taken_->reply, &taken_->bulk};
}

void Flight::Abandon(uint64_t ticket) {
  if (const auto it = waiting_.find(ticket); it != waiting_.end()) it->second.abandoned = true;
  ended_.erase(ticket);
}

std::vector<uint64_t> Flight::Unanswered() const {
  std::vector<uint64_t> order;
  for (const auto& [ticket, r] : waiting_) order.push_back(ticket);
  std::sort(order.begin(), order.end());
  return order;
}

std::optional<Flight::Again> Flight::Find(uint64_t ticket) const {
  const auto it = waiting_.find(ticket);
  if (it == waiting_.end()) return std::nullopt;
  return Again{AsBytes(it->second.head), AsBytes(it->second.bulk)};
}

void Flight::FailAll(const Status& why) {
  std::vector<uint64_t> all;
  for (const auto& [ticket, r] : waiting_) all.push_back(ticket);
  for (uint64_t ticket : all) {
    const bool abandoned = waiting_.at(ticket).abandoned;
    End(ticket);
    if (abandoned) continue;
    auto r = NewReply();
    r->failed = why;
    ended_.emplace(ticket, std::move(r));
  }
}

}  // namespace opwire::client
