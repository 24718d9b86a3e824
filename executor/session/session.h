// A session: the state of one principal on this executor. Clients use it through attachments, each
// with its own sequence of requests and window of replies.
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

namespace opwire::executor {

// Checks names that clients give to sessions and tensors. Valid names are kept unchanged, others
// are refused with INVALID_ARGUMENT.
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
  PeerId peer = kNoPeer;  // kNoPeer: lost
  Nanos lost_at = 0;      // the time of the loss
  std::function<bool()>
      has_ended;  // whether the process of a lost client has ended; empty: not known
  uint64_t next_seq = 1;
  ReplyWindow replies;
  Outbox outbox;
  int64_t in_flight = 0;
  int64_t bytes_in_flight = 0;

  // Whether the client can take emitted values: it reads them, or it is away and they are dropped.
  bool TakesEmitted() const {
    return peer == kNoPeer || (outbox.size() < kMostEmitted && !outbox.full());
  }
  static constexpr size_t kMostEmitted = 64;
};

// The progress of a batch. Between its runs other sessions have their slices.
struct BatchProgress {
  bool active = false;
  uint32_t next = 0;  // the index of the active run or of the next one
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::RunReply>> replies;
  flatbuffers::Offset<fb::RunReply>
      silent;  // in `replies` for all runs that have nothing to report; null: for none yet
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

// An open transfer and its attachment: it ends with its client.
struct TransferTicket {
  uint64_t ticket = 0;
  uint32_t attachment = 0;
};

// A tensor with its value at the time of the grant, for other sessions to take.
struct Grant {
  Token capability{};
  std::string principal, session;  // the receiver; an empty session: all of the principal's
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
  Nanos ttl = 0;          // of a named session without clients
  Nanos empty_since = 0;  // when the last client left
  uint32_t next_attachment = 1;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Attachment>> attachments;
  std::shared_ptr<Store> store;  // outlives the session if others took granted tensors
  std::shared_ptr<const KernelSet> kernels;
  // Each client numbers its own slots.
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, ProgramSlot> slots;  // by (attachment, slot)

  RequestQueue queue;
  bool waiting = false;  // its head waits for a worker
  bool in_ready_list = false;
  Nanos device_time = 0;         // used so far, for fairness
  Nanos device_time_before = 0;  // of device_time, before the request at the head of the queue
  Nanos virtual_time = 0;
  uint64_t runs = 0;
  Run run;                       // the active run, if any
  uint32_t parts = 0;            // of the head's reply: those that were sent
  BatchProgress batch;           // of the head request, if that is a batch
  std::optional<Staged> staged;  // the copy of the head request between the device and the segment;
                                 // between steps other sessions have their slices
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
  // Returns the first request whose client has room for its reply. The client reads, or it is away
  // and the window will keep the reply. Returns the end if there is none. Only requests of one
  // client have an order.
  std::vector<RequestQueue::Item>::const_iterator Next() const {
    return std::find_if(queue.begin(), queue.end(), [&](const RequestQueue::Item& q) {
      const Attachment* a = FindAttachment(q->attachment);
      return !a || !(a->peer == kNoPeer ? a->replies.full() : a->outbox.full());
    });
  }
  bool Begun() const { return run.active() || batch.active || staged; }  // the head
  // Whether the active run waits until its client reads emitted values.
  bool Blocked() const {
    const Attachment* a =
        run.waits_to_emit() ? FindAttachment((*queue.begin())->attachment) : nullptr;
    return a && !a->TakesEmitted();
  }
  bool HasWork() const { return !waiting && (Begun() ? !Blocked() : Next() != queue.end()); }
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SESSION_SESSION_H_
