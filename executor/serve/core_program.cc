// Programs: uploaded once, checked and planned on a worker, shared by equal bytes.
#include "executor/serve/core.h"

namespace opwire {
namespace {

constexpr int64_t kSessionsWorthOfPrograms = 16;

}  // namespace

void Core::SubmitFor(Session& s, std::function<void()> work, std::function<void(Session&, const QueuedRequest&)> reply) {
  s.waiting = true;
  Settle(s);
  ++jobs_;
  shell_.Submit(std::move(work), [this, id = s.id, reply = std::move(reply)] {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) {
      // It ended meanwhile. This closure may hold its memory, so the session goes with the next tick, when the closure is gone.
      if (const auto ended = ended_.find(id); ended != ended_.end()) ended->second->waiting = false;
      return;
    }
    Session& session = *it->second;
    session.waiting = false;
    reply(session, *session.queue.front());
    Pop(session);
  });
}

void Core::ProcessProgram(Session& s, const QueuedRequest& q, const fb::PutProgram& body) {
  const auto finish = [&](const Status& status) {
    ReplyStatus(s, q, status);
    Pop(s);
  };
  const std::pair key(q.attachment, body.slot());
  if (!s.slots.contains(key) && static_cast<int64_t>(s.slots.size()) >= options_.limits[LimitId::kPrograms]) {
    return finish(ResourceExhausted("the session: expected at most {} programs, got {}; drop some", options_.limits[LimitId::kPrograms],
                                    s.slots.size() + 1));
  }
  std::string bytes;
  if (body.bytes()) {
    auto tensor = s.store->Find({body.bytes()->attachment(), body.bytes()->counter()});
    if (!tensor.ok()) return finish(tensor.status());
    // A copy: what lies in the session's segment can change at any time.
    bytes.assign(reinterpret_cast<const char*>((*tensor)->buffer->data()), static_cast<size_t>((*tensor)->buffer->bytes()));
  } else {
    bytes = q.bulk;
  }
  if (static_cast<int64_t>(bytes.size()) > options_.limits[LimitId::kProgramBytes]) {
    return finish(ResourceExhausted("program: expected at most {} bytes, got {}", options_.limits[LimitId::kProgramBytes], bytes.size()));
  }
  const ProgramHash hash = HashProgram(AsBytes(bytes));
  std::erase_if(programs_, [](const auto& p) { return p.expired(); });
  for (const auto& known : programs_) {
    const auto program = known.lock();
    if (program->hash == hash && program->bytes == bytes) {
      s.slots[key] = program;
      fb::ReplyT reply;
      fb::ProgramReplyT done;
      done.cached = true;
      done.nodes = static_cast<uint32_t>(program->nodes);
      reply.body.Set(std::move(done));
      ReplySmall(s, q, std::move(reply));
      return Pop(s);
    }
  }
  if (const int64_t most = kSessionsWorthOfPrograms * options_.limits[LimitId::kPrograms]; static_cast<int64_t>(programs_.size()) >= most) {
    return finish(ResourceExhausted("the executor: expected at most {} different programs of all sessions, got {}; drop some", most, programs_.size() + 1));
  }
  auto result = std::make_shared<StatusOr<std::shared_ptr<Program>>>(Internal("not prepared"));
  SubmitFor(
      s, [this, result, bytes = std::move(bytes)]() mutable { *result = PrepareProgram(std::move(bytes), variants_, options_.limits); },
      [this, result, key](Session& session, const QueuedRequest& request) {
        if (!result->ok()) return ReplyStatus(session, request, result->status());
        const std::shared_ptr<Program>& program = **result;
        session.slots[key] = program;
        programs_.push_back(program);
        fb::ReplyT reply;
        fb::ProgramReplyT done;
        done.nodes = static_cast<uint32_t>(program->nodes);
        reply.body.Set(std::move(done));
        ReplySmall(session, request, std::move(reply));
      });
}

}  // namespace opwire
