// Mapping, registering and giving back a session's segment.
#include "executor/store/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace opwire::executor {
namespace {

constexpr int64_t kSystemPage = 4096;
constexpr int64_t kPieceBytes = int64_t{64} << 20;

}  // namespace

StatusOr<std::unique_ptr<Segment>> Segment::Create(int64_t capacity, Device* device) {
  capacity = (capacity + kSystemPage - 1) / kSystemPage * kSystemPage;
  auto segment = std::unique_ptr<Segment>(new Segment(capacity));
  segment->device_ = device;
  segment->fd_ = memfd_create("opwire", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment->fd_ < 0) return Unavailable("segment: memfd_create: {}", std::strerror(errno));
  if (ftruncate(segment->fd_, capacity) != 0 ||
      fcntl(segment->fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Unavailable("segment of {} bytes: {}", capacity, std::strerror(errno));
  }
  void* base = mmap(nullptr, static_cast<size_t>(capacity), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, segment->fd_, 0);
  if (base == MAP_FAILED)
    return Unavailable("segment of {} bytes: {}", capacity, std::strerror(errno));
  segment->base_ = static_cast<uint8_t*>(base);
  return segment;
}

Segment::~Segment() {
  Unregister(0);
  if (base_) munmap(base_, static_cast<size_t>(capacity()));
  if (fd_ >= 0) close(fd_);
}

StatusOr<int64_t> Segment::Allocate(int64_t bytes) {
  OPWIRE_ASSIGN_OR_RETURN(const int64_t offset, blocks_.Allocate(bytes));
  touched_ = std::max(touched_, blocks_.top());
  return offset;
}

int64_t Segment::BeginCopy(int64_t offset, int64_t bytes) {
  const int64_t begin = offset / kPieceBytes * kPieceBytes,
                end = std::min(begin + kPieceBytes, capacity());
  const auto at = static_cast<size_t>(offset / kPieceBytes);
  if (pieces_.size() <= at) pieces_.resize(at + 1);
  Piece& piece = pieces_[at];
  // Where the device refuses memory it stays as it is: copies are slower, no more.
  if (piece.used && !piece.registered)
    piece.registered = device_->RegisterHost(base_ + begin, end - begin).ok();
  piece.used = true;
  return std::min(bytes, end - offset);
}

void Segment::Unregister(int64_t bytes) {
  for (; static_cast<int64_t>(pieces_.size()) * kPieceBytes >= bytes + kPieceBytes;
       pieces_.pop_back()) {
    if (pieces_.back().registered)
      device_->UnregisterHost(base_ + static_cast<int64_t>(pieces_.size() - 1) * kPieceBytes);
  }
}

void Segment::Trim() {
  blocks_.Coalesce();
  Unregister(blocks_.top());
  const auto punch = [&](int64_t begin, int64_t end) {
    const int64_t from = (begin + kSystemPage - 1) / kSystemPage * kSystemPage,
                  to = end / kSystemPage * kSystemPage;
    if (to > from) fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from);
  };
  // Registered pages stay where they are, whatever is punched.
  if (!device_) {
    for (const auto& [offset, size] : blocks_.gaps()) punch(offset, offset + size);
  }
  punch(std::max(blocks_.top(), static_cast<int64_t>(pieces_.size()) * kPieceBytes),
        (touched_ + kSystemPage - 1) / kSystemPage * kSystemPage);
  touched_ = blocks_.top();
}

}  // namespace opwire::executor
