// Runs that no caller waits for: their order, failures that appear at the next use, programs that
// come and go.
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "tests/system/processes.h"

namespace opwire::client {
namespace {

constexpr const char* kPick =
    "program @pick(%x: f32[?n], %i: i64[1]) -> (y: f32[1]) { %0 = index_select(%x, %i) return %0 }";

class QueueTest : public SystemTest {
 protected:
  StatusOr<Session> Open(bool ring = true) {
    StartRegistry();
    StartExecutor("e1");
    client_.emplace(Connect());
    SessionOptions options;
    options.ring = ring;
    return client_->Open(options);
  }
  static StatusOr<std::vector<float>> Fetched(Session& session, const Tensor& t) {
    OPWIRE_ASSIGN_OR_RETURN(const Array a, session.Fetch(t));
    const auto values = a.values<float>();
    return std::vector<float>(values.begin(), values.end());
  }
  static Array At(int64_t i) { return Array::Of<int64_t>(DType::kI64, {1}, {{i}}); }
  static Array Numbers(std::vector<float> values) {
    return Array::Of<float>(DType::kF32, {static_cast<int64_t>(values.size())}, values);
  }

  std::optional<Client> client_;
};

TEST_F(QueueTest, ResultsMayBeUsedAtOnceAndDroppedAtOnce) {
  ASSERT_OK(Open().status());
  for (const bool ring : {true, false}) {
    SessionOptions options;
    options.ring = ring;
    ASSERT_OK_AND(Session session, client_->Open(options));
    ASSERT_OK_AND(Program twice, session.Load(kTwice));
    ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view()));
    for (int i = 0; i < 1000; ++i) {
      const bool again = i % 20 == 0;
      if (again) {
        ASSERT_OK_AND(x, session.Put(Numbers({1, 2, 3}).view()));
      }
      ASSERT_OK_AND(std::vector<Tensor> made,
                    session.Enqueue(twice, {x}, {{DType::kF32, {3}}}, static_cast<uint64_t>(i)));
      x = made[0];
      EXPECT_EQ(x.bytes(), 12);
    }
    ASSERT_OK_AND(const std::vector<float> y, Fetched(session, x));
    EXPECT_EQ(y, (std::vector<float>{1 << 20, 2 << 20, 3 << 20}));
    EXPECT_EQ(session.queued(), 0);
    ASSERT_OK_AND(const std::vector<TensorFacts> held, session.List());
    EXPECT_EQ(held.size(), 1u) << "what was dropped is there";
    // Argument arrays are copied, large ones too.
    Array large = Array::Random(DType::kF32, {100'000}, 3);
    const float first = large.values<float>()[0];
    ASSERT_OK_AND(std::vector<Tensor> doubled,
                  session.Enqueue(twice, {large}, {{DType::kF32, {100'000}}}));
    std::memset(large.bytes().data(), 0, large.bytes().size());
    ASSERT_OK_AND(const std::vector<float> z, Fetched(session, doubled[0]));
    EXPECT_EQ(z[0], 2 * first);
    ASSERT_OK(session.Close());
  }
}

TEST_F(QueueTest, SomeRunsGoAtOnceToAnExecutorThatHasNone) {
  ASSERT_OK_AND(Session session, Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view()));
  for (int i = 0; i < 33; ++i)
    ASSERT_OK(session.Enqueue(twice, {x}, {{DType::kF32, {3}}}).status());
  EXPECT_EQ(session.queued(), 1);
  // If a batch has no reply yet, no small batch follows it: the next one is sent when it is full.
  ASSERT_OK_AND(Program slow, session.Load(R"(
program @slow(%n: i64[], %x: f32[?d]) -> (x: f32[?d]) {
  %0 = repeat(%n, [%x], []) calls(@step)
  return %0
}
function @step(%iteration: i64[], %x: f32[?d]) -> (x: f32[?d]) {
  %0 = add(%x, %x)
  return %0
})"));
  ASSERT_OK(session.Enqueue(slow, {int64_t{1} << 40, x}, {{DType::kF32, {3}}}).status());
  ASSERT_OK(session.Flush());
  for (int i = 0; i < 65; ++i)
    ASSERT_OK(session.Enqueue(twice, {x}, {{DType::kF32, {3}}}).status());
  EXPECT_EQ(session.queued(), 65);
  ASSERT_OK(session.CancelAll());
}

// More than one message of frees, and more results than a session may have.
TEST_F(QueueTest, MoreTensorsThanASessionMayHave) {
  ASSERT_OK_AND(Session session, Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view()));
  std::vector<Tensor> made;
  for (int i = 0; i < 70'000; ++i) {
    ASSERT_OK_AND(std::vector<Tensor> one, session.Enqueue(twice, {x}, {{DType::kF32, {3}}}));
    made.push_back(std::move(one[0]));
  }
  ASSERT_OK(session.Flush());
  ASSERT_OK_AND(const std::vector<float> last, Fetched(session, made[65'534]));
  EXPECT_EQ(last, (std::vector<float>{2, 4, 6}));
  for (const size_t refused : {65'535, 69'999}) {
    const Status status = Fetched(session, made[refused]).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("expected at most 65536 tensors"), std::string_view::npos)
        << status;
  }
  made.clear();
  ASSERT_OK_AND(std::vector<Tensor> y, session.Enqueue(twice, {x}, {{DType::kF32, {3}}}));
  ASSERT_OK_AND(const std::vector<float> again, Fetched(session, y[0]));
  EXPECT_EQ(again, (std::vector<float>{2, 4, 6}));
  ASSERT_OK_AND(const std::vector<TensorFacts> held, session.List());
  EXPECT_EQ(held.size(), 2u);
}

// Dropped tensors are freed before queued runs that do not use them.
TEST_F(QueueTest, DroppedTensorsLeaveRoomForQueuedRuns) {
  ASSERT_OK_AND(Session session, Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view()));
  const auto enqueue = [&](const Tensor& t) -> StatusOr<Tensor> {
    OPWIRE_ASSIGN_OR_RETURN(std::vector<Tensor> made,
                            session.Enqueue(twice, {t}, {{DType::kF32, {3}}}));
    return std::move(made[0]);
  };
  std::vector<Tensor> made;
  for (int i = 0; i < 70'001; ++i) {  // some are queued still
    ASSERT_OK_AND(Tensor one, enqueue(x));
    made.push_back(std::move(one));
  }
  EXPECT_GT(session.queued(), 0);
  made.clear();
  ASSERT_OK_AND(Tensor y, enqueue(x));
  ASSERT_OK_AND(y, enqueue(y));
  ASSERT_OK_AND(const std::vector<float> values, Fetched(session, y));
  EXPECT_EQ(values, (std::vector<float>{4, 8, 12}));
}

TEST_F(QueueTest, AnExplicitFreeComesAfterTheRunsThatUseTheTensor) {
  ASSERT_OK_AND(Session session, Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(const Tensor x, session.Put(Numbers({1, 2, 3}).view()));
  ASSERT_OK_AND(const std::vector<Tensor> y, session.Enqueue(twice, {x}, {{DType::kF32, {3}}}));
  ASSERT_OK(session.Free(x));
  ASSERT_OK_AND(const std::vector<float> values, Fetched(session, y[0]));
  EXPECT_EQ(values, (std::vector<float>{2, 4, 6}));
}

// Find makes another handle of a tensor. The owner's end is after the runs with that handle, too.
TEST_F(QueueTest, AnOwnerMayEndWhileARunWithAnotherHandleIsQueued) {
  ASSERT_OK_AND(Session session, Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view()));
  ASSERT_OK_AND(const Tensor found, session.Find(x.id()));
  ASSERT_OK_AND(const std::vector<Tensor> y, session.Enqueue(twice, {found}, {{DType::kF32, {3}}}));
  x = Tensor();
  ASSERT_OK_AND(const std::vector<float> values, Fetched(session, y[0]));
  EXPECT_EQ(values, (std::vector<float>{2, 4, 6}));
}

// A callback in the wait for credit must not use the session, whose next request is half sent.
TEST_F(QueueTest, CallbacksCannotSendWhileARequestWaitsToBeSent) {
  StartRegistry();
  const pid_t executor = StartExecutor("e1", {"--limit-credit-requests", "2"});
  std::optional<Session> session;
  std::optional<Program> twice;
  Tensor x;
  std::vector<Status> refused;
  bool stopped = false;
  ClientOptions options;
  options.interrupted = [&] {
    if (!std::exchange(stopped, false)) return false;
    refused = {session->Enqueue(*twice, {x}, {{DType::kF32, {3}}}).status(), session->Flush(),
               session->Fetch(x).status()};
    kill(executor, SIGCONT);
    return false;
  };
  client_ = Client::Connect(options).value();
  session = client_->Open().value();
  twice = session->Load(kTwice).value();
  ASSERT_OK_AND(x, session->Put(Numbers({1, 2, 3}).view()));
  stopped = kill(executor, SIGSTOP) == 0;
  std::vector<Tensor> made;
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK_AND(std::vector<Tensor> one, session->Enqueue(*twice, {x}, {{DType::kF32, {3}}}));
    made.push_back(std::move(one[0]));
    ASSERT_OK(session->Flush());
  }
  ASSERT_EQ(refused.size(), 3u) << "nothing waited";
  for (const Status& status : refused)
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  for (const Tensor& t : made) {
    ASSERT_OK_AND(const std::vector<float> values, Fetched(*session, t));
    EXPECT_EQ(values, (std::vector<float>{2, 4, 6}));
  }
}

// A request that is refused for its size leaves the frees before it to the next one.
TEST_F(QueueTest, ARequestThatIsTooLargeCostsNoFree) {
  ASSERT_OK_AND(Session session, Open());
  { ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view())); }
  const Status refused = session.Take("s", std::string(2 << 20, 'a')).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  ASSERT_OK_AND(const std::vector<TensorFacts> held, session.List());
  EXPECT_TRUE(held.empty());
}

TEST_F(QueueTest, ARunThatFailsCostsOnlyThoseThatUseIt) {
  ASSERT_OK_AND(Session session, Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(Program pick, session.Load(kPick));
  ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view()));
  ASSERT_OK_AND(std::vector<Tensor> good,
                session.Enqueue(pick, {x, At(2)}, {{DType::kF32, {1}}}, 1));
  ASSERT_OK_AND(std::vector<Tensor> bad,
                session.Enqueue(pick, {x, At(7)}, {{DType::kF32, {1}}}, 2));
  ASSERT_OK_AND(std::vector<Tensor> later, session.Enqueue(twice, {x}, {{DType::kF32, {3}}}, 3));
  ASSERT_OK_AND(std::vector<Tensor> worse,
                session.Enqueue(pick, {x, At(-9)}, {{DType::kF32, {1}}}, 4));
  ASSERT_OK_AND(const std::vector<float> y, Fetched(session, good[0]));
  EXPECT_EQ(y, std::vector<float>{3});
  ASSERT_OK_AND(const std::vector<float> z, Fetched(session, later[0]));
  EXPECT_EQ(z, (std::vector<float>{2, 4, 6}));
  // A run that uses it inherits its error, which leads to the failure.
  ASSERT_OK_AND(std::vector<Tensor> heir,
                session.Enqueue(twice, {bad[0]}, {{DType::kF32, {1}}}, 5));
  EXPECT_EQ(session.Fetch(worse[0]).status().code(), absl::StatusCode::kOutOfRange);
  const Status inherited = session.Fetch(heir[0]).status();
  const auto failure = session.FailureOf(inherited);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->mark, 2u);
  EXPECT_EQ(failure->status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(SiteOf(failure->status).op, "index_select");
  EXPECT_FALSE(session.FailureOf(DataLoss("something else")).has_value());
  // A whole batch of failures has its reply, too.
  std::vector<std::vector<Tensor>> all;
  for (int i = 0; i < 600; ++i) {
    ASSERT_OK_AND(
        std::vector<Tensor> made,
        session.Enqueue(pick, {x, At(100 + i)}, {{DType::kF32, {1}}}, static_cast<uint64_t>(i)));
    all.push_back(std::move(made));
  }
  EXPECT_EQ(session.Fetch(all.back()[0]).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(QueueTest, ProgramsThatNobodyHasGiveTheirSlotsBack) {
  ASSERT_OK_AND(Session session, Open());
  ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view()));
  std::vector<Tensor> made;
  for (int i = 0; i < 400; ++i) {  // more than a session's slots
    ASSERT_OK_AND(Program p,
                  session.Load("program @plus(%x: f32[3]) -> (y: f32[3]) { %0 = full() {value = " +
                               std::to_string(i) + ".0}\n  %1 = add(%x, %0) return %1 }"));
    ASSERT_OK_AND(made, session.Enqueue(p, {x}, {{DType::kF32, {3}}}));
  }
  ASSERT_OK_AND(const std::vector<float> y, Fetched(session, made[0]));
  EXPECT_EQ(y, (std::vector<float>{400, 401, 402}));
}

TEST_F(QueueTest, WhatIsQueuedIsLostWithItsExecutor) {
  StartRegistry();
  const pid_t executor = StartExecutor("e1");
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(Tensor x, session.Put(Numbers({1, 2, 3}).view()));
  ASSERT_OK_AND(std::vector<Tensor> made, session.Enqueue(twice, {x}, {{DType::kF32, {3}}}));
  Kill(executor);
  EXPECT_EQ(session.Fetch(made[0]).status().code(), absl::StatusCode::kUnavailable);
  StartExecutor("e1");
  ASSERT_TRUE(Eventually([&] { return session.Put(Numbers({1}).view()).ok(); }));
  ASSERT_OK_AND(made, session.Enqueue(twice, {Numbers({5}).view()}, {{DType::kF32, {1}}}));
  ASSERT_OK_AND(const std::vector<float> y, Fetched(session, made[0]));
  EXPECT_EQ(y, std::vector<float>{10});
}

}  // namespace
}  // namespace opwire::client
