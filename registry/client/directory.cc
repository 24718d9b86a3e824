// Asking registries.
#include "registry/client/directory.h"

namespace opwire {
namespace {

StatusOr<fb::QueryReplyT> Ask(ZmqContext& context, const std::string& registry, const fb::QueryT& query, Nanos timeout) {
  OPWIRE_ASSIGN_OR_RETURN(auto dealer, Dealer::Connect(context, registry));
  OPWIRE_RETURN_IF_ERROR(dealer->Send(AsBytes(EncodeRequest(1, query))));
  ClientChannel::Message message;
  OPWIRE_ASSIGN_OR_RETURN(const bool came, dealer->Receive(message, timeout));
  if (!came) return Unavailable("registry {} does not answer", registry);
  AlignedBytes memory;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, DecodeReply(AsBytes(message.head), memory));
  OPWIRE_RETURN_IF_ERROR(StatusOf(*reply));
  const fb::QueryReply* body = reply->body_as_QueryReply();
  if (!body) return Internal("registry {} answered something else", registry);
  fb::QueryReplyT out;
  body->UnPackTo(&out);
  return out;
}

}  // namespace

StatusOr<fb::QueryReplyT> Directory::Query(const fb::QueryT& query, Nanos timeout) {
  StatusOr<fb::QueryReplyT> warming = Unavailable("no registry is configured");
  std::string reasons;
  for (const std::string& registry : registries_) {
    auto reply = Ask(context_, registry, query, timeout);
    if (reply.ok() && !reply->warming) return reply;
    if (reply.ok()) warming = std::move(reply);
    else reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", MessageOf(reply.status()));
  }
  if (warming.ok() || reasons.empty()) return warming;
  return Unavailable("{}", reasons);
}

}  // namespace opwire
