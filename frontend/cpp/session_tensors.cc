// Tensors of a session, on the client's side: all operations except for transfers of their bytes
// (session_transfers.cc).
#include <charconv>
#include <deque>

#include "frontend/cpp/session_state.h"

namespace opwire::client {
namespace {

constexpr size_t kMostLoads =
    64;  // loads that are in flight at a time, of the 256 requests that may be

}  // namespace

DType Tensor::dtype() const { return state_->dtype; }
Encoding Tensor::encoding() const { return state_->encoding; }
const std::vector<int64_t>& Tensor::shape() const { return state_->shape; }
int64_t Tensor::bytes() const { return state_->bytes; }
std::string Tensor::id() const { return fmt::format("{}:{}", state_->attachment, state_->counter); }
void Tensor::Leave() { state_->owned = false; }

Tensor::State::~State() {
  if (generation != session->generation) return;
  --session->live_tensors;
  if (owned) session->Free(*this);
}

void SessionState::Free(const Tensor::State& t) {
  (t.queue == queue.number || queue.shared ? queue.frees : frees)
      .push_back(IdOf(t.attachment, t.counter));
}

Tensor SessionState::Make(DType dtype, std::vector<int64_t> shape, int64_t bytes,
                          uint64_t counter) {
  Tensor t;
  t.state_ = std::make_shared<Tensor::State>();
  t.state_->session = shared_from_this();
  t.state_->attachment = attachment;
  t.state_->counter = counter;
  t.state_->generation = generation;
  t.state_->dtype = dtype;
  t.state_->shape = std::move(shape);
  t.state_->bytes = bytes;
  ++live_tensors;
  return t;
}

Status SessionState::Check(const Tensor::State& t) const {
  if (t.session.get() != this)
    return InvalidArgument("tensor {}:{} belongs to another session", t.attachment, t.counter);
  if (t.generation != generation) {
    return Unavailable("tensor {}:{} was lost with its session; make it anew", t.attachment,
                       t.counter);
  }
  return absl::OkStatus();
}

StatusOr<Tensor> SessionState::Copy(const Tensor::State& t) {
  OPWIRE_RETURN_IF_ERROR(Check(t));
  Tensor made = Make(t.dtype, t.shape, t.bytes, next_counter++);
  made.state_->encoding = t.encoding;
  fb::CopyT copy;
  copy.from = std::make_unique<fb::TensorId>(IdOf(t.attachment, t.counter));
  copy.to = std::make_unique<fb::TensorId>(IdOf(attachment, made.state_->counter));
  OPWIRE_RETURN_IF_ERROR(Ask(std::move(copy)).status());
  return made;
}

StatusOr<Tensor> Session::Copy(const Tensor& t) { return state_->Copy(*t.state_); }

Status Session::Rename(const Tensor& t, std::string_view name) {
  OPWIRE_RETURN_IF_ERROR(state_->Check(*t.state_));
  fb::RenameT rename;
  rename.id = std::make_unique<fb::TensorId>(IdOf(t.state_->attachment, t.state_->counter));
  rename.name = name;
  return state_->Ask(std::move(rename)).status();
}

Status Session::Free(const Tensor& t) {
  OPWIRE_RETURN_IF_ERROR(state_->Check(*t.state_));
  t.state_->owned = false;
  state_->Free(*t.state_);
  return state_->Ask(fb::FlushT()).status();
}

StatusOr<std::vector<TensorFacts>> Session::List() {
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, state_->Ask(fb::ListT()));
  std::vector<TensorFacts> out;
  const fb::ListReply* body = reply->body_as_ListReply();
  if (!body || !body->tensors()) return out;
  for (const fb::TensorInfo* i : *body->tensors()) {
    if (!i->id() || !i->type()) continue;
    TensorFacts f;
    f.id = fmt::format("{}:{}", i->id()->attachment(), i->id()->counter());
    f.name = i->name() ? i->name()->str() : "";
    f.dtype = static_cast<DType>(i->type()->dtype());
    f.encoding = static_cast<Encoding>(i->type()->encoding());
    if (i->type()->shape()) f.shape.assign(i->type()->shape()->begin(), i->type()->shape()->end());
    f.bytes = static_cast<int64_t>(i->bytes());
    f.usable = i->state() == 1;
    out.push_back(std::move(f));
  }
  return out;
}

StatusOr<Tensor> Session::Find(std::string_view name_or_id) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<TensorFacts> all, List());
  for (const TensorFacts& f : all) {
    if (f.name != name_or_id && f.id != name_or_id) continue;
    const size_t colon = f.id.find(':');
    uint32_t attachment = 0;
    uint64_t counter = 0;
    std::from_chars(f.id.data(), f.id.data() + colon, attachment);
    std::from_chars(f.id.data() + colon + 1, f.id.data() + f.id.size(), counter);
    Tensor t = state_->Make(f.dtype, f.shape, f.bytes, counter);
    t.state_->encoding = f.encoding;
    t.state_->attachment = attachment;
    t.state_->owned = false;
    return t;
  }
  return NotFound("the session has no tensor '{}'", name_or_id);
}

StatusOr<std::string> Session::Print(const Tensor& t, uint32_t max_elements) {
  OPWIRE_RETURN_IF_ERROR(state_->Check(*t.state_));
  fb::PrintT print;
  print.id = std::make_unique<fb::TensorId>(IdOf(t.state_->attachment, t.state_->counter));
  print.max_elements = max_elements;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, state_->Ask(std::move(print)));
  const fb::TextReply* body = reply->body_as_TextReply();
  return body && body->text() ? body->text()->str() : "";
}

Status Session::Save(const Tensor& t, std::string_view path) {
  OPWIRE_RETURN_IF_ERROR(state_->Check(*t.state_));
  fb::SaveT save;
  save.id = std::make_unique<fb::TensorId>(IdOf(t.state_->attachment, t.state_->counter));
  save.path = path;
  return state_->Ask(std::move(save)).status();
}

StatusOr<Tensor> Session::LoadFile(std::string_view path, std::string_view tensor) {
  OPWIRE_ASSIGN_OR_RETURN(auto loaded, state_->LoadFile(path, tensor));
  return std::move(loaded.first);
}

StatusOr<FileHeader> Session::LoadHeader(std::string_view path) {
  OPWIRE_ASSIGN_OR_RETURN(const auto loaded, state_->LoadFile(path, {}));
  FileHeader out{std::vector<uint8_t>(static_cast<size_t>(loaded.first.bytes())), loaded.second};
  OPWIRE_RETURN_IF_ERROR(FetchInto(loaded.first, out.bytes));
  return out;
}

StatusOr<std::vector<Tensor>> Session::LoadFile(std::string_view path,
                                                std::span<const std::string> tensors) {
  std::deque<std::pair<uint64_t, Tensor>> asked;
  std::vector<Tensor> out;
  Status failed;
  // Even if one request has failed, this waits for the replies to all requests that were sent.
  for (auto next = tensors.begin(); (failed.ok() && next != tensors.end()) || !asked.empty();) {
    if (failed.ok() && next != tensors.end() && asked.size() < kMostLoads) {
      if (auto sent = state_->SendLoad(path, *next); sent.ok())
        asked.push_back(*std::move(sent)), ++next;
      else
        failed = sent.status();
      continue;
    }
    const StatusOr<const fb::Reply*> reply = state_->Wait(asked.front().first);
    const Status status =
        reply.ok() ? state_->Describe(**reply, asked.front().second) : reply.status();
    out.push_back(std::move(asked.front().second));
    asked.pop_front();
    if (failed.ok()) failed = status;
  }
  OPWIRE_RETURN_IF_ERROR(failed);
  return out;
}

StatusOr<std::pair<uint64_t, Tensor>> SessionState::SendLoad(std::string_view path,
                                                             std::string_view tensor) {
  OPWIRE_RETURN_IF_ERROR(Ensure());
  Tensor t = Make(DType::kInvalid, {}, 0, next_counter++);
  fb::LoadT load;
  load.id = std::make_unique<fb::TensorId>(IdOf(attachment, t.state_->counter));
  load.path = path;
  load.tensor = tensor;
  OPWIRE_ASSIGN_OR_RETURN(const uint64_t ticket, SendT(std::move(load)));
  return std::pair(ticket, std::move(t));
}

StatusOr<std::pair<Tensor, int64_t>> SessionState::LoadFile(std::string_view path,
                                                            std::string_view tensor) {
  OPWIRE_ASSIGN_OR_RETURN(auto sent, SendLoad(path, tensor));
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, Wait(sent.first));
  OPWIRE_RETURN_IF_ERROR(Describe(*reply, sent.second));
  return std::pair(std::move(sent.second),
                   static_cast<int64_t>(reply->body_as_TensorReply()->file_bytes()));
}

Status SessionState::Describe(const fb::Reply& reply, Tensor& t) const {
  const fb::TensorReply* body = reply.body_as_TensorReply();
  if (!body || !body->info() || !body->info()->type())
    return Internal("executor {} answered something else", executor_id);
  t.state_->dtype = static_cast<DType>(body->info()->type()->dtype());
  t.state_->encoding = static_cast<Encoding>(body->info()->type()->encoding());
  if (const auto* shape = body->info()->type()->shape())
    t.state_->shape.assign(shape->begin(), shape->end());
  t.state_->bytes = static_cast<int64_t>(body->info()->bytes());
  return absl::OkStatus();
}

}  // namespace opwire::client
