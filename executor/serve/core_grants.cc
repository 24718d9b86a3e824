// Tensors that sessions share: grant, revoke, take.
#include <algorithm>

#include "executor/serve/core.h"
#include "executor/serve/tensor_info.h"

namespace opwire::executor {
namespace {

constexpr size_t kPrincipalBytes = 256;

std::string TextOf(const flatbuffers::String* s) { return s ? s->str() : std::string(); }

bool Is(const Token& capability, const flatbuffers::Vector<uint8_t>& bytes) {
  return bytes.size() == capability.size() &&
         std::equal(capability.begin(), capability.end(), bytes.data());
}

}  // namespace

// The grant holds the tensor as it is: its bytes stay whatever becomes of the session's own.
StatusOr<fb::ReplyT> Core::GrantTensor(Session& s, const fb::Grant& body) {
  const TensorKey key = KeyOf(body.id());
  OPWIRE_ASSIGN_OR_RETURN(const Tensor* const t, s.store->Find(key));
  Grant grant;
  grant.principal =
      body.principal() && body.principal()->size() > 0 ? body.principal()->str() : s.principal;
  grant.session = TextOf(body.session());
  grant.name = body.name() && body.name()->size() > 0 ? body.name()->str() : t->name;
  OPWIRE_RETURN_IF_ERROR(CheckName("a principal", grant.principal, kPrincipalBytes));
  OPWIRE_RETURN_IF_ERROR(CheckName("a session", grant.session, kSessionNameBytes));
  OPWIRE_RETURN_IF_ERROR(CheckName("a tensor", grant.name, kTensorNameBytes));
  if (t->buffer->granted()) {
    return PermissionDenied(
        "grant: tensor {} is another session's, which granted it to this one: expected one of this "
        "session's own, or that session to grant it",
        ToString(key));
  }
  if (!grant.session.empty() && grant.To(s.principal, s.name)) {
    return InvalidArgument(
        "grant: tensor {}: expected another session, got '{}', whose tensor it is", ToString(key),
        s.name);
  }
  // A name stands for what was granted by it last.
  const auto same = std::ranges::find_if(s.grants, [&](const Grant& g) {
    return !g.name.empty() && g.name == grant.name && g.principal == grant.principal &&
           g.session == grant.session;
  });
  const int64_t others = static_cast<int64_t>(s.grants.size()) - (same != s.grants.end() ? 1 : 0);
  if (others >= options_.limits[LimitId::kGrants]) {
    return ResourceExhausted(
        "the session: expected at most {} tensors granted at once, got {}; revoke some",
        options_.limits[LimitId::kGrants], others + 1);
  }
  grant.capability = NewToken();
  grant.tensor = *t;
  fb::GrantReplyT granted;
  granted.capability.assign(grant.capability.begin(), grant.capability.end());
  if (same != s.grants.end()) s.grants.erase(same);
  s.grants.push_back(std::move(grant));
  fb::ReplyT reply;
  reply.body.Set(std::move(granted));
  return reply;
}

Status Core::RevokeGrant(Session& s, const fb::Revoke& body) {
  const auto it = std::ranges::find_if(s.grants, [&](const Grant& g) {
    return body.capability() && Is(g.capability, *body.capability());
  });
  if (it == s.grants.end())
    return NotFound(
        "revoke: the session grants nothing by this capability; it was revoked, or another was "
        "granted by its name");
  s.grants.erase(it);
  return absl::OkStatus();
}

Status Core::RevokeOf(const std::string& principal, const fb::Revoke& body) {
  for (const auto& [id, s] : sessions_) {
    if (s->principal == principal && RevokeGrant(*s, body).ok()) return absl::OkStatus();
  }
  return NotFound(
      "revoke: no session of {} here grants anything by this capability; it was revoked, or the "
      "session that granted it ended",
      principal);
}

StatusOr<const Grant*> Core::FindGrant(const Session& by, const fb::Take& body) const {
  const Session* owner = nullptr;
  const Grant* found = nullptr;
  if (body.capability() && body.capability()->size() > 0) {
    for (const auto& [id, s] : sessions_) {
      const auto it = std::ranges::find_if(
          s->grants, [&](const Grant& g) { return Is(g.capability, *body.capability()); });
      if (it != s->grants.end()) owner = s.get(), found = &*it;
    }
    if (!found)
      return NotFound(
          "take: nothing is granted by this capability; it was revoked, or the session that "
          "granted it ended");
    if (!found->To(by.principal, by.name))
      return PermissionDenied(
          "take: what this capability stands for was granted to others than session '{}' of {}",
          by.name, by.principal);
  } else {
    const std::string session = TextOf(body.session()), name = TextOf(body.name());
    if (session.empty() || name.empty())
      return InvalidArgument(
          "take: expected a capability, or a session and a name, got session '{}' and name '{}'",
          session, name);
    owner = FindSession(by.principal, session);
    if (!owner)
      return NotFound("take: {} has no session '{}' here; it ended, or is on another executor",
                      by.principal, session);
    // What names this session comes before what is for all.
    for (const Grant& g : owner->grants) {
      if (g.name == name && g.To(by.principal, by.name) && (!found || !g.session.empty()))
        found = &g;
    }
    if (!found)
      return NotFound("take: session '{}' grants no tensor '{}' to session '{}'", session, name,
                      by.name);
  }
  if (owner == &by)
    return InvalidArgument("take: the tensor is this session's own: expected another's, or a copy");
  return found;
}

StatusOr<fb::ReplyT> Core::TakeTensor(Session& s, const QueuedRequest& q, const fb::Take& body) {
  const TensorKey key = KeyOf(body.id());
  if (key.attachment != q.attachment)
    return InvalidArgument("take: tensor {} is not of this client's attachment {}", ToString(key),
                           q.attachment);
  OPWIRE_ASSIGN_OR_RETURN(const Grant* const grant, FindGrant(s, body));
  Tensor t = grant->tensor;
  t.name.clear();
  OPWIRE_ASSIGN_OR_RETURN(t.buffer, s.store->Share(grant->tensor.buffer));
  OPWIRE_ASSIGN_OR_RETURN(const Tensor* const made, s.store->Put(key, std::move(t)));
  return TensorReplyFor(key, *made);
}

}  // namespace opwire::executor
