// The window of replies.
#include "executor/session/session.h"

namespace opwire {

void ReplyWindow::Begin(uint64_t seq) {
  Entry& e = At(seq);
  e.seq = seq;
  e.state = State::kPending;
}

void ReplyWindow::Finish(uint64_t seq, Bytes head, Bytes bulk) {
  Entry& e = At(seq);
  if (e.seq > seq) return;  // others came and ended while it ran: its place is theirs
  if (HeldBy(e) > 0) Forget(e);
  e.seq = seq;
  e.state = State::kDone;
  e.head.assign(reinterpret_cast<const char*>(head.data()), head.size());
  e.bulk.assign(reinterpret_cast<const char*>(bulk.data()), bulk.size());
  held_ += HeldBy(e);
  if (forgotten_ + entries_.size() < seq) forgotten_ = seq - entries_.size();
  for (; held_ > kMostHeld && forgotten_ < seq; ++forgotten_) {
    Entry& old = At(forgotten_);
    if (old.seq == forgotten_ && old.state == State::kDone && HeldBy(old) > 0) Forget(old);
  }
}

void ReplyWindow::Forget(Entry& e) {
  held_ -= HeldBy(e);
  e = Entry{};
}

void ReplyWindow::Acknowledge(uint64_t seq) {
  // A number from the wire: never walk further than the window.
  if (seq > acknowledged_ + entries_.size()) acknowledged_ = seq - entries_.size();
  for (; acknowledged_ < seq; ++acknowledged_) {
    Entry& e = At(acknowledged_);
    if (e.seq == acknowledged_ && HeldBy(e) > 0) Forget(e);
  }
}

const ReplyWindow::Entry& ReplyWindow::Find(uint64_t seq) const {
  static const Entry kForgotten;
  const Entry& e = entries_[seq % entries_.size()];
  return e.seq == seq ? e : kForgotten;
}

}  // namespace opwire
