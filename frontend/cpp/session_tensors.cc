// Tensors of a session, from the client's side.
#include <charconv>

#include "frontend/cpp/session_state.h"

namespace opwire {
namespace {

fb::TensorId IdOf(uint32_t attachment, uint64_t counter) { return fb::TensorId(attachment, 0, counter); }

std::unique_ptr<fb::TensorTypeT> TypeT(DType dtype, const std::vector<int64_t>& shape) {
  auto type = std::make_unique<fb::TensorTypeT>();
  type->dtype = static_cast<uint8_t>(dtype);
  type->shape = shape;
  return type;
}

}  // namespace

DType Tensor::dtype() const { return state_->dtype; }
const std::vector<int64_t>& Tensor::shape() const { return state_->shape; }
int64_t Tensor::bytes() const { return state_->bytes; }
std::string Tensor::id() const { return fmt::format("{}:{}", state_->attachment, state_->counter); }
void Tensor::Leave() { state_->owned = false; }

Tensor::State::~State() {
  if (generation != session->generation) return;
  --session->live_tensors;
  if (owned) session->frees.push_back(IdOf(attachment, counter));
}

Tensor SessionState::Make(DType dtype, std::vector<int64_t> shape, int64_t bytes, uint64_t counter) {
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
  if (t.session.get() != this) return InvalidArgument("tensor {}:{} belongs to another session", t.attachment, t.counter);
  if (t.generation != generation) {
    return Unavailable("tensor {}:{} was lost with its session; make it anew", t.attachment, t.counter);
  }
  return absl::OkStatus();
}

// Chunks ride beside the runs; a few are outstanding at once.
Status SessionState::Upload(uint64_t ticket, Bytes bytes) {
  size_t sent = 0;
  int outstanding = 0;
  while (sent < bytes.size() || outstanding > 0) {
    if (sent < bytes.size() && outstanding < kChunksOutstanding) {
      fb::WriteChunkT chunk;
      chunk.ticket = ticket;
      chunk.offset = sent;
      const size_t size = std::min(kChunkBytes, bytes.size() - sent);
      OPWIRE_RETURN_IF_ERROR(connection->SendControl(std::move(chunk), bytes.subspan(sent, size)));
      sent += size;
      ++outstanding;
      continue;
    }
    OPWIRE_RETURN_IF_ERROR(connection->ReceiveControl().status());
    --outstanding;
  }
  return absl::OkStatus();
}

Status SessionState::Download(uint64_t ticket, std::span<uint8_t> into) {
  size_t asked = 0, got = 0;
  std::vector<size_t> sizes;
  while (got < into.size()) {
    if (asked < into.size() && sizes.size() < kChunksOutstanding) {
      fb::ReadChunkT chunk;
      chunk.ticket = ticket;
      chunk.offset = asked;
      chunk.size = static_cast<uint32_t>(std::min(kChunkBytes, into.size() - asked));
      sizes.push_back(chunk.size);
      asked += chunk.size;
      OPWIRE_RETURN_IF_ERROR(connection->SendControl(std::move(chunk)));
      continue;
    }
    OPWIRE_ASSIGN_OR_RETURN(const ClientChannel::Message message, connection->ReceiveControl());
    if (message.bulk.size() != sizes.front()) return Internal("transfer: expected a chunk of {} bytes, got {}", sizes.front(), message.bulk.size());
    std::memcpy(into.data() + got, message.bulk.data(), message.bulk.size());
    got += message.bulk.size();
    sizes.erase(sizes.begin());
  }
  fb::CloseTransferT close;
  close.ticket = ticket;
  return connection->Control(std::move(close)).status();
}

StatusOr<Tensor> Session::Put(const ArrayView& array, std::string_view name) {
  SessionState& s = *state_;
  const auto bytes = TensorBytes(array.dtype, Encoding::kDense, array.shape);
  if (!bytes || *bytes != array.bytes) {
    return InvalidArgument("put: {}{} has {} bytes, {} were given", DTypeName(array.dtype), ShapeToString(array.shape), bytes.value_or(-1), array.bytes);
  }
  const Bytes data{static_cast<const uint8_t*>(array.data), static_cast<size_t>(array.bytes)};
  if (data.size() > kInlineBytes) {
    OPWIRE_ASSIGN_OR_RETURN(const Writable w, Alloc(array.dtype, array.shape));
    std::memcpy(w.bytes.data(), data.data(), data.size());
    OPWIRE_RETURN_IF_ERROR(Seal(w));
    if (!name.empty()) OPWIRE_RETURN_IF_ERROR(Rename(w.tensor, name));
    return w.tensor;
  }
  OPWIRE_RETURN_IF_ERROR(s.Ensure());
  Tensor t = s.Make(array.dtype, array.shape, array.bytes, s.next_counter++);
  fb::PutT put;
  put.id = std::make_unique<fb::TensorId>(IdOf(s.attachment, t.state_->counter));
  put.type = TypeT(array.dtype, array.shape);
  put.bytes_follow = true;
  put.name = name;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, s.Ask(std::move(put), nullptr, data));
  if (const fb::TensorReply* body = reply->body_as_TensorReply(); body && body->info()) t.state_->offset = body->info()->offset();
  return t;
}

StatusOr<Writable> Session::Alloc(DType dtype, const std::vector<int64_t>& shape) {
  SessionState& s = *state_;
  const auto bytes = TensorBytes(dtype, Encoding::kDense, shape);
  if (!bytes) return InvalidArgument("alloc: {}{} is no shape that memory could hold", DTypeName(dtype), ShapeToString(shape));
  OPWIRE_RETURN_IF_ERROR(s.Ensure());
  Writable w{s.Make(dtype, shape, *bytes, s.next_counter++), {}};
  fb::PutT put;
  put.id = std::make_unique<fb::TensorId>(IdOf(s.attachment, w.tensor.state_->counter));
  put.type = TypeT(dtype, shape);
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, s.Ask(std::move(put)));
  const fb::TensorReply* body = reply->body_as_TensorReply();
  if (!body || !body->info()) return Internal("executor {} answered something else", s.executor_id);
  const int64_t offset = body->info()->offset();
  w.tensor.state_->ticket = body->ticket();
  if (s.connection && s.connection->segment() && offset >= 0 && offset <= s.connection->segment_bytes() - *bytes) {
    w.tensor.state_->offset = offset;
    w.bytes = {s.connection->segment() + offset, static_cast<size_t>(*bytes)};
  } else {
    w.tensor.state_->staging.resize(static_cast<size_t>(*bytes));
    w.bytes = w.tensor.state_->staging;
  }
  return w;
}

Status Session::Seal(const Writable& w) {
  SessionState& s = *state_;
  Tensor::State& t = *w.tensor.state_;
  OPWIRE_RETURN_IF_ERROR(s.Check(t));
  if (!t.staging.empty()) {
    if (Status status = s.Upload(t.ticket, t.staging); !status.ok()) {
      if (absl::IsUnavailable(status) && s.connection) s.OnLost(status);
      return status;
    }
    t.staging = {};
  }
  fb::SealT seal;
  seal.id = std::make_unique<fb::TensorId>(IdOf(t.attachment, t.counter));
  return s.Ask(std::move(seal)).status();
}

Status SessionState::FetchInto(const Tensor::State& t, std::span<uint8_t> into) {
  OPWIRE_RETURN_IF_ERROR(Check(t));
  if (static_cast<int64_t>(into.size()) != t.bytes) {
    return InvalidArgument("fetch: tensor {}:{} has {} bytes, the memory {}", t.attachment, t.counter, t.bytes, into.size());
  }
  fb::GetT get;
  get.id = std::make_unique<fb::TensorId>(IdOf(t.attachment, t.counter));
  std::string bulk;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, Ask(std::move(get), &bulk));
  const fb::TensorReply* body = reply->body_as_TensorReply();
  if (!body || !body->info()) return Internal("executor {} answered something else", executor_id);
  if (body->info()->bytes() != into.size()) {
    return Internal("tensor {}:{} has {} bytes, expected {}", t.attachment, t.counter, body->info()->bytes(), into.size());
  }
  const uint64_t ticket = body->ticket();
  const int64_t offset = body->info()->offset();
  if (ticket == 0) {
    if (bulk.size() != into.size()) return Internal("tensor {}:{}: {} bytes came of {}", t.attachment, t.counter, bulk.size(), into.size());
    if (!bulk.empty()) std::memcpy(into.data(), bulk.data(), bulk.size());
    return absl::OkStatus();
  }
  if (!connection) return lost;
  if (connection->segment() && offset >= 0 && offset <= connection->segment_bytes() - static_cast<int64_t>(into.size())) {
    std::memcpy(into.data(), connection->segment() + offset, into.size());
    fb::CloseTransferT close;
    close.ticket = ticket;
    return connection->Control(std::move(close)).status();
  }
  const Status status = Download(ticket, into);
  if (absl::IsUnavailable(status) && connection) OnLost(status);
  return status;
}

StatusOr<Array> SessionState::Fetch(const Tensor::State& t) {
  Array out = Array::Uninitialised(t.dtype, t.shape);
  OPWIRE_RETURN_IF_ERROR(FetchInto(t, out.bytes()));
  return out;
}

StatusOr<Array> Session::Fetch(const Tensor& t) { return state_->Fetch(*t.state_); }
Status Session::FetchInto(const Tensor& t, std::span<uint8_t> into) { return state_->FetchInto(*t.state_, into); }

StatusOr<std::span<const uint8_t>> Session::View(const Tensor& t) {
  OPWIRE_RETURN_IF_ERROR(state_->Check(*t.state_));
  const Connection* c = state_->connection.get();
  const int64_t offset = t.state_->offset, bytes = t.state_->bytes;
  if (!c || !c->segment() || offset < 0 || offset > c->segment_bytes() - bytes) {
    return FailedPrecondition("tensor {}: its memory is not shared with this process; fetch it", t.id());
  }
  return std::span<const uint8_t>(c->segment() + offset, static_cast<size_t>(bytes));
}

StatusOr<Tensor> Session::Copy(const Tensor& t) {
  SessionState& s = *state_;
  OPWIRE_RETURN_IF_ERROR(s.Check(*t.state_));
  Tensor made = s.Make(t.dtype(), t.shape(), t.bytes(), s.next_counter++);
  fb::CopyT copy;
  copy.from = std::make_unique<fb::TensorId>(IdOf(t.state_->attachment, t.state_->counter));
  copy.to = std::make_unique<fb::TensorId>(IdOf(s.attachment, made.state_->counter));
  OPWIRE_RETURN_IF_ERROR(s.Ask(std::move(copy)).status());
  return made;
}

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
  state_->frees.push_back(IdOf(t.state_->attachment, t.state_->counter));
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

StatusOr<Tensor> Session::LoadFile(std::string_view path) {
  SessionState& s = *state_;
  OPWIRE_RETURN_IF_ERROR(s.Ensure());
  Tensor t = s.Make(DType::kInvalid, {}, 0, s.next_counter++);
  fb::LoadT load;
  load.id = std::make_unique<fb::TensorId>(IdOf(s.attachment, t.state_->counter));
  load.path = path;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, s.Ask(std::move(load)));
  const fb::TensorReply* body = reply->body_as_TensorReply();
  if (!body || !body->info() || !body->info()->type()) return Internal("executor {} answered something else", s.executor_id);
  t.state_->dtype = static_cast<DType>(body->info()->type()->dtype());
  if (const auto* shape = body->info()->type()->shape()) t.state_->shape.assign(shape->begin(), shape->end());
  t.state_->bytes = static_cast<int64_t>(body->info()->bytes());
  t.state_->offset = body->info()->offset();
  return t;
}

}  // namespace opwire
