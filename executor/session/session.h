// A session: what one principal holds on this executor. Clients speak for it through attachments,
// each with its own sequence of requests and window of replies.
#ifndef OPWIRE_EXECUTOR_SESSION_SESSION_H_
#define OPWIRE_EXECUTOR_SESSION_SESSION_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "executor/plan/program.h"
#include "executor/run/run.h"
#include "executor/session/replies.h"
#include "executor/session/requests.h"
#include "executor/store/store.h"
#include "ir/wire/channel.h"
#include "ir/wire/message.h"

namespace opwire {

// Names that clients give to sessions and tensors are kept as they are, or refused with
// INVALID_ARGUMENT.
Status CheckName(std::string_view what, std::string_view name, size_t most);
inline constexpr size_t kSessionNameBytes = 128;
inline constexpr size_t kTensorNameBytes = 256;

using Token = std::array<uint8_t, 16>;
inline constexpr PeerId kNoPeer = UINT64_MAX;

struct Attachment {
  explicit Attachment(size_t window) : replies(window) {}
  uint32_t id = 0;
  Token token{};
  std::string client;
  PeerId peer = kNoPeer;            // kNoPeer: lost
  Nanos lost_at = 0;                // since when
  std::function<bool()> has_ended;  // whether the process that was lost has; empty: not known
  uint64_t next_seq = 1;
  ReplyWindow replies;
  Outbox outbox;
  int64_t in_flight = 0;
  int64_t bytes_in_flight = 0;

  // What a run emits goes to a client that is there and reads.
  bool TakesEmitted() const {
    return peer == kNoPeer || (outbox.size() < kMostEmitted && !outbox.full());
  }
  static constexpr size_t kMostEmitted = 64;
};

// How far a batch is. Between its runs other sessions have their slices.
struct BatchProgress {
  bool active = false;
  uint32_t next = 0;  // the run that goes on or begins next
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::RunReply>> replies;
  flatbuffers::Offset<fb::RunReply>
      silent;  // in `replies` for all runs that have nothing to tell; null: for none yet
  void Clear() {
    active = false;
    next = 0;
    builder.Clear();
    replies.clear();
    silent = {};
  }
};

struct ProgramSlot {
  std::shared_ptr<const Program> program;
  Reservation of_quota;
};

// A transfer that is open, and whose: it ends with its client.
struct TransferTicket {
  uint64_t ticket = 0;
  uint32_t attachment = 0;
};

// A tensor as it was when it was granted, for other sessions to take.
struct Grant {
  Token capability{};
  std::string principal, session;  // who may take it; an empty session: all of the principal's
  std::string name;
  Tensor tensor;
  bool To(const std::string& other_principal, const std::string& other_session) const {
    return principal == other_principal && (session.empty() || session == other_session);
  }
};

struct Session {
  Session() = default;
  Session(const Session&) = delete;
  ~Session() {
    if (store) store->End();
  }
  uint64_t id = 0;
  std::string principal;
  std::string name;       // empty: unnamed
  Nanos ttl = 0;          // of a named one without clients
  Nanos empty_since = 0;  // when the last client left
  uint32_t next_attachment = 1;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Attachment>> attachments;
  std::shared_ptr<Store> store;  // beyond the session's end: that of who took what it granted
  std::shared_ptr<const KernelSet> kernels;
  // Each client numbers its own.
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, ProgramSlot> slots;  // by (attachment, slot)

  RequestQueue queue;
  bool waiting = false;  // its head waits for a worker
  bool in_ready_list = false;
  Nanos device_time = 0;         // that it has used, for fairness
  Nanos device_time_before = 0;  // of that, before the request at the head of the queue
  Nanos virtual_time = 0;
  uint64_t runs = 0;
  Run run;                       // the one that has begun, if any
  uint32_t parts = 0;            // of its head's reply that were sent
  BatchProgress batch;           // its head's, where that is one
  std::optional<Staged> staged;  // what its head copies between the device and the segment; between
                                 // steps other sessions have their slices
  Nanos last_used = 0;
  std::vector<TransferTicket> transfers;
  std::vector<Grant> grants;  // the oldest first

  Attachment* FindAttachment(uint32_t attachment) {
    const auto it = attachments.find(attachment);
    return it == attachments.end() ? nullptr : it->second.get();
  }
  const Attachment* FindAttachment(uint32_t attachment) const {
    const auto it = attachments.find(attachment);
    return it == attachments.end() ? nullptr : it->second.get();
  }
  // The first request whose client has room for its reply: it reads, or is away and the window will
  // keep it. The end: there is none. Only requests of one client have an order.
  std::vector<RequestQueue::Item>::const_iterator Next() const {
    return std::find_if(queue.begin(), queue.end(), [&](const RequestQueue::Item& q) {
      const Attachment* a = FindAttachment(q->attachment);
      return !a || !(a->peer == kNoPeer ? a->replies.full() : a->outbox.full());
    });
  }
  bool Begun() const { return run.active() || batch.active || staged; }  // the head
  // The run that has begun waits until its client reads what it emitted.
  bool Blocked() const {
    const Attachment* a =
        run.waits_to_emit() ? FindAttachment((*queue.begin())->attachment) : nullptr;
    return a && !a->TakesEmitted();
  }
  bool HasWork() const { return !waiting && (Begun() ? !Blocked() : Next() != queue.end()); }
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_SESSION_SESSION_H_
