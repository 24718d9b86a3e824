// Asking registries.
#include "registry/client/directory.h"

#include <algorithm>
#include <iterator>

namespace opwire {
namespace {

StatusOr<fb::QueryReplyT> Ask(ZmqContext& context, const std::string& registry, fb::QueryT query,
                              Nanos timeout) {
  OPWIRE_ASSIGN_OR_RETURN(auto dealer, Dealer::Connect(context, registry));
  fb::QueryReplyT all;
  decltype(all.executors) executors;
  ClientChannel::Message message;
  AlignedBytes memory;
  do {
    OPWIRE_RETURN_IF_ERROR(dealer->Send(AsBytes(EncodeRequest(1, query))));
    OPWIRE_ASSIGN_OR_RETURN(const bool came, dealer->Receive(message, timeout));
    if (!came) return Unavailable("registry {} does not answer", registry);
    OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply,
                            DecodeReply(AsBytes(message.head), memory));
    OPWIRE_RETURN_IF_ERROR(StatusOf(*reply));
    const fb::QueryReply* body = reply->body_as_QueryReply();
    if (!body) return Internal("registry {} answered something else", registry);
    fb::QueryReplyT some;
    body->UnPackTo(&some);
    if (some.executors.empty())
      some.more = false;
    else
      query.after = some.executors.back()->id;
    std::move(some.executors.begin(), some.executors.end(), std::back_inserter(executors));
    all = std::move(some);
  } while (all.more);
  all.executors = std::move(executors);
  return all;
}

}  // namespace

StatusOr<fb::QueryReplyT> Directory::Query(const fb::QueryT& query, Nanos timeout) {
  StatusOr<fb::QueryReplyT> warming = Unavailable("no registry is configured");
  std::string reasons;
  for (const std::string& registry : registries_) {
    auto reply = Ask(context_, registry, query, timeout);
    if (reply.ok() && !reply->warming) return reply;
    if (reply.ok())
      warming = std::move(reply);
    else
      reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", MessageOf(reply.status()));
  }
  if (warming.ok() || reasons.empty()) return warming;
  return Unavailable("{}", reasons);
}

}  // namespace opwire
