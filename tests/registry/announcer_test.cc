// An executor's part towards a registry: first alone, then against a registry's state on a lossy
// line.
#include "registry/client/announcer.h"

#include <random>

#include "tests/registry/fixture.h"
#include "tests/seed.h"

namespace opwire {
namespace {

fb::Body KindOf(const std::string& bytes) {
  AlignedBytes memory;
  auto r = DecodeRequest(AsBytes(bytes), memory);
  EXPECT_TRUE(r.ok());
  return r.ok() ? (*r)->body_type() : fb::Body::NONE;
}

std::string BeatOf(uint32_t ms, bool again) {
  fb::BeatT beat;
  beat.beat_ms = ms;
  beat.again = again;
  return EncodeReply(1, std::move(beat));
}

TEST(Announcer, RegistersThenBeats) {
  Announcer a(MakeInfo("e"), ClaimOf("e"));
  a.OnConnected(0);
  auto out = a.OnTick(0, {});
  ASSERT_TRUE(out);
  EXPECT_EQ(KindOf(*out), fb::Body::Register);
  EXPECT_FALSE(a.OnTick(kSecond - 1, {}));
  // Unanswered, it says the same again.
  EXPECT_EQ(KindOf(*a.OnTick(kSecond, {})), fb::Body::Register);
  EXPECT_FALSE(a.registered());
  a.OnReply(kSecond, AsBytes(BeatOf(500, false)));
  EXPECT_TRUE(a.registered());
  // At the registry's own pace, from the first beat on.
  EXPECT_FALSE(a.OnTick(kSecond + 499 * kMillisecond, {}));
  EXPECT_EQ(KindOf(*a.OnTick(kSecond + 500 * kMillisecond, {})), fb::Body::Heartbeat);
  EXPECT_FALSE(a.OnTick(kSecond + 999 * kMillisecond, {}));
  EXPECT_TRUE(a.OnTick(2 * kSecond, {}));
  EXPECT_EQ(KindOf(a.Goodbye()), fb::Body::Unregister);
}

TEST(Announcer, RegistersAgainWhenForgottenAndWhenReconnected) {
  Announcer a(MakeInfo("e"), ClaimOf("e"));
  a.OnConnected(0);
  a.OnTick(0, {});
  a.OnReply(0, AsBytes(BeatOf(1000, false)));
  a.OnReply(kMillisecond, AsBytes(BeatOf(1000, true)));
  EXPECT_FALSE(a.registered());
  auto out = a.OnTick(kMillisecond, {});  // at once, not at the next beat
  ASSERT_TRUE(out);
  EXPECT_EQ(KindOf(*out), fb::Body::Register);
  a.OnReply(2 * kMillisecond, AsBytes(BeatOf(1000, false)));
  a.OnConnected(3 * kMillisecond);
  EXPECT_EQ(KindOf(*a.OnTick(3 * kMillisecond, {})), fb::Body::Register);
}

TEST(Announcer, NoticesSilenceAndRefusal) {
  Announcer a(MakeInfo("e"), ClaimOf("e"));
  a.OnConnected(0);
  EXPECT_FALSE(a.Silent(3 * kSecond));
  EXPECT_TRUE(a.Silent(3 * kSecond + 1));
  a.OnReply(2 * kSecond, AsBytes(BeatOf(1000, false)));
  EXPECT_FALSE(a.Silent(5 * kSecond));
  a.OnReply(2 * kSecond, AsBytes(EncodeError(1, ResourceExhausted("full"))));
  EXPECT_EQ(a.refusal().code(), absl::StatusCode::kResourceExhausted);
  // Bytes that are no reply are no sign of life.
  a.OnReply(9 * kSecond, AsBytes(std::string("garbage")));
  EXPECT_TRUE(a.Silent(9 * kSecond));
}

// A registry may ask for any pace; the executor neither floods it nor falls asleep.
TEST(Announcer, AbsurdPacesAreBounded) {
  for (uint32_t ms : {0u, 1u, 4'000'000'000u}) {
    Announcer a(MakeInfo("e"), ClaimOf("e"));
    a.OnConnected(0);
    a.OnTick(0, {});
    a.OnReply(0, AsBytes(BeatOf(ms, false)));
    int sent = 0;
    for (Nanos now = 0; now <= 120 * kSecond; now += 10 * kMillisecond)
      sent += a.OnTick(now, {}).has_value();
    EXPECT_GE(sent, 2) << ms;
    EXPECT_LE(sent, 12'001) << ms;
  }
}

TEST_F(RegistryTest, AFastRegistryKeepsItsExecutors) {
  Reset({.beat = 20 * kMillisecond});
  Announcer a(MakeInfo("e"), ClaimOf("e"));
  a.OnConnected(now_);
  for (int i = 0; i < 1000; ++i, now_ += 5 * kMillisecond) {
    if (auto out = a.OnTick(now_, {})) {
      for (const Outgoing& reply : state_->OnMessage(now_, 1, AsBytes(*out)))
        a.OnReply(now_, AsBytes(reply.bytes));
    }
    state_->OnTick(now_);
    ASSERT_EQ(state_->executors(), 1u) << "after " << i * 5 << " ms";
  }
}

// Drops in both directions and a registry that forgets: once the line is good, both agree within
// four beats.
TEST_F(RegistryTest, AnnouncersConvergeOverALossyLine) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  std::vector<Announcer> all;
  for (int i = 0; i < 3; ++i) {
    const std::string id = "e" + std::to_string(i);
    all.emplace_back(MakeInfo(id), ClaimOf(id));
    all.back().OnConnected(now_);
  }
  for (int round = 0; round < 20; ++round) {
    if (random() % 3 == 0) Reset({});
    const Nanos bad_until = now_ + static_cast<Nanos>(random() % 10) * kSecond,
                end = bad_until + 4 * kSecond;
    for (; now_ < end; now_ += 50 * kMillisecond) {
      const auto lost = [&] { return now_ < bad_until && random() % 2 == 0; };
      for (size_t i = 0; i < all.size(); ++i) {
        auto out = all[i].OnTick(now_, {});
        if (!out || lost()) continue;
        for (const Outgoing& reply : state_->OnMessage(now_, i + 1, AsBytes(*out))) {
          if (!lost()) all[i].OnReply(now_, AsBytes(reply.bytes));
        }
      }
      state_->OnTick(now_);
    }
    ASSERT_EQ(Ids().size(), 3u) << "round " << round;
    for (const Announcer& a : all) EXPECT_TRUE(a.registered());
  }
}

}  // namespace
}  // namespace opwire
