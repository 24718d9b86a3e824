// Reading a chunk while the one before it is copied.
#include "executor/serve/pinned_staging.h"

#include <unistd.h>

#include <algorithm>

#include "ir/wire/clock.h"

namespace opwire::executor {
namespace {

constexpr int64_t kPairBytes = 2 * PinnedStaging::kChunkBytes;
constexpr Nanos kLook = kSecond;  // between looks at whether the device still works

}  // namespace

StatusOr<std::shared_ptr<const PinnedStaging::ChunkPair>> PinnedStaging::Take() {
  if (!stream_) {
    OPWIRE_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  }
  if (spare_.empty()) {
    if (!host_budget_->Fits(kPairBytes)) {
      return ResourceExhausted(
          "out of the host's memory: a load takes {} bytes, the executor holds {} of {}",
          kPairBytes, host_budget_->in_use, host_budget_->limit);
    }
    OPWIRE_ASSIGN_OR_RETURN(void* const chunks,
                            device_.Allocate(kPairBytes, MemoryKind::kPinnedHost));
    host_budget_->Take(kPairBytes);
    spare_.push_back(static_cast<uint8_t*>(chunks));
  }
  uint8_t* const chunks = spare_.back();
  spare_.pop_back();
  return std::make_shared<const ChunkPair>(*this, chunks);
}

void PinnedStaging::Trim() {
  for (uint8_t* const chunks : spare_) {
    device_.Free(chunks);
    host_budget_->in_use -= kPairBytes;
  }
  spare_.clear();
}

// Synchronize would look at streams that the device thread captures. A device that has failed is
// never done, but takes no more work either.
Status PinnedStaging::WaitFor(EventId event) {
  for (Nanos look = MonotonicNow() + kLook; !device_.Done(event);) {
    usleep(20);
    if (MonotonicNow() < look) continue;
    OPWIRE_RETURN_IF_ERROR(device_.Record(*stream_).status());
    look = MonotonicNow() + kLook;
  }
  return absl::OkStatus();
}

Status PinnedStaging::Load(const OpenedTensor& file, uint8_t* to, uint8_t* chunks, EventId after) {
  OPWIRE_RETURN_IF_ERROR(device_.Wait(*stream_, after));
  std::optional<EventId> copied;  // the chunk before
  Status status;
  for (int64_t at = 0; at < file.tensor.bytes && status.ok(); at += kChunkBytes) {
    uint8_t* const chunk = chunks + at % kPairBytes;
    const int64_t bytes = std::min(kChunkBytes, file.tensor.bytes - at);
    status = ReadTensor(file, at, bytes, chunk);
    if (status.ok() && copied) status = WaitFor(*copied);
    if (status.ok()) status = device_.Copy(to + at, chunk, bytes, *stream_);
    if (!status.ok()) break;
    const StatusOr<EventId> behind = device_.Record(*stream_);
    if (behind.ok())
      copied = *behind;
    else
      status = behind.status();
  }
  if (copied) status.Update(WaitFor(*copied));
  return status;
}

}  // namespace opwire::executor
