// Sessions: named and unnamed, tokens, principals, quotas, leases and times to live; limits at
// their value and one over.
#include <nlohmann/json.hpp>

#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;
using nlohmann::json;

class SessionTest : public CoreTest {
 protected:
  size_t Sessions(const std::string& principal = "uid:1") {
    return json::parse(Info("sessions", principal)).size();
  }
  void Lose(Client& c) { core_->OnPeerGone(now_, c.peer); }
  void Later(Nanos by) {
    now_ += by;
    core_->OnTick(now_);
  }
  Answer Bye(const Client& c, bool free = false) {
    fb::ByeT bye;
    bye.token = c.token;
    bye.free = free;
    return Control(std::move(bye));
  }
};

TEST_F(SessionTest, UnnamedSessionsNeverMeet) {
  Client a = Hello(), b = Hello();
  EXPECT_NE(a.session, b.session);
  EXPECT_NE(a.token, b.token);
  ASSERT_TRUE(Put(a, 1, {1}).ok());
  EXPECT_EQ(Get(b, 1).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Bye(a).ok());
  EXPECT_EQ(Sessions(), 1u);
  EXPECT_EQ(Bye(a).code(), absl::StatusCode::kAborted) << "its token is void";
}

TEST_F(SessionTest, NamedSessionsAreAttachedToAndKeepTheirBytes) {
  Client a = Hello("weights"), b = Hello("weights");
  EXPECT_EQ(a.session, b.session);
  EXPECT_NE(a.attachment, b.attachment);
  ASSERT_TRUE(Put(a, 1, {1, 2, 3}).ok());
  ASSERT_TRUE(Put(b, 1, {7}).ok());  // ids never collide
  fb::GetT get;
  get.id = IdPtr(a, 1);
  EXPECT_EQ(Ask(b, std::move(get)).BulkFloats(), (Floats{1, 2, 3}));
  EXPECT_TRUE(Bye(a).ok());
  EXPECT_TRUE(Bye(b).ok());
  EXPECT_EQ(Sessions(), 1u);
  Client c = Hello("weights");
  EXPECT_EQ(c.session, a.session);
  EXPECT_NE(c.attachment, a.attachment);
  fb::GetT again;
  again.id = IdPtr(a, 1);
  EXPECT_EQ(Ask(c, std::move(again)).BulkFloats(), (Floats{1, 2, 3}));
  EXPECT_TRUE(Bye(c, /*free=*/true).ok());
  EXPECT_EQ(Sessions(), 0u);
}

TEST_F(SessionTest, NamesBelongToTheirPrincipal) {
  Client a = Hello("shared", "uid:1"), b = Hello("shared", "uid:2");
  EXPECT_NE(a.session, b.session);
  ASSERT_TRUE(Put(a, 1, {1}).ok());
  EXPECT_EQ(Get(b, 1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Sessions("uid:1"), 1u);
  EXPECT_EQ(json::parse(Info("sessions", "uid:1"))[0]["principal"], "uid:1");
  // A token does not help another principal either.
  fb::HelloT stolen;
  stolen.token = a.token;
  EXPECT_EQ(TryHello(stolen, "uid:2").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(TryHello(stolen, "uid:1").ok());
}

TEST_F(SessionTest, WrongTokensAreRefused) {
  Client a = Hello();
  std::vector<std::vector<uint8_t>> wrong = {{},
                                             {1},
                                             std::vector<uint8_t>(16, 0),
                                             std::vector<uint8_t>(17, 1),
                                             std::vector<uint8_t>(1000, 2)};
  wrong.push_back(a.token);
  wrong.back()[15] ^= 1;
  wrong.push_back(a.token);
  wrong.back().push_back(0);
  for (const auto& token : wrong) {
    fb::AttachT attach;
    attach.token = token;
    core_->OnMessage(now_, 500, AsBytes(EncodeRequest(3, std::move(attach))), {});
    EXPECT_EQ(Take(500, 3).code(), absl::StatusCode::kAborted);
    fb::ByeT bye;
    bye.token = token;
    EXPECT_EQ(Control(std::move(bye)).code(), absl::StatusCode::kAborted);
    if (token.empty()) continue;
    fb::HelloT hello;
    hello.token = token;
    EXPECT_EQ(TryHello(std::move(hello)).code(), absl::StatusCode::kAborted);
  }
  // A stranger's requests are refused, with the incarnation that a client compares.
  core_->OnMessage(now_, 501, AsBytes(EncodeRequest(4, fb::FlushT())), {});
  const Answer stranger = Take(501, 0);
  EXPECT_EQ(stranger.code(), absl::StatusCode::kAborted);
  EXPECT_NE(MessageOf(stranger.status).find("attach"), std::string::npos);
  EXPECT_TRUE(Ask(a, fb::FlushT()).ok());
}

TEST_F(SessionTest, ProtocolVersions) {
  fb::HelloT hello;
  hello.major = kProtocolMajor + 1;
  const Answer a = TryHello(hello);
  EXPECT_EQ(a.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(MessageOf(a.status).find(fmt::format("{}.{}", kProtocolMajor, kProtocolMinor)),
            std::string::npos)
      << a.status;
  hello.major = kProtocolMajor;
  hello.minor = 999;
  EXPECT_EQ(TryHello(hello).reply.body.AsHelloReply()->minor, kProtocolMinor)
      << "the lower of both";
}

TEST_F(SessionTest, LostClientsKeepTheirLease) {
  Client a = Hello();
  ASSERT_TRUE(Put(a, 1, {5}).ok());
  Lose(a);
  Later(30 * kSecond - kMillisecond);
  EXPECT_EQ(Sessions(), 1u);
  a.peer = next_peer_++;
  Attach(a);
  Later(60 * kSecond);
  EXPECT_EQ(Get(a, 1).BulkFloats(), Floats{5}) << "attached again in time";
  Lose(a);
  Later(30 * kSecond);
  EXPECT_EQ(Sessions(), 0u);
  EXPECT_EQ(InUse(), 0);
  fb::HelloT hello;
  hello.token = a.token;
  EXPECT_EQ(TryHello(std::move(hello)).code(), absl::StatusCode::kAborted);
}

// Killed clients do not block others.
TEST_F(SessionTest, LostSessionsMakeRoom) {
  options_.limits[LimitId::kSessionsPerPrincipal] = 4;
  options_.limits[LimitId::kSessions] = 5;
  Restart();
  Client first = Hello(), second = Hello(), living = Hello(), named = Hello("named");
  const auto alive = [&](const Client& c) {
    fb::HelloT hello;
    hello.token = c.token;
    return TryHello(std::move(hello)).ok();
  };
  Lose(named);
  Lose(second);
  now_ += 100 * kMillisecond;
  Lose(first);
  EXPECT_EQ(TryHello({}).code(), absl::StatusCode::kResourceExhausted)
      << "their clients may come back";
  now_ += kSecond;
  Client fresh = Hello();
  EXPECT_FALSE(alive(second)) << "lost longest";
  EXPECT_TRUE(alive(first));
  EXPECT_TRUE(Ask(fresh, fb::FlushT()).ok());
  // Another principal's limit is its own; all sessions together have theirs.
  Client other = Hello("", "uid:2");
  EXPECT_TRUE(alive(first));
  Client last = Hello("", "uid:3");
  EXPECT_FALSE(alive(first));
  EXPECT_EQ(TryHello({}, "uid:4").code(), absl::StatusCode::kResourceExhausted);
  for (const Client& c : {living, named, fresh}) EXPECT_TRUE(alive(c));
  for (Client* c : {&living, &fresh, &other, &last}) EXPECT_TRUE(Ask(*c, fb::FlushT()).ok());
}

TEST_F(SessionTest, ALostSessionThatAWorkerHasMakesRoomToo) {
  options_.limits[LimitId::kSessionsPerPrincipal] = 1;
  Restart();
  Client lost = Hello();
  Send(lost, fb::PutProgramT(), "bytes");
  ASSERT_TRUE(WorkOnce());
  ASSERT_EQ(shell_.jobs.size(), 1u);
  Lose(lost);
  now_ += kSecond;
  Client fresh = Hello();
  WorkAll();
  core_->OnTick(now_);
  EXPECT_EQ(Sessions(), 1u);
  EXPECT_TRUE(Ask(fresh, fb::FlushT()).ok());
  EXPECT_TRUE(core_->Idle());
}

// A client that said Hello and never came to the run socket.
TEST_F(SessionTest, SessionsNeverAttachedToExpire) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(TryHello({}).ok());
  EXPECT_EQ(Sessions(), 10u);
  Later(30 * kSecond);
  EXPECT_EQ(Sessions(), 0u);
}

TEST_F(SessionTest, NamedSessionsOutliveTheirClientsForTheirTime) {
  fb::HelloT hello;
  hello.session = "short";
  hello.ttl_s = 100;
  ASSERT_TRUE(TryHello(hello).ok());
  Client b = Hello("default");
  ASSERT_TRUE(Put(b, 1, {5}).ok());
  Lose(b);
  Later(30 * kSecond);
  EXPECT_EQ(Sessions(), 2u);
  Later(99 * kSecond);
  EXPECT_EQ(Sessions(), 2u);
  Later(kSecond);
  EXPECT_EQ(Sessions(), 1u);
  Later(3600 * kSecond);
  EXPECT_EQ(Sessions(), 0u);
  EXPECT_EQ(InUse(), 0);
}

// A connection that speaks for one attachment after the other: the earlier attachments have lost
// their client, and their lease runs.
TEST_F(SessionTest, OneConnectionCannotHoldManySessions) {
  Client a = Hello();
  for (int i = 0; i < 5; ++i) {
    Client next = Hello();
    core_->OnPeerGone(now_, next.peer);
    next.peer = a.peer;
    Attach(next);
    a = next;
  }
  EXPECT_TRUE(Ask(a, fb::FlushT()).ok());
  Later(30 * kSecond);
  EXPECT_EQ(Sessions(), 1u);
  EXPECT_TRUE(Ask(a, fb::FlushT()).ok()) << "the end of the others must not touch it";
  Lose(a);
  Later(30 * kSecond);
  EXPECT_EQ(Sessions(), 0u);
}

// The newest connection of an attachment counts; the one before is closed.
TEST_F(SessionTest, AttachingAgainTakesOver) {
  Client a = Hello();
  const PeerId old = a.peer;
  a.peer = next_peer_++;
  Attach(a);
  EXPECT_EQ(shell_.dropped, std::vector<PeerId>{old});
  EXPECT_TRUE(Ask(a, fb::FlushT()).ok());
  core_->OnMessage(now_, old, AsBytes(EncodeRequest(a.next_seq, fb::FlushT())), {});
  EXPECT_EQ(Take(old, 0).code(), absl::StatusCode::kAborted)
      << "no answer to the request itself: it was not done";
  core_->OnPeerGone(now_, old);  // late message about the old one's end
  EXPECT_TRUE(Ask(a, fb::FlushT()).ok());
}

TEST_F(SessionTest, DrainingTakesNoNewSessions) {
  Client a = Hello("there");
  core_->Drain();
  EXPECT_EQ(TryHello({}).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Ask(a, fb::FlushT()).ok());
  EXPECT_TRUE(core_->Idle());
}

// A process that has ended has no lease. Any other process may come back.
TEST_F(SessionTest, EndsWithTheProcessOfItsClient) {
  bool has_ended = false;
  Client a = Hello();
  Hello();
  ASSERT_TRUE(Put(a, 1, {1}).ok());
  core_->OnPeerGone(now_, a.peer, [&] { return has_ended; });
  core_->OnTick(now_ += kSecond);
  EXPECT_EQ(Sessions(), 2u);
  has_ended = true;
  core_->OnTick(now_ += kSecond);
  EXPECT_EQ(Sessions(), 1u);
  EXPECT_EQ(InUse(), 0);
}

TEST_F(SessionTest, TellsHowLongRequestsTake) {
  Client a = Hello();
  ASSERT_TRUE(Load(a, 1, kSlow).ok());
  ASSERT_TRUE(Put(a, 1, Floats(128 * 128, 1), {128, 128}).ok());
  ASSERT_TRUE(Put(a, 2, Floats(128 * 128, 1), {128, 128}).ok());
  EXPECT_EQ(core_->load().request_ns.load(), 0);
  ASSERT_TRUE(Ask(a, RunOf(1).Tensor(a, 1).Tensor(a, 2).None().Keep(3)).ok());
  const int64_t slow = core_->load().request_ns.load();
  EXPECT_GT(slow, 0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Ask(a, fb::FlushT()).ok());
  EXPECT_LT(core_->load().request_ns.load(), std::max<int64_t>(slow, 8));
}

TEST_F(SessionTest, EndingASessionInTheMiddleOfEverything) {
  options_.slice = 1;
  Restart();
  Client a = Hello(), b = Hello();
  ASSERT_TRUE(Load(a, 1, kSlow).ok());
  ASSERT_TRUE(Put(a, 1, Floats(128 * 128, 1), {128, 128}).ok());
  ASSERT_TRUE(Put(a, 2, Floats(128 * 128, 1), {128, 128}).ok());
  Send(a, RunOf(1).Tensor(a, 1).Tensor(a, 2).None().Keep(3));
  Send(a, fb::FlushT());
  ASSERT_TRUE(WorkOnce());  // its run is suspended
  EXPECT_TRUE(Bye(a).ok());
  EXPECT_EQ(Sessions(), 1u);
  // Also a session whose first request is with a worker.
  Client c = Hello();
  fb::PutProgramT put;
  Send(c, std::move(put), "bytes");
  ASSERT_TRUE(WorkOnce());
  Send(c, fb::FlushT());
  EXPECT_TRUE(Bye(c).ok());
  WorkAll();
  core_->OnTick(now_);
  EXPECT_EQ(InUse(), 0);
  EXPECT_TRUE(Ask(b, fb::FlushT()).ok());
  EXPECT_EQ(core_->load().queued.load(), 0u);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(SessionTest, NamesThatAreNoneAreRefused) {
  const auto with = [&](const std::string& name) {
    fb::HelloT hello;
    hello.session = name;
    return TryHello(std::move(hello));
  };
  EXPECT_TRUE(with(std::string(128, 'x')).ok());
  const Answer over = with(std::string(129, 'x'));
  EXPECT_EQ(over.code(), absl::StatusCode::kInvalidArgument) << over.status;
  EXPECT_NE(MessageOf(over.status).find("at most 128 bytes, got 129"), std::string::npos)
      << over.status;
  for (const char c : {'\0', '\n', '\x1b', '\x1f', '\x7f'})
    EXPECT_EQ(with(std::string("a") + c).code(), absl::StatusCode::kInvalidArgument) << int{c};
  EXPECT_TRUE(with("größe 1").ok());
  EXPECT_EQ(Sessions(), 2u);
}

TEST_F(SessionTest, Limits) {
  options_.limits[LimitId::kSessions] = 5;
  options_.limits[LimitId::kSessionsPerPrincipal] = 3;
  options_.limits[LimitId::kAttachments] = 2;
  options_.limits[LimitId::kTensors] = 4;
  options_.limits[LimitId::kPrograms] = 2;
  options_.limits[LimitId::kTransfers] = 2;
  options_.limits[LimitId::kRank] = 3;
  options_.limits[LimitId::kBatchRuns] = 2;
  Restart();
  Client a = Hello("a");
  Hello("a");
  fb::HelloT third;
  third.session = "a";
  EXPECT_EQ(TryHello(third).code(), kExhausted);
  Hello();
  Hello();
  EXPECT_EQ(TryHello({}).code(), kExhausted);
  Hello("", "uid:2");
  Hello("", "uid:2");
  EXPECT_EQ(TryHello({}, "uid:3").code(), kExhausted);

  for (uint64_t i = 1; i <= 4; ++i) EXPECT_TRUE(Put(a, i, {1}).ok());
  EXPECT_EQ(Put(a, 5, {1}).code(), kExhausted);
  EXPECT_TRUE(Put(a, 4, {2}).ok());
  EXPECT_TRUE(Free(a, {1, 2, 3, 4}).ok());

  const char* text = "program @f(%x: f32[]) -> (y: f32[]) { %0 = neg(%x) return %0 }";
  EXPECT_TRUE(Load(a, 1, text).ok());
  EXPECT_TRUE(Load(a, 70, text).ok());
  EXPECT_EQ(Load(a, 2, text).code(), kExhausted);
  EXPECT_TRUE(Load(a, 1, text).ok());
  fb::DropProgramT drop;
  drop.slot = 70;
  EXPECT_TRUE(Ask(a, drop).ok());
  EXPECT_EQ(Ask(a, drop).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Load(a, 2, text).ok());

  EXPECT_TRUE(Put(a, 1, {1}, {1, 1, 1}).ok());
  EXPECT_EQ(Put(a, 2, {1}, {1, 1, 1, 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(
      Load(a, 1,
           "program @f(%x: f32[1, 1, 1, 1]) -> (y: f32[1, 1, 1, 1]) { %0 = neg(%x) return %0 }")
          .ok());

  fb::BatchT batch;
  for (int i = 0; i < 2; ++i)
    batch.runs.push_back(std::make_unique<fb::RunT>(RunOf(1).Scalar(1).Inline().run));
  const Answer two = Ask(a, batch);
  ASSERT_TRUE(two.ok()) << two.status;
  EXPECT_EQ(two.reply.body.AsBatchReply()->runs.size(), 2u);
  batch.runs.push_back(std::make_unique<fb::RunT>(RunOf(1).Scalar(1).Inline().run));
  EXPECT_EQ(Ask(a, batch).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, ProgramLimits) {
  options_.limits[LimitId::kNodes] = 3;
  options_.limits[LimitId::kParameters] = 2;
  options_.limits[LimitId::kProgramBytes] = 2000;
  Restart();
  Client a = Hello();
  EXPECT_TRUE(Load(a, 1,
                   "program @f(%x: f32[]) -> (y: f32[]) { %0 = neg(%x) %1 = neg(%0) %2 = neg(%1) "
                   "return %2 }")
                  .ok());
  const Answer over = Load(a, 1,
                           "program @g(%x: f32[]) -> (y: f32[]) { %0 = neg(%x) %1 = neg(%0) %2 = "
                           "neg(%1) %3 = neg(%2) return %3 }");
  EXPECT_FALSE(over.ok());
  EXPECT_NE(MessageOf(over.status).find("nodes"), std::string::npos) << over.status;
  EXPECT_TRUE(
      Load(a, 2, "program @h(%x: f32[], %y: f32[]) -> (y: f32[]) { %0 = neg(%x) return %0 }").ok());
  EXPECT_FALSE(
      Load(a, 2,
           "program @h(%x: f32[], %y: f32[], %z: f32[]) -> (y: f32[]) { %0 = neg(%x) return %0 }")
          .ok());
  fb::PutProgramT put;
  put.slot = 3;
  EXPECT_EQ(Ask(a, std::move(put), std::string(2001, 'x')).code(),
            absl::StatusCode::kResourceExhausted);
  // The slot keeps its program when the new one is refused.
  EXPECT_TRUE(Ask(a, RunOf(1).Scalar(1).Inline()).ok());
}

TEST_F(SessionTest, EqualProgramsAreShared) {
  Client a = Hello(), b = Hello();
  const char* text = "program @f(%x: f32[?n]) -> (y: f32[?n]) { %0 = neg(%x) return %0 }";
  EXPECT_FALSE(Load(a, 1, text).reply.body.AsProgramReply()->cached);
  EXPECT_TRUE(Load(b, 9, text).reply.body.AsProgramReply()->cached);
  EXPECT_TRUE(Bye(a).ok());
  EXPECT_EQ(Ask(b, RunOf(9).Array({1}).Inline()).Floats(0), Floats{-1});
}

TEST_F(SessionTest, QuotasHoldExactly) {
  Client a = Hello("", "uid:1", 1 << 20);
  const Floats quarter(65536, 1);
  for (uint64_t i = 1; i <= 4; ++i) EXPECT_TRUE(Put(a, i, quarter).ok());
  const Answer over = Put(a, 5, {1});
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(MessageOf(over.status).find("quota"), std::string::npos) << over.status;
  EXPECT_TRUE(Ask(a, fb::FlushT()).ok());
  EXPECT_TRUE(Free(a, {2}).ok());
  EXPECT_TRUE(Put(a, 5, quarter).ok());
  Client b = Hello();
  EXPECT_TRUE(Put(b, 1, quarter).ok()) << "another's quota is its own";
}

}  // namespace
}  // namespace opwire::executor
