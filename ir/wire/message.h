// Messages as bytes: checked decoding into private aligned memory, and building.
//
//   AlignedBytes memory;
//   StatusOr<const fb::Request*> request = DecodeRequest(frame, memory);   // points into `memory`
//
// Any bytes are safe to decode. They are copied first, because three quarters of ZeroMQ's messages
// are misaligned, and shared memory could change after the check. Then FlatBuffers' verifier checks
// the copy.
#ifndef OPWIRE_IR_WIRE_MESSAGE_H_
#define OPWIRE_IR_WIRE_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/schema/wire_generated.h"

namespace opwire {

inline constexpr uint16_t kProtocolMajor = 1;
inline constexpr uint16_t kProtocolMinor =
    3;  // 1: values that a run emits; 2: batches of independent runs; 3: grants, tensors by name of
        // a file

inline constexpr size_t kMaxFrameBytes = 1 << 20;
inline constexpr size_t kChunkBytes = 512 << 10;
inline constexpr size_t kInlineBytes =
    64 << 10;  // the most bytes of results and parameters in a message
inline constexpr int kChunksOutstanding = 4;

using Bytes = std::span<const uint8_t>;

// Memory aligned for FlatBuffers that keeps its capacity between messages.
class AlignedBytes {
 public:
  void Assign(Bytes bytes);
  void Clear() { size_ = 0; }
  Bytes view() const { return {reinterpret_cast<const uint8_t*>(words_.data()), size_}; }
  size_t size() const { return size_; }
  size_t capacity() const { return words_.capacity() * sizeof(uint64_t); }

 private:
  std::vector<uint64_t> words_;
  size_t size_ = 0;
};

// INVALID_ARGUMENT if the bytes are not a message of this protocol. The pointer is valid until
// `memory` is assigned again.
StatusOr<const fb::Request*> DecodeRequest(Bytes bytes, AlignedBytes& memory);
StatusOr<const fb::Reply*> DecodeReply(Bytes bytes, AlignedBytes& memory);
// The same for memory that is private and aligned already.
StatusOr<const fb::Request*> VerifyRequest(Bytes aligned);

// Bytes that a value of `bytes` takes in a payload, where values begin at multiples of 16.
inline int64_t PayloadBytes(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Builds requests and replies from object-API bodies, for code that is not on the hot path.
std::string EncodeRequest(const fb::RequestT& request);
std::string EncodeReply(const fb::ReplyT& reply);
template <typename BodyT>
std::string EncodeRequest(uint64_t seq, BodyT body) {
  fb::RequestT request;
  request.seq = seq;
  request.body.Set(std::move(body));
  return EncodeRequest(request);
}
template <typename BodyT>
std::string EncodeReply(uint64_t seq, BodyT body) {
  fb::ReplyT reply;
  reply.seq = seq;
  reply.body.Set(std::move(body));
  return EncodeReply(reply);
}
std::string EncodeError(uint64_t seq, const Status& status);

// The place of an error in a program. It is stored as payloads of absl::Status; empty strings and
// -1 if it does not apply.
struct ErrorSite {
  std::string program;
  int32_t node = -1;
  std::string op;
  std::string location;
};
Status WithSite(Status status, const ErrorSite& site);
ErrorSite SiteOf(const Status& status);

// Returns the error of a reply, or of one of a batch's runs, or OK.
Status StatusOf(const fb::Reply& reply);
Status StatusOf(const fb::RunReply& reply);
// Writes the error of one of a batch's runs. REQUIRES: !status.ok().
flatbuffers::Offset<fb::RunReply> BuildFailedRun(flatbuffers::FlatBufferBuilder& builder,
                                                 const Status& status);
// Writes code, message and site into a reply that is being built. Returns the offset of the reply
// in `builder`.
flatbuffers::Offset<fb::Reply> BuildReply(flatbuffers::FlatBufferBuilder& builder, uint64_t seq,
                                          const Status& status, fb::ReplyBody type,
                                          flatbuffers::Offset<void> body);

inline Bytes AsBytes(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}
inline Bytes AsBytes(const flatbuffers::FlatBufferBuilder& b) {
  return {b.GetBufferPointer(), b.GetSize()};
}

// "PutProgram", for messages and logs.
std::string_view BodyName(fb::Body body);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_MESSAGE_H_
