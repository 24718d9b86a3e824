// The name of an executor: one process at a time has it in a runtime directory.
#ifndef OPWIRE_EXECUTOR_SERVE_NAME_LOCK_H_
#define OPWIRE_EXECUTOR_SERVE_NAME_LOCK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace opwire::executor {

// A lock on the file NAME.lock. The file holds the name's claim, by which a registry knows that a
// restarted executor is no other one of the same name, and the process that has the lock.
class NameLock {
 public:
  // Waits a second for a process that is ending. ALREADY_EXISTS when another one has the name,
  // RESOURCE_EXHAUSTED when the directory is full.
  static StatusOr<std::unique_ptr<NameLock>> Take(const std::string& directory,
                                                  const std::string& name);
  ~NameLock();
  NameLock(const NameLock&) = delete;

  // 16 bytes; the same after a restart, unless the file was removed.
  const std::vector<uint8_t>& claim() const { return claim_; }
  // For an orderly end: then no claim is needed.
  void Remove();

 private:
  NameLock(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status ReadOrWriteClaim();

  const int fd_;
  const std::string path_;
  std::vector<uint8_t> claim_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_NAME_LOCK_H_
