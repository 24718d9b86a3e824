// Registering and beating.
#include "registry/client/announcer.h"

#include <algorithm>

namespace opwire {

std::optional<std::string> Announcer::OnTick(Nanos now, const fb::LoadInfoT& load) {
  if (now < next_) return std::nullopt;
  next_ = now + beat_;
  if (!registered_ || changed_) {
    changed_ = false;
    fb::RegisterT body;
    body.info = std::make_unique<fb::ExecutorInfoT>(info_);
    body.info->load = std::make_unique<fb::LoadInfoT>(load);
    body.info->free_memory = load.free_memory;
    body.claim = claim_;
    return EncodeRequest(++seq_, std::move(body));
  }
  fb::HeartbeatT body;
  body.id = info_.id;
  body.incarnation = info_.incarnation;
  body.load = std::make_unique<fb::LoadInfoT>(load);
  return EncodeRequest(++seq_, std::move(body));
}

void Announcer::SetOps(std::vector<std::unique_ptr<fb::OpEntryT>> ops) {
  info_.ops = std::move(ops);
  changed_ = true;
  next_ = 0;
}

void Announcer::OnReply(Nanos now, Bytes bytes) {
  AlignedBytes memory;
  auto reply = DecodeReply(bytes, memory);
  if (!reply.ok()) return;
  heard_ = now;
  refusal_ = StatusOf(**reply);
  if (!refusal_.ok()) {
    registered_ = false;
    return;
  }
  const fb::Beat* beat = (*reply)->body_as_Beat();
  if (!beat) return;
  if (beat->beat_ms() >= 10) beat_ = std::min<Nanos>(beat->beat_ms() * kMillisecond, 60 * kSecond);
  next_ = std::min(next_, now + beat_);  // the pace may be faster than what was assumed
  registered_ = !beat->again();
  if (beat->again()) next_ = now;
}

void Announcer::OnConnected(Nanos now) {
  registered_ = false;
  heard_ = now;
  next_ = now;
}

std::string Announcer::Goodbye() {
  fb::UnregisterT body;
  body.id = info_.id;
  body.incarnation = info_.incarnation;
  return EncodeRequest(++seq_, std::move(body));
}

}  // namespace opwire
