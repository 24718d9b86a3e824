// Any bytes from any peer: a status or silence, and the table as it was or as a good message would
// leave it.
#include <random>

#include "tests/registry/fixture.h"
#include "tests/seed.h"

namespace opwire {
namespace {

std::vector<std::string> RealMessages() {
  std::vector<std::string> out;
  fb::RegisterT reg;
  reg.claim = ClaimOf("good");
  reg.info = std::make_unique<fb::ExecutorInfoT>(MakeInfo("good", 3));
  reg.info->labels = {"a", "b"};
  AddOp(*reg.info, "add", {DType::kF32});
  out.push_back(EncodeRequest(1, std::move(reg)));
  fb::HeartbeatT beat;
  beat.id = "good";
  beat.incarnation = 3;
  beat.load = std::make_unique<fb::LoadInfoT>();
  beat.died = {"matmul"};
  out.push_back(EncodeRequest(2, std::move(beat)));
  fb::QueryT query;
  query.device = "cpu";
  query.op = "add";
  out.push_back(EncodeRequest(3, std::move(query)));
  out.push_back(EncodeRequest(4, fb::WatchT()));
  fb::UnregisterT bye;
  bye.id = "other";
  out.push_back(EncodeRequest(5, std::move(bye)));
  fb::RunT run;
  run.bindings.resize(3);
  out.push_back(EncodeRequest(6, std::move(run)));  // no request of a registry
  return out;
}

class RegistryHostile : public RegistryTest {
 protected:
  RegistryHostile()
      : trace_(__FILE__, __LINE__, testing::Message() << "repeat with OPWIRE_SEED=" << Seed()),
        random_(Seed()) {}
  void Feed(const std::string& bytes) {
    // Whatever comes back is a message of the protocol.
    Unpack(state_->OnMessage(now_, random_() % 50, AsBytes(bytes)));
    now_ += static_cast<Nanos>(random_() % (100 * kMillisecond));
    Unpack(state_->OnTick(now_));
  }
  void StillWorks() {
    EXPECT_TRUE(Register(1, MakeInfo("after", 1)).status.ok());
    fb::QueryT query;
    query.device = "after";
    EXPECT_EQ(Ids(query), std::vector<std::string>{"after"});
  }
  const testing::ScopedTrace trace_;
  std::mt19937_64 random_;
};

TEST_F(RegistryHostile, RandomBytes) {
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random_() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random_());
    Feed(bytes);
  }
  EXPECT_EQ(state_->executors(), 0u);
  StillWorks();
}

TEST_F(RegistryHostile, TruncatedMessages) {
  for (const std::string& m : RealMessages()) {
    for (size_t n = 0; n < m.size(); ++n) Feed(m.substr(0, n));
  }
  StillWorks();
}

TEST_F(RegistryHostile, FlippedBits) {
  const std::vector<std::string> real = RealMessages();
  for (int i = 0; i < 60'000; ++i) {
    std::string m = real[random_() % real.size()];
    for (uint64_t flips = 1 + random_() % 4; flips > 0; --flips)
      m[random_() % m.size()] ^= static_cast<char>(1 << random_() % 8);
    Feed(m);
  }
  now_ += 10 * kSecond;
  Unpack(state_->OnTick(now_));
  StillWorks();
}

TEST_F(RegistryHostile, MisalignedAndSplicedMessages) {
  const std::vector<std::string> real = RealMessages();
  for (int i = 0; i < 20'000; ++i) {
    const std::string &a = real[random_() % real.size()], &b = real[random_() % real.size()];
    Feed(a.substr(0, random_() % a.size()) + b.substr(random_() % b.size()));
  }
  // A good message at any address is understood.
  for (size_t offset = 0; offset < 16; ++offset) {
    const std::string padded = std::string(offset, '\0') + EncodeRequest(1, fb::QueryT());
    const auto got = Unpack(state_->OnMessage(now_, 1, AsBytes(padded).subspan(offset)));
    ASSERT_FALSE(got.empty());
    EXPECT_TRUE(got[0].status.ok());
  }
}

TEST_F(RegistryHostile, OversizedAndForeignMessages) {
  Feed(std::string(kMaxFrameBytes + 1, 'x'));
  fb::RunT run;
  const Got g = AnswerTo(1, Say(1, std::move(run), 17));
  EXPECT_EQ(g.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(g.reply.seq, 17u);
  EXPECT_NE(MessageOf(g.status).find("Run"), std::string::npos) << g.status;
}

}  // namespace
}  // namespace opwire
