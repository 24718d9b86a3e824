// Closures for another thread, with a descriptor to poll.
#ifndef OPWIRE_EXECUTOR_SERVE_MAILBOX_H_
#define OPWIRE_EXECUTOR_SERVE_MAILBOX_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace opwire::executor {

class Mailbox {
 public:
  Mailbox() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Mailbox() { close(fd_); }
  Mailbox(const Mailbox&) = delete;

  // Any thread.
  void Post(std::function<void()> f) {
    {
      std::lock_guard lock(mutex_);
      posted_.push_back(std::move(f));
    }
    if (!waiting_.exchange(true, std::memory_order_acq_rel)) {
      const uint64_t one = 1;
      (void)!write(fd_, &one, sizeof(one));
    }
  }

  // The owner: runs the posted closures. Costs one load if there are none.
  void Drain() {
    if (!waiting_.load(std::memory_order_acquire)) return;
    uint64_t count;
    (void)!read(fd_, &count, sizeof(count));
    waiting_.store(false, std::memory_order_release);
    {
      std::lock_guard lock(mutex_);
      taken_.swap(posted_);
    }
    for (auto& f : taken_) f();
    taken_.clear();
  }

  int fd() const { return fd_; }

 private:
  const int fd_;
  std::atomic<bool> waiting_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_, taken_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_MAILBOX_H_
