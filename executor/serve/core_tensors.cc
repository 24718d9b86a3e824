// Tensors: put, seal, get, rename, copy, list, print, save, load, and their bulk transfers.
#include <sodium.h>

#include "executor/serve/core.h"
#include "executor/serve/files.h"
#include "executor/serve/print.h"
#include "executor/serve/tensor_info.h"

namespace opwire::executor {
namespace {

// Checks that no other tensor of the session has the name.
Status CheckUnused(const Store& store, const std::string& name, const TensorKey& by) {
  if (name.empty()) return absl::OkStatus();
  Status status;
  store.ForEach([&](const TensorKey& key, const Tensor& t) {
    if (t.name != name || key == by) return;
    status =
        AlreadyExists("tensor {}: expected a name that no other has, got '{}', which tensor {} has",
                      ToString(by), name, ToString(key));
  });
  return status;
}

template <typename Body>
fb::ReplyT ReplyWith(Body body) {
  fb::ReplyT reply;
  reply.body.Set(std::move(body));
  return reply;
}

}  // namespace

uint64_t Transfers::Open(uint8_t* data, int64_t bytes, bool writable) {
  std::lock_guard lock(mutex_);
  uint64_t ticket;
  do {
    randombytes_buf(&ticket, sizeof(ticket));
  } while (ticket == 0 || open_.contains(ticket));
  open_[ticket] = {data, static_cast<uint64_t>(bytes), writable};
  return ticket;
}

StatusOr<uint64_t> Core::OpenTransfer(Session& s, uint32_t attachment, const Staged& staged,
                                      bool writable) {
  // The transfer has no owner that would end it.
  if (!s.FindAttachment(attachment)) return Cancelled("the client of this transfer has ended");
  std::erase_if(s.transfers,
                [&](const TransferTicket& t) { return !open_transfers_.contains(t.ticket); });
  if (static_cast<int64_t>(s.transfers.size()) >= options_.limits[LimitId::kTransfers]) {
    return ResourceExhausted(
        "the session: expected at most {} views and transfers at once, got {}; end some",
        options_.limits[LimitId::kTransfers], s.transfers.size() + 1);
  }
  const uint64_t ticket = transfers_.Open(staged.data(), staged.bytes(), writable);
  open_transfers_[ticket] = staged.block();
  s.transfers.push_back({ticket, attachment});
  return ticket;
}

void Core::CloseTransfer(uint64_t ticket) {
  transfers_.Close(ticket);
  open_transfers_.erase(ticket);
}

void Core::CloseTransfersOf(Session& s, uint32_t attachment) {
  std::erase_if(s.transfers, [&](const TransferTicket& t) {
    if (t.attachment != attachment) return false;
    CloseTransfer(t.ticket);
    return true;
  });
}

StatusOr<fb::ReplyT> Core::PutTensor(Session& s, const QueuedRequest& q, const fb::Put& body) {
  const TensorKey key = KeyOf(body.id());
  if (key.attachment != q.attachment) {
    return InvalidArgument("put: tensor {} is not of this client's attachment {}", ToString(key),
                           q.attachment);
  }
  const fb::TensorType* type = body.type();
  if (!type || !IsValid(static_cast<DType>(type->dtype())) || type->encoding() >= kEncodingCount) {
    return InvalidArgument("put of tensor {}: expected an element type and an encoding that exist",
                           ToString(key));
  }
  const std::span<const int64_t> shape =
      type->shape() ? std::span<const int64_t>(type->shape()->data(), type->shape()->size())
                    : std::span<const int64_t>();
  if (static_cast<int64_t>(shape.size()) >
      std::min<int64_t>(options_.limits[LimitId::kRank], kMaxRank)) {
    return InvalidArgument("put of tensor {}: expected rank at most {}, got {}", ToString(key),
                           options_.limits[LimitId::kRank], shape.size());
  }
  Tensor t;
  t.dtype = static_cast<DType>(type->dtype());
  t.encoding = static_cast<Encoding>(type->encoding());
  t.shape = Extents(shape);
  t.name = body.name() ? body.name()->str() : "";
  OPWIRE_RETURN_IF_ERROR(CheckName("a tensor", t.name, kTensorNameBytes));
  OPWIRE_RETURN_IF_ERROR(CheckUnused(*s.store, t.name, key));
  const auto bytes = TensorBytes(t.dtype, t.encoding, shape);
  if (!bytes) {
    return InvalidArgument("put of tensor {}: {}{} is no shape that memory could hold",
                           ToString(key), DTypeName(t.dtype), ShapeToString(shape));
  }
  if (body.bytes_follow() && static_cast<int64_t>(q.bulk.size()) != *bytes) {
    return InvalidArgument("put of tensor {}: {}{} has {} bytes, the message carries {}",
                           ToString(key), DTypeName(t.dtype), ShapeToString(shape), *bytes,
                           q.bulk.size());
  }
  OPWIRE_ASSIGN_OR_RETURN(t.buffer, s.store->Allocate(*bytes));
  uint64_t ticket = 0;
  if (body.bytes_follow()) {
    OPWIRE_RETURN_IF_ERROR(device_.Copy(t.buffer->data(), q.bulk.data(), *bytes, 0));
  } else {
    t.state = TensorState::kWritable;
    OPWIRE_ASSIGN_OR_RETURN(t.filling, s.store->Stage(t.buffer));
    OPWIRE_ASSIGN_OR_RETURN(ticket, OpenTransfer(s, q.attachment, t.filling, true));
  }
  auto put = s.store->Put(key, std::move(t));
  if (!put.ok()) {
    CloseTransfer(ticket);
    return put.status();
  }
  return TensorReplyFor(key, **put, ticket);
}

void Core::CloseFilling(Session& s, const Tensor& t) {
  for (const TransferTicket& transfer : s.transfers) {
    const auto it = open_transfers_.find(transfer.ticket);
    if (it == open_transfers_.end() || it->second->data() != t.filling.data()) continue;
    return CloseTransfer(transfer.ticket);
  }
}

StatusOr<Staged> Core::BeginSeal(Session& s, const fb::Seal& body) {
  const TensorKey key = KeyOf(body.id());
  const Tensor* t = s.store->FindAny(key);
  if (!t) return NotFound("seal: tensor {} is not in the session", ToString(key));
  if (t->state != TensorState::kWritable)
    return FailedPrecondition("seal: tensor {} is not being filled", ToString(key));
  CloseFilling(s, *t);
  return t->filling;
}

StatusOr<fb::ReplyT> Core::FinishSeal(Session& s, const fb::Seal& body) {
  const TensorKey key = KeyOf(body.id());
  Tensor* t = s.store->FindAny(key);
  if (!t) return NotFound("seal: tensor {} is not in the session", ToString(key));
  t->filling = Staged();
  t->state = TensorState::kReady;
  return TensorReplyFor(key, *t);
}

void Core::ProcessSeal(Session& s, const QueuedRequest& q, const fb::Seal& body) {
  const auto step = [&]() -> StatusOr<bool> {
    if (!s.staged) {
      OPWIRE_ASSIGN_OR_RETURN(s.staged, BeginSeal(s, body));
    }
    return s.store->StepToDevice(*s.staged);
  };
  const StatusOr<bool> done = step();
  if (done.ok() && !*done) return;
  s.staged.reset();
  ReplySmall(s, q, done.ok() ? FinishSeal(s, body) : done.status());
  Pop(s);
}

StatusOr<Staged> Core::BeginGet(Session& s, const fb::Get& body) {
  const TensorKey key = KeyOf(body.id());
  OPWIRE_ASSIGN_OR_RETURN(const Tensor* const t, s.store->Find(key));
  const auto all = static_cast<uint64_t>(t->buffer->bytes());
  if (body.offset() > all || body.bytes() > all - body.offset()) {
    return InvalidArgument(
        "get: tensor {} has {} bytes, expected a range of these, got {} from {} on", ToString(key),
        all, body.bytes(), body.offset());
  }
  return s.store->Stage(t->buffer, static_cast<int64_t>(body.offset()),
                        static_cast<int64_t>(body.bytes() ? body.bytes() : all - body.offset()));
}

StatusOr<fb::ReplyT> Core::FinishGet(Session& s, const QueuedRequest& q, const fb::Get& body,
                                     Bytes& bulk) {
  const TensorKey key = KeyOf(body.id());
  OPWIRE_ASSIGN_OR_RETURN(const Tensor* const t, s.store->Find(key));
  if (s.staged->bytes() <= static_cast<int64_t>(kInlineBytes)) {
    bulk = {s.staged->data(), static_cast<size_t>(s.staged->bytes())};
    return TensorReplyFor(key, *t);
  }
  OPWIRE_ASSIGN_OR_RETURN(const uint64_t ticket, OpenTransfer(s, q.attachment, *s.staged, false));
  fb::ReplyT reply = TensorReplyFor(key, *t, ticket);
  reply.body.AsTensorReply()->info->offset = s.staged->offset();
  return reply;
}

void Core::ProcessGet(Session& s, const QueuedRequest& q, const fb::Get& body) {
  const auto step = [&]() -> StatusOr<bool> {
    if (!s.staged) {
      OPWIRE_ASSIGN_OR_RETURN(s.staged, BeginGet(s, body));
    }
    return s.store->StepToHost(*s.staged);
  };
  const StatusOr<bool> done = step();
  if (done.ok() && !*done) return;
  Bytes bulk;
  StatusOr<fb::ReplyT> reply = done.ok() ? FinishGet(s, q, body, bulk) : done.status();
  ReplySmall(s, q, std::move(reply), bulk);
  s.staged.reset();
  Pop(s);
}

StatusOr<fb::ReplyT> Core::RenameTensor(Session& s, const fb::Rename& body) {
  const TensorKey key = KeyOf(body.id());
  OPWIRE_ASSIGN_OR_RETURN(Tensor* const t, s.store->Find(key));
  const std::string name = body.name() ? body.name()->str() : "";
  OPWIRE_RETURN_IF_ERROR(CheckName("a tensor", name, kTensorNameBytes));
  OPWIRE_RETURN_IF_ERROR(CheckUnused(*s.store, name, key));
  t->name = name;
  return ReplyWith(fb::DoneT());
}

// Both share their bytes until one of them is written.
StatusOr<fb::ReplyT> Core::CopyTensor(Session& s, const QueuedRequest& q, const fb::Copy& body) {
  if (const TensorKey to = KeyOf(body.to()); to.attachment != q.attachment) {
    return InvalidArgument("copy: tensor {} is not of this client's attachment {}", ToString(to),
                           q.attachment);
  }
  OPWIRE_ASSIGN_OR_RETURN(Tensor* const t, s.store->Find(KeyOf(body.from())));
  Tensor copy = *t;
  copy.name.clear();
  OPWIRE_ASSIGN_OR_RETURN(const Tensor* const made,
                          s.store->Put(KeyOf(body.to()), std::move(copy)));
  return TensorReplyFor(KeyOf(body.to()), *made);
}

StatusOr<fb::ReplyT> Core::ListTensors(Session& s) {
  fb::ListReplyT list;
  // As many as fit into one message, those with names first.
  size_t bytes = 0;
  for (const bool named : {true, false}) {
    s.store->ForEach([&](const TensorKey& key, const Tensor& t) {
      if (t.name.empty() == named || bytes > kMaxFrameBytes / 2) return;
      bytes += t.name.size() + t.shape.span().size_bytes() + 192;  // with the tables around them
      list.tensors.push_back(Describe(key, t));
    });
  }
  return ReplyWith(std::move(list));
}

StatusOr<fb::ReplyT> Core::PrintTensor(Session& s, const fb::Print& body) {
  OPWIRE_ASSIGN_OR_RETURN(const Tensor* const t, s.store->Find(KeyOf(body.id())));
  OPWIRE_ASSIGN_OR_RETURN(const Staged shared, s.store->ToHost(t->buffer));
  fb::TextReplyT text;
  text.text =
      PrintTensorText(t->dtype, t->encoding, t->shape.span(), shared.data(), body.max_elements());
  return ReplyWith(std::move(text));
}

void Core::ProcessSave(Session& s, const QueuedRequest& q, const fb::Save& body) {
  struct Saved {
    DType dtype;
    Extents shape;
    Staged bytes;
  };
  const auto prepare = [&]() -> StatusOr<Saved> {
    if (options_.data_directory.empty())
      return FailedPrecondition("save: the executor was started without --data");
    OPWIRE_ASSIGN_OR_RETURN(const Tensor* const t, s.store->Find(KeyOf(body.id())));
    if (t->encoding != Encoding::kDense)
      return Unimplemented("save: {} tensors have no .npy form", EncodingName(t->encoding));
    OPWIRE_ASSIGN_OR_RETURN(Staged bytes, s.store->ToHost(t->buffer));
    return Saved{t->dtype, t->shape, std::move(bytes)};
  };
  auto tensor = prepare();
  if (!tensor.ok()) {
    ReplyStatus(s, q, tensor.status());
    return Pop(s);
  }
  auto result = std::make_shared<Status>();
  auto work = [directory = options_.data_directory, principal = s.principal,
               path = body.path() ? body.path()->str() : "", dtype = tensor->dtype,
               extents = tensor->shape, data = tensor->bytes.data(), bytes = tensor->bytes.bytes(),
               result] {
    *result = SaveNpy(directory, principal, path, dtype, extents.span(),
                      {data, static_cast<size_t>(bytes)});
  };
  // The reply's closure holds the bytes. So they outlive the worker's use of them and end on this
  // thread.
  SubmitFor(
      s, std::move(work),
      [this, result, held = *std::move(tensor)](Session& session, const QueuedRequest& request) {
        ReplyStatus(session, request, *result);
      });
}

void Core::ProcessLoad(Session& s, const QueuedRequest& q, const fb::Load& body) {
  const TensorKey key = KeyOf(body.id());
  if (options_.data_directory.empty() || key.attachment != q.attachment) {
    ReplyStatus(s, q,
                options_.data_directory.empty()
                    ? FailedPrecondition("load: the executor was started without --data")
                    : InvalidArgument("load: tensor {} is not of this client's attachment {}",
                                      ToString(key), q.attachment));
    return Pop(s);
  }
  // First the size, then memory of the session for it, then the elements.
  auto opened = std::make_shared<StatusOr<OpenedTensor>>(Internal("not opened"));
  SubmitFor(
      s,
      [directory = options_.data_directory, principal = s.principal,
       path = body.path() ? body.path()->str() : "",
       name = body.tensor() ? body.tensor()->str() : "", headers = headers_,
       opened] { *opened = OpenTensor(directory, principal, path, name, *headers); },
      [this, opened, key](Session& session, const QueuedRequest& request) {
        if (!opened->ok()) return ReplyStatus(session, request, opened->status());
        const auto buffer = session.store->Allocate((*opened)->tensor.bytes);
        if (!buffer.ok()) return ReplyStatus(session, request, buffer.status());
        const Status begun = ReadLoaded(
            session, std::make_shared<const OpenedTensor>(std::move(**opened)), *buffer, key);
        if (!begun.ok()) ReplyStatus(session, request, begun);
      });
}

Status Core::ReadLoaded(Session& s, std::shared_ptr<const OpenedTensor> file,
                        const BufferRef& buffer, TensorKey key) {
  auto result = std::make_shared<Status>();
  std::shared_ptr<const PinnedStaging::ChunkPair> pair;
  std::function<void()> read = [file, to = buffer->data(), result] {
    *result = ReadTensor(*file, 0, file->tensor.bytes, to);
  };
  if (!device_.info().host_memory) {
    OPWIRE_ASSIGN_OR_RETURN(pair, staging_.Take());
    OPWIRE_ASSIGN_OR_RETURN(const EventId now, staging_.Now());
    read = [this, file, to = buffer->data(), chunks = pair->chunks(), now, result] {
      *result = staging_.Load(*file, to, chunks, now);
    };
  }
  // The reply's closure holds the memory, as for a save.
  SubmitFor(
      s, std::move(read),
      [this, file, result, key, buffer, pair](Session& session, const QueuedRequest& request) {
        if (!result->ok()) return ReplyStatus(session, request, *result);
        Tensor t;
        t.dtype = file->tensor.dtype;
        t.encoding = file->tensor.encoding;
        t.shape = Extents(file->tensor.shape);
        t.buffer = buffer;
        const auto made = session.store->Put(key, std::move(t));
        if (!made.ok()) return ReplyStatus(session, request, made.status());
        fb::ReplyT reply = TensorReplyFor(key, **made);
        reply.body.AsTensorReply()->file_bytes = static_cast<uint64_t>(file->file_bytes);
        ReplySmall(session, request, std::move(reply));
      });
  return absl::OkStatus();
}

}  // namespace opwire::executor
