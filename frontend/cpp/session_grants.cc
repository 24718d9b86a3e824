// Tensors that sessions share, from the client's side.
#include "frontend/cpp/session_state.h"
#include "ir/wire/capability.h"

namespace opwire::client {

StatusOr<std::string> Session::Grant(const Tensor& t, const GrantOptions& to) {
  OPWIRE_RETURN_IF_ERROR(state_->Check(*t.state_));
  fb::GrantT grant;
  grant.id = std::make_unique<fb::TensorId>(IdOf(t.state_->attachment, t.state_->counter));
  grant.session = to.session;
  grant.principal = to.principal;
  grant.name = to.name;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, state_->Ask(std::move(grant)));
  const fb::GrantReply* body = reply->body_as_GrantReply();
  if (!body || !body->capability() || body->capability()->size() != kCapabilityBytes)
    return Internal("executor {} answered something else", state_->executor_id);
  return CapabilityText({body->capability()->data(), body->capability()->size()});
}

Status Session::Revoke(std::string_view capability) {
  fb::RevokeT revoke;
  OPWIRE_ASSIGN_OR_RETURN(revoke.capability, CapabilityOf(capability));
  return state_->Ask(std::move(revoke)).status();
}

StatusOr<Tensor> SessionState::Take(fb::TakeT take) {
  OPWIRE_RETURN_IF_ERROR(Ensure());
  Tensor t = Make(DType::kInvalid, {}, 0, next_counter++);
  take.id = std::make_unique<fb::TensorId>(IdOf(attachment, t.state_->counter));
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, Ask(std::move(take)));
  OPWIRE_RETURN_IF_ERROR(Describe(*reply, t));
  return t;
}

StatusOr<Tensor> Session::Take(std::string_view capability) {
  fb::TakeT take;
  OPWIRE_ASSIGN_OR_RETURN(take.capability, CapabilityOf(capability));
  return state_->Take(std::move(take));
}

StatusOr<Tensor> Session::Take(std::string_view session, std::string_view name) {
  fb::TakeT take;
  take.session = session;
  take.name = name;
  return state_->Take(std::move(take));
}

}  // namespace opwire::client
