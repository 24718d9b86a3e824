// A channel in shared memory between two processes of one host. It has two single-producer
// single-consumer rings of length-prefixed records. They are in a memfd that the server made and
// sealed. A pipe in each direction wakes a parked reader.
//
// Each side treats the other as hostile: positions and lengths are checked against the ring's size,
// and a record is copied before any use. A ring with invalid numbers is broken permanently.
#ifndef OPWIRE_IR_WIRE_RING_H_
#define OPWIRE_IR_WIRE_RING_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "ir/base/owned_fd.h"
#include "ir/wire/channel.h"

namespace opwire {

inline constexpr Nanos kRingSpin = 50 * kMicrosecond;  // after traffic; then a reader parks
// kRingLong: after that time without a reply, a client's request is a long one. If emitted values
// may come meanwhile, the client looks for them after a sixteenth of the time since its request,
// but at least every kRingNap. Continuous looking would take a processor from the computation, and
// each wake-up would cost it a system call.
inline constexpr Nanos kRingLong = kMillisecond, kRingNap = 200 * kMicrosecond;

// One side of the pair: writes one ring, reads the other.
class RingEnd {
 public:
  enum class Side { kServer, kClient };
  // The descriptors that the other process needs: memory, the end of a pipe that wakes the server,
  // and the end of one on which the client waits. Pipes, because each side has its own ends: a
  // holder of an eventfd may make it block the other side.
  struct Handles {
    int memory, wake_server, wake_client;
  };

  // The server's side, with new memory.
  static StatusOr<std::unique_ptr<RingEnd>> Create();
  // The client's side of the descriptors that a server sent; takes them. INVALID_ARGUMENT unless
  // the memory is sealed and has the right size.
  static StatusOr<std::unique_ptr<RingEnd>> Open(OwnedFd memory, OwnedFd wake_server,
                                                 OwnedFd wake_client);
  ~RingEnd();

  // REQUIRES: the server's side.
  Handles handles() const { return {memory_.get(), other_.wake.get(), other_.wait.get()}; }

  // RESOURCE_EXHAUSTED when it does not fit now, UNAVAILABLE when the ring is broken.
  Status Write(Bytes head, Bytes bulk);
  // Returns true with a record, false if there is none. UNAVAILABLE when the ring is broken.
  StatusOr<bool> Read(std::string& head, std::string& bulk);

  // Call before a wait on fd(). Returns false when a record came meanwhile. Call Unpark after the
  // wait.
  bool Park();
  void Unpark();
  int fd() const { return own_.wait.get(); }
  bool broken() const { return broken_; }

 private:
  struct Control;
  struct Direction {
    Control* control = nullptr;
    uint8_t* data = nullptr;
    uint64_t position = 0;  // our own: never read back from shared memory
  };
  struct Wakes {
    OwnedFd wait, wake;  // read by this side; written by it
  };
  RingEnd(Side side, OwnedFd memory, Wakes own, Wakes other);
  Status Map();
  bool Readable() const;

  const Side side_;
  OwnedFd memory_;
  Wakes own_, other_;  // the server keeps the client's ends until they are sent
  uint8_t* base_ = nullptr;
  Direction in_, out_;
  bool broken_ = false;
};

using RingToken = std::array<uint8_t, 16>;

// The client's channel. `path` is the executor's ring socket, `token` the attachment's.
class RingChannel : public ClientChannel {
 public:
  static StatusOr<std::unique_ptr<RingChannel>> Connect(const std::string& path,
                                                        const RingToken& token);
  Status Send(Bytes head, Bytes bulk = {}) override;
  StatusOr<bool> Receive(Message& message, Nanos timeout) override;
  // The record that was read last is not the reply, but a value that a run emits. Until the next
  // record the caller may sleep for a while.
  void MayNap() { may_nap_ = true; }

  // The session's segment, mapped; null if it could not be. A holder may use it after the channel's
  // end.
  const std::shared_ptr<uint8_t>& segment() const { return segment_; }
  int64_t segment_bytes() const { return segment_bytes_; }

 private:
  RingChannel() = default;
  std::unique_ptr<RingEnd> end_;
  OwnedFd socket_;  // its end of file means that the server has died
  std::shared_ptr<uint8_t> segment_;
  int64_t segment_bytes_ = 0;
  Nanos sent_ = 0;
  bool may_nap_ = false;
  Nanos spin_until_ = 0;  // 0: begins with the next look
};

// The server's part of the handshake: sends the descriptors and the segment's size through the
// accepted socket.
Status SendRing(int socket, const RingEnd& end, int segment, int64_t segment_bytes);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_RING_H_
