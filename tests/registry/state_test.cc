// Which executors are alive, their ops, and the watchers.
#include <random>
#include <set>

#include "tests/registry/fixture.h"
#include "tests/seed.h"

namespace opwire {
namespace {

using Names = std::vector<std::string>;

TEST_F(RegistryTest, RegisteredExecutorsAreListedWithTheirFacts) {
  fb::ExecutorInfoT info = MakeInfo("e1");
  info.labels = {"fast"};
  AddOp(info, "add", {DType::kF32});
  const Got g = Register(1, info);
  ASSERT_TRUE(g.status.ok()) << g.status;
  ASSERT_NE(g.reply.body.AsBeat(), nullptr);
  EXPECT_EQ(g.reply.body.AsBeat()->beat_ms, 1000u);
  EXPECT_EQ(g.reply.body.AsBeat()->epoch, kEpoch);
  EXPECT_FALSE(g.reply.body.AsBeat()->again);

  fb::QueryT with_ops;
  with_ops.with_ops = true;
  const fb::QueryReplyT all = Ask(with_ops);
  ASSERT_EQ(all.executors.size(), 1u);
  EXPECT_EQ(all.executors[0]->control_endpoint, "ipc:///run/e1.ctl");
  EXPECT_EQ(all.executors[0]->labels, Names{"fast"});
  ASSERT_EQ(all.executors[0]->ops.size(), 1u);
  EXPECT_EQ(Ask({}).executors[0]->ops.size(), 0u);
}

TEST_F(RegistryTest, ThreeMissedBeatsRemove) {
  Register(1, MakeInfo("e1"));
  Register(2, MakeInfo("e2"));
  for (int i = 0; i < 10; ++i) {
    Tick(kSecond);
    EXPECT_FALSE(Beat(1, "e1", 1).reply.body.AsBeat()->again);
    if (i == 1) {
      EXPECT_EQ(Ids(), (Names{"e1", "e2"}));  // two beats were missed
    }
  }
  EXPECT_EQ(Ids(), Names{"e1"});
  // The executor that was away is told to register again, and does.
  EXPECT_TRUE(Beat(2, "e2", 1).reply.body.AsBeat()->again);
  EXPECT_EQ(Ids(), Names{"e1"});
  Register(2, MakeInfo("e2"));
  EXPECT_EQ(Ids(), (Names{"e1", "e2"}));
}

TEST_F(RegistryTest, ExpiryIsExactlyThreeBeatsAfterTheLastOne) {
  Register(1, MakeInfo("e1"));
  EXPECT_EQ(state_->NextDeadline(), kStart + 3 * kSecond);
  Tick(3 * kSecond - 1);
  EXPECT_EQ(state_->executors(), 1u);
  Tick(1);
  EXPECT_EQ(state_->executors(), 0u);
  EXPECT_EQ(state_->NextDeadline(), kNever);
}

TEST_F(RegistryTest, RestartedExecutorsReplaceTheirPredecessors) {
  Register(1, MakeInfo("e1", 5));
  const uint64_t before = state_->sequence();
  EXPECT_TRUE(Register(2, MakeInfo("e1", 6)).status.ok());
  EXPECT_EQ(state_->sequence(), before + 2);  // left, joined
  // An old message of the predecessor changes nothing.
  EXPECT_EQ(Register(1, MakeInfo("e1", 5)).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Beat(1, "e1", 5).reply.body.AsBeat()->again);
  fb::UnregisterT bye;
  bye.id = "e1";
  bye.incarnation = 5;
  Say(1, std::move(bye));
  const fb::QueryReplyT all = Ask({});
  ASSERT_EQ(all.executors.size(), 1u);
  EXPECT_EQ(all.executors[0]->incarnation, 6u);
  // A successor whose incarnation is another number.
  EXPECT_TRUE(Register(3, MakeInfo("e1", 4)).status.ok());
  EXPECT_EQ(Register(2, MakeInfo("e1", 6)).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Register(2, MakeInfo("e1", 9)).status.ok());
  // Registering again with the same incarnation causes no change message.
  const uint64_t same = state_->sequence();
  EXPECT_TRUE(Register(2, MakeInfo("e1", 9)).status.ok());
  EXPECT_EQ(state_->sequence(), same);
}

TEST_F(RegistryTest, WhoBeatsKeepsItsName) {
  Register(1, MakeInfo("e1", 5));
  const uint64_t before = state_->sequence();
  // Messages of others, which may know the incarnation but not the claim.
  const std::vector<uint8_t> none, forged = ClaimOf("forged");
  for (const uint64_t incarnation : {uint64_t{5}, uint64_t{6}, UINT64_MAX}) {
    EXPECT_EQ(Register(2, MakeInfo("e1", incarnation), forged).status.code(),
              absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(Register(2, MakeInfo("e1", incarnation), none).status.code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Beat(2, "e1", incarnation, 1).reply.body.AsBeat()->again);
    Beat(2, "e1", incarnation, 1, /*draining=*/true);
    fb::UnregisterT bye;
    bye.id = "e1";
    bye.incarnation = incarnation;
    Say(2, std::move(bye));
  }
  EXPECT_EQ(state_->sequence(), before);
  EXPECT_FALSE(Beat(1, "e1", 5).reply.body.AsBeat()->again);
  // On a new connection it registers first.
  EXPECT_TRUE(Beat(3, "e1", 5).reply.body.AsBeat()->again);
  EXPECT_TRUE(Register(3, MakeInfo("e1", 5)).status.ok());
  EXPECT_FALSE(Beat(3, "e1", 5).reply.body.AsBeat()->again);
  EXPECT_EQ(state_->sequence(), before);
  // Without beats it loses the name.
  Tick(3 * kSecond);
  EXPECT_TRUE(Register(2, MakeInfo("e1", 6), forged).status.ok());
  EXPECT_EQ(Register(3, MakeInfo("e1", 5)).status.code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(RegistryTest, DrainingAndUnregisteredExecutorsLeaveAtOnce) {
  Register(1, MakeInfo("e1"));
  Register(2, MakeInfo("e2"));
  EXPECT_FALSE(Beat(1, "e1", 1, -1, /*draining=*/true).reply.body.AsBeat()->again);
  EXPECT_EQ(Ids(), Names{"e2"});
  // Its later beats do not bring it back either.
  EXPECT_FALSE(Beat(1, "e1", 1, -1, /*draining=*/true).reply.body.AsBeat()->again);
  fb::UnregisterT bye;
  bye.id = "e2";
  bye.incarnation = 1;
  EXPECT_TRUE(AnswerTo(2, Say(2, std::move(bye))).status.ok());
  EXPECT_EQ(Ids(), Names{});
}

TEST_F(RegistryTest, YoungRegistriesAreWarming) {
  EXPECT_TRUE(Ask({}).warming);
  now_ += 3 * kSecond - 1;
  EXPECT_TRUE(Ask({}).warming);
  now_ += 1;
  EXPECT_FALSE(Ask({}).warming);
}

TEST_F(RegistryTest, QueriesFilter) {
  fb::ExecutorInfoT cpu = MakeInfo("c0"), gpu0 = MakeInfo("g0"), gpu1 = MakeInfo("g1");
  gpu0.device = "cuda:0";
  gpu1.device = "cuda:1";
  gpu1.labels = {"lab", "big"};
  gpu1.free_memory = 5000;
  AddOp(cpu, "matmul", {DType::kF32, DType::kF64});
  AddOp(gpu0, "matmul", {DType::kBF16});
  AddOp(gpu1, "iota", {});  // no type variable: any
  for (auto* i : {&cpu, &gpu0, &gpu1}) Register(1, *i);

  fb::QueryT q;
  q.device = "cuda";
  EXPECT_EQ(Ids(q), (Names{"g0", "g1"}));
  q.device = "cuda:1";
  EXPECT_EQ(Ids(q), Names{"g1"});
  q.device = "c0";
  EXPECT_EQ(Ids(q), Names{"c0"});
  q.device = "cud";
  EXPECT_EQ(Ids(q), Names{});
  q = {};
  q.label = "big";
  EXPECT_EQ(Ids(q), Names{"g1"});
  q.label = "bi";
  EXPECT_EQ(Ids(q), Names{});
  q = {};
  q.free_memory = 1000;
  EXPECT_EQ(Ids(q), (Names{"c0", "g0", "g1"}));
  q.free_memory = 1001;
  EXPECT_EQ(Ids(q), Names{"g1"});
  q = {};
  q.op = "matmul";
  EXPECT_EQ(Ids(q), (Names{"c0", "g0"}));
  q.dtype = static_cast<uint8_t>(DType::kF64);
  EXPECT_EQ(Ids(q), Names{"c0"});
  q.dtype = static_cast<uint8_t>(DType::kBool);
  EXPECT_EQ(Ids(q), Names{});
  q.op = "iota";
  EXPECT_EQ(Ids(q), Names{"g1"});
  q.device = "cpu";
  EXPECT_EQ(Ids(q), Names{});
  // The next query sees the load of a beat.
  Beat(1, "c0", 1, 9000);
  q = {};
  q.free_memory = 6000;
  EXPECT_EQ(Ids(q), Names{"c0"});
}

// Any element type in a query is safe, including types beyond the bits of the mask.
TEST_F(RegistryTest, StrangeElementTypesMatchNothing) {
  fb::ExecutorInfoT info = MakeInfo("e1");
  AddOp(info, "add", {DType::kF32});
  Register(1, info);
  for (int dtype : {16, 31, 32, 34, 63, 64, 255}) {
    fb::QueryT q;
    q.op = "add";
    q.dtype = static_cast<uint8_t>(dtype);
    EXPECT_EQ(Ids(q), Names{}) << dtype;
  }
}

TEST_F(RegistryTest, WatchTellsTheStateThenEveryChange) {
  Register(1, MakeInfo("e1"));
  Register(2, MakeInfo("e2"));
  auto first = Say(7, fb::WatchT(), 42);
  ASSERT_EQ(first.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first[i].reply.seq, 42u);
    EXPECT_EQ(first[i].reply.part, i);
    EXPECT_FALSE(first[i].reply.last);
    EXPECT_EQ(first[i].reply.body.AsChange()->sequence, state_->sequence());
    EXPECT_EQ(first[i].reply.body.AsChange()->epoch, kEpoch);
  }
  const uint64_t at = state_->sequence();
  Register(3, MakeInfo("e3"));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].peer, 7u);
  EXPECT_EQ(told_[0].reply.part, 2u);
  EXPECT_EQ(told_[0].reply.body.AsChange()->sequence, at + 1);
  ASSERT_NE(told_[0].reply.body.AsChange()->joined, nullptr);
  EXPECT_EQ(told_[0].reply.body.AsChange()->joined->id, "e3");
  told_.clear();
  Beat(1, "e1", 1, -1, true);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].reply.body.AsChange()->left, "e1");
  EXPECT_NE(told_[0].reply.body.AsChange()->reason, "");
  EXPECT_EQ(told_[0].reply.body.AsChange()->sequence, at + 2);
}

TEST_F(RegistryTest, WatchersThatAreSilentOrGoneAreForgotten) {
  Say(7, fb::WatchT());
  Say(8, fb::WatchT());
  Tick(2 * kSecond);
  Say(7, fb::QueryT());  // any message says that it lives
  Tick(kSecond + 1);
  Register(1, MakeInfo("e1"));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].peer, 7u);
  state_->OnPeerGone(7);
  told_.clear();
  Register(2, MakeInfo("e2"));
  EXPECT_TRUE(told_.empty());
}

// A watcher that follows the changes has the result of a query, whatever happens in between.
TEST_F(RegistryTest, WatchConvergesWithQueries) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  std::set<std::string> view;
  const auto apply = [&](const std::vector<Got>& all) {
    for (const Got& g : all) {
      const fb::ChangeT* c = g.peer == 7 ? g.reply.body.AsChange() : nullptr;
      if (!c) continue;
      if (c->joined) view.insert(c->joined->id);
      if (!c->left.empty()) view.erase(c->left);
    }
  };
  apply(Say(7, fb::WatchT()));
  uint64_t incarnation = 1;
  for (int i = 0; i < 3000; ++i) {
    const std::string id = "e" + std::to_string(random() % 5);
    if (random() % 3 == 0)
      Register(1, MakeInfo(id, incarnation += random() % 2));
    else
      Beat(1, id, incarnation, -1, random() % 7 == 0);
    apply(Tick(static_cast<Nanos>(random() % kSecond)));
    apply(told_);
    told_.clear();
    apply(Say(7, fb::QueryT()));
    const Names ids = Ids();
    ASSERT_EQ(view, std::set<std::string>(ids.begin(), ids.end())) << "after " << i << " events";
  }
}

TEST_F(RegistryTest, LimitsHoldAtAndFailOneOver) {
  Reset({.max_executors = 3, .max_watchers = 2});
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(Register(1, MakeInfo("e" + std::to_string(i))).status.ok());
  EXPECT_EQ(Register(1, MakeInfo("e3")).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Register(1, MakeInfo("e2", 2)).status.ok());  // an existing executor may come back
  for (PeerId p : {7, 8, 7}) {
    for (const Got& g : Say(p, fb::WatchT())) EXPECT_TRUE(g.status.ok());
  }
  EXPECT_EQ(AnswerTo(9, Say(9, fb::WatchT())).status.code(), absl::StatusCode::kResourceExhausted);

  Reset({});
  EXPECT_TRUE(Register(1, MakeInfo(std::string(128, 'x'))).status.ok());
  EXPECT_EQ(Register(1, MakeInfo(std::string(129, 'x'))).status.code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Register(1, MakeInfo("")).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AnswerTo(1, Say(1, fb::RegisterT())).status.code(), absl::StatusCode::kInvalidArgument);
  fb::ExecutorInfoT info = MakeInfo("l");
  info.labels.resize(64);
  EXPECT_TRUE(Register(1, info).status.ok());
  info.labels.resize(65);
  EXPECT_EQ(Register(1, info).status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* id : {"a b", "a\x1b[31m", "a\nb", "a\x7f"}) {
    EXPECT_EQ(Register(1, MakeInfo(id)).status.code(), absl::StatusCode::kInvalidArgument) << id;
  }
  info = MakeInfo("o");
  info.control_endpoint.clear();
  EXPECT_EQ(Register(1, info).status.code(), absl::StatusCode::kInvalidArgument);
}

// Answers never exceed a frame: the rest comes on request.
TEST_F(RegistryTest, AnswersFitIntoAFrame) {
  const std::string long_name(900, 'n');
  std::set<std::string> expected;
  for (int i = 0; i < 400; ++i) {
    fb::ExecutorInfoT info = MakeInfo("e" + std::to_string(i));
    for (int op = 0; op < 3; ++op) AddOp(info, long_name + std::to_string(op), {DType::kF32});
    ASSERT_TRUE(Register(1, info).status.ok());
    fb::HeartbeatT beat;
    beat.id = info.id;
    beat.incarnation = info.incarnation;
    beat.load = std::make_unique<fb::LoadInfoT>();
    beat.load->op = std::string(5000, 'o');
    ASSERT_TRUE(AnswerTo(1, Say(1, beat)).status.ok());
    expected.insert(info.id);
  }
  for (const bool with_ops : {false, true}) {
    fb::QueryT q;
    q.with_ops = with_ops;
    std::set<std::string> ids;
    int answers = 0;
    for (bool more = true; more; ++answers) {
      const fb::QueryReplyT reply = Ask(q);
      ASSERT_LE(EncodeReply(1, reply).size(), kMaxFrameBytes);
      ASSERT_FALSE(reply.executors.empty());
      for (const auto& e : reply.executors)
        EXPECT_TRUE(ids.insert(e->id).second) << e->id << " comes twice";
      q.after = reply.executors.back()->id;
      more = reply.more;
    }
    EXPECT_EQ(ids, expected);
    EXPECT_EQ(answers > 1, with_ops);
  }
  fb::ExecutorInfoT large = MakeInfo("large");
  for (int i = 0; i < 1200; ++i) AddOp(large, long_name + std::to_string(i), {DType::kF32});
  EXPECT_EQ(Register(1, large).status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace opwire
