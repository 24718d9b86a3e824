// What was made of programs, once for equal ones as long as somebody holds it.
#ifndef OPWIRE_KERNELS_FUSED_BY_SOURCE_H_
#define OPWIRE_KERNELS_FUSED_BY_SOURCE_H_

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace opwire::fused {

template <typename Entry>
class BySource {
 public:
  // What there is, or else what `make` gives. `identity`: the program's. Any thread.
  template <typename Make>
  std::shared_ptr<Entry> Get(const std::string& identity, const Make& make) {
    const std::lock_guard lock(mutex_);
    if (++asked_ % kSweepEvery == 0)
      std::erase_if(entries_, [](const auto& e) { return e.second.expired(); });
    std::weak_ptr<Entry>& known = entries_[identity];
    std::shared_ptr<Entry> entry = known.lock();
    if (!entry) known = entry = make();
    return entry;
  }

 private:
  static constexpr uint64_t kSweepEvery = 1024;
  std::mutex mutex_;  // guards what follows
  std::unordered_map<std::string, std::weak_ptr<Entry>> entries_;
  uint64_t asked_ = 0;
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_BY_SOURCE_H_
