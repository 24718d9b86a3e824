// Requests that wait for their turn.
#ifndef OPWIRE_EXECUTOR_SESSION_REQUESTS_H_
#define OPWIRE_EXECUTOR_SESSION_REQUESTS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/wire/clock.h"
#include "ir/wire/message.h"

namespace opwire::executor {

// Checked and private.
struct QueuedRequest {
  AlignedBytes head;
  std::string bulk;
  const fb::Request* request = nullptr;  // points into head
  uint32_t attachment = 0;
  Nanos arrival = 0;
  Nanos deadline = kNever;
  Status refusal;  // it ends so when its turn comes: until then it only frees
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
  std::vector<Item>::const_iterator begin() const {
    return items_.begin() + static_cast<ptrdiff_t>(head_);
  }
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

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SESSION_REQUESTS_H_
