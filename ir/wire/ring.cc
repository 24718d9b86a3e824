// Rings in sealed shared memory.
#include "ir/wire/ring.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace opwire {
namespace {

constexpr uint64_t kCapacity = 4 << 20;  // of one direction; a power of two
constexpr size_t kControlBytes = 4096;
constexpr size_t kTotalBytes = 2 * (kControlBytes + kCapacity);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

struct RecordHeader {
  uint32_t head, bulk;
};

uint64_t Padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

void CopyIn(uint8_t* ring, uint64_t at, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t start = at & (kCapacity - 1), first = std::min(bytes, kCapacity - start);
  std::memcpy(ring + start, from, first);
  if (first < bytes) std::memcpy(ring, static_cast<const uint8_t*>(from) + first, bytes - first);
}

void CopyOut(const uint8_t* ring, uint64_t at, void* to, uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t start = at & (kCapacity - 1), first = std::min(bytes, kCapacity - start);
  std::memcpy(to, ring + start, first);
  if (first < bytes) std::memcpy(static_cast<uint8_t*>(to) + first, ring, bytes - first);
}

// A full pipe wakes the reader as well. A pipe whose reader has died must not end this process,
// whatever its handling of SIGPIPE.
void Wake(int pipe) {
  sigset_t broken, before;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken, &before);
  const char one = 1;
  const timespec now{};
  if (write(pipe, &one, sizeof(one)) < 0 && errno == EPIPE) sigtimedwait(&broken, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

// Each value is written by one side, and has its own cache line.
struct RingEnd::Control {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::atomic<uint32_t> parked;  // the reader waits on its pipe
};

RingEnd::RingEnd(Side side, OwnedFd memory, Wakes own, Wakes other)
    : side_(side), memory_(std::move(memory)), own_(std::move(own)), other_(std::move(other)) {}

RingEnd::~RingEnd() {
  if (base_) munmap(base_, kTotalBytes);
}

Status RingEnd::Map() {
  void* base = mmap(nullptr, kTotalBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (base == MAP_FAILED) return Unavailable("ring: {}", std::strerror(errno));
  base_ = static_cast<uint8_t*>(base);
  Direction to_server{reinterpret_cast<Control*>(base_), base_ + 2 * kControlBytes, 0};
  Direction to_client{reinterpret_cast<Control*>(base_ + kControlBytes),
                      base_ + 2 * kControlBytes + kCapacity, 0};
  in_ = side_ == Side::kServer ? to_server : to_client;
  out_ = side_ == Side::kServer ? to_client : to_server;
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<RingEnd>> RingEnd::Create() {
  OwnedFd memory(memfd_create("opwire-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  int to_server[2] = {-1, -1}, to_client[2] = {-1, -1};
  const bool piped = pipe2(to_server, O_CLOEXEC | O_NONBLOCK) == 0 &&
                     pipe2(to_client, O_CLOEXEC | O_NONBLOCK) == 0;
  Wakes own{OwnedFd(to_server[0]), OwnedFd(to_client[1])},
      other{OwnedFd(to_client[0]), OwnedFd(to_server[1])};
  if (memory.get() < 0 || !piped || ftruncate(memory.get(), kTotalBytes) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return Unavailable("ring: {}", std::strerror(errno));
  }
  auto end = std::unique_ptr<RingEnd>(
      new RingEnd(Side::kServer, std::move(memory), std::move(own), std::move(other)));
  OPWIRE_RETURN_IF_ERROR(end->Map());
  return end;
}

StatusOr<std::unique_ptr<RingEnd>> RingEnd::Open(OwnedFd memory, OwnedFd wake_server,
                                                 OwnedFd wake_client) {
  // These ends are only ours: the flags that the server gave its own do not matter.
  fcntl(wake_server.get(), F_SETFL, O_NONBLOCK);
  fcntl(wake_client.get(), F_SETFL, O_NONBLOCK);
  struct stat st;
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (fstat(memory.get(), &st) != 0 || st.st_size != static_cast<off_t>(kTotalBytes) || seals < 0 ||
      (seals & kSeals) != kSeals) {
    return InvalidArgument("ring: expected sealed memory of {} bytes", kTotalBytes);
  }
  auto end = std::unique_ptr<RingEnd>(new RingEnd(
      Side::kClient, std::move(memory), {std::move(wake_client), std::move(wake_server)}, {}));
  OPWIRE_RETURN_IF_ERROR(end->Map());
  return end;
}

Status RingEnd::Write(Bytes head, Bytes bulk) {
  if (broken_) return Unavailable("ring: broken by its other side");
  const uint64_t bytes = Padded(sizeof(RecordHeader) + head.size() + bulk.size());
  const uint64_t used = out_.position - out_.control->read.load(std::memory_order_acquire);
  if (used > kCapacity) {
    broken_ = true;
    return Unavailable("ring: its reader claims to have read what was never written");
  }
  if (head.size() > kMaxFrameBytes || bulk.size() > kMaxFrameBytes || bytes > kCapacity - used) {
    return ResourceExhausted("ring: {} bytes do not fit beside {} of {}", bytes, used, kCapacity);
  }
  const RecordHeader header{static_cast<uint32_t>(head.size()), static_cast<uint32_t>(bulk.size())};
  uint64_t at = out_.position;
  CopyIn(out_.data, at, &header, sizeof(header));
  CopyIn(out_.data, at += sizeof(header), head.data(), head.size());
  if (!bulk.empty()) CopyIn(out_.data, at + head.size(), bulk.data(), bulk.size());
  out_.position += bytes;
  out_.control->written.store(out_.position, std::memory_order_release);
  // Either this thread sees that the reader is parked, or the reader sees the record when it looks
  // again.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (out_.control->parked.load(std::memory_order_relaxed)) Wake(own_.wake.get());
  return absl::OkStatus();
}

bool RingEnd::Readable() const {
  return in_.control->written.load(std::memory_order_acquire) != in_.position;
}

StatusOr<bool> RingEnd::Read(std::string& head, std::string& bulk) {
  if (broken_) return Unavailable("ring: broken by its other side");
  const uint64_t there = in_.control->written.load(std::memory_order_acquire) - in_.position;
  if (there == 0) return false;
  RecordHeader header;
  CopyOut(in_.data, in_.position, &header, sizeof(header));
  const uint64_t bytes = Padded(sizeof(header) + uint64_t{header.head} + header.bulk);
  if (there > kCapacity || header.head > kMaxFrameBytes || header.bulk > kMaxFrameBytes ||
      bytes > there) {
    broken_ = true;
    return Unavailable("ring: a record of {} and {} bytes among {} makes no sense", header.head,
                       header.bulk, there);
  }
  head.resize(header.head);
  bulk.resize(header.bulk);
  CopyOut(in_.data, in_.position + sizeof(header), head.data(), header.head);
  if (header.bulk)
    CopyOut(in_.data, in_.position + sizeof(header) + header.head, bulk.data(), header.bulk);
  in_.position += bytes;
  in_.control->read.store(in_.position, std::memory_order_release);
  return true;
}

bool RingEnd::Park() {
  if (broken_) return true;  // no more records will come
  in_.control->parked.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return !Readable();
}

void RingEnd::Unpark() {
  if (!in_.control->parked.load(std::memory_order_relaxed)) return;
  in_.control->parked.store(0, std::memory_order_relaxed);
  char woken[256];
  (void)!read(fd(), woken, sizeof(woken));
}

// ---- Handshake
// -------------------------------------------------------------------------------------------------

Status SendRing(int socket, const RingEnd& end, int segment, int64_t segment_bytes) {
  const RingEnd::Handles h = end.handles();
  const int fds[4] = {h.memory, h.wake_server, h.wake_client, segment};
  iovec io{&segment_bytes, sizeof(segment_bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(c), fds, sizeof(fds));
  if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
    return Unavailable("ring: {}", std::strerror(errno));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<RingChannel>> RingChannel::Connect(const std::string& path,
                                                            const RingToken& token) {
  auto channel = std::unique_ptr<RingChannel>(new RingChannel);
  channel->socket_ = OwnedFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int fd = channel->socket_.get();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return InvalidArgument("ring: the path {} is too long", path);
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const timeval patience{2, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));  // limits connect, too
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      send(fd, token.data(), token.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(token.size())) {
    return Unavailable("ring: {}: {}", path, std::strerror(errno));
  }
  int64_t segment_bytes = 0;
  iovec io{&segment_bytes, sizeof(segment_bytes)};
  int fds[4];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* c = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(fds)))
    return Unavailable("ring: {} gives none", path);
  std::memcpy(fds, CMSG_DATA(c), sizeof(fds));
  OwnedFd segment(fds[3]);
  OPWIRE_ASSIGN_OR_RETURN(channel->end_,
                          RingEnd::Open(OwnedFd(fds[0]), OwnedFd(fds[1]), OwnedFd(fds[2])));
  if (segment_bytes > 0) {
    void* base = mmap(nullptr, static_cast<size_t>(segment_bytes), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, segment.get(), 0);
    if (base != MAP_FAILED) {
      channel->segment_ = {static_cast<uint8_t*>(base), [segment_bytes](uint8_t* at) {
                             munmap(at, static_cast<size_t>(segment_bytes));
                           }};
      channel->segment_bytes_ = segment_bytes;
    }
  }
  return channel;
}

Status RingChannel::Send(Bytes head, Bytes bulk) {
  spin_until_ = 0;
  sent_ = MonotonicNow();
  return end_->Write(head, bulk);
}

StatusOr<bool> RingChannel::Receive(Message& message, Nanos timeout) {
  Nanos deadline = 0;
  while (true) {
    OPWIRE_ASSIGN_OR_RETURN(const bool got, end_->Read(message.head, message.bulk));
    if (got) {
      spin_until_ = 0;
      may_nap_ = false;
      return true;
    }
    if (timeout == 0) return false;
    const Nanos now = MonotonicNow();
    if (deadline == 0) deadline = timeout == kNever ? kNever : now + timeout;
    if (now >= deadline) return false;
    if (spin_until_ == 0) {
      spin_until_ = now + kRingSpin;
      if (may_nap_ && now - sent_ > kRingLong) {
        const Nanos nap = std::min({(now - sent_) / 16, kRingNap, deadline - now});
        const timespec ts{0, nap};
        nanosleep(&ts, nullptr);
        spin_until_ = now;
        continue;
      }
    }
    if (now < spin_until_) {
      sched_yield();
      continue;
    }
    if (end_->Park()) {
      pollfd fds[2] = {{end_->fd(), POLLIN, 0}, {socket_.get(), POLLIN | POLLRDHUP, 0}};
      const Nanos left = deadline == kNever ? kNever : deadline - now;
      const timespec ts{left / kSecond, left % kSecond};
      ppoll(fds, 2, deadline == kNever ? nullptr : &ts, nullptr);
      end_->Unpark();
      // The server may take down the ring alone.
      if ((fds[0].revents & POLLHUP) || fds[1].revents) {
        // What was written before the end is still delivered.
        OPWIRE_ASSIGN_OR_RETURN(const bool last, end_->Read(message.head, message.bulk));
        if (last) return true;
        return Unavailable("the executor is gone: it closed the ring");
      }
    } else {
      end_->Unpark();
    }
  }
}

}  // namespace opwire
