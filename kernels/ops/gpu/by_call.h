// Objects that take long to make and are the same for equal calls. Each is made once, and exists as
// long as it has an owner.
//
//   static ByCall<CudnnGraph> graphs;
//   StatusOr<std::shared_ptr<const CudnnGraph>> graph = graphs.Get(key, [&] { return Build(call);
//       });
#ifndef OPWIRE_KERNELS_OPS_GPU_BY_CALL_H_
#define OPWIRE_KERNELS_OPS_GPU_BY_CALL_H_

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "ir/base/status.h"

namespace opwire::gpu {

template <typename T>
class ByCall {
 public:
  // `make` returns a StatusOr<std::unique_ptr<T>>. If several threads request a key at once, one
  // makes the object and the others wait. After a failure each of them tries again. Any thread.
  template <typename Make>
  StatusOr<std::shared_ptr<const T>> Get(const std::string& key, const Make& make) {
    std::unique_lock lock(mutex_);
    made_.wait(lock, [&] { return !making_.contains(key); });
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    if (const auto found = known_.find(key); found != known_.end()) {
      if (std::shared_ptr<const T> held = found->second.lock()) return held;
    }
    making_.insert(key);
    lock.unlock();
    auto made = make();
    lock.lock();
    making_.erase(key);
    made_.notify_all();
    if (!made.ok()) return made.status();
    std::shared_ptr<const T> out = *std::move(made);
    known_[key] = out;
    return out;
  }

 private:
  std::mutex mutex_;
  std::condition_variable made_;
  std::map<std::string, std::weak_ptr<const T>> known_;
  std::set<std::string> making_;
};

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_BY_CALL_H_
