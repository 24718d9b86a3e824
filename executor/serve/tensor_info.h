// Tensors of a session as replies name them.
#ifndef OPWIRE_EXECUTOR_SERVE_TENSOR_INFO_H_
#define OPWIRE_EXECUTOR_SERVE_TENSOR_INFO_H_

#include <memory>
#include <utility>

#include "executor/store/store.h"
#include "ir/wire/message.h"

namespace opwire::executor {

// {0, 0}, which no tensor has, where a request names none.
inline TensorKey KeyOf(const fb::TensorId* id) {
  return id ? TensorKey{id->attachment(), id->counter()} : TensorKey{};
}

inline std::unique_ptr<fb::TensorInfoT> Describe(const TensorKey& key, const Tensor& t) {
  auto info = std::make_unique<fb::TensorInfoT>();
  info->id = std::make_unique<fb::TensorId>(key.attachment, 0, key.counter);
  info->type = std::make_unique<fb::TensorTypeT>();
  info->type->dtype = static_cast<uint8_t>(t.dtype);
  info->type->encoding = static_cast<uint8_t>(t.encoding);
  info->type->shape.assign(t.shape.span().begin(), t.shape.span().end());
  info->name = t.name;
  info->state = static_cast<uint8_t>(t.state);
  if (t.buffer) {
    info->bytes = static_cast<uint64_t>(t.buffer->bytes());
    info->offset = t.filling ? t.filling.offset() : t.buffer->offset();
  }
  return info;
}

inline fb::ReplyT TensorReplyFor(const TensorKey& key, const Tensor& t, uint64_t ticket = 0) {
  fb::ReplyT reply;
  fb::TensorReplyT body;
  body.info = Describe(key, t);
  body.ticket = ticket;
  reply.body.Set(std::move(body));
  return reply;
}

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_TENSOR_INFO_H_
