// Programs: uploaded once, checked and planned on a worker, shared between sessions with equal
// bytes.
#include <algorithm>

#include "executor/serve/core.h"

namespace opwire::executor {
namespace {

constexpr int64_t kSessionsWorthOfPrograms = 16;

void AnswerProgram(fb::ReplyT& reply, const Program& program, bool cached) {
  fb::ProgramReplyT done;
  done.cached = cached;
  done.nodes = static_cast<uint32_t>(program.nodes);
  reply.body.Set(std::move(done));
}

// Every slot counts against its session's quota, even if other sessions hold the program.
Status CheckQuota(Session& s, size_t bytes, int64_t takes) {
  MemoryBudget& quota = s.store->quota_budget();
  if (quota.Fits(takes)) return absl::OkStatus();
  return ResourceExhausted(
      "over quota: a program of {} bytes takes {}, the session holds {} of {}; drop programs, free "
      "tensors or ask for a larger quota",
      bytes, takes, quota.in_use, quota.limit);
}

Status CheckBudget(MemoryBudget& budget, size_t bytes, int64_t takes) {
  if (budget.Fits(takes)) return absl::OkStatus();
  return ResourceExhausted(
      "out of memory: a program of {} bytes takes {}, the executor holds {} of {}", bytes, takes,
      budget.in_use, budget.limit);
}

}  // namespace

void Core::SubmitFor(Session& s, std::function<void()> work,
                     std::function<void(Session&, const QueuedRequest&)> go_on) {
  s.waiting = true;
  UpdateReady(s);
  ++jobs_;
  shell_.Submit(std::move(work), [this, id = s.id, go_on = std::move(go_on)] {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) {
      // The session ended meanwhile. This closure may hold its memory, so the session is destroyed
      // at the next tick, after the closure.
      if (const auto ended = ended_.find(id); ended != ended_.end()) ended->second->waiting = false;
      return;
    }
    Session& session = *it->second;
    session.waiting = false;
    go_on(session, *session.queue.front());
    if (!session.waiting) Pop(session);
  });
}

void Core::ProcessProgram(Session& s, const QueuedRequest& q, const fb::PutProgram& body) {
  const auto finish = [&](const Status& status) {
    ReplyStatus(s, q, status);
    Pop(s);
  };
  const std::pair key(q.attachment, body.slot());
  if (!s.slots.contains(key) &&
      static_cast<int64_t>(s.slots.size()) >= options_.limits[LimitId::kPrograms]) {
    return finish(ResourceExhausted("the session: expected at most {} programs, got {}; drop some",
                                    options_.limits[LimitId::kPrograms], s.slots.size() + 1));
  }
  Bytes sent = AsBytes(q.bulk);
  Staged shared;
  if (body.bytes()) {
    auto tensor = s.store->Find({body.bytes()->attachment(), body.bytes()->counter()});
    if (!tensor.ok()) return finish(tensor.status());
    auto there = s.store->ToHost((*tensor)->buffer);
    if (!there.ok()) return finish(there.status());
    shared = *std::move(there);
    sent = {shared.data(), static_cast<size_t>(shared.bytes())};
  }
  if (static_cast<int64_t>(sent.size()) > options_.limits[LimitId::kProgramBytes]) {
    return finish(ResourceExhausted("program: expected at most {} bytes, got {}",
                                    options_.limits[LimitId::kProgramBytes], sent.size()));
  }
  const ProgramHash hash = HashProgram(sent);
  std::erase_if(programs_, [](const auto& p) { return p.expired(); });
  for (const auto& known : programs_) {
    const auto program = known.lock();
    if (program->kernels != s.kernels || program->hash != hash ||
        !std::ranges::equal(AsBytes(program->bytes), sent))
      continue;
    if (const auto slot = s.slots.find(key);
        slot == s.slots.end() || slot->second.program != program) {
      if (Status room = CheckQuota(s, sent.size(), program->held.bytes()); !room.ok())
        return finish(room);
      s.slots[key] = {program, Reservation(&s.store->quota_budget(), program->held.bytes())};
    }
    fb::ReplyT reply;
    AnswerProgram(reply, *program, true);
    ReplySmall(s, q, std::move(reply));
    return Pop(s);
  }
  if (const int64_t most = kSessionsWorthOfPrograms * options_.limits[LimitId::kPrograms];
      static_cast<int64_t>(programs_.size()) >= most) {
    return finish(ResourceExhausted(
        "the executor: expected at most {} different programs of all sessions, got {}; drop some",
        most, programs_.size() + 1));
  }
  // An estimate until its parts are known: its bytes, and a second copy of its constants.
  const int64_t expected = 2 * static_cast<int64_t>(sent.size());
  if (Status room = CheckBudget(host_budget_, sent.size(), expected); !room.ok())
    return finish(room);
  if (Status room = CheckQuota(s, sent.size(), expected); !room.ok()) return finish(room);
  // A copy: a client can change its session's segment at any time.
  std::string bytes(reinterpret_cast<const char*>(sent.data()), sent.size());
  struct Reserved {
    Reservation of_executor, of_session;
  };
  // Only the reply's closure has it, so it ends on this thread.
  auto reserved = std::make_shared<Reserved>(
      Reserved{{&host_budget_, expected}, {&s.store->quota_budget(), expected}});
  auto result = std::make_shared<StatusOr<std::shared_ptr<Program>>>(Internal("not prepared"));
  SubmitFor(
      s,
      [this, result, kernels = s.kernels, bytes = std::move(bytes)]() mutable {
        *result = PrepareProgram(std::move(bytes), std::move(kernels), options_.limits);
      },
      [this, result, reserved, key](Session& session, const QueuedRequest& request) {
        if (!result->ok()) return ReplyStatus(session, request, result->status());
        // Taken out of the state shared with the worker, so that the program ends on this thread
        // too.
        const std::shared_ptr<Program> program = std::exchange(**result, nullptr);
        const int64_t takes = program->MemoryBytes();
        *reserved = {};
        Status room = CheckBudget(host_budget_, program->bytes.size(), takes);
        if (room.ok()) room = CheckQuota(session, program->bytes.size(), takes);
        if (!room.ok()) return ReplyStatus(session, request, room);
        program->held = Reservation(&host_budget_, takes);
        session.slots[key] = {program, Reservation(&session.store->quota_budget(), takes)};
        programs_.push_back(program);
        fb::ReplyT reply;
        AnswerProgram(reply, *program, false);
        ReplySmall(session, request, std::move(reply));
      });
}

}  // namespace opwire::executor
