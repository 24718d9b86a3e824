// Replies that were sent, kept for a retry, and replies that wait to be sent.
#ifndef OPWIRE_EXECUTOR_SESSION_REPLIES_H_
#define OPWIRE_EXECUTOR_SESSION_REPLIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/wire/message.h"

namespace opwire::executor {

// Also frees its memory, which an emptied string would keep.
inline void Drop(std::string& s) { std::string().swap(s); }

// The last replies, so that a retry after a reconnect gets the reply of the first try.
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
  // Keeps the reply; entries keep their capacity. Returns the change of held().
  int64_t Finish(uint64_t seq, Bytes head, Bytes bulk);
  // kUnknown: so old that it is forgotten.
  const Entry& Find(uint64_t seq) const;
  // The client has the replies below `seq`: frees the memory of large ones. Returns the change of
  // held().
  int64_t Acknowledge(uint64_t seq);
  // Bytes of large replies. Beyond kMostHeld the oldest are forgotten. That is more than a channel
  // and an outbox hold, so the client has those replies already.
  int64_t held() const { return held_; }
  static constexpr int64_t kMostHeld = 16 << 20;
  // Whether the next reply may make it forget one.
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
  uint64_t forgotten_ = 0;  // below it there are no large replies
  int64_t held_ = 0;
  std::vector<Entry> entries_;
};

// Replies that wait, to be sent with others, or for a client that has much to read. Requests of
// such a client wait too.
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
    if (m.bytes() > kSmall) Drop(m.head), Drop(m.bulk);
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

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SESSION_REPLIES_H_
