// A session: what one principal holds on this executor. Clients speak for it through attachments, each with its own sequence of
// requests and window of replies.
#ifndef OPWIRE_EXECUTOR_SESSION_SESSION_H_
#define OPWIRE_EXECUTOR_SESSION_SESSION_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "executor/plan/program.h"
#include "executor/run/run.h"
#include "executor/store/store.h"
#include "ir/wire/channel.h"
#include "ir/wire/message.h"

namespace opwire {

using Token = std::array<uint8_t, 16>;
inline constexpr PeerId kNoPeer = UINT64_MAX;

// A request that waits for its turn, checked and private.
struct QueuedRequest {
  AlignedBytes head;
  std::string bulk;
  const fb::Request* request = nullptr;  // points into head
  uint32_t attachment = 0;
  Nanos arrival = 0;
  Nanos deadline = kNever;
  bool cancelled = false;                // ends so when its turn comes
  size_t bytes() const { return head.size() + bulk.size(); }
  // Worth keeping for another request.
  bool Small() const { return head.capacity() + bulk.capacity() <= 64 << 10; }
};

// Requests in order. Unlike a deque it takes no memory once it is warm.
class RequestQueue {
 public:
  using Item = std::unique_ptr<QueuedRequest>;
  void push_back(Item item) {
    if (head_ >= 64 && 2 * head_ >= items_.size()) {
      items_.erase(items_.begin(), begin());
      head_ = 0;
    }
    items_.push_back(std::move(item));
  }
  Item& front() { return items_[head_]; }
  void pop_front() {
    if (++head_ == items_.size()) clear();
  }
  std::vector<Item>::iterator begin() { return items_.begin() + static_cast<ptrdiff_t>(head_); }
  std::vector<Item>::iterator end() { return items_.end(); }
  std::vector<Item>::const_iterator begin() const { return items_.begin() + static_cast<ptrdiff_t>(head_); }
  std::vector<Item>::const_iterator end() const { return items_.end(); }
  void BringForward(std::vector<Item>::const_iterator it) {
    const auto item = items_.begin() + (it - items_.cbegin());
    std::rotate(begin(), item, item + 1);
  }
  bool empty() const { return head_ == items_.size(); }
  size_t size() const { return items_.size() - head_; }
  void clear() {
    items_.clear();
    head_ = 0;
  }

 private:
  std::vector<Item> items_;
  size_t head_ = 0;  // those before it were taken
};

// The last replies, so that a retry after a reconnect gets the answer of the first try.
class ReplyWindow {
 public:
  enum class State : uint8_t { kUnknown, kPending, kDone };
  struct Entry {
    uint64_t seq = 0;
    State state = State::kUnknown;
    std::string head, bulk;
  };

  explicit ReplyWindow(size_t size) : entries_(size) {}
  void Begin(uint64_t seq);
  // Keeps the reply; entries keep their capacity. The change of held().
  int64_t Finish(uint64_t seq, Bytes head, Bytes bulk);
  // kUnknown: so long ago that it is forgotten.
  const Entry& Find(uint64_t seq) const;
  // The client has the replies below `seq`: gives back what large ones hold. The change of held().
  int64_t Acknowledge(uint64_t seq);
  // Bytes of large replies. Beyond kMostHeld the oldest are forgotten: more than a channel and an outbox hold, so that those are replies
  // that the client has.
  int64_t held() const { return held_; }
  static constexpr int64_t kMostHeld = 16 << 20;
  // Another reply may make it forget one.
  bool full() const { return held_ + 2 * static_cast<int64_t>(kMaxFrameBytes) > kMostHeld; }

 private:
  static constexpr size_t kSmall = 4096;
  static int64_t HeldBy(const Entry& e) {
    const size_t bytes = e.head.capacity() + e.bulk.capacity();
    return bytes > kSmall ? static_cast<int64_t>(bytes) : 0;
  }
  Entry& At(uint64_t seq) { return entries_[seq % entries_.size()]; }
  void Forget(Entry& e);
  uint64_t acknowledged_ = 0;
  uint64_t forgotten_ = 0;  // of those below, no large ones are left
  int64_t held_ = 0;
  std::vector<Entry> entries_;
};

// Replies that wait: for others to go out with, or for a client that has much to read. Where it has, what it asked for waits too.
class Outbox {
 public:
  struct Message {
    std::string head, bulk;
    int64_t bytes() const { return static_cast<int64_t>(head.size() + bulk.size()); }
  };
  void push_back(Bytes head, Bytes bulk) {
    if (end_ == messages_.size()) messages_.emplace_back();
    Message& m = messages_[end_++];
    m.head.assign(reinterpret_cast<const char*>(head.data()), head.size());
    m.bulk.assign(reinterpret_cast<const char*>(bulk.data()), bulk.size());
    bytes_ += m.bytes();
  }
  const Message& front() const { return messages_[begin_]; }
  // Small ones keep their memory.
  void pop_front() {
    Message& m = messages_[begin_++];
    bytes_ -= m.bytes();
    if (m.bytes() > kSmall) m = {};
    if (begin_ == end_) begin_ = end_ = 0;
  }
  bool empty() const { return begin_ == end_; }
  size_t size() const { return end_ - begin_; }
  int64_t bytes() const { return bytes_; }
  bool full() const { return bytes_ >= kFull; }
  static constexpr int64_t kSmall = 1000;
  static constexpr int64_t kFull = 4 << 20;

 private:
  std::vector<Message> messages_;
  size_t begin_ = 0, end_ = 0;
  int64_t bytes_ = 0;
};

struct Attachment {
  explicit Attachment(size_t window) : replies(window) {}
  uint32_t id = 0;
  Token token{};
  std::string client;
  PeerId peer = kNoPeer;      // kNoPeer: lost
  Nanos lost_at = 0;          // since when
  uint64_t next_seq = 1;
  ReplyWindow replies;
  Outbox outbox;
  int64_t in_flight = 0;
  int64_t bytes_in_flight = 0;
};

// How far a batch is. Between its runs other sessions have their slices.
struct BatchProgress {
  bool active = false;
  uint32_t next = 0;  // the run that goes on or begins next
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::RunReply>> replies;
  void Clear() {
    active = false;
    next = 0;
    builder.Clear();
    replies.clear();
  }
};

struct Session {
  uint64_t id = 0;
  std::string principal;
  std::string name;           // empty: unnamed
  Nanos ttl = 0;              // of a named one without clients
  Nanos empty_since = 0;      // when the last client left
  uint32_t next_attachment = 1;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Attachment>> attachments;
  std::unique_ptr<Store> store;
  // Each client numbers its own.
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, std::shared_ptr<const Program>> slots;  // by (attachment, slot)

  RequestQueue queue;
  bool waiting = false;       // its head waits for a worker
  bool in_ready_list = false;
  Nanos device_time = 0;      // that it has used, for fairness
  Nanos virtual_time = 0;
  uint64_t runs = 0;
  Run run;                    // the one that has begun, if any
  BatchProgress batch;        // its head's, where that is one
  Nanos last_used = 0;
  std::vector<uint64_t> tickets;

  Attachment* FindAttachment(uint32_t attachment) {
    const auto it = attachments.find(attachment);
    return it == attachments.end() ? nullptr : it->second.get();
  }
  const Attachment* FindAttachment(uint32_t attachment) const {
    const auto it = attachments.find(attachment);
    return it == attachments.end() ? nullptr : it->second.get();
  }
  // The first request whose client has room for its reply: it reads, or is away and the window will keep it. The end: there is none.
  // Only requests of one client have an order.
  std::vector<RequestQueue::Item>::const_iterator Next() const {
    return std::find_if(queue.begin(), queue.end(), [&](const RequestQueue::Item& q) {
      const Attachment* a = FindAttachment(q->attachment);
      return !a || !(a->peer == kNoPeer ? a->replies.full() : a->outbox.full());
    });
  }
  bool Begun() const { return run.active() || batch.active; }  // the head
  bool HasWork() const { return !waiting && (Begun() || Next() != queue.end()); }
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_SESSION_SESSION_H_
