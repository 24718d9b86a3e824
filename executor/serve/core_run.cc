// Runs and batches.
#include "executor/serve/core.h"

namespace opwire::executor {
namespace {

constexpr Nanos kLong =
    20 * kMicrosecond;  // a run at least that long does not let replies wait for others
constexpr int64_t kFailureBytes = 8 << 10;  // of a failed run among independent ones, at most
constexpr size_t kEnvelopeBytes =
    16 << 10;  // of a batch's reply, without its runs: their list, a message and its site

}  // namespace

StatusOr<std::shared_ptr<const Program>> Core::ProgramOf(const Session& s, uint32_t attachment,
                                                         const fb::Run& run) const {
  const auto it = s.slots.find({attachment, run.slot()});
  if (it == s.slots.end()) return NotFound("program slot {} is empty", run.slot());
  const bool reserved = (run.waits() && run.waits()->size()) ||
                        (run.signals() && run.signals()->size()) || run.group() ||
                        run.group_order();
  if (reserved)
    return Unimplemented("run of @{}: this executor has no timelines and no groups",
                         it->second.program->name());
  return it->second.program;
}

Nanos Core::DeadlineOf(Nanos arrival, const fb::Run& run) {
  if (run.deadline_us() == 0) return kNever;
  return arrival + static_cast<Nanos>(std::min<uint64_t>(run.deadline_us(), 1'000'000'000'000)) *
                       kMicrosecond;
}

void Core::NoteFailure(const Session& s, uint32_t attachment, const fb::Run& run,
                       const Status& why) {
  load_.failed.fetch_add(1, std::memory_order_relaxed);
  if (!options_.on_failed_run) return;
  const auto program = ProgramOf(s, attachment, run);
  options_.on_failed_run(
      {s.id, s.principal,
       program.ok() ? "@" + (*program)->name() : fmt::format("slot {}", run.slot()), why});
}

// Later requests that use the results of a run that never began, and are in flight already, fail
// with the same error.
void Core::FailResults(Session& s, uint32_t attachment, const fb::Run& run, const Status& why) {
  if (!run.results()) return;
  for (const fb::ResultSlot* slot : *run.results()) {
    if (slot->kind() != fb::ResultKind::Kept) continue;
    Tensor t;
    t.state = TensorState::kFailed;
    t.error = why;
    (void)s.store->Put({attachment, slot->counter()},
                       std::move(t));  // the store notes keys for which it has no room
  }
}

void Core::FailResults(Session& s, const QueuedRequest& q, const Status& why) {
  if (const fb::Run* run = q.request->body_as_Run()) return FailResults(s, q.attachment, *run, why);
  const fb::Batch* batch = q.request->body_as_Batch();
  if (!batch || !batch->runs()) return;
  for (const fb::Run* run : *batch->runs()) {
    FailResults(s, q.attachment, *run, why);
    if (batch->independent()) FailInouts(s, q.attachment, *run, why);
  }
}

// A client does not wait for a run of an independent batch. Users of a tensor that the run should
// have replaced must not read the old value.
void Core::FailInouts(Session& s, uint32_t attachment, const fb::Run& run, const Status& why) {
  const auto program = ProgramOf(s, attachment, run);
  if (!program.ok() || !run.bindings() || run.function() >= (*program)->module.functions.size())
    return;
  const std::vector<Param>& params = (*program)->module.functions[run.function()].params;
  for (uint32_t i = 0; i < std::min<size_t>(params.size(), run.bindings()->size()); ++i) {
    const fb::Binding& b = *run.bindings()->Get(i);
    if (params[i].mode != ParamMode::kInout || b.kind() != fb::BindingKind::Tensor) continue;
    Tensor* const t = s.store->FindAny({b.attachment(), b.value()});
    if (!t) continue;
    t->state = TensorState::kFailed;
    t->error = why;
  }
}

void Core::ProcessRun(Nanos now, Session& s, const QueuedRequest& q, const fb::Run& run) {
  auto program = ProgramOf(s, q.attachment, run);
  Status status = program.status();
  bool wait = false;
  if (status.ok()) status = BeginRun(now, s, q, *std::move(program), run, wait);
  if (wait) {
    // Suspended runs hold every arena. This run continues when one of them ends.
    s.virtual_time = std::max(s.virtual_time, virtual_now_ + options_.slice);
    return;
  }
  if (!status.ok()) {
    NoteFailure(s, q.attachment, run, status);
    FailResults(s, q.attachment, run, status);
    ReplyStatus(s, q, status);
    return Pop(s);
  }
  ContinueRun(now, s);
}

// The watchdog observes this, too: kernels are prepared and measured here.
Status Core::BeginRun(Nanos now, Session& s, const QueuedRequest& q,
                      std::shared_ptr<const Program> program, const fb::Run& run, bool& wait) {
  gate_.Enter({s.id, q.attachment, q.request->seq()}, now, kNever);
  Status status = s.run.Begin(environment_, *s.store, q.attachment, std::move(program), run, wait);
  gate_.Leave();
  return status;
}

Run::Outcome Core::RunSlice(Nanos now, Session& s, const QueuedRequest& q, Nanos deadline) {
  if (!unsent_.empty() && s.run.expected() > kLong) Flush(now);
  if (now >= deadline)
    s.run.Abort(DeadlineExceeded("the deadline passed while @{} ran", s.run.program()->name()));
  gate_.Enter({s.id, q.attachment, q.request->seq()}, now, deadline);
  const Nanos before = s.run.ran();
  emitting_ = &s;
  const Run::Outcome outcome =
      s.run.Continue(environment_, options_.slice, /*alone=*/ready_.size() == 1);
  emitting_ = nullptr;
  under_way_ = s.run.under_way() ? &s : nullptr;
  gate_.Leave();
  if (s.run.waits_to_emit()) UpdateReady(s);
  s.device_time += s.run.ran() - before;
  return outcome;
}

void Core::ContinueRun(Nanos now, Session& s) {
  const QueuedRequest& q = *s.queue.front();
  if (RunSlice(now, s, q, q.deadline) == Run::Outcome::kMore) return;
  const Status status = s.run.Finish(*s.store);
  if (status.ok()) {
    const auto body = s.run.Reply(builder_, now - q.arrival);
    Reply(s, q, status, fb::ReplyBody::RunReply, body.Union());
  } else {
    NoteFailure(s, q.attachment, *q.request->body_as_Run(), status);
    ReplyStatus(s, q, status);
  }
  s.run.End(environment_);
  ++s.runs;
  load_.runs.fetch_add(1, std::memory_order_relaxed);
  Pop(s);
}

// The first failed run ends the batch, unless its runs are independent. The reply has the results
// of the runs before it.
void Core::ProcessBatch(Nanos now, Session& s, const QueuedRequest& q, const fb::Batch& batch) {
  BatchProgress& p = s.batch;
  const uint32_t count = batch.runs() ? batch.runs()->size() : 0;
  if (static_cast<int64_t>(count) > options_.limits[LimitId::kBatchRuns]) {
    ReplyStatus(s, q,
                InvalidArgument("batch: expected at most {} runs, got {}",
                                options_.limits[LimitId::kBatchRuns], count));
    return Pop(s);
  }
  p.active = true;
  Status ended;
  for (const Nanos begun = now; p.next < count && ended.ok();) {
    if (now - begun >= options_.slice) return;  // continues with the next slice
    const fb::Run& run = *batch.runs()->Get(p.next);
    bool wait = false;
    Status status = s.run.active() ? absl::OkStatus() : BeginOfBatch(now, s, q, run, wait);
    if (wait) {
      s.virtual_time = std::max(s.virtual_time, virtual_now_ + options_.slice);
      return;
    }
    if (status.ok()) {
      if (!q.refusal.ok()) s.run.Abort(q.refusal);
      if (RunSlice(now, s, q, DeadlineOf(q.arrival, run)) == Run::Outcome::kMore) return;
      status = s.run.Finish(*s.store);
      if (status.ok() && batch.independent() && s.run.silent()) {
        if (p.silent.IsNull()) p.silent = fb::CreateRunReply(p.builder);
        p.replies.push_back(p.silent);
      } else if (status.ok()) {
        p.replies.push_back(s.run.Reply(p.builder, now - q.arrival));
      }
      s.run.End(environment_);
      ++s.runs;
      load_.runs.fetch_add(1, std::memory_order_relaxed);
      now = s.run.stopped();  // so that small runs do not read the clock again
    } else {
      FailResults(s, q.attachment, run, status);
      now = options_.clock();
    }
    if (!status.ok()) {
      NoteFailure(s, q.attachment, run, status);
      if (batch.independent()) FailInouts(s, q.attachment, run, status);
      if (batch.independent() && HasRoom(s, kFailureBytes))
        p.replies.push_back(BuildFailedRun(p.builder, status));
      else
        ended = status;
    }
    ++p.next;
  }
  for (uint32_t rest = p.next; rest < count; ++rest) {
    FailResults(s, q.attachment, *batch.runs()->Get(rest), ended);
    if (batch.independent()) FailInouts(s, q.attachment, *batch.runs()->Get(rest), ended);
  }
  const auto body = fb::CreateBatchReply(p.builder, p.builder.CreateVector(p.replies)).Union();
  Reply(s, q, ended, fb::ReplyBody::BatchReply, body, {}, p.builder);
  p.Clear();
  Pop(s);
}

bool Core::HasRoom(const Session& s, int64_t bytes) const {
  return static_cast<int64_t>(s.batch.builder.GetSize() + kEnvelopeBytes) + bytes <=
         static_cast<int64_t>(kMaxFrameBytes);
}

Status Core::BeginOfBatch(Nanos now, Session& s, const QueuedRequest& q, const fb::Run& run,
                          bool& wait) {
  auto program = ProgramOf(s, q.attachment, run);
  if (!program.ok()) return program.status();
  OPWIRE_RETURN_IF_ERROR(BeginRun(now, s, q, *std::move(program), run, wait));
  if (wait || HasRoom(s, s.run.ReplyBytes())) return absl::OkStatus();
  const Status full = InvalidArgument(
      "batch: the replies of {} runs fill a message; expected fewer, or results kept as tensors",
      s.batch.next);
  s.run.Abort(full);
  (void)s.run.Finish(*s.store);
  s.run.End(environment_);
  return full;
}

}  // namespace opwire::executor
