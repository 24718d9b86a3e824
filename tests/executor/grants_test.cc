// Tensors that sessions share: which sessions may take them, the effect of a write on either side,
// quotas, and lifetimes.
#include <nlohmann/json.hpp>

#include "ir/wire/capability.h"
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
constexpr const char* kIncrement =
    "program @increment(inout %w: f32[?n]) -> (w: f32[?n]) { %0 = full() {shape = [?n], value = 1} "
    "%1 = add(%w, %0) return %1 }";

class GrantsTest : public CoreTest {
 protected:
  using Capability = std::vector<uint8_t>;

  Answer AskGrant(Client& c, uint64_t counter, const std::string& session = "",
                  const std::string& principal = "", const std::string& name = "") {
    fb::GrantT grant;
    grant.id = IdPtr(c, counter);
    grant.session = session;
    grant.principal = principal;
    grant.name = name;
    return Ask(c, std::move(grant));
  }
  Capability Granted(Client& c, uint64_t counter, const std::string& session = "",
                     const std::string& principal = "", const std::string& name = "") {
    const Answer a = AskGrant(c, counter, session, principal, name);
    EXPECT_TRUE(a.ok()) << a.status;
    return a.ok() ? a.reply.body.AsGrantReply()->capability : Capability();
  }
  Answer TakeBy(Client& c, uint64_t counter, const Capability& capability) {
    fb::TakeT take;
    take.id = IdPtr(c, counter);
    take.capability = capability;
    return Ask(c, std::move(take));
  }
  Answer TakeBy(Client& c, uint64_t counter, const std::string& session, const std::string& name) {
    fb::TakeT take;
    take.id = IdPtr(c, counter);
    take.session = session;
    take.name = name;
    return Ask(c, std::move(take));
  }
  Answer Revoke(Client& c, const Capability& capability) {
    fb::RevokeT revoke;
    revoke.capability = capability;
    return Ask(c, std::move(revoke));
  }
  Answer Rename(Client& c, uint64_t counter, const std::string& name) {
    fb::RenameT rename;
    rename.id = IdPtr(c, counter);
    rename.name = name;
    return Ask(c, std::move(rename));
  }
  Answer End(const Client& c) {
    fb::ByeT bye;
    bye.token = c.token;
    bye.free = true;
    return Control(std::move(bye));
  }
  Answer Increment(Client& c, uint64_t counter) {
    EXPECT_TRUE(Load(c, 9, kIncrement).ok());
    return Ask(c, RunOf(9).Tensor(c, counter).None());
  }
  int64_t OfExecutor() { return nlohmann::json::parse(Info("stats"))["memory_in_use"]; }
  int64_t Held(const std::string& session, const std::string& principal = "uid:1") {
    for (const auto& s : nlohmann::json::parse(Info("sessions", principal))) {
      if (s["name"] == session) return s["bytes"];
    }
    return -1;
  }
};

TEST_F(GrantsTest, AreTakenByCapabilityAndByNameWithoutACopy) {
  Client model = Hello("model"), a = Hello("a"), b = Hello("b");
  const Floats values(16'000, 3);
  ASSERT_TRUE(Put(model, 1, values).ok());
  ASSERT_TRUE(Rename(model, 1, "w").ok());
  const int64_t before = OfExecutor();
  const Capability capability = Granted(model, 1);
  EXPECT_EQ(capability.size(), 16u);
  const Answer taken = TakeBy(a, 1, capability);
  ASSERT_TRUE(taken.ok()) << taken.status;
  EXPECT_EQ(taken.tensor().info->type->shape, (std::vector<int64_t>{16'000}));
  EXPECT_EQ(taken.tensor().info->name, "") << "a name is the session's own affair";
  EXPECT_EQ(taken.tensor().info->offset, -1) << "it does not lie in this session's segment";
  ASSERT_TRUE(TakeBy(b, 5, "model", "w").ok());
  ASSERT_TRUE(TakeBy(b, 6, "model", "w").ok()) << "again: another tensor of the same bytes";
  EXPECT_LT(OfExecutor() - before, 16'000)
      << "once in the executor's memory, and some replies that are kept";
  EXPECT_EQ(Get(a, 1).BulkFloats(), values);
  EXPECT_EQ(Get(b, 6).BulkFloats(), values);
  ASSERT_TRUE(
      Load(a, 1, "program @sum(%x: f32[?n]) -> (y: f32[]) { %0 = sum(%x) return %0 }").ok());
  EXPECT_EQ(Ask(a, RunOf(1).Tensor(a, 1).Inline()).Floats(0), Floats{48'000});
}

TEST_F(GrantsTest, NobodySeesAnothersWrites) {
  Client model = Hello("model"), other = Hello("other");
  ASSERT_TRUE(Put(model, 1, {1, 2}).ok());
  ASSERT_TRUE(TakeBy(other, 1, Granted(model, 1)).ok());
  ASSERT_TRUE(Increment(model, 1).ok());
  EXPECT_EQ(Get(model, 1).BulkFloats(), (Floats{2, 3}));
  EXPECT_EQ(Get(other, 1).BulkFloats(), (Floats{1, 2})) << "the owner's write moved its tensor";
  ASSERT_TRUE(Increment(other, 1).ok());
  ASSERT_TRUE(Increment(other, 1).ok());
  EXPECT_EQ(Get(other, 1).BulkFloats(), (Floats{3, 4})) << "so did the other's";
  EXPECT_EQ(Get(model, 1).BulkFloats(), (Floats{2, 3}));
}

// Also if the owner has freed it, so that it has no other holder.
TEST_F(GrantsTest, TheLastHolderDoesNotWriteInTheOwnersMemoryEither) {
  Client model = Hello("model"), other = Hello("other");
  ASSERT_TRUE(Put(model, 1, {1, 2}).ok());
  const Capability capability = Granted(model, 1);
  ASSERT_TRUE(TakeBy(other, 1, capability).ok());
  ASSERT_TRUE(Revoke(model, capability).ok());
  ASSERT_TRUE(Free(model, {1}).ok());
  const int64_t before = Held("model");
  ASSERT_TRUE(Increment(other, 1).ok());
  EXPECT_LT(Held("model"), before) << "its copy is its own";
  EXPECT_EQ(Get(other, 1).BulkFloats(), (Floats{2, 3}));
}

TEST_F(GrantsTest, AreOfTheMomentAndOutliveTheOwnersFree) {
  Client model = Hello("model"), other = Hello("other");
  ASSERT_TRUE(Put(model, 1, {1, 2}).ok());
  const Capability capability = Granted(model, 1);
  ASSERT_TRUE(Increment(model, 1).ok());
  ASSERT_TRUE(Free(model, {1}).ok());
  ASSERT_TRUE(TakeBy(other, 1, capability).ok());
  EXPECT_EQ(Get(other, 1).BulkFloats(), (Floats{1, 2}));
  ASSERT_TRUE(Revoke(model, capability).ok());
  EXPECT_EQ(Revoke(model, capability).code(), kNotFound);
  EXPECT_EQ(TakeBy(other, 2, capability).code(), kNotFound);
  EXPECT_EQ(Get(other, 1).BulkFloats(), (Floats{1, 2})) << "what was taken stays";
}

TEST_F(GrantsTest, OutliveTheOwnersSession) {
  const int64_t before = OfExecutor();
  Client model = Hello("model"), other = Hello("other");
  ASSERT_TRUE(Put(model, 1, Floats(5000, 7)).ok());
  ASSERT_TRUE(Put(model, 2, Floats(5000, 8)).ok());
  const Capability capability = Granted(model, 1);
  ASSERT_TRUE(TakeBy(other, 1, capability).ok());
  ASSERT_TRUE(Load(other, 1, kIncrement).ok());
  ASSERT_TRUE(End(model).ok());
  EXPECT_EQ(Get(other, 1).BulkFloats(), Floats(5000, 7));
  EXPECT_EQ(TakeBy(other, 2, capability).code(), kNotFound) << "its grants end with it";
  ASSERT_TRUE(Ask(other, RunOf(1).Tensor(other, 1).None()).ok());
  EXPECT_EQ(Get(other, 1).BulkFloats(), Floats(5000, 8));
  ASSERT_TRUE(Free(other, {1}).ok());
  ASSERT_TRUE(End(other).ok());
  core_->OnTick(now_);
  EXPECT_EQ(OfExecutor(), before) << "nobody holds it";
}

// Otherwise a user could create, grant to another and end sessions without end: memory, and
// mappings, that no limit counts.
TEST_F(GrantsTest, ASessionThatEndedCountsWhileOthersHoldWhatItGranted) {
  options_.limits[LimitId::kSessionsPerPrincipal] = 3;
  Restart();
  Client keeper = Hello("keeper");
  for (uint64_t i = 1; i <= 2; ++i) {
    Client model = Hello("model");
    ASSERT_TRUE(Put(model, 1, {1}).ok());
    ASSERT_TRUE(TakeBy(keeper, i, Granted(model, 1)).ok());
    ASSERT_TRUE(End(model).ok());
  }
  fb::HelloT hello;
  const Answer refused = TryHello(hello);
  EXPECT_EQ(refused.code(), kExhausted);
  EXPECT_NE(MessageOf(refused.status).find("at most 3"), std::string::npos) << refused.status;
  EXPECT_TRUE(TryHello(hello, "uid:2").ok());
  ASSERT_TRUE(Free(keeper, {1}).ok());
  EXPECT_TRUE(TryHello(hello).ok());
}

TEST_F(GrantsTest, CountInTheQuotaOfAllWhoHoldThem) {
  Client model = Hello("model"), small = Hello("small", "uid:1", 1 << 20);
  ASSERT_TRUE(Put(model, 1, Floats(4096, 1)).ok());
  ASSERT_TRUE(PutTyped(model, 2, DType::kU8, {64 << 10}, std::string(64 << 10, 'x')).ok());
  const Capability part = Granted(model, 1);
  const int64_t before = Held("small"), of_model = Held("model");
  for (uint64_t i = 1; i <= 64; ++i) ASSERT_TRUE(TakeBy(small, i, part).ok()) << "at the quota";
  EXPECT_EQ(Held("small"), before + 64 * 16384);
  const Answer over = TakeBy(small, 65, part);
  EXPECT_EQ(over.code(), kExhausted);
  EXPECT_NE(MessageOf(over.status).find("1048576 of 1048576"), std::string::npos) << over.status;
  EXPECT_EQ(Held("model"), of_model);
  ASSERT_TRUE(Free(small, {1}).ok());
  EXPECT_TRUE(TakeBy(small, 65, part).ok());
  // It counts in its owner's quota too, as long as any session holds it.
  ASSERT_TRUE(Free(model, {1, 2}).ok());
  ASSERT_TRUE(Revoke(model, part).ok());
  EXPECT_EQ(Held("model"), 16384);
  ASSERT_TRUE(End(small).ok());
  EXPECT_EQ(Held("model"), 0);
}

// The taker's client does not map the owner's segment, so reads go through its own segment.
TEST_F(GrantsTest, LargeOnesAreReadThroughTheTakersOwnSegment) {
  Client model = Hello("model"), other = Hello("other");
  const Floats values(100'000, 5);
  ASSERT_TRUE(Alloc(model, 1, DType::kF32, {100'000}).ok());
  fb::SealT seal;
  seal.id = IdPtr(model, 1);
  ASSERT_TRUE(Ask(model, std::move(seal)).ok());
  ASSERT_TRUE(TakeBy(other, 1, Granted(model, 1)).ok());
  fb::GetT get;
  get.id = IdPtr(other, 1);
  get.offset = 4000;
  get.bytes = 200'000;
  const int64_t before = Held("other");
  const Answer a = Ask(other, std::move(get));
  ASSERT_TRUE(a.ok()) << a.status;
  Token token;
  std::copy(other.token.begin(), other.token.end(), token.begin());
  const Segment& segment = **core_->SegmentOf(token);
  ASSERT_GE(a.tensor().info->offset, 0);
  ASSERT_LE(a.tensor().info->offset + 200'000, segment.capacity());
  const auto* there = reinterpret_cast<const float*>(segment.base() + a.tensor().info->offset);
  EXPECT_EQ(there[0], 0.0f);
  fb::RequestT done;
  done.closes = {a.tensor().ticket};
  done.body.Set(fb::FlushT());
  const uint64_t seq = Send(other, std::move(done));
  WorkAll();
  EXPECT_TRUE(Take(other.peer, seq).ok());
  EXPECT_EQ(Held("other"), before);
}

TEST_F(GrantsTest, OnlyThoseTheyAreGrantedToTakeThem) {
  Client model = Hello("model"), a = Hello("a"), b = Hello("b"), unnamed = Hello(),
         ada = Hello("a", "key:ada"), model_of_ada = Hello("model", "key:ada");
  ASSERT_TRUE(Put(model, 1, {1}).ok());
  const Capability to_a = Granted(model, 1, "a", "", "x"),
                   to_ada = Granted(model, 1, "", "key:ada", "y"),
                   to_all = Granted(model, 1, "", "", "z");
  EXPECT_TRUE(TakeBy(a, 1, to_a).ok());
  for (Client* c : {&b, &unnamed, &ada})
    EXPECT_EQ(TakeBy(*c, 1, to_a).code(), kDenied) << "a stranger with the capability";
  EXPECT_TRUE(TakeBy(ada, 1, to_ada).ok());
  EXPECT_EQ(TakeBy(a, 2, to_ada).code(), kDenied);
  for (Client* c : {&a, &b, &unnamed}) EXPECT_TRUE(TakeBy(*c, 3, to_all).ok());
  EXPECT_EQ(TakeBy(ada, 3, to_all).code(), kDenied);
  // By name.
  EXPECT_TRUE(TakeBy(a, 4, "model", "x").ok());
  EXPECT_EQ(TakeBy(b, 4, "model", "x").code(), kNotFound);
  EXPECT_EQ(TakeBy(a, 5, "model", "y").code(), kNotFound);
  EXPECT_EQ(TakeBy(ada, 5, "model", "x").code(), kNotFound)
      << "another principal's session of that name";
  EXPECT_EQ(TakeBy(a, 5, "nobody", "x").code(), kNotFound);
  EXPECT_EQ(TakeBy(a, 5, "", "x").code(), kInvalid);
  EXPECT_EQ(TakeBy(a, 5, "model", "").code(), kInvalid);
  // Bytes that are not a capability.
  EXPECT_EQ(TakeBy(a, 5, Capability(16, 7)).code(), kNotFound);
  EXPECT_EQ(TakeBy(a, 5, Capability(15, 7)).code(), kNotFound);
  EXPECT_EQ(TakeBy(a, 5, Capability(model.token)).code(), kNotFound) << "a session's token is none";
  EXPECT_EQ(Revoke(a, to_all).code(), kNotFound) << "another's";
  EXPECT_EQ(Revoke(a, {}).code(), kNotFound);
}

TEST_F(GrantsTest, AreRefusedForWhatIsNotThereOrNotOnesOwn) {
  Client model = Hello("model"), other = Hello("other");
  ASSERT_TRUE(Put(model, 1, {1}).ok());
  ASSERT_TRUE(Free(model, {1}).ok());
  EXPECT_EQ(AskGrant(model, 1).code(), kNotFound) << "freed";
  EXPECT_EQ(Ask(model, fb::GrantT()).code(), kNotFound) << "no tensor at all";
  ASSERT_TRUE(Alloc(model, 2, DType::kF32, {4}).ok());
  EXPECT_EQ(AskGrant(model, 2).code(), absl::StatusCode::kFailedPrecondition) << "being filled";
  ASSERT_TRUE(Put(model, 3, {1}).ok());
  EXPECT_EQ(AskGrant(model, 3, "model").code(), kInvalid) << "to itself";
  EXPECT_EQ(AskGrant(model, 3, std::string(129, 'x')).code(), kInvalid);
  EXPECT_EQ(AskGrant(model, 3, "", std::string(257, 'x')).code(), kInvalid);
  EXPECT_EQ(AskGrant(model, 3, "", "", "a\nb").code(), kInvalid);
  const Capability later = Granted(model, 3, "later");  // a session that does not exist yet
  Client late = Hello("later");
  EXPECT_TRUE(TakeBy(late, 1, later).ok());
  EXPECT_EQ(AskGrant(late, 1).code(), kDenied) << "of another session";
  fb::CopyT copy;
  copy.from = IdPtr(late, 1);
  copy.to = IdPtr(late, 2);
  ASSERT_TRUE(Ask(late, std::move(copy)).ok());
  EXPECT_EQ(AskGrant(late, 2).code(), kDenied) << "and what shares its bytes";
  ASSERT_TRUE(Increment(late, 2).ok());
  EXPECT_TRUE(AskGrant(late, 2).ok()) << "which are now its own";
  EXPECT_EQ(TakeBy(model, 9, Granted(model, 3)).code(), kInvalid) << "its own";
  fb::TakeT stray;
  stray.id = std::make_unique<fb::TensorId>(late.attachment + 1, 0, 7);
  stray.capability = later;
  EXPECT_EQ(Ask(late, std::move(stray)).code(), kInvalid) << "a tensor of another attachment";
  fb::TakeT none;
  none.capability = later;
  EXPECT_EQ(Ask(late, std::move(none)).code(), kInvalid) << "no tensor to make";
}

TEST_F(GrantsTest, ANameStandsForTheLastGrant) {
  Client model = Hello("model"), a = Hello("a"), b = Hello("b");
  ASSERT_TRUE(Put(model, 1, {1}).ok());
  ASSERT_TRUE(Put(model, 2, {2}).ok());
  ASSERT_TRUE(Put(model, 3, {3}).ok());
  const Capability first = Granted(model, 1, "", "", "w"), second = Granted(model, 2, "", "", "w");
  EXPECT_EQ(TakeBy(a, 1, first).code(), kNotFound) << "replaced";
  ASSERT_TRUE(TakeBy(a, 2, "model", "w").ok());
  EXPECT_EQ(Get(a, 2).BulkFloats(), Floats{2});
  ASSERT_TRUE(TakeBy(a, 3, second).ok());
  Granted(model, 3, "a", "", "w");
  ASSERT_TRUE(TakeBy(a, 4, "model", "w").ok());
  ASSERT_TRUE(TakeBy(b, 4, "model", "w").ok());
  EXPECT_EQ(Get(a, 4).BulkFloats(), Floats{3}) << "its own comes first";
  EXPECT_EQ(Get(b, 4).BulkFloats(), Floats{2});
}

// A user sees and revokes the grants of all their sessions without attaching to one.
TEST_F(GrantsTest, AreListedAndRevokedForAUser) {
  Client model = Hello("model"), unnamed = Hello(), ada = Hello("model", "key:ada");
  ASSERT_TRUE(PutTyped(model, 1, DType::kI64, {2, 3}, std::string(48, 'x')).ok());
  ASSERT_TRUE(Put(unnamed, 1, {1}).ok());
  ASSERT_TRUE(Put(ada, 1, {1}).ok());
  const Capability to_lab = Granted(model, 1, "lab", "", "w"),
                   to_ada = Granted(unnamed, 1, "", "key:ada", "x"), of_ada = Granted(ada, 1);
  const auto listed = [&](const std::string& principal) {
    std::map<std::string, nlohmann::json> out;
    const nlohmann::json all = nlohmann::json::parse(Info("grants", principal));
    EXPECT_EQ(all["count"], all["grants"].size());
    for (const auto& g : all["grants"]) out[g["capability"]] = g;
    return out;
  };
  auto mine = listed("uid:1");
  ASSERT_EQ(mine.size(), 2u);
  nlohmann::json w = mine.at(CapabilityText(to_lab));
  EXPECT_GT(w["session"]["id"], 0);
  w["session"].erase("id");
  EXPECT_EQ(
      w,
      nlohmann::json::parse(fmt::format(
          R"({{"session": {{"name": "model"}}, "name": "w", "type": "i64[2, 3]", "bytes": 48, "capability": "{}",
                                                     "to": {{"principal": "uid:1", "session": "lab"}}}})",
          CapabilityText(to_lab))));
  EXPECT_EQ(mine.at(CapabilityText(to_ada))["to"]["principal"], "key:ada");
  EXPECT_EQ(listed("key:ada").size(), 1u);
  EXPECT_EQ(listed("uid:3").size(), 0u);
  const auto revoke = [&](const Capability& capability, const std::string& principal) {
    fb::RevokeT body;
    body.capability = capability;
    return Control(std::move(body), principal);
  };
  EXPECT_EQ(revoke(of_ada, "uid:1").code(), kNotFound) << "another user's";
  EXPECT_EQ(revoke({}, "uid:1").code(), kNotFound);
  EXPECT_TRUE(revoke(to_ada, "uid:1").ok()) << "of a session without a name";
  EXPECT_EQ(revoke(to_ada, "uid:1").code(), kNotFound) << "again";
  EXPECT_EQ(TakeBy(ada, 2, to_ada).code(), kNotFound);
  EXPECT_EQ(listed("uid:1").size(), 1u);
  EXPECT_TRUE(revoke(to_lab, "uid:1").ok());
  EXPECT_EQ(listed("uid:1").size(), 0u);
}

TEST_F(GrantsTest, AListIsNoLongerThanAMessage) {
  options_.limits[LimitId::kGrants] = 4000;
  Restart();
  Client model = Hello("model");
  ASSERT_TRUE(Put(model, 1, {1}).ok());
  for (int i = 0; i < 3000; ++i)
    ASSERT_EQ(Granted(model, 1, "", "", fmt::format("{}{}", std::string(200, 'x'), i)).size(),
              kCapabilityBytes);
  const nlohmann::json all = nlohmann::json::parse(Info("grants"));
  EXPECT_EQ(all["count"], 3000);
  EXPECT_GT(all["grants"].size(), 1000u);
  EXPECT_LT(all["grants"].size(), 3000u);
}

}  // namespace
}  // namespace opwire::executor
