// Threads for work that must not delay runs: verifying, planning, files.
#ifndef OPWIRE_EXECUTOR_SERVE_WORKERS_H_
#define OPWIRE_EXECUTOR_SERVE_WORKERS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace opwire::executor {

class Workers {
 public:
  explicit Workers(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  }
  // Waits for running work. Queued work is dropped.
  ~Workers() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  void Submit(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

 private:
  void Loop() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return ended_ || !queue_.empty(); });
        if (ended_) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_WORKERS_H_
