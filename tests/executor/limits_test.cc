// Tests each row of the table of limits at its value, and one above it. The latter is refused with
// the expected and the actual number, and takes nothing. A row without a check here fails.
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/program/serialise.h"
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

int noted = 0;  // instances, counted by NotesInstances
int NotesInstances(const opw_call*, void**, int64_t*) {
  ++noted;
  return OPW_OK;
}
int DoesNothing(const opw_call*) { return OPW_OK; }

class LimitsTest : public CoreTest {
 protected:
  void Start(LimitId id, int64_t value) {
    options_.limits = ExecutorLimits();
    options_.limits[id] = value;
    Restart();
  }
  // Refused with both numbers in the message, and memory as before.
  void Over(const std::function<Answer()>& ask, absl::StatusCode code, int64_t expected,
            int64_t got) {
    const int64_t before = InUse();
    const Answer a = ask();
    EXPECT_EQ(a.code(), code) << a.status;
    for (int64_t n : {expected, got})
      EXPECT_NE(MessageOf(a.status).find(std::to_string(n)), std::string::npos)
          << a.status << "\nlacks " << n;
    EXPECT_EQ(InUse(), before);
  }
  Answer HelloTo(const std::string& session, const std::string& principal) {
    fb::HelloT hello;
    hello.session = session;
    return TryHello(std::move(hello), principal);
  }
  Answer LoadModule(Client& c, const Module& m) {
    fb::PutProgramT put;
    put.slot = 1;
    return Ask(c, std::move(put), Serialise(m));
  }
  static std::string Chain(int nodes) {
    std::string text = "program @f(%x: f32[]) -> (y: f32[]) {";
    for (int i = 0; i < nodes; ++i)
      text += fmt::format(" %{} = neg({})", i, i ? fmt::format("%{}", i - 1) : "%x");
    return text + fmt::format(" return %{} }}", nodes - 1);
  }
  // `depth` functions below the entry. No op calls functions yet, so one that is not too deep is
  // refused for that.
  static Module Nested(int depth) {
    Module m;
    for (int i = 0; i <= depth; ++i) {
      m.functions.push_back({.name = "f" + std::to_string(i)});
      if (i < depth)
        m.functions[static_cast<size_t>(i)].nodes.push_back(
            {.op = "zeros", .calls = {static_cast<uint32_t>(i + 1)}});
    }
    return m;
  }
  fb::BatchT BatchOf(int runs) {
    fb::BatchT batch;
    for (int i = 0; i < runs; ++i)
      batch.runs.push_back(std::make_unique<fb::RunT>(RunOf(1).Scalar(1).Inline().run));
    return batch;
  }
  // Takes memory that a client would fill: it counts, and is never touched.
  Answer Take(Client& c, uint64_t counter, int64_t bytes) {
    return Alloc(c, counter, DType::kU8, {bytes});
  }
  // Takes powers of two until no more memory fits. Returns the total.
  int64_t Fill(Client& c) {
    int64_t total = 0;
    uint64_t counter = 1;
    for (int64_t piece = int64_t{1} << 40; piece >= 64; piece /= 2) {
      while (Take(c, counter, piece).ok()) {
        total += piece;
        ++counter;
      }
    }
    return total;
  }

  const std::map<LimitId, std::function<void()>> kChecks = {
      {LimitId::kSessions,
       [this] {
         Start(LimitId::kSessions, 3);
         for (const char* principal : {"uid:1", "uid:2", "uid:3"})
           EXPECT_TRUE(HelloTo("", principal).ok());
         Over([this] { return HelloTo("", "uid:4"); }, kExhausted, 3, 4);
       }},
      {LimitId::kSessionsPerPrincipal,
       [this] {
         Start(LimitId::kSessionsPerPrincipal, 2);
         for (const char* session : {"a", ""}) EXPECT_TRUE(HelloTo(session, "uid:1").ok());
         Over([this] { return HelloTo("", "uid:1"); }, kExhausted, 2, 3);
         EXPECT_TRUE(HelloTo("a", "uid:1").ok()) << "one that is there takes another client";
         EXPECT_TRUE(HelloTo("", "uid:2").ok());
       }},
      {LimitId::kAttachments,
       [this] {
         Start(LimitId::kAttachments, 2);
         for (int i = 0; i < 2; ++i) EXPECT_TRUE(HelloTo("a", "uid:1").ok());
         Over([this] { return HelloTo("a", "uid:1"); }, kExhausted, 2, 3);
       }},
      {LimitId::kTensors,
       [this] {
         Start(LimitId::kTensors, 3);
         Client c = Hello();
         for (uint64_t i = 1; i <= 3; ++i) EXPECT_TRUE(Put(c, i, {1}).ok());
         Over([&] { return Put(c, 4, {1}); }, kExhausted, 3, 4);
         EXPECT_TRUE(Load(c, 1, Chain(1)).ok());
         Over([&] { return Ask(c, RunOf(1).Scalar(1).Keep(4)); }, kExhausted, 3, 4);
         EXPECT_TRUE(Ask(c, RunOf(1).Scalar(1).Inline()).ok());
         Over([&] { return Get(c, 4); }, kExhausted, 3, 4);
         EXPECT_EQ(Get(c, 5).code(), absl::StatusCode::kNotFound);
         EXPECT_TRUE(Free(c, {1}).ok());
         EXPECT_TRUE(Ask(c, RunOf(1).Scalar(1).Keep(4)).ok());
         EXPECT_TRUE(Get(c, 4).ok());
       }},
      {LimitId::kPrograms,
       [this] {
         Start(LimitId::kPrograms, 2);
         Client c = Hello();
         for (uint32_t slot : {1u, 7u}) EXPECT_TRUE(Load(c, slot, Chain(1)).ok());
         Over([&] { return Load(c, 8, Chain(1)); }, kExhausted, 2, 3);
         EXPECT_TRUE(Load(c, 7, Chain(2)).ok()) << "in place of another";
       }},
      {LimitId::kProgramBytes,
       [this] {
         const int64_t bytes = static_cast<int64_t>(Serialise(Nested(0)).size());
         Start(LimitId::kProgramBytes, bytes);
         Client c = Hello();
         EXPECT_TRUE(LoadModule(c, Nested(0)).ok());
         Start(LimitId::kProgramBytes, bytes - 1);
         Client d = Hello();
         Over([&] { return LoadModule(d, Nested(0)); }, kExhausted, bytes - 1, bytes);
       }},
      {LimitId::kNodes,
       [this] {
         Start(LimitId::kNodes, 5);
         Client c = Hello();
         EXPECT_TRUE(Load(c, 1, Chain(5)).ok());
         Over([&] { return Load(c, 1, Chain(6)); }, kExhausted, 5, 6);
       }},
      {LimitId::kNesting,
       [this] {
         Start(LimitId::kNesting, 4);
         Client c = Hello();
         EXPECT_EQ(LoadModule(c, Nested(4)).code(), kInvalid);
         Over([&] { return LoadModule(c, Nested(5)); }, kExhausted, 4, 5);
       }},
      {LimitId::kRank,
       [this] {
         Start(LimitId::kRank, 3);
         Client c = Hello();
         EXPECT_TRUE(Put(c, 1, {1}, {1, 1, 1}).ok());
         Over([&] { return Put(c, 2, {1}, {1, 1, 1, 1}); }, kInvalid, 3, 4);
         EXPECT_TRUE(
             Load(c, 1, "program @f(%x: f32[1, 1, 1]) -> (x: f32[1, 1, 1]) { return %x }").ok());
         Over(
             [&] {
               return Load(c, 1,
                           "program @f(%x: f32[1, 1, 1, 1]) -> (x: f32[1, 1, 1, 1]) { return %x }");
             },
             kExhausted, 3, 4);
       }},
      {LimitId::kAttributeBytes,
       [this] {
         constexpr const char* kText =
             "program @f(%x: f32[2, 3]) -> (y: f32[3, 2]) { %0 = permute(%x) {dims = [1, 0]} "
             "return %0 }";
         constexpr int64_t kBytes = 4 + 2 * 8;  // "dims" and its numbers
         Start(LimitId::kAttributeBytes, kBytes);
         Client c = Hello();
         EXPECT_TRUE(Load(c, 1, kText).ok());
         Start(LimitId::kAttributeBytes, kBytes - 1);
         Client d = Hello();
         Over([&] { return Load(d, 1, kText); }, kExhausted, kBytes - 1, kBytes);
       }},
      {LimitId::kParameters,
       [this] {
         Start(LimitId::kParameters, 2);
         Client c = Hello();
         EXPECT_TRUE(
             Load(c, 1,
                  "program @f(%x: f32[], %y: f32[]) -> (x: f32[], y: f32[]) { return %x, %y }")
                 .ok());
         Over(
             [&] {
               return Load(
                   c, 1, "program @f(%x: f32[], %y: f32[], %z: f32[]) -> (x: f32[]) { return %x }");
             },
             kExhausted, 2, 3);
         Over(
             [&] {
               return Load(
                   c, 1,
                   "program @f(%x: f32[]) -> (x: f32[], y: f32[], z: f32[]) { return %x, %x, %x }");
             },
             kExhausted, 2, 3);
       }},
      {LimitId::kInstances,
       [this] {
         // Above the limit the least recently used instance is built again when it is needed.
         variants_ = VariantTable();
         variants_.Add(
             {"neg",
              "own",
              Tier::kReference,
              0,
              kAll,
              "",
              "test",
              {OPW_ABI_VERSION, OPW_CONTIGUOUS, nullptr, NotesInstances, nullptr, DoesNothing}});
         Start(LimitId::kInstances, 2);
         Client c = Hello();
         EXPECT_TRUE(
             Load(c, 1, "program @f(%x: f32[?n]) -> (y: f32[?n]) { %0 = neg(%x) return %0 }").ok());
         noted = 0;
         const auto run = [&](size_t n) {
           EXPECT_TRUE(Ask(c, RunOf(1).Array(std::vector<float>(n)).Inline()).ok());
         };
         for (size_t n : {1, 2, 1, 2}) run(n);
         EXPECT_EQ(noted, 2);
         run(3);
         EXPECT_EQ(noted, 3);
         run(2);
         EXPECT_EQ(noted, 3);
         run(1);
         EXPECT_EQ(noted, 4);
         variants_ = BuildVariantTable(*device_);
       }},
      {LimitId::kCreditRequests,
       [this] {
         Start(LimitId::kCreditRequests, 3);
         Client c = Hello();
         for (int i = 0; i < 3; ++i) Send(c, fb::FlushT());
         Over(
             [&] {
               const uint64_t seq = Send(c, fb::FlushT());
               return CoreTest::Take(c.peer, seq);
             },
             kExhausted, 3, 4);
         WorkAll();
         EXPECT_TRUE(Ask(c, fb::FlushT()).ok());
       }},
      {LimitId::kCreditBytes,
       [this] {
         const int64_t head = static_cast<int64_t>(EncodeRequest(1, fb::FlushT()).size()),
                       limit = head + 1000;
         Start(LimitId::kCreditBytes, limit);
         Client c = Hello();
         EXPECT_TRUE(Ask(c, fb::FlushT(), std::string(1000, 'x')).ok());
         Over([&] { return Ask(c, fb::FlushT(), std::string(1001, 'x')); }, kExhausted, limit,
              limit + 1);
       }},
      {LimitId::kSessionMemoryPercent,
       [this] {
         UseHost(200 << 20);
         Start(LimitId::kSessionMemoryPercent, 10);
         const int64_t quota = device_->info().memory_bytes / 100 * 80 / 100 * 10;
         Client c = Hello();
         EXPECT_EQ(Fill(c), quota / 64 * 64);
         Over([&] { return Take(c, 1000, 64); }, kExhausted, quota, 64);
       }},
      {LimitId::kHostMemoryPercent,
       [this] {
         UseHost(200 << 20);
         options_.limits = ExecutorLimits();
         options_.limits[LimitId::kSessionMemoryPercent] = 100;
         options_.limits[LimitId::kHostMemoryPercent] = 10;
         Restart();
         const int64_t limit = device_->info().memory_bytes / 100 * 10;
         Client a = Hello();
         // The memory of the request itself counts while the executor handles it.
         const int64_t taken = Fill(a);
         EXPECT_LE(taken, limit);
         EXPECT_GT(taken, limit - 1024);
         Client b = Hello();
         Over([&] { return Take(b, 1, 4096); }, kExhausted, limit, 4096);
         // A request that does not fit still frees.
         fb::RequestT request;
         request.frees = {Id(a, 1)};
         request.body.Set(fb::FlushT());
         const uint64_t seq = Send(a, std::move(request), std::string(500'000, 'x'));
         WorkAll();
         EXPECT_EQ(CoreTest::Take(a.peer, seq).code(), kExhausted);
         EXPECT_TRUE(Take(b, 1, 4096).ok());
       }},
      {LimitId::kLeaseSeconds,
       [this] {
         Start(LimitId::kLeaseSeconds, 7);
         Client c = Hello();
         core_->OnPeerGone(now_, c.peer);
         const Nanos lost = now_;
         core_->OnTick(lost + 7 * kSecond - 1);
         EXPECT_EQ(core_->load().sessions.load(), 1u);
         core_->OnTick(lost + 7 * kSecond);
         EXPECT_EQ(core_->load().sessions.load(), 0u);
       }},
      {LimitId::kSessionTtlSeconds,
       [this] {
         Start(LimitId::kSessionTtlSeconds, 9);
         const auto living = [this](uint32_t seconds) {
           fb::HelloT hello;
           hello.session = "asked";
           hello.ttl_s = seconds;
           return TryHello(std::move(hello));
         };
         Over([&] { return living(10); }, kExhausted, 9, 10);
         EXPECT_EQ(core_->load().sessions.load(), 0u);
         const Answer asked = living(9);
         ASSERT_TRUE(asked.ok()) << asked.status;
         fb::ByeT free;
         free.token = asked.reply.body.AsHelloReply()->token;
         free.free = true;
         EXPECT_TRUE(Control(std::move(free)).ok());
         Client c = Hello("named");
         fb::ByeT bye;
         bye.token = c.token;
         EXPECT_TRUE(Control(std::move(bye)).ok());
         const Nanos left = now_;
         core_->OnTick(left + 9 * kSecond - 1);
         EXPECT_EQ(core_->load().sessions.load(), 1u);
         core_->OnTick(left + 9 * kSecond);
         EXPECT_EQ(core_->load().sessions.load(), 0u);
       }},
      {LimitId::kBatchRuns,
       [this] {
         Start(LimitId::kBatchRuns, 2);
         Client c = Hello();
         EXPECT_TRUE(Load(c, 1, Chain(1)).ok());
         EXPECT_TRUE(Ask(c, BatchOf(2)).ok());
         Over([&] { return Ask(c, BatchOf(3)); }, kInvalid, 2, 3);
       }},
      {LimitId::kTransfers,
       [this] {
         Start(LimitId::kTransfers, 2);
         Client c = Hello();
         for (uint64_t i = 1; i <= 2; ++i) EXPECT_TRUE(Take(c, i, 8).ok());
         Over([&] { return Take(c, 3, 8); }, kExhausted, 2, 3);
         fb::SealT seal;
         seal.id = IdPtr(c, 1);
         EXPECT_TRUE(Ask(c, std::move(seal)).ok());
         EXPECT_TRUE(Take(c, 3, 8).ok());
       }},
      {LimitId::kGrants,
       [this] {
         Start(LimitId::kGrants, 2);
         Client c = Hello();
         EXPECT_TRUE(Put(c, 1, {1}).ok());
         const auto grant = [&](const char* name) {
           fb::GrantT g;
           g.id = IdPtr(c, 1);
           g.name = name;
           return Ask(c, std::move(g));
         };
         for (const char* name : {"", "w"}) EXPECT_TRUE(grant(name).ok());
         Over([&] { return grant("v"); }, kExhausted, 2, 3);
         const Answer again = grant("w");
         ASSERT_TRUE(again.ok()) << "in place of another: " << again.status;
         fb::RevokeT revoke;
         revoke.capability = again.reply.body.AsGrantReply()->capability;
         EXPECT_TRUE(Ask(c, std::move(revoke)).ok());
         EXPECT_TRUE(grant("v").ok());
       }},
      {LimitId::kPackedMemoryPercent,
       [this] {
         // The limit is a hundredth of four fifths of this memory, which has room for one of two
         // weights.
         constexpr int64_t kWeight = 512 * 256 / 32 * 20;
         UseHost(kWeight * 100 * 5 / 4 + 1000);
         Start(LimitId::kPackedMemoryPercent, 1);
         Client c = Hello();
         EXPECT_TRUE(Load(c, 1,
                          "program @f(%x: f32[1, 256], %w: i8:q4_1[512, 256]) -> (y: f32[1, 512]) "
                          "{ %0 = quantized_linear(%x, %w) return %0 }")
                         .ok());
         const auto packed = [&] {
           return nlohmann::json::parse(Info("stats"))["memory_packed"].get<int64_t>();
         };
         for (uint64_t i : {1, 2}) {
           fb::PutT put;
           put.id = IdPtr(c, i);
           put.type = std::make_unique<fb::TensorTypeT>();
           put.type->dtype = static_cast<uint8_t>(DType::kI8);
           put.type->encoding = static_cast<uint8_t>(Encoding::kQ4_1);
           put.type->shape = {512, 256};
           put.bytes_follow = true;
           EXPECT_TRUE(Ask(c, std::move(put), std::string(kWeight, 1)).ok());
           for (int run = 0; run < 2; ++run)
             EXPECT_TRUE(
                 Ask(c, RunOf(1).Array(std::vector<float>(256, 1), {1, 256}).Tensor(c, i).Inline())
                     .ok());
           EXPECT_EQ(packed(), kWeight) << "the first alone";
         }
       }},
  };
};

TEST_F(LimitsTest, EachAtItsValueAndOneOver) {
  for (const ExecutorLimit& row : kExecutorLimits) {
    SCOPED_TRACE(std::string(row.name));
    const auto check = kChecks.find(row.id);
    if (check == kChecks.end()) {
      ADD_FAILURE() << "no test at this limit and one over";
      continue;
    }
    check->second();
  }
}

// All limits are in Hello, in the order of their numbers.
TEST_F(LimitsTest, HelloTellsThemAll) {
  for (int i = 0; i < kLimitCount; ++i)
    EXPECT_EQ(static_cast<int>(kExecutorLimits[static_cast<size_t>(i)].id), i);
  Start(LimitId::kNodes, 123);
  const Answer a = HelloTo("", "uid:1");
  ASSERT_TRUE(a.ok()) << a.status;
  const auto& limits = a.reply.body.AsHelloReply()->limits;
  ASSERT_EQ(limits.size(), kExecutorLimits.size());
  for (const fb::Limit& l : limits)
    EXPECT_EQ(l.value(), options_.limits[static_cast<LimitId>(l.id())]) << l.id();
}

}  // namespace
}  // namespace opwire::executor
