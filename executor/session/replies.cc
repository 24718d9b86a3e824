// The window of replies.
#include "executor/session/replies.h"

namespace opwire::executor {

void ReplyWindow::Begin(uint64_t seq) {
  Entry& e = At(seq);
  e.seq = seq;
  e.state = State::kPending;
}

int64_t ReplyWindow::Finish(uint64_t seq, Bytes head, Bytes bulk) {
  Entry& e = At(seq);
  if (e.seq > seq) return 0;  // others came and ended while it ran: its place is theirs
  const int64_t before = held_;
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
  return held_ - before;
}

void ReplyWindow::Forget(Entry& e) {
  held_ -= HeldBy(e);
  e.seq = 0;
  e.state = State::kUnknown;
  Drop(e.head);
  Drop(e.bulk);
}

int64_t ReplyWindow::Acknowledge(uint64_t seq) {
  const int64_t before = held_;
  // A number from the wire: never walk further than the window.
  if (seq > acknowledged_ + entries_.size()) acknowledged_ = seq - entries_.size();
  for (; acknowledged_ < seq; ++acknowledged_) {
    Entry& e = At(acknowledged_);
    if (e.seq == acknowledged_ && HeldBy(e) > 0) Forget(e);
  }
  return held_ - before;
}

const ReplyWindow::Entry& ReplyWindow::Find(uint64_t seq) const {
  static const Entry kForgotten;
  const Entry& e = entries_[seq % entries_.size()];
  return e.seq == seq ? e : kForgotten;
}

}  // namespace opwire::executor
