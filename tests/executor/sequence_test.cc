// The order of requests: sequence numbers, retries and the window of replies, credit, cancel,
// deadlines.
#include <nlohmann/json.hpp>
#include <random>

#include "tests/executor/fixture.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;
constexpr const char* kIncrement =
    "program @inc(inout %w: f32[1]) -> (w: f32[1]) { %0 = constant() {type = f32[1], value = #0} "
    "%1 = add(%w, %0) return %1 } blob 0 = \"0000803f\"";

class SequenceTest : public CoreTest {
 protected:
  SequenceTest() { Begin(); }
  void Begin() {
    c_ = Hello();
    ASSERT_TRUE(Load(c_, 1, kIncrement).ok());
    ASSERT_TRUE(Put(c_, 1, {0}).ok());
  }
  fb::RequestT Increment() {
    fb::RequestT r;
    r.body.Set(RunOf(1).Tensor(c_, 1).Inline().run);
    return r;
  }
  float Count() { return Get(c_, 1).BulkFloats().at(0); }
  Answer Cancel(uint64_t seq) { return CoreTest::Cancel(c_, seq); }
  // Bytes of host memory that requests and replies use, from the facts of a heartbeat.
  int64_t HostMemoryInUse() {
    core_->OnTick(now_);
    return nlohmann::json::parse(Info("stats"))["host_memory_in_use"].get<int64_t>();
  }
  Client c_;
};

TEST_F(SequenceTest, GapsAreRefusedAndTheExpectedOneStillWorks) {
  const uint64_t next = c_.next_seq;
  for (uint64_t ahead : {next + 1, next + 1000, UINT64_MAX}) {
    SendAs(c_, ahead, Increment());
    const Answer a = Take(c_.peer, ahead);
    EXPECT_EQ(a.code(), absl::StatusCode::kFailedPrecondition) << a.status;
    EXPECT_NE(MessageOf(a.status).find(fmt::format("expected request {}", next)), std::string::npos)
        << a.status;
  }
  EXPECT_TRUE(Ask(c_, RunOf(1).Tensor(c_, 1).None()).ok());
  EXPECT_EQ(Count(), 1);
}

TEST_F(SequenceTest, ARetryIsNeverASecondExecution) {
  const uint64_t seq = Send(c_, Increment());
  WorkAll();
  EXPECT_EQ(Take(c_.peer, seq).Floats(0), Floats{1});
  for (int i = 0; i < 3; ++i) {
    SendAs(c_, seq, Increment());
    WorkAll();
    EXPECT_EQ(Take(c_.peer, seq).Floats(0), Floats{1}) << "the first reply again";
  }
  EXPECT_EQ(Count(), 1);
}

TEST_F(SequenceTest, ARetryOfWhatStillWaitsIsAnsweredOnce) {
  const uint64_t seq = Send(c_, Increment());
  SendAs(c_, seq, Increment());
  SendAs(c_, seq, Increment());
  WorkAll();
  EXPECT_EQ(Take(c_.peer, seq).Floats(0), Floats{1});
  EXPECT_FALSE(Take(c_.peer, seq).came);
  EXPECT_EQ(Count(), 1);
}

TEST_F(SequenceTest, RepliesAreKeptForTheWindowAndThenForgotten) {
  options_.limits[LimitId::kCreditRequests] = 4;  // the window is twice that
  Restart();
  Begin();
  const uint64_t first = Send(c_, Increment());
  WorkAll();
  Take(c_.peer, first);
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(Ask(c_, fb::FlushT()).ok());
  SendAs(c_, first, Increment());
  EXPECT_EQ(Take(c_.peer, first).Floats(0), Floats{1});
  EXPECT_TRUE(Ask(c_, fb::FlushT()).ok());
  SendAs(c_, first, Increment());
  EXPECT_EQ(Take(c_.peer, first).code(), absl::StatusCode::kAborted);
  SendAs(c_, 0, Increment());
  EXPECT_EQ(Take(c_.peer, 0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Count(), 1);
}

// Bulk bytes of a reply are kept too.
TEST_F(SequenceTest, RetriesBringBulkBytesAgain) {
  ASSERT_TRUE(Put(c_, 9, {4, 5}).ok());
  fb::GetT get;
  get.id = IdPtr(c_, 9);
  fb::RequestT r;
  r.body.Set(get);
  const uint64_t seq = Send(c_, r);
  WorkAll();
  EXPECT_EQ(Take(c_.peer, seq).BulkFloats(), (Floats{4, 5}));
  ASSERT_TRUE(Put(c_, 9, {6, 7}).ok());
  SendAs(c_, seq, r);
  EXPECT_EQ(Take(c_.peer, seq).BulkFloats(), (Floats{4, 5}));
}

// The reply that did not arrive is available when the client comes back on another connection.
TEST_F(SequenceTest, AfterAReconnectTheRepliesAreThere) {
  const uint64_t done = Send(c_, Increment());
  shell_.deaf.insert(c_.peer);
  WorkAll();
  const uint64_t waits = c_.next_seq++;
  core_->OnPeerGone(now_, c_.peer);
  c_.peer = next_peer_++;
  Attach(c_);
  SendAs(c_, done, Increment());
  EXPECT_EQ(Take(c_.peer, done).Floats(0), Floats{1});
  SendAs(c_, waits, Increment());
  WorkAll();
  EXPECT_EQ(Take(c_.peer, waits).Floats(0), Floats{2});
}

TEST_F(SequenceTest, RefusalsCountInTheSequence) {
  EXPECT_FALSE(Ask(c_, RunOf(7)).ok());
  EXPECT_FALSE(Ask(c_, fb::ListT(), std::string(kMaxFrameBytes + 1, 'x')).came)
      << "no message at all, so it has no number";
  --c_.next_seq;
  Take(c_.peer, 0);
  EXPECT_TRUE(Ask(c_, fb::FlushT()).ok());
}

TEST_F(SequenceTest, CreditHoldsExactly) {
  options_.limits[LimitId::kCreditRequests] = 5;
  Restart();
  Begin();
  std::vector<uint64_t> seqs;
  for (int i = 0; i < 6; ++i) seqs.push_back(Send(c_, Increment()));
  const Answer over = Take(c_.peer, seqs[5]);
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted) << over.status;
  WorkAll();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Take(c_.peer, seqs[static_cast<size_t>(i)]).ok());
  EXPECT_EQ(Count(), 5);
  for (int i = 0; i < 5; ++i) Send(c_, fb::FlushT());  // it came back
  WorkAll();
  EXPECT_TRUE(Take(c_.peer, c_.next_seq - 1).ok());
}

TEST_F(SequenceTest, CreditInBytesHolds) {
  options_.limits[LimitId::kCreditBytes] = 100'000;
  Restart();
  Begin();
  const uint64_t a = Send(c_, fb::FlushT(), std::string(60'000, 'x')),
                 b = Send(c_, fb::FlushT(), std::string(60'000, 'x'));
  EXPECT_EQ(Take(c_.peer, b).code(), absl::StatusCode::kResourceExhausted);
  WorkAll();
  EXPECT_TRUE(Take(c_.peer, a).ok());
  EXPECT_TRUE(Ask(c_, fb::FlushT(), std::string(60'000, 'x')).ok());
}

TEST_F(SequenceTest, CancelOfWhatWaitsRunsOrHasEnded) {
  const uint64_t first = Send(c_, Increment()), second = Send(c_, Increment()),
                 third = Send(c_, Increment());
  EXPECT_TRUE(Cancel(second).ok());
  WorkAll();
  EXPECT_TRUE(Take(c_.peer, first).ok());
  const Answer cancelled = Take(c_.peer, second);
  EXPECT_EQ(cancelled.code(), absl::StatusCode::kCancelled) << cancelled.status;
  EXPECT_EQ(Take(c_.peer, third).Floats(0), Floats{2});
  EXPECT_TRUE(Cancel(first).ok());  // too late: nothing happens
  EXPECT_TRUE(Cancel(1'000'000).ok());
  SendAs(c_, second, Increment());  // a retry of the cancelled one
  EXPECT_EQ(Take(c_.peer, second).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Count(), 2);
  fb::CancelT foreign;
  foreign.token.assign(16, 1);
  EXPECT_EQ(Control(std::move(foreign)).code(), absl::StatusCode::kAborted);
}

// The frees of a cancelled request are executed, but not before the requests ahead of it are done.
TEST_F(SequenceTest, ACancelledRequestFreesInItsTurn) {
  ASSERT_TRUE(Put(c_, 2, {5}).ok());
  const uint64_t first = Send(c_, RunOf(1).Tensor(c_, 2).Inline());
  fb::RequestT second = Increment();
  second.frees.push_back(Id(c_, 2));
  const uint64_t cancelled = Send(c_, std::move(second));
  EXPECT_TRUE(Cancel(cancelled).ok());
  WorkAll();
  EXPECT_EQ(Take(c_.peer, first).Floats(0), Floats{6});
  EXPECT_EQ(Take(c_.peer, cancelled).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Get(c_, 2).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Count(), 0);
}

// Credit comes back with a cancel, however often.
TEST_F(SequenceTest, CancelGivesCreditBack) {
  options_.limits[LimitId::kCreditRequests] = 3;
  Restart();
  Begin();
  for (int i = 0; i < 20; ++i) {
    const uint64_t a = Send(c_, Increment()), b = Send(c_, Increment());
    Cancel(b);
    Cancel(a);
    WorkAll();
    EXPECT_EQ(Take(c_.peer, a).code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(Take(c_.peer, b).code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(Count(), 0);
  EXPECT_EQ(core_->load().queued.load(), 0u);
}

TEST_F(SequenceTest, DeadlinesThatPassWhileWaiting) {
  const uint64_t seq = Send(c_, RunOf(1).Tensor(c_, 1).Inline().Deadline(1000));
  now_ += 2 * kMillisecond;
  WorkAll();
  EXPECT_EQ(Take(c_.peer, seq).code(), absl::StatusCode::kDeadlineExceeded);
  const uint64_t enough = Send(c_, RunOf(1).Tensor(c_, 1).Inline().Deadline(1'000'000)),
                 absurd = Send(c_, RunOf(1).Tensor(c_, 1).Inline().Deadline(UINT64_MAX));
  now_ += 2 * kMillisecond;
  WorkAll();
  EXPECT_TRUE(Take(c_.peer, enough).ok());
  EXPECT_TRUE(Take(c_.peer, absurd).ok());
  EXPECT_EQ(Count(), 2);
}

TEST_F(SequenceTest, DeadlinesThatPassWhileRunning) {
  UseHost(1 << 30);  // which stops between steps
  options_.slice = 1;
  Restart();
  Begin();
  ASSERT_TRUE(Load(c_, 2, kSlow).ok());
  ASSERT_TRUE(Put(c_, 2, Floats(128 * 128, 1), {128, 128}).ok());
  ASSERT_TRUE(Put(c_, 3, Floats(128 * 128, 2), {128, 128}).ok());
  const uint64_t seq = Send(c_, RunOf(2).Tensor(c_, 2).Tensor(c_, 3).None().None().Deadline(1000));
  ASSERT_TRUE(WorkOnce());
  ASSERT_FALSE(Take(c_.peer, seq).came);
  now_ += 2 * kMillisecond;
  ASSERT_TRUE(WorkOnce());
  const Answer a = Take(c_.peer, seq);
  EXPECT_EQ(a.code(), absl::StatusCode::kDeadlineExceeded) << a.status;
  EXPECT_EQ(Get(c_, 3).BulkFloats(), Floats(128 * 128, 2)) << "stopped before its first write";
}

// A session's requests stay in order while a worker handles the first one.
TEST_F(SequenceTest, RequestsBehindAProgramWaitForIt) {
  fb::PutProgramT put;
  put.slot = 5;
  const uint64_t program = Send(c_, std::move(put), "these bytes are no program");
  const uint64_t run = Send(c_, RunOf(5)), after = Send(c_, Increment());
  EXPECT_TRUE(WorkOnce());
  EXPECT_FALSE(WorkOnce()) << "the session waits";
  EXPECT_FALSE(Take(c_.peer, run).came);
  EXPECT_TRUE(Cancel(program).ok());  // a worker has it
  Client other = Hello();
  EXPECT_TRUE(Put(other, 1, {1}).ok());
  WorkAll();
  EXPECT_EQ(Take(c_.peer, program).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Take(c_.peer, run).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Take(c_.peer, after).ok());
}

// A request that waits long while others are refused is still known when its client asks again.
TEST_F(SequenceTest, WhatWaitsOutlivesTheWindow) {
  options_.limits[LimitId::kCreditRequests] = 4;
  Restart();
  Begin();
  const uint64_t waits = Send(c_, Increment());
  for (int i = 0; i < 3; ++i) Send(c_, Increment());
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(Take(c_.peer, Send(c_, Increment())).code(), absl::StatusCode::kResourceExhausted);
  const uint64_t last = c_.next_seq - 1;
  SendAs(c_, waits, Increment());
  EXPECT_FALSE(Take(c_.peer, waits).came) << "it is still to run";
  WorkAll();
  EXPECT_EQ(Take(c_.peer, waits).Floats(0), Floats{1});
  SendAs(c_, last, Increment());
  EXPECT_EQ(Take(c_.peer, last).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Count(), 4);
}

// Large replies that are not acknowledged count as memory, and the oldest are dropped first.
TEST(ReplyWindow, WhatIsAcknowledgedIsGivenBackOnce) {
  ReplyWindow window(4);
  const std::string large(30'000, 'x'), small(10, 'y');
  int64_t counted = 0;
  for (uint64_t seq = 1; seq < 40; ++seq) {
    counted += window.Acknowledge(seq);
    EXPECT_EQ(counted, 0) << seq;
    EXPECT_LT(window.Find(seq - 1).head.capacity(), 1000u);
    window.Begin(seq);
    counted += window.Finish(seq, AsBytes(seq % 7 == 0 ? large : small), {});
    EXPECT_EQ(counted, window.held());
    EXPECT_EQ(counted >= 30'000, seq % 7 == 0) << counted;
  }
}

TEST_F(SequenceTest, TheWindowOfLargeRepliesIsBounded) {
  ASSERT_TRUE(Load(c_, 2,
                   "program @zeros() -> (y: f32[12000]) { %0 = zeros() {shape = [12000], dtype = "
                   "f32} return %0 }")
                  .ok());
  const auto held = [&, before = HostMemoryInUse()] { return HostMemoryInUse() - before; };
  const uint64_t first = Send(c_, RunOf(2).Inline());
  for (int i = 0; i < 500; ++i) Send(c_, RunOf(2).Inline()), WorkAll();
  EXPECT_GT(held(), ReplyWindow::kMostHeld / 2);
  EXPECT_LT(held(), ReplyWindow::kMostHeld + (1 << 20));
  Take(c_.peer, first);
  SendAs(c_, first, Increment());
  EXPECT_EQ(Take(c_.peer, first).code(), absl::StatusCode::kAborted)
      << "forgotten, and never done again";
  Control([&] {
    fb::ByeT bye;
    bye.token = c_.token;
    bye.free = true;
    return bye;
  }());
  EXPECT_LE(held(), 0);
}

// A client that reads slowly gets all its replies, in order. Only its own requests wait meanwhile.
TEST_F(SequenceTest, RepliesWaitForAClientThatIsSlowToRead) {
  const Client slow_one = Hello("shared");
  Client slow = slow_one, other = Hello("shared");
  ASSERT_EQ(slow.session, other.session);
  constexpr const char* kZeros =
      "program @zeros() -> (y: f32[12000]) { %0 = zeros() {shape = [12000], dtype = f32} return %0 "
      "}";
  ASSERT_TRUE(Load(slow, 1, kZeros).ok());
  ASSERT_TRUE(Load(other, 1, kZeros).ok());
  const int64_t before = InUse();
  shell_.deaf.insert(slow.peer);
  std::vector<uint64_t> sent;
  for (int i = 0; i < 250; ++i) sent.push_back(Send(slow, RunOf(1).Inline()));
  const uint64_t behind = Send(other, RunOf(1).None());
  WorkAll();
  EXPECT_TRUE(Take(other.peer, behind).ok());
  EXPECT_TRUE(core_->HasReplies());
  EXPECT_FALSE(core_->Idle());
  EXPECT_LT(InUse() - before, Outbox::kFull + ReplyWindow::kMostHeld + (4 << 20));
  core_->Flush(now_);
  EXPECT_FALSE(core_->HasWork()) << "it reads no more than before";
  shell_.deaf.clear();
  for (int i = 0; i < 100 && core_->HasReplies(); ++i) {
    core_->Flush(now_);
    WorkAll();
  }
  EXPECT_TRUE(core_->Idle());
  std::vector<uint64_t> came;
  for (const FakeShell::Message& m : shell_.sent) {
    AlignedBytes memory;
    auto reply = DecodeReply(AsBytes(m.head), memory);
    ASSERT_TRUE(reply.ok()) << reply.status();
    if (m.peer == slow.peer) came.push_back((*reply)->seq());
  }
  EXPECT_EQ(came, sent);
}

// A client that disconnects meanwhile finds the replies that it did not read. The executor does no
// more work for it than it can keep replies.
TEST_F(SequenceTest, RepliesThatWereNotReadAreThereAfterAReconnect) {
  ASSERT_TRUE(Load(c_, 2,
                   "program @zeros() -> (y: f32[12000]) { %0 = zeros() {shape = [12000], dtype = "
                   "f32} return %0 }")
                  .ok());
  fb::RunT run = RunOf(2).Inline().run;
  shell_.deaf.insert(c_.peer);
  std::vector<uint64_t> sent;
  for (int i = 0; i < 250; ++i) sent.push_back(Send(c_, run));
  WorkAll();
  core_->OnPeerGone(now_, c_.peer);
  WorkAll();
  c_.peer = next_peer_++;
  Attach(c_);
  for (const uint64_t seq : sent)
    SendAs(c_, seq, [&] {
      fb::RequestT r;
      r.body.Set(run);
      return r;
    }());
  WorkAll();
  for (const uint64_t seq : sent) EXPECT_TRUE(Take(c_.peer, seq).ok()) << seq;
}

// Replies that go out together keep their order among replies that go alone.
TEST_F(SequenceTest, GatheredRepliesKeepTheirOrder) {
  ASSERT_TRUE(Load(c_, 2,
                   "program @zeros() -> (y: f32[12000]) { %0 = zeros() {shape = [12000], dtype = "
                   "f32} return %0 }")
                  .ok());
  shell_.gathers = true;
  std::vector<uint64_t> sent, came;
  for (int i = 0; i < 40; ++i)
    sent.push_back(i % 7 == 3 ? Send(c_, RunOf(2).Inline()) : Send(c_, Increment()));
  while (core_->HasWork()) {
    core_->Work(Clock());
    if (core_->HasWork()) continue;
    core_->Flush(now_);
  }
  EXPECT_FALSE(core_->HasReplies());
  for (const FakeShell::Message& m : shell_.sent) {
    AlignedBytes memory;
    came.push_back((*DecodeReply(AsBytes(m.head), memory))->seq());
  }
  EXPECT_EQ(came, sent);
}

// A client that keeps sending beyond its credit and reads nothing loses its connection.
TEST_F(SequenceTest, AClientBeyondItsCreditThatDoesNotReadIsDropped) {
  options_.limits[LimitId::kCreditRequests] = 4;
  Restart();
  Begin();
  shell_.deaf.insert(c_.peer);
  for (int i = 0; i < 20; ++i) Send(c_, fb::FlushT());
  WorkAll();
  EXPECT_EQ(shell_.dropped, std::vector<PeerId>{c_.peer});
  core_->Flush(now_);
  EXPECT_TRUE(core_->Idle());
}

// For any requests in any order, every accepted number is answered once, and the counter counts the
// successful runs.
TEST_F(SequenceTest, RandomTraffic) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  options_.limits[LimitId::kCreditRequests] = 8;
  Restart();
  Begin();
  int succeeded = 0;
  std::set<uint64_t> open;
  const auto collect = [&] {
    for (auto it = open.begin(); it != open.end();) {
      const Answer a = Take(c_.peer, *it);
      if (!a.came) {
        ++it;
        continue;
      }
      succeeded += a.ok();
      while (Take(c_.peer, *it).came) {  // answers to retries
      }
      it = open.erase(it);
    }
  };
  for (int i = 0; i < 3000; ++i) {
    switch (random() % 6) {
      case 0:
      case 1:
        if (open.size() < 8) open.insert(Send(c_, Increment()));  // as a client does
        break;
      case 2:
        if (!open.empty()) SendAs(c_, *open.begin(), Increment());
        break;
      case 3:
        WorkOnce();
        break;
      case 4:
        if (!open.empty()) Cancel(*open.rbegin());
        break;
      case 5:
        // The connection breaks. The client sends unanswered requests again.
        collect();
        core_->OnPeerGone(now_, c_.peer);
        c_.peer = next_peer_++;
        Attach(c_);
        for (uint64_t seq : open) SendAs(c_, seq, Increment());
        break;
    }
    collect();
  }
  WorkAll();
  collect();
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(Count(), static_cast<float>(succeeded));
  EXPECT_GT(succeeded, 100);
}

}  // namespace
}  // namespace opwire::executor
