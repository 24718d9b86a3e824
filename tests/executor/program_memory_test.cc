// The memory of programs: it counts once for the executor, once per slot for a session's quota, and
// not at all when the last slot is empty.
#include <nlohmann/json.hpp>

#include "ir/program/module.h"
#include "ir/program/serialise.h"
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

using nlohmann::json;

class ProgramMemoryTest : public CoreTest {
 protected:
  // An executor that may hold 80 MiB.
  ProgramMemoryTest() {
    UseHost(100 << 20);
    options_.limits[LimitId::kSessionMemoryPercent] = 100;
    options_.slice = kMicrosecond;
    Restart();
    before_ = Held();
  }
  // A constant of `bytes` bytes; the first one is `value`.
  static std::string Constant(int64_t bytes, char value) {
    Module m;
    std::string blob(static_cast<size_t>(bytes), value);
    m.blobs.push_back(std::move(blob));
    TensorType type{DType::kU8, Encoding::kDense, {m.dims.Constant(bytes)}};
    Node node{
        .op = "constant", .attrs = {{"type", type}, {"value", BlobRef{0}}}, .results = {type}};
    m.functions.push_back({.name = "f", .nodes = {std::move(node)}, .results = {{"y", 0}}});
    return Serialise(m);
  }
  // Sends a program through a tensor, as programs that are too large for a message. The tensor
  // still exists afterwards.
  fb::PutProgramT Sent(Client& c, uint32_t slot, const std::string& bytes) {
    const Answer a = Alloc(c, kSource, DType::kU8, {static_cast<int64_t>(bytes.size())});
    EXPECT_TRUE(a.ok()) << a.status;
    EXPECT_TRUE(a.ok() && FillAndSeal(c, kSource, a.tensor().ticket, bytes).ok());
    fb::PutProgramT put;
    put.slot = slot;
    put.bytes = IdPtr(c, kSource);
    return put;
  }
  Answer Upload(Client& c, uint32_t slot, const std::string& bytes) {
    const Answer a = Ask(c, Sent(c, slot, bytes));
    EXPECT_TRUE(Free(c, {kSource}).ok());
    return a;
  }
  Answer Drop(Client& c, uint32_t slot) {
    fb::DropProgramT drop;
    drop.slot = slot;
    return Ask(c, std::move(drop));
  }
  Answer Bye(const Client& c, bool free = false) {
    fb::ByeT bye;
    bye.token = c.token;
    bye.free = free;
    return Control(std::move(bye));
  }
  // Returns the bytes that the executor holds, excluding replies that wait to be read again.
  int64_t Held() { return json::parse(Info("stats"))["memory_in_use"].get<int64_t>(); }
  void ExpectHeld(int64_t bytes) {
    EXPECT_NEAR(static_cast<double>(Held() - before_), static_cast<double>(bytes), 64 << 10);
  }
  static constexpr int64_t kMiB = 1 << 20;
  static constexpr uint64_t kSource = 1000;
  int64_t before_ = 0;
};

TEST_F(ProgramMemoryTest, CountsItsBytesAndItsConstantsUntilItIsDropped) {
  Client c = Hello();
  ASSERT_TRUE(Upload(c, 1, Constant(4 * kMiB, 'a')).ok());
  ExpectHeld(8 * kMiB);
  ASSERT_TRUE(Upload(c, 1, Constant(kMiB, 'b')).ok()) << "in place of the other";
  ExpectHeld(2 * kMiB);
  ASSERT_TRUE(Drop(c, 1).ok());
  ExpectHeld(0);
  ASSERT_TRUE(Upload(c, 1, Constant(4 * kMiB, 'a')).ok());
  ASSERT_TRUE(Bye(c).ok());
  ExpectHeld(0);
}

TEST_F(ProgramMemoryTest, NodesCountToo) {
  Client c = Hello();
  std::string text = "program @f(%x: f32[]) -> (y: f32[]) { %0 = neg(%x)";
  for (int i = 1; i < 1000; ++i) text += fmt::format(" %{} = neg(%{})", i, i - 1);
  ASSERT_TRUE(Load(c, 1, text + " return %999 }").ok());
  EXPECT_GT(Held() - before_, 1000 * 1024);
}

TEST_F(ProgramMemoryTest, IsRefusedBeforeItIsPrepared) {
  Client c = Hello();
  for (uint32_t i = 0; i < 5; ++i)
    ASSERT_TRUE(Upload(c, i, Constant(7 * kMiB, static_cast<char>('a' + i))).ok());
  const std::string bytes = Constant(7 * kMiB, 'x');
  fb::PutProgramT put = Sent(c, 9, bytes);
  const int64_t held = Held();
  const uint64_t seq = Send(c, std::move(put));
  while (WorkOnce()) {
  }
  EXPECT_TRUE(shell_.jobs.empty());
  const Answer over = Take(c.peer, seq);
  EXPECT_EQ(over.code(), kExhausted) << over.status;
  EXPECT_NE(MessageOf(over.status)
                .find(fmt::format("out of memory: a program of {} bytes", bytes.size())),
            std::string::npos)
      << over.status;
  EXPECT_NEAR(static_cast<double>(Held()), static_cast<double>(held), 4096);
  ASSERT_TRUE(Drop(c, 0).ok());
  EXPECT_TRUE(Upload(c, 9, Constant(kMiB, 'x')).ok()) << "there is room again";
}

TEST_F(ProgramMemoryTest, EachSlotCountsAgainstItsSessionsQuota) {
  Client c = Hello("", "uid:1", 12 * kMiB), other = Hello("", "uid:1", 12 * kMiB);
  const std::string bytes = Constant(2 * kMiB, 'a');
  for (uint32_t slot : {1u, 2u}) ASSERT_TRUE(Upload(c, slot, bytes).ok());
  const Answer over = Upload(c, 3, bytes);
  EXPECT_EQ(over.code(), kExhausted) << over.status;
  EXPECT_NE(MessageOf(over.status).find("over quota"), std::string::npos) << over.status;
  EXPECT_TRUE(Upload(c, 2, bytes).ok()) << "the slot has it";
  ExpectHeld(4 * kMiB);
  ASSERT_TRUE(Upload(other, 1, bytes).reply.body.AsProgramReply()->cached);
  ExpectHeld(4 * kMiB);
  EXPECT_EQ(Alloc(c, 1, DType::kU8, {5 * kMiB}).code(), kExhausted)
      << "tensors and programs share it";
  ASSERT_TRUE(Drop(c, 1).ok());
  EXPECT_TRUE(Alloc(c, 1, DType::kU8, {5 * kMiB}).ok());
  ASSERT_TRUE(Free(c, {1}).ok());
  ASSERT_TRUE(Bye(c).ok());
  ExpectHeld(4 * kMiB);
  ASSERT_TRUE(Bye(other).ok());
  ExpectHeld(0);
}

TEST_F(ProgramMemoryTest, AClientThatGoesGivesItsSlotsBack) {
  Client a = Hello("named"), b = Hello("named");
  ASSERT_TRUE(Upload(a, 1, Constant(2 * kMiB, 'a')).ok());
  ASSERT_TRUE(Bye(a).ok());
  ExpectHeld(0);
  EXPECT_EQ(json::parse(Info("sessions"))[0]["bytes"], 0);
  ASSERT_TRUE(Upload(b, 1, Constant(2 * kMiB, 'a')).ok());
  ASSERT_TRUE(Bye(b, true).ok());
  ExpectHeld(0);
}

TEST_F(ProgramMemoryTest, WhatIsNoProgramIsGivenBack) {
  Client c = Hello();
  EXPECT_FALSE(Upload(c, 1, std::string(2 * kMiB, 'x')).ok());
  ExpectHeld(0);
  EXPECT_EQ(json::parse(Info("sessions"))[0]["bytes"], 0);
  // The session ends while a worker prepares its program.
  Send(c, Sent(c, 1, Constant(2 * kMiB, 'a')));
  ASSERT_TRUE(WorkOnce());
  EXPECT_EQ(shell_.jobs.size(), 1u);
  ASSERT_TRUE(Bye(c).ok());
  WorkAll();
  core_->OnTick(now_);
  ExpectHeld(0);
}

// A run that has begun keeps its program, whatever happens to the slot.
TEST_F(ProgramMemoryTest, ARunHoldsItsProgram) {
  Client a = Hello("named"), b = Hello("named");
  ASSERT_TRUE(Load(a, 1, kSlow).ok());
  ASSERT_TRUE(Ask(b, fb::FlushT()).ok());
  const int64_t program = json::parse(Info("sessions"))[0]["program_bytes"].get<int64_t>();
  ASSERT_GT(program, 4096);
  for (uint64_t i : {1, 2}) ASSERT_TRUE(Put(a, i, std::vector<float>(128 * 128), {128, 128}).ok());
  const int64_t tensors = InUse();
  Send(a, RunOf(1).Tensor(a, 1).Tensor(a, 2).None().None());
  ASSERT_TRUE(WorkOnce());
  ASSERT_TRUE(core_->HasWork()) << "its run is put aside";
  ASSERT_TRUE(Bye(a).ok());
  EXPECT_EQ(json::parse(Info("sessions"))[0]["program_bytes"], 0);
  const int64_t with = Held();
  WorkAll();
  EXPECT_LE(Held(), with - program);
  EXPECT_GE(InUse(), tensors);
}

}  // namespace
}  // namespace opwire::executor
