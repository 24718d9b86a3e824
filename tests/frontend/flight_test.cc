// The client's requests in flight: numbers, credit, replies in any order, losses, hostile replies.
#include "frontend/cpp/flight.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/seed.h"

namespace opwire::client {
namespace {

class FlightTest : public ::testing::Test {
 protected:
  FlightTest() { flight_.SetCredit(4, 1000); }
  uint64_t Send(const std::string& head = "request", const std::string& bulk = "") {
    return flight_.Sent(AsBytes(head), AsBytes(bulk));
  }
  // What OnMessage said; its stray status stays in stray_.
  StatusOr<bool> Reply(uint64_t seq, const Status& status = absl::OkStatus()) {
    ClientChannel::Message m;
    m.head = status.ok() ? EncodeReply(seq, fb::DoneT()) : EncodeError(seq, status);
    stray_ = absl::OkStatus();
    return flight_.OnMessage(m, stray_);
  }
  Flight flight_;
  Status stray_;
};

TEST_F(FlightTest, NumbersFollowOneAnother) {
  for (uint64_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(flight_.next_seq(), i);
    EXPECT_EQ(Send(), i);
  }
  EXPECT_FALSE(flight_.idle());
}

TEST_F(FlightTest, CreditInRequestsAndBytes) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(flight_.HasCredit(7));
    Send();
  }
  EXPECT_FALSE(flight_.HasCredit(7));
  ASSERT_TRUE(*Reply(2));
  EXPECT_TRUE(flight_.HasCredit(7));
  EXPECT_TRUE(flight_.HasCredit(1000 - 3 * 7));
  EXPECT_FALSE(flight_.HasCredit(1000 - 3 * 7 + 1));
  for (uint64_t seq : {1, 3, 4}) ASSERT_TRUE(*Reply(seq));
  EXPECT_TRUE(flight_.HasCredit(1'000'000)) << "one request may always go, however large";
}

TEST_F(FlightTest, RepliesInAnyOrderRepeatedAndForNobody) {
  const uint64_t a = Send(), b = Send();
  EXPECT_TRUE(*Reply(2, NotFound("x")));
  EXPECT_FALSE(flight_.Ended(a));
  EXPECT_TRUE(flight_.Ended(b));
  auto answer = flight_.Take(b);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(StatusOf(*answer->reply).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(*Reply(2)) << "a repetition";
  EXPECT_FALSE(*Reply(77));
  EXPECT_FALSE(*Reply(0, Aborted("attach first")));
  EXPECT_EQ(stray_.code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(flight_.Take(b).ok());
  EXPECT_TRUE(*Reply(1));
  EXPECT_TRUE(flight_.idle());
}

TEST_F(FlightTest, AcknowledgesWhatHasArrivedWithoutGaps) {
  for (int i = 0; i < 4; ++i) Send();
  EXPECT_EQ(flight_.acked(), 1u);
  ASSERT_TRUE(*Reply(2));
  EXPECT_EQ(flight_.acked(), 1u);
  ASSERT_TRUE(*Reply(1));
  EXPECT_EQ(flight_.acked(), 3u);
}

TEST_F(FlightTest, UnansweredOnesAreSentAgainInOrder) {
  for (int i = 0; i < 4; ++i) Send("r" + std::to_string(i), "b" + std::to_string(i));
  ASSERT_TRUE(*Reply(2));
  const auto again = flight_.Unanswered();
  ASSERT_EQ(again.size(), 3u);
  const int want[] = {0, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    const auto r = flight_.Find(again[i]);
    ASSERT_TRUE(r.has_value());
    EXPECT_EQ(std::string(r->head.begin(), r->head.end()), "r" + std::to_string(want[i]));
    EXPECT_EQ(std::string(r->bulk.begin(), r->bulk.end()), "b" + std::to_string(want[i]));
  }
  ASSERT_TRUE(*Reply(3));
  EXPECT_FALSE(flight_.Find(again[1]).has_value()) << "answered meanwhile";
}

TEST_F(FlightTest, ALostSessionEndsAllAndTheNextBeginsAtOne) {
  const uint64_t a = Send(), b = Send();
  flight_.Abandon(b);
  flight_.FailAll(Unavailable("gone"));
  EXPECT_EQ(flight_.Take(a).status(), Unavailable("gone"));
  EXPECT_FALSE(flight_.Take(b).ok());
  EXPECT_TRUE(flight_.idle());
  flight_.Restart();
  EXPECT_EQ(flight_.next_seq(), 1u);
  const uint64_t c = Send();
  EXPECT_NE(c, a);
  EXPECT_TRUE(*Reply(1));
  EXPECT_TRUE(flight_.Ended(c));
  EXPECT_TRUE(flight_.Take(c).ok());
}

TEST_F(FlightTest, AbandonedRepliesAreDropped) {
  const uint64_t a = Send(), b = Send();
  flight_.Abandon(a);
  EXPECT_TRUE(*Reply(1));
  EXPECT_FALSE(flight_.Take(a).ok());
  ASSERT_TRUE(*Reply(2));
  flight_.Abandon(b);
  EXPECT_FALSE(flight_.Take(b).ok());
}

TEST_F(FlightTest, BytesThatAreNoReply) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  const uint64_t a = Send();
  const std::string good = EncodeError(1, NotFound("a reply of some length"));
  for (int i = 0; i < 20'000; ++i) {
    ClientChannel::Message m;
    m.head = good;
    if (random() % 2)
      m.head.resize(random() % good.size());
    else
      for (int flips = 0; flips < 3; ++flips)
        m.head[random() % m.head.size()] ^= static_cast<char>(1 << random() % 8);
    Status stray;
    (void)flight_.OnMessage(m, stray);
    if (flight_.Ended(a)) break;  // one that is a reply after all
  }
}

// Against a plain model: whatever is sent, answered, repeated and lost, each ticket ends once.
TEST_F(FlightTest, RandomTraffic) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  std::map<uint64_t, uint64_t> open;  // ticket by number of the session
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t pick = random() % 100;
    if (pick < 50) {
      ASSERT_EQ(flight_.HasCredit(7), open.size() < 4);
      if (!flight_.HasCredit(7)) continue;
      const uint64_t seq = flight_.next_seq();
      open[seq] = Send();
    } else if (pick < 98) {
      const uint64_t seq = 1 + random() % (flight_.next_seq() + 2);
      const auto it = open.find(seq);
      ASSERT_EQ(*Reply(seq), it != open.end());
      if (it == open.end()) continue;
      ASSERT_TRUE(flight_.Take(it->second).ok());
      open.erase(it);
    } else {
      flight_.FailAll(Unavailable("gone"));
      for (const auto& [seq, ticket] : open)
        ASSERT_TRUE(absl::IsUnavailable(flight_.Take(ticket).status()));
      open.clear();
      flight_.Restart();
    }
    ASSERT_EQ(flight_.idle(), open.empty());
    ASSERT_EQ(flight_.acked(), open.empty() ? flight_.next_seq() : open.begin()->first);
  }
}

}  // namespace
}  // namespace opwire::client
