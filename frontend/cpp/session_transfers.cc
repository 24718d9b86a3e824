// Transfers of the bytes of a session's tensors, on the client's side.
#include "frontend/cpp/session_state.h"

namespace opwire::client {
namespace {

// The size of one request of a large fetch. The device copies the next pieces while this thread
// copies one out.
constexpr size_t kPieceBytes = 8 << 20;
constexpr size_t kPiecesAhead = 4;
constexpr size_t kRemotePieceBytes = 64 << 20;  // by chunks, which pause between pieces

std::unique_ptr<fb::TensorTypeT> TypeT(DType dtype, Encoding encoding,
                                       const std::vector<int64_t>& shape) {
  auto type = std::make_unique<fb::TensorTypeT>();
  type->dtype = static_cast<uint8_t>(dtype);
  type->encoding = static_cast<uint8_t>(encoding);
  type->shape = shape;
  return type;
}

}  // namespace

// Chunks are sent in parallel with the runs; a few are outstanding at once.
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
    if (message.bulk.size() != sizes.front())
      return Internal("transfer: expected a chunk of {} bytes, got {}", sizes.front(),
                      message.bulk.size());
    std::memcpy(into.data() + got, message.bulk.data(), message.bulk.size());
    got += message.bulk.size();
    sizes.erase(sizes.begin());
  }
  return absl::OkStatus();
}

StatusOr<Tensor> Session::Put(const ArrayView& array, std::string_view name) {
  SessionState& s = *state_;
  const auto bytes = TensorBytes(array.dtype, array.encoding, array.shape);
  if (!bytes || *bytes != array.bytes) {
    return InvalidArgument("put: {}{} has {} bytes, {} were given", DTypeName(array.dtype),
                           ShapeToString(array.shape), bytes.value_or(-1), array.bytes);
  }
  const Bytes data{static_cast<const uint8_t*>(array.data), static_cast<size_t>(array.bytes)};
  if (data.size() > kInlineBytes) {
    OPWIRE_ASSIGN_OR_RETURN(const Writable w, Alloc(array.dtype, array.shape, array.encoding));
    Copier(data.size()).Copy(w.bytes.data(), data.data(), data.size());
    OPWIRE_RETURN_IF_ERROR(Seal(w));
    if (!name.empty()) OPWIRE_RETURN_IF_ERROR(Rename(w.tensor, name));
    return w.tensor;
  }
  OPWIRE_RETURN_IF_ERROR(s.Ensure());
  Tensor t = s.Make(array.dtype, array.shape, array.bytes, s.next_counter++);
  t.state_->encoding = array.encoding;
  fb::PutT put;
  put.id = std::make_unique<fb::TensorId>(IdOf(s.attachment, t.state_->counter));
  put.type = TypeT(array.dtype, array.encoding, array.shape);
  put.bytes_follow = true;
  put.name = name;
  OPWIRE_RETURN_IF_ERROR(s.Ask(std::move(put), nullptr, data).status());
  return t;
}

StatusOr<Writable> Session::Alloc(DType dtype, const std::vector<int64_t>& shape,
                                  Encoding encoding) {
  SessionState& s = *state_;
  const auto bytes = TensorBytes(dtype, encoding, shape);
  if (!bytes)
    return InvalidArgument("alloc: {}{} is no shape that memory could hold", DTypeName(dtype),
                           ShapeToString(shape));
  OPWIRE_RETURN_IF_ERROR(s.Ensure());
  Writable w{s.Make(dtype, shape, *bytes, s.next_counter++), {}};
  w.tensor.state_->encoding = encoding;
  fb::PutT put;
  put.id = std::make_unique<fb::TensorId>(IdOf(s.attachment, w.tensor.state_->counter));
  put.type = TypeT(dtype, encoding, shape);
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, s.Ask(std::move(put)));
  const fb::TensorReply* body = reply->body_as_TensorReply();
  if (!body || !body->info()) return Internal("executor {} answered something else", s.executor_id);
  Tensor::State& t = *w.tensor.state_;
  const auto size = static_cast<size_t>(*bytes);
  t.ticket = body->ticket();
  if (uint8_t* const there =
          s.connection ? s.connection->InSegment(body->info()->offset(), size) : nullptr) {
    t.segment = s.connection->segment();
    w.bytes = {there, size};
  } else {
    t.staging.resize(size);
    w.bytes = t.staging;
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

StatusOr<uint64_t> SessionState::SendGet(const Tensor::State& t, size_t offset, size_t bytes) {
  fb::GetT get;
  get.id = std::make_unique<fb::TensorId>(IdOf(t.attachment, t.counter));
  get.offset = offset;
  get.bytes = bytes;
  return SendT(std::move(get));
}

// Copies the bytes of the reply to a Get to their place.
Status SessionState::TakePiece(uint64_t request, const Tensor::State& t, std::span<uint8_t> into,
                               Copier& copier) {
  std::string bulk;
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, Wait(request, &bulk));
  const fb::TensorReply* body = reply->body_as_TensorReply();
  if (!body || !body->info()) return Internal("executor {} answered something else", executor_id);
  const uint64_t ticket = body->ticket();
  const int64_t offset = body->info()->offset();
  if (ticket) closes.push_back(ticket);  // with the next request, which is sent after all is copied
  if (body->info()->bytes() != static_cast<uint64_t>(t.bytes)) {
    return Internal("tensor {}:{} has {} bytes, expected {}", t.attachment, t.counter,
                    body->info()->bytes(), t.bytes);
  }
  if (!ticket) {
    if (bulk.size() != into.size())
      return Internal("tensor {}:{}: {} bytes came of {}", t.attachment, t.counter, bulk.size(),
                      into.size());
    if (!bulk.empty()) std::memcpy(into.data(), bulk.data(), bulk.size());
    return absl::OkStatus();
  }
  if (!connection) return lost;
  if (const uint8_t* const there = connection->InSegment(offset, into.size())) {
    copier.Copy(into.data(), there, into.size());
    return absl::OkStatus();
  }
  const Status status = Download(ticket, into);
  if (absl::IsUnavailable(status) && connection) OnLost(status);
  return status;
}

Status SessionState::FetchPieces(const Tensor::State& t, std::span<uint8_t> into, size_t piece) {
  Copier copier(into.size());
  const size_t count = std::max<size_t>((into.size() + piece - 1) / piece, 1);
  const auto range = [&](size_t i) {
    return into.subspan(i * piece, std::min(piece, into.size() - i * piece));
  };
  std::vector<uint64_t> requests;  // by piece
  Status status;
  for (size_t taken = 0;; ++taken) {
    while (status.ok() && requests.size() < std::min(count, taken + kPiecesAhead)) {
      const size_t next = requests.size();
      const StatusOr<uint64_t> request = SendGet(t, next * piece, range(next).size());
      if (request.ok()) requests.push_back(*request);
      status.Update(request.status());
    }
    if (taken == requests.size()) return status;
    // After a failure too: each requested transfer must be ended.
    status.Update(TakePiece(requests[taken], t, range(taken), copier));
  }
}

Status SessionState::FetchInto(const Tensor::State& t, std::span<uint8_t> into) {
  OPWIRE_RETURN_IF_ERROR(Check(t));
  if (static_cast<int64_t>(into.size()) != t.bytes) {
    return InvalidArgument("fetch: tensor {}:{} has {} bytes, the memory {}", t.attachment,
                           t.counter, t.bytes, into.size());
  }
  OPWIRE_RETURN_IF_ERROR(Ensure());
  const size_t piece = connection->segment() ? kPieceBytes : kRemotePieceBytes;
  Status status;
  if (into.size() <= piece) {
    status = FetchPieces(t, into, piece);
  } else {
    // Another client could write the tensor between two pieces. So this fetches a copy, which
    // shares the tensor's bytes until they are written. If the session has no room for another
    // tensor, all bytes come in one piece.
    const StatusOr<Tensor> as_it_is = Copy(t);
    if (!as_it_is.ok() && !absl::IsResourceExhausted(as_it_is.status())) return as_it_is.status();
    status = as_it_is.ok() ? FetchPieces(*as_it_is->state_, into, piece)
                           : FetchPieces(t, into, into.size());
  }
  Flush();
  return status;
}

void SessionState::Flush() {
  if (!connection || (frees.empty() && closes.empty())) return;
  if (const StatusOr<uint64_t> sent = SendT(fb::FlushT()); sent.ok()) flight.Abandon(*sent);
}

Status Tensor::State::CheckDense(std::string_view what) const {
  if (encoding == Encoding::kDense) return absl::OkStatus();
  return Unimplemented(
      "{}: tensor {}:{} is encoded as {}; expected a dense one, such as dequantize_blocks makes of "
      "it",
      what, attachment, counter, EncodingName(encoding));
}

StatusOr<Array> SessionState::Fetch(const Tensor::State& t) {
  OPWIRE_RETURN_IF_ERROR(t.CheckDense("fetch"));
  Array out = Array::Uninitialised(t.dtype, t.shape);
  OPWIRE_RETURN_IF_ERROR(FetchInto(t, out.bytes()));
  return out;
}

StatusOr<Array> Session::Fetch(const Tensor& t) { return state_->Fetch(*t.state_); }
Status Session::FetchInto(const Tensor& t, std::span<uint8_t> into) {
  return state_->FetchInto(*t.state_, into);
}

TensorView::State::~State() {
  if (ticket && generation == session->generation) session->closes.push_back(ticket);
}

const ArrayView& TensorView::array() const { return state_->array; }

StatusOr<std::shared_ptr<TensorView::State>> SessionState::View(const Tensor::State& t) {
  OPWIRE_RETURN_IF_ERROR(t.CheckDense("view"));
  OPWIRE_RETURN_IF_ERROR(Check(t));
  OPWIRE_RETURN_IF_ERROR(Ensure());
  auto view = std::make_shared<TensorView::State>();
  view->session = shared_from_this();
  view->generation = generation;
  view->array = {t.dtype, t.shape, nullptr, t.bytes};
  if (!connection->segment() || t.bytes <= static_cast<int64_t>(kInlineBytes)) {
    OPWIRE_ASSIGN_OR_RETURN(view->fetched, Fetch(t));
    view->array.data = view->fetched.bytes().data();
    return view;
  }
  OPWIRE_ASSIGN_OR_RETURN(const uint64_t request, SendGet(t, 0, static_cast<size_t>(t.bytes)));
  OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* const reply, Wait(request));
  const fb::TensorReply* body = reply->body_as_TensorReply();
  if (!body || !body->info()) return Internal("executor {} answered something else", executor_id);
  view->ticket = body->ticket();
  if (!connection) return lost;
  view->segment = connection->segment();
  view->array.data = connection->InSegment(body->info()->offset(), static_cast<size_t>(t.bytes));
  if (!view->ticket || !view->array.data ||
      body->info()->bytes() != static_cast<uint64_t>(t.bytes)) {
    return Internal("tensor {}:{}: executor {} says that its {} bytes are {} at {} of the segment",
                    t.attachment, t.counter, executor_id, t.bytes, body->info()->bytes(),
                    body->info()->offset());
  }
  return view;
}

StatusOr<TensorView> Session::View(const Tensor& t) {
  TensorView view;
  OPWIRE_ASSIGN_OR_RETURN(view.state_, state_->View(*t.state_));
  return view;
}

}  // namespace opwire::client
