// Runs without a waiting caller: queued, sent as batches, with failures found later.
#include "frontend/cpp/session_state.h"

namespace opwire::client {
namespace {

constexpr size_t kMostRuns = 256;  // of a batch: the limit's default
constexpr size_t kSomeRuns = 32;  // that many are worth a message to an executor that waits for one
constexpr size_t kMostFailures = 64;
constexpr size_t kMostBytes =
    kMaxFrameBytes / 2;  // then a batch is sent, so that the next run fits

// Takes replies that have arrived, without waiting.
Status TakeReplies(SessionState& s) {
  while (!s.batches.empty()) {
    OPWIRE_ASSIGN_OR_RETURN(const bool ended, s.Pump(s.batches.front().ticket, 0));
    if (!ended) break;
    s.TakeBatches();
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<Tensor>> Session::Enqueue(const Program& program, const std::vector<Arg>& args,
                                               const std::vector<ResultType>& results,
                                               uint64_t mark) {
  SessionState& s = *state_;
  OPWIRE_RETURN_IF_ERROR(s.Ensure());
  OPWIRE_RETURN_IF_ERROR(s.SendEarly());
  OPWIRE_RETURN_IF_ERROR(s.EnsureUploaded(*program.state_));
  std::vector<Tensor> moved, kept;
  OPWIRE_RETURN_IF_ERROR(s.Move(args, moved));
  if (s.queue.runs.size() >= kMostRuns || s.queue.builder.GetSize() > kMostBytes)
    OPWIRE_RETURN_IF_ERROR(s.SendQueue());
  SessionState::Queue& q = s.queue;
  OPWIRE_ASSIGN_OR_RETURN(const auto run,
                          s.BuildRun(q.builder, *program.state_, args, {}, kept, moved));
  if (kept.size() != results.size())
    return InvalidArgument("run of @{}: expected the types of {} results, got {}",
                           program.module().functions[0].name, kept.size(), results.size());
  q.runs.push_back(run);
  q.marks.push_back(mark);
  q.generation = s.generation;
  for (const Arg& arg : args) {
    if (const Tensor* t = std::get_if<Tensor>(&arg.value())) {
      t->state_->queue = q.number;
      q.shared |= !t->state_->owned;
    }
  }
  for (const Tensor& t : moved) {
    if (t.valid()) t.state_->queue = q.number;
  }
  for (size_t r = 0; r < kept.size(); ++r) {
    if (!kept[r].valid()) continue;  // of an inout parameter
    Tensor::State& t = *kept[r].state_;
    t.queue = q.number;
    t.dtype = results[r].dtype;
    t.shape = results[r].shape;
    t.bytes = TensorBytes(t.dtype, Encoding::kDense, t.shape).value_or(0);
  }
  return kept;
}

Status SessionState::SendEarly() {
  if (queue.runs.empty() || queue.runs.size() % kSomeRuns != 0) return absl::OkStatus();
  OPWIRE_RETURN_IF_ERROR(TakeReplies(*this));
  return batches.empty() ? SendQueue() : absl::OkStatus();
}

Status SessionState::SendQueue() {
  if (!queue.runs.empty() && queue.generation != generation) ClearQueue();
  if (!queue.runs.empty()) {
    // The waits come first: if the user interrupts one, the queue is unchanged.
    const size_t bytes = queue.builder.GetSize() + queue.runs.size() * sizeof(uint32_t);
    OPWIRE_RETURN_IF_ERROR(SendRiders(bytes));
    OPWIRE_RETURN_IF_ERROR(WaitForCredit(bytes + RidersBytes() + kRequestBytes));
    std::swap(builder, queue.builder);
    SentBatch sent{0, std::move(queue.marks)};
    const auto batch = fb::CreateBatch(builder, builder.CreateVector(queue.runs), true);
    queue.runs.clear();
    queue.marks.clear();
    const auto ticket = SendBuilt(fb::Body::Batch, batch.Union(), {});
    std::swap(builder, queue.builder);
    frees.insert(frees.end(), queue.frees.begin(), queue.frees.end());
    ClearQueue();
    OPWIRE_RETURN_IF_ERROR(ticket.status());
    sent.ticket = *ticket;
    batches.push_back(std::move(sent));
    TakeBatches();
  }
  while (!drops.empty()) {
    const uint32_t slot = drops.back();
    drops.pop_back();
    builder.Clear();
    OPWIRE_ASSIGN_OR_RETURN(
        const uint64_t ticket,
        SendBuilt(fb::Body::DropProgram, fb::CreateDropProgram(builder, slot).Union(), {}));
    flight.Abandon(ticket);
  }
  return absl::OkStatus();
}

void SessionState::ClearQueue() {
  queue.builder.Clear();
  queue.runs.clear();
  queue.marks.clear();
  queue.frees.clear();
  ++queue.number;
  queue.shared = false;
}

void SessionState::TakeBatches() {
  for (; !batches.empty() && flight.Ended(batches.front().ticket); batches.pop_front()) {
    const std::vector<uint64_t>& marks = batches.front().marks;
    const auto answer = flight.Take(batches.front().ticket);
    if (!answer.ok()) continue;  // uses of lost results report the loss on their own
    const fb::BatchReply* const body = answer->reply->body_as_BatchReply();
    const size_t count =
        body && body->runs() ? std::min<size_t>(body->runs()->size(), marks.size()) : 0;
    for (size_t i = 0; i < count; ++i)
      NoteFailure(marks[i], StatusOf(*body->runs()->Get(static_cast<flatbuffers::uoffset_t>(i))));
    NoteFailure(marks[std::min(count, marks.size() - 1)], StatusOf(*answer->reply));
  }
}

void SessionState::NoteFailure(uint64_t mark, Status status) {
  if (status.ok()) return;
  if (failures.size() >= kMostFailures) failures.pop_front();
  failures.push_back({mark, std::move(status)});
}

Status Session::Flush() {
  OPWIRE_RETURN_IF_ERROR(state_->Ensure());
  OPWIRE_RETURN_IF_ERROR(state_->SendQueue());
  return TakeReplies(*state_);
}

int64_t Session::queued() const { return static_cast<int64_t>(state_->queue.runs.size()); }

std::optional<QueueFailure> Session::FailureOf(const Status& status) {
  state_->TakeBatches();
  for (const QueueFailure& f : state_->failures) {
    if (f.status.code() == status.code() && f.status.message() == status.message()) return f;
  }
  return std::nullopt;
}

Status Session::CancelAll() {
  SessionState& s = *state_;
  for (const uint64_t ticket : s.flight.Unanswered()) {
    if (!s.connection) break;
    OPWIRE_RETURN_IF_ERROR(s.Cancel(s.flight.SequenceOf(ticket)));
  }
  return absl::OkStatus();
}

}  // namespace opwire::client
