// Decoding and encoding of messages.
#include "ir/wire/message.h"

#include <cstring>

#include "absl/strings/cord.h"

namespace opwire {
namespace {

constexpr const char* kSitePayload = "opwire/site";
constexpr size_t kMaxMessageChars = 4096;  // of an error, so that no reply outgrows its frame

template <typename Root>
StatusOr<const Root*> Verify(Bytes aligned, std::string_view what) {
  flatbuffers::Verifier verifier(aligned.data(), aligned.size(), /*max_depth=*/16,
                                 /*max_tables=*/100'000);
  if (aligned.size() > kMaxFrameBytes || !verifier.VerifyBuffer<Root>(nullptr)) {
    return InvalidArgument("wire: {} bytes are not a {} of protocol {}.{}", aligned.size(), what,
                           kProtocolMajor, kProtocolMinor);
  }
  const Root* root = flatbuffers::GetRoot<Root>(aligned.data());
  // FlatBuffers takes a union that names a kind and has no table; readers do not.
  if (static_cast<int>(root->body_type()) != 0 && !root->body()) {
    return InvalidArgument("wire: a {} of kind {} has no body", what,
                           static_cast<int>(root->body_type()));
  }
  return root;
}

}  // namespace

void AlignedBytes::Assign(Bytes bytes) {
  const size_t words = (bytes.size() + 7) / 8;
  if (words_.size() < words) words_.resize(words);
  if (!bytes.empty()) std::memcpy(words_.data(), bytes.data(), bytes.size());
  size_ = bytes.size();
}

StatusOr<const fb::Request*> VerifyRequest(Bytes aligned) {
  return Verify<fb::Request>(aligned, "request");
}

StatusOr<const fb::Request*> DecodeRequest(Bytes bytes, AlignedBytes& memory) {
  memory.Assign(bytes);
  return VerifyRequest(memory.view());
}

StatusOr<const fb::Reply*> DecodeReply(Bytes bytes, AlignedBytes& memory) {
  memory.Assign(bytes);
  return Verify<fb::Reply>(memory.view(), "reply");
}

std::string EncodeRequest(const fb::RequestT& request) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(fb::Request::Pack(b, &request));
  return std::string(reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize());
}

std::string EncodeReply(const fb::ReplyT& reply) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(fb::Reply::Pack(b, &reply));
  return std::string(reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize());
}

std::string EncodeError(uint64_t seq, const Status& status) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(BuildReply(b, seq, status, fb::ReplyBody::NONE, 0));
  return std::string(reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize());
}

Status WithSite(Status status, const ErrorSite& site) {
  if (status.ok()) return status;
  // Four fields, each ended by a newline, which none of them holds.
  const auto clean = [](std::string s) {
    for (char& c : s) {
      if (c == '\n') c = ' ';
    }
    return s.substr(0, 256);
  };
  status.SetPayload(kSitePayload,
                    absl::Cord(fmt::format("{}\n{}\n{}\n{}\n", clean(site.program), site.node,
                                           clean(site.op), clean(site.location))));
  return status;
}

ErrorSite SiteOf(const Status& status) {
  ErrorSite site;
  const auto payload = status.GetPayload(kSitePayload);
  if (!payload) return site;
  const std::string text(*payload);
  std::vector<std::string> fields(1);
  for (char c : text) {
    if (c == '\n')
      fields.emplace_back();
    else
      fields.back() += c;
  }
  site.program = fields[0];
  site.node = std::atoi(fields[1].c_str());
  site.op = fields[2];
  site.location = fields[3];
  return site;
}

namespace {

// Of a Reply or a Failure.
template <typename T>
Status ReadStatus(const T& from) {
  if (from.code() == 0) return absl::OkStatus();
  const int code = from.code() <= 16 ? from.code() : static_cast<int>(absl::StatusCode::kUnknown);
  Status status(static_cast<absl::StatusCode>(code), from.message() ? from.message()->str() : "");
  if (const fb::ErrorSite* s = from.site()) {
    const auto text = [](const flatbuffers::String* t) { return t ? t->str() : std::string(); };
    return WithSite(std::move(status),
                    {text(s->program()), s->node(), text(s->op()), text(s->location())});
  }
  return status;
}

struct Written {
  flatbuffers::Offset<flatbuffers::String> message;
  flatbuffers::Offset<fb::ErrorSite> site;
};

Written Write(flatbuffers::FlatBufferBuilder& b, const Status& status) {
  if (status.ok()) return {};
  Written w{b.CreateString(MessageOf(status).substr(0, kMaxMessageChars)), {}};
  const ErrorSite site = SiteOf(status);
  if (site.node >= 0 || !site.program.empty()) {
    const auto program = b.CreateString(site.program), op = b.CreateString(site.op),
               location = b.CreateString(site.location);
    w.site = fb::CreateErrorSite(b, program, site.node, op, location);
  }
  return w;
}

}  // namespace

Status StatusOf(const fb::Reply& reply) { return ReadStatus(reply); }
Status StatusOf(const fb::RunReply& reply) {
  return reply.failure() ? ReadStatus(*reply.failure()) : absl::OkStatus();
}

flatbuffers::Offset<fb::Reply> BuildReply(flatbuffers::FlatBufferBuilder& b, uint64_t seq,
                                          const Status& status, fb::ReplyBody type,
                                          flatbuffers::Offset<void> body) {
  const Written w = Write(b, status);
  return fb::CreateReply(b, seq, 0, true, static_cast<uint8_t>(status.code()), w.message, w.site,
                         type, body);
}

flatbuffers::Offset<fb::RunReply> BuildFailedRun(flatbuffers::FlatBufferBuilder& b,
                                                 const Status& status) {
  const Written w = Write(b, status);
  const auto failure = fb::CreateFailure(b, static_cast<uint8_t>(status.code()), w.message, w.site);
  fb::RunReplyBuilder run(b);
  run.add_failure(failure);
  return run.Finish();
}

std::string_view BodyName(fb::Body body) { return fb::EnumNameBody(body); }

}  // namespace opwire
