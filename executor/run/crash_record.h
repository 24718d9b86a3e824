// Where the device thread is, in a mapped file that outlives the process: who reads it after a crash can say what died where.
#ifndef OPWIRE_EXECUTOR_RUN_CRASH_RECORD_H_
#define OPWIRE_EXECUTOR_RUN_CRASH_RECORD_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "ir/base/status.h"

namespace opwire {

class CrashRecord {
 public:
  struct Contents {
    uint64_t magic;
    uint64_t incarnation;
    uint64_t steps;      // begun so far; a watchdog sees by it whether a kernel hangs
    uint32_t running;    // 1 between a run's first and last step
    uint32_t node;
    char program[64];
    char label[32];      // "op@variant"
  };

  // Maps the file anew. What an earlier process left running there comes back in `died`: "matmul@onednn (node %3 of @mlp)"; empty when
  // it ended in peace.
  static StatusOr<std::unique_ptr<CrashRecord>> Open(const std::string& path, uint64_t incarnation, std::string& died);
  ~CrashRecord();

  void BeginRun(const std::string& program) {
    const size_t n = std::min(program.size(), sizeof(c_->program) - 1);
    std::memcpy(c_->program, program.data(), n);
    c_->program[n] = 0;
    c_->running = 1;
  }
  void BeginStep(uint32_t node, const char (&label)[32]) {
    std::memcpy(c_->label, label, sizeof(label));
    c_->node = node;
    __atomic_store_n(&c_->steps, c_->steps + 1, __ATOMIC_RELAXED);
  }
  void EndRun() { c_->running = 0; }

  // From any thread; a label may be torn.
  uint64_t steps() const { return __atomic_load_n(&c_->steps, __ATOMIC_RELAXED); }
  std::string label() const { return std::string(c_->label, strnlen(c_->label, sizeof(c_->label))); }

 private:
  CrashRecord() = default;
  Contents* c_ = nullptr;
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_RUN_CRASH_RECORD_H_
