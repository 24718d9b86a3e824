// The client's requests in flight, as a state machine: sequence numbers, credit, the match of
// replies and requests, and requests to send again after a reconnect. It uses no socket and no
// clock.
#ifndef OPWIRE_FRONTEND_CPP_FLIGHT_H_
#define OPWIRE_FRONTEND_CPP_FLIGHT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/wire/channel.h"
#include "ir/wire/message.h"

namespace opwire::client {

class Flight {
 public:
  // Sets the credit that the executor granted.
  void SetCredit(uint32_t requests, uint64_t bytes) {
    credit_requests_ = requests;
    credit_bytes_ = bytes;
  }
  // Whether a request of this size may be sent now; otherwise wait for a reply.
  bool HasCredit(size_t bytes) const {
    return in_flight_ == 0 ||
           (in_flight_ < credit_requests_ && bytes_in_flight_ + bytes <= credit_bytes_);
  }

  // The sequence number that the next request must carry.
  uint64_t next_seq() const { return next_ - base_; }
  // The sequence number of a ticket of this session.
  uint64_t SequenceOf(uint64_t ticket) const { return ticket - base_; }
  // The replies to all requests below this number have arrived.
  uint64_t acked() const;
  // Keeps a request until its reply. The ticket then names it, across sessions. REQUIRES: it
  // carries next_seq().
  uint64_t Sent(Bytes head, Bytes bulk);

  // Handles a reply from the wire. Returns false if no request waits for it: a repetition, or a
  // reply without a request, whose status is in `stray`. INVALID_ARGUMENT if the bytes are not a
  // reply.
  StatusOr<bool> OnMessage(const ClientChannel::Message& message, Status& stray);

  // The part of a reply in the last message, before the reply's end; nullptr if it was not a part.
  // Valid until the next message.
  struct Part {
    uint64_t ticket = 0;
    const fb::Reply* reply = nullptr;
  };
  const Part& part() const { return part_; }

  // Whether the request has ended, with or without an error.
  bool Ended(uint64_t ticket) const { return !waiting_.contains(ticket); }
  bool idle() const { return in_flight_ == 0; }
  // Takes the reply of a request that ended, or its status from FailAll. The pointer is valid until
  // the next Take.
  struct Answer {
    const fb::Reply* reply;
    std::string* bulk;
  };
  StatusOr<Answer> Take(uint64_t ticket);
  // Drops the reply when it comes.
  void Abandon(uint64_t ticket);

  // After a reconnect: the tickets of the requests to send again, oldest first; and such a request,
  // unless its reply came meanwhile.
  std::vector<uint64_t> Unanswered() const;
  struct Again {
    Bytes head, bulk;
  };
  std::optional<Again> Find(uint64_t ticket) const;
  // The session is lost: everything in flight ends with this status. Call Restart before the next
  // session's first request.
  void FailAll(const Status& why);
  void Restart() { base_ = next_ - 1; }

 private:
  struct Request {
    std::string head, bulk;
    bool abandoned = false;
  };
  std::string Spare();
  void End(uint64_t ticket);

  uint64_t next_ = 1;  // ticket; the sequence number is the ticket minus base_
  uint64_t base_ = 0;
  mutable uint64_t oldest_ = 1;  // no lower ticket waits
  uint32_t credit_requests_ = 1;
  uint64_t credit_bytes_ = 0;
  size_t in_flight_ = 0;
  uint64_t bytes_in_flight_ = 0;
  absl::flat_hash_map<uint64_t, Request> waiting_;
  struct Reply {
    AlignedBytes head;
    std::string bulk;
    const fb::Reply* reply = nullptr;  // in head
    Status failed;
  };
  std::unique_ptr<Reply> NewReply();
  absl::flat_hash_map<uint64_t, std::unique_ptr<Reply>> ended_;
  std::vector<std::string> spare_;
  std::vector<std::unique_ptr<Reply>> spare_replies_;
  std::unique_ptr<Reply> taken_;
  std::unique_ptr<Reply> partial_;
  Part part_;  // in partial_
};

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_FLIGHT_H_
