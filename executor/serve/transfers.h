// Bulk transfers that the run socket opened and the control socket moves, chunk by chunk, in
// parallel with the runs.
#ifndef OPWIRE_EXECUTOR_SERVE_TRANSFERS_H_
#define OPWIRE_EXECUTOR_SERVE_TRANSFERS_H_

#include <cstring>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "ir/base/status.h"
#include "ir/wire/message.h"

namespace opwire::executor {

// A buffer that the device thread holds while the ticket is open owns the memory. Tickets are
// random: a peer that knows one may use it.
class Transfers {
 public:
  // Device thread.
  uint64_t Open(uint8_t* data, int64_t bytes, bool writable);
  void Close(uint64_t ticket) {
    std::lock_guard lock(mutex_);
    open_.erase(ticket);
  }

  // Any thread.
  Status Write(uint64_t ticket, uint64_t offset, Bytes bytes) {
    std::lock_guard lock(mutex_);
    OPWIRE_ASSIGN_OR_RETURN(uint8_t* const at, Range(ticket, offset, bytes.size(), true));
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  // Appends the bytes to `out`.
  Status Read(uint64_t ticket, uint64_t offset, uint64_t size, std::string& out) {
    std::lock_guard lock(mutex_);
    OPWIRE_ASSIGN_OR_RETURN(const uint8_t* const at, Range(ticket, offset, size, false));
    out.append(reinterpret_cast<const char*>(at), size);
    return absl::OkStatus();
  }

 private:
  struct Entry {
    uint8_t* data;
    uint64_t bytes;
    bool writable;
  };

  StatusOr<uint8_t*> Range(uint64_t ticket, uint64_t offset, uint64_t size, bool write) {
    const auto it = open_.find(ticket);
    if (it == open_.end()) return NotFound("transfer: no such ticket is open");
    const Entry& e = it->second;
    if (write != e.writable)
      return FailedPrecondition("transfer: expected to {} by it", e.writable ? "write" : "read");
    if (size > kChunkBytes || size > e.bytes || offset > e.bytes - size) {
      return InvalidArgument("transfer: {} bytes at {} of {}; a chunk holds at most {}", size,
                             offset, e.bytes, kChunkBytes);
    }
    return e.data + offset;
  }

  std::mutex mutex_;
  absl::flat_hash_map<uint64_t, Entry> open_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_TRANSFERS_H_
