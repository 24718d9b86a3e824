// Who runs next: a hog beside small sessions, more runs at once than there are arenas, batches.
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;
constexpr const char* kSmall = "program @s(%x: f32[2]) -> (y: f32[2]) { %0 = neg(%x) return %0 }";

class FairnessTest : public CoreTest {
 protected:
  FairnessTest() {
    options_.slice = 1;
    options_.limits[LimitId::kSessionsPerPrincipal] = 100;
    Restart();
  }
  Client Hog() {
    Client c = Hello();
    EXPECT_TRUE(Load(c, 1, kSlow).ok());
    EXPECT_TRUE(Put(c, 1, Floats(128 * 128, 0.01f), {128, 128}).ok());
    EXPECT_TRUE(Put(c, 2, Floats(128 * 128, 0), {128, 128}).ok());
    return c;
  }
  void SendSlow(Client& c) { Send(c, RunOf(1).Tensor(c, 1).Tensor(c, 2).None().None()); }
};

TEST_F(FairnessTest, SmallSessionsDoNotWaitForAHog) {
  Client hog = Hog();
  for (int i = 0; i < 50; ++i) SendSlow(hog);
  for (int i = 0; i < 20; ++i) WorkOnce();  // it has been at it for a while
  std::vector<Client> small;
  for (int i = 0; i < 20; ++i) {
    small.push_back(Hello());
    ASSERT_TRUE(Put(small.back(), 1, {1, 2}).ok());  // WorkAll would run the hog dry otherwise
  }
  ASSERT_TRUE(Load(small[0], 1, kSmall).ok());
  // Refill: the set-up above let everything run.
  for (int i = 0; i < 50; ++i) SendSlow(hog);
  for (int i = 0; i < 20; ++i) WorkOnce();
  std::vector<uint64_t> seqs;
  for (Client& c : small) seqs.push_back(Send(c, fb::FlushT()));
  // Each is served before the hog has had more than a few slices.
  for (int i = 0; i < 25; ++i) WorkOnce();
  for (size_t i = 0; i < small.size(); ++i)
    EXPECT_TRUE(Take(small[i].peer, seqs[i]).ok()) << "session " << i;
  EXPECT_TRUE(core_->HasWork());
  WorkAll();
}

TEST_F(FairnessTest, TwoHogsGetHalfEach) {
  Client a = Hog(), b = Hog();
  for (int i = 0; i < 40; ++i) SendSlow(a);
  for (int i = 0; i < 20; ++i) WorkOnce();
  for (int i = 0; i < 40; ++i) SendSlow(b);
  // One that comes late has no claim on the past.
  int done_a = 0, done_b = 0;
  shell_.sent.clear();
  // As long as both have runs: a device that ends one in a slice is soon through a's.
  for (int i = 0; i < 150 && done_a < 15; ++i) {
    WorkOnce();
    done_a = done_b = 0;
    for (const auto& m : shell_.sent) (m.peer == a.peer ? done_a : done_b)++;
  }
  EXPECT_GT(done_a, 10);
  EXPECT_LE(std::abs(done_a - done_b), 3) << done_a << " and " << done_b;
  WorkAll();
}

TEST_F(FairnessTest, MoreRunsPutAsideThanLanes) {
  std::vector<Client> hogs;
  for (int i = 0; i < ScratchArenas::kMaxArenas + 4; ++i) hogs.push_back(Hog());
  for (int round = 0; round < 3; ++round) {
    for (Client& c : hogs) SendSlow(c);
  }
  // Batches take turns too, they are not refused for want of a arena.
  Client batcher = Hello();
  for (int i = 0; i < 40; ++i) WorkOnce();
  fb::BatchT batch;
  batch.runs.push_back(
      std::make_unique<fb::RunT>(RunOf(1).Tensor(hogs[0], 1).Tensor(hogs[0], 2).None().None().run));
  const uint64_t batched = Send(hogs[0], std::move(batch));
  WorkAll();
  const Answer a = Take(hogs[0].peer, batched);
  EXPECT_TRUE(a.ok()) << a.status;
  for (const auto& m : shell_.sent) {
    AlignedBytes memory;
    auto reply = DecodeReply(AsBytes(m.head), memory);
    ASSERT_TRUE(reply.ok());
    EXPECT_TRUE(StatusOf(**reply).ok()) << StatusOf(**reply);
  }
  EXPECT_TRUE(Ask(batcher, fb::FlushT()).ok());
}

TEST_F(FairnessTest, ABatchThatMeetsNoFreeLaneWaits) {
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1, kSmall).ok());
  std::vector<Client> hogs;
  for (int i = 0; i < ScratchArenas::kMaxArenas; ++i) hogs.push_back(Hog());
  for (Client& h : hogs) SendSlow(h);
  for (int i = 0; i < ScratchArenas::kMaxArenas; ++i) WorkOnce();  // each holds a arena now
  fb::BatchT batch;
  batch.runs.push_back(std::make_unique<fb::RunT>(RunOf(1).Array({1, 2}).Inline().run));
  const uint64_t seq = Send(c, std::move(batch));
  WorkAll();
  const Answer a = Take(c.peer, seq);
  EXPECT_TRUE(a.ok()) << a.status;
}

// Other sessions have their slices between the runs of a batch, and within one.
TEST_F(FairnessTest, ABatchTakesTurnsWithOthers) {
  Client hog = Hog(), small = Hello();
  ASSERT_TRUE(Load(small, 1, kSmall).ok());
  fb::BatchT batch;
  for (int i = 0; i < 40; ++i)
    batch.runs.push_back(
        std::make_unique<fb::RunT>(RunOf(1).Tensor(hog, 1).Tensor(hog, 2).None().None().run));
  const uint64_t all = Send(hog, std::move(batch));
  for (int i = 0; i < 5; ++i) WorkOnce();
  const uint64_t one = Send(small, RunOf(1).Array({1, 2}).Inline());
  for (int i = 0; i < 3; ++i) WorkOnce();
  EXPECT_EQ(Take(small.peer, one).Floats(0), (Floats{-1, -2}));
  EXPECT_FALSE(Take(hog.peer, all).came);
  WorkAll();
  const Answer a = Take(hog.peer, all);
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.reply.body.AsBatchReply()->runs.size(), 40u);
}

TEST_F(FairnessTest, ASessionEndsInTheMiddleOfABatch) {
  Client hog = Hog(), other = Hello();
  fb::BatchT batch;
  for (int i = 0; i < 40; ++i)
    batch.runs.push_back(
        std::make_unique<fb::RunT>(RunOf(1).Tensor(hog, 1).Tensor(hog, 2).None().None().run));
  Send(hog, std::move(batch));
  for (int i = 0; i < 5; ++i) WorkOnce();
  fb::ByeT bye;
  bye.token = hog.token;
  ASSERT_TRUE(Control(std::move(bye)).ok());
  EXPECT_FALSE(core_->HasWork());
  EXPECT_TRUE(Ask(other, fb::FlushT()).ok());
}

TEST_F(FairnessTest, CancelAndDeadlineEndABatch) {
  Client hog = Hog();
  for (const bool cancel : {true, false}) {
    fb::BatchT batch;
    for (int i = 0; i < 40; ++i) {
      batch.runs.push_back(std::make_unique<fb::RunT>(
          RunOf(1).Tensor(hog, 1).Tensor(hog, 2).None().None().Deadline(cancel ? 0 : 1000).run));
    }
    const uint64_t all = Send(hog, std::move(batch));
    for (int i = 0; i < 5; ++i) WorkOnce();
    if (cancel) {
      EXPECT_TRUE(Cancel(hog, all).ok());
    } else {
      now_ += kSecond;
    }
    WorkAll();
    const Answer a = Take(hog.peer, all);
    EXPECT_EQ(a.code(), cancel ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded)
        << a.status;
    EXPECT_LT(a.reply.body.AsBatchReply()->runs.size(), 40u);
  }
}

TEST_F(FairnessTest, BatchesEndAtTheFirstFailureAndFitIntoAMessage) {
  Client c = Hello();
  ASSERT_TRUE(Load(c, 1, kSmall).ok());
  fb::BatchT batch;
  batch.runs.push_back(std::make_unique<fb::RunT>(RunOf(1).Array({1, 2}).Inline().run));
  batch.runs.push_back(std::make_unique<fb::RunT>(RunOf(1).Array({1, 2, 3}).Keep(5).run));
  batch.runs.push_back(std::make_unique<fb::RunT>(RunOf(1).Array({1, 2}).Keep(6).run));
  const Answer a = Ask(c, std::move(batch));
  EXPECT_EQ(a.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_NE(a.reply.body.AsBatchReply(), nullptr);
  EXPECT_EQ(a.reply.body.AsBatchReply()->runs.size(), 1u);
  EXPECT_EQ(Get(c, 5).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Get(c, 6).code(), absl::StatusCode::kInvalidArgument);

  ASSERT_TRUE(
      Load(c, 2, "program @z(dim %n: ?n) -> (y: f32[?n]) { %0 = zeros() {shape = [?n]} return %0 }")
          .ok());
  fb::BatchT large;
  for (int i = 0; i < 100; ++i)
    large.runs.push_back(std::make_unique<fb::RunT>(RunOf(2).Dim(16384).Inline().run));
  const Answer b = Ask(c, std::move(large));  // the shell checks the size of what it sends
  EXPECT_EQ(b.code(), absl::StatusCode::kInvalidArgument) << b.status;
  EXPECT_TRUE(Ask(c, fb::FlushT()).ok());
}

// Their extents alone fill a message, though no run returns more than a byte each.
TEST_F(FairnessTest, BatchesOfManyResultsFitIntoAMessage) {
  Client c = Hello();
  std::string shape = "1", text = "program @many(%x: i8[])", results, values;
  for (int i = 1; i < 16; ++i) shape += ", 1";
  for (int i = 0; i < 4096; ++i) {
    results += (i ? ", r" : "r") + std::to_string(i) + ": i8[" + shape + "]";
    values += i ? ", %0" : "%0";
  }
  text += " -> (" + results + ") { %0 = zeros() {shape = [" + shape + "], dtype = i8} return " +
          values + " }";
  ASSERT_TRUE(Load(c, 1, text).ok());
  RunOf run(1);
  run.Bind(1, static_cast<uint8_t>(DType::kI8), 0, 0, 0, 0);
  for (int i = 0; i < 4096; ++i) run.Inline();
  const Answer one = Ask(c, run);
  ASSERT_TRUE(one.ok()) << one.status;
  EXPECT_EQ(one.run().shapes.size(), 4096u * 16);
  fb::BatchT batch;
  for (int i = 0; i < 3; ++i) batch.runs.push_back(std::make_unique<fb::RunT>(run.run));
  const Answer many = Ask(c, std::move(batch));
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument) << many.status;
  ASSERT_NE(many.reply.body.AsBatchReply(), nullptr);
  EXPECT_EQ(many.reply.body.AsBatchReply()->runs.size(), 1u);
  EXPECT_TRUE(Ask(c, run).ok());
}

}  // namespace
}  // namespace opwire::executor
