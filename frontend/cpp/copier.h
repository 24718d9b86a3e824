// Copies of much memory, without the caches and by a few threads, if one memcpy is slower than a
// device.
#ifndef OPWIRE_FRONTEND_CPP_COPIER_H_
#define OPWIRE_FRONTEND_CPP_COPIER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace opwire::client {

class Copier {
 public:
  // `bytes`: the total, in one call or in pieces. Below 64 MiB it uses memcpy; for larger totals it
  // has threads of its own, which end with it.
  explicit Copier(size_t bytes);
  ~Copier();
  Copier(const Copier&) = delete;

  // All is copied when it returns. One caller at a time; the ranges do not overlap.
  void Copy(uint8_t* to, const uint8_t* from, size_t bytes);

 private:
  void Help(size_t number);
  void CopyPart(size_t number) const;

  uint8_t* to_ = nullptr;  // null: the threads end
  const uint8_t* from_ = nullptr;
  size_t bytes_ = 0;
  const bool large_;
  std::vector<std::thread> helpers_;
  std::atomic<uint32_t> round_{0};  // counts the tasks of the helpers
  std::atomic<uint32_t> busy_{0};   // helpers that have not finished the task
};

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_COPIER_H_
