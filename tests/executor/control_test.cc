// Loops and branches that run on the executor: their results, the memory of their values, and their
// ends.
#include <fmt/format.h>

#include <algorithm>

#include "executor/plan/instance.h"
#include "ir/text/text.h"
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;

class ControlTest : public CoreTest {
 protected:
  ControlTest() : c_(Hello()) {}
  void MustLoad(const std::string& text) {
    const Answer a = Load(c_, 1, text);
    ASSERT_TRUE(a.ok()) << a.status;
  }
  static RunOf& Int(RunOf& run, int64_t v) {
    return run.Bind(1, static_cast<uint8_t>(DType::kI64), 0, 0, static_cast<uint64_t>(v), 0);
  }
  Answer RunInt(int64_t n, const Floats& x, int results = 1) {
    RunOf run(1);
    Int(run, n).Array(x);
    for (int i = 0; i < results; ++i) run.Inline();
    return Ask(c_, run);
  }
  Client c_;
};

constexpr const char* kPowers = R"(
program @powers(%n: i64[], %x: f32[?k]) -> (y: f32[?k], last: f32[]) {
  %zero = values() {value = [0.0], dtype = f32}
  %start = reshape(%zero) {shape = []}
  %a, %b = repeat(%n, [%x, %start], [%x]) calls(@step)
  return %a, %b
}
function @step(%iteration: i64[], %a: f32[?k], %last: f32[], %x: f32[?k]) -> (a: f32[?k], last: f32[]) {
  %0 = mul(%a, %x)
  %1 = cast(%iteration) {dtype = f32}
  return %0, %1
})";

TEST_F(ControlTest, RepeatGoesRoundAsOftenAsItsOperandSays) {
  MustLoad(kPowers);
  for (const int64_t n : {int64_t{-3}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{5}}) {
    for (int twice = 0; twice < 2; ++twice) {
      const Answer a = RunInt(n, {1, 2, -1}, 2);
      ASSERT_TRUE(a.ok()) << a.status;
      const auto iterations = static_cast<float>(std::max<int64_t>(n, 0));
      EXPECT_EQ(a.Floats(0),
                (Floats{1, std::pow(2.0f, iterations + 1), std::pow(-1.0f, iterations + 1)}))
          << n;
      EXPECT_EQ(a.Floats(1), Floats{std::max(iterations - 1, 0.0f)})
          << n << ": the number of the last iteration";
    }
  }
  EXPECT_EQ(RunInt(3, {2}, 2).Floats(0), Floats{16}) << "other sizes";
}

constexpr const char* kDouble = R"(
program @double(%limit: f32[], %x: f32[2]) -> (y: f32[2], iterations: i64[]) {
  %0 = full() {value = 0.0, dtype = i64, shape = []}
  %y, %t = while([%x, %0], [%limit]) calls(@below, @twice) {max_trips = 20}
  return %y, %t
}
function @below(%y: f32[2], %t: i64[], %limit: f32[]) -> (again: bool[]) {
  %0 = amax(%y) {dims = [0]}
  %1 = lt(%0, %limit)
  return %1
}
function @twice(inout %y: f32[2], %t: i64[], %limit: f32[]) -> (y: f32[2], t: i64[]) {
  %0 = add(%y, %y)
  %one = full() {value = 1.0, dtype = i64, shape = []}
  %1 = add(%t, %one)
  return %0, %1
})";

TEST_F(ControlTest, WhileGoesRoundWhileItsConditionHolds) {
  MustLoad(kDouble);
  const auto run = [&](float limit, const Floats& x) {
    return Ask(c_, RunOf(1).Scalar(limit).Array(x).Inline().None());
  };
  EXPECT_EQ(run(10, {1, 3}).Floats(0), (Floats{4, 12}));
  EXPECT_EQ(run(3, {1, 3}).Floats(0), (Floats{1, 3})) << "not once";
  EXPECT_EQ(run(1 << 19, {1, 0}).Floats(0), (Floats{1 << 19, 0}));
  EXPECT_EQ(run(1 << 20, {1, 0}).Floats(0), (Floats{1 << 20, 0}))
      << "as many iterations as it may take";
  const Answer over = run(1 << 21, {1, 0});
  EXPECT_EQ(over.code(), absl::StatusCode::kOutOfRange) << over.status;
  EXPECT_NE(over.status.message().find("max_trips: the condition still holds after 20 iterations"),
            std::string::npos)
      << over.status;
  EXPECT_EQ(over.reply.site->op, "while");
  EXPECT_EQ(run(10, {1, 3}).Floats(0), (Floats{4, 12})) << "and the session goes on";
}

constexpr const char* kEither = R"(
program @either(%p: bool[], %x: f32[2], %y: f32[2]) -> (sum: f32[2], which: f32[]) {
  %0, %1 = if(%p, [%x, %y]) calls(@then, @otherwise) -> (f32[2], f32[])
  %2 = add(%0, %x)
  return %2, %1
}
function @then(%x: f32[2], %y: f32[2]) -> (r: f32[2], which: f32[]) {
  %0 = mul(%x, %y)
  %1 = full() {value = 1.0, dtype = f32, shape = []}
  return %0, %1
}
function @otherwise(%x: f32[2], %y: f32[2]) -> (r: f32[2], which: f32[]) {
  %1 = full() {value = 2.0, dtype = f32, shape = []}
  return %y, %1
})";

TEST_F(ControlTest, IfRunsOneOfItsBranches) {
  MustLoad(kEither);
  for (int round = 0; round < 3; ++round) {
    for (const bool p : {true, false}) {
      RunOf run(1);
      run.Bind(1, static_cast<uint8_t>(DType::kBool), 0, 0, p, 0);
      const Answer a = Ask(c_, run.Array({2, 3}).Array({5, 7}).Inline().Inline());
      ASSERT_TRUE(a.ok()) << a.status;
      EXPECT_EQ(a.Floats(0), p ? (Floats{12, 24}) : (Floats{7, 10}));
      EXPECT_EQ(a.Floats(1), Floats{p ? 1.0f : 2.0f});
    }
  }
}

// Carried values change places, are passed on unchanged, or come from an input. One value is
// carried twice at once.
constexpr const char* kPlaces = R"(
program @places(%n: i64[], inout %a: f32[2], inout %b: f32[2], %x: f32[2]) -> (a: f32[2], b: f32[2], c: f32[2], d: f32[2]) {
  %0, %1, %2, %3 = repeat(%n, [%a, %b, %x, %x], [%x]) calls(@step)
  %4 = neg(%0)
  return %1, %4, %2, %3
}
function @step(%iteration: i64[], %a: f32[2], inout %b: f32[2], %c: f32[2], %d: f32[2], %x: f32[2]) -> (a: f32[2], b: f32[2], c: f32[2], d: f32[2]) {
  %0 = mul(%b, %x)
  %1 = add(%a, %b)
  return %0, %1, %x, %a
})";

TEST_F(ControlTest, CarriedValuesKeepTheirPlacesApart) {
  MustLoad(kPlaces);
  for (int64_t n = 0; n < 5; ++n) {
    ASSERT_TRUE(Put(c_, 1, {1, -2}).ok());
    ASSERT_TRUE(Put(c_, 2, {3, 5}).ok());
    Floats a = {1, -2}, b = {3, 5}, x = {2, 0.5f}, c = x, d = x;
    for (int64_t t = 0; t < n; ++t) {
      for (int i = 0; i < 2; ++i) {
        const float old_a = a[i];
        a[i] = b[i] * x[i];
        b[i] = old_a + b[i];
        c[i] = x[i];
        d[i] = old_a;
      }
    }
    RunOf run(1);
    const Answer answer =
        Ask(c_, Int(run, n).Tensor(c_, 1).Tensor(c_, 2).Array(x).None().None().Inline().Inline());
    ASSERT_TRUE(answer.ok()) << answer.status;
    EXPECT_EQ(Get(c_, 1).BulkFloats(), b) << n;
    EXPECT_EQ(Get(c_, 2).BulkFloats(), (Floats{-a[0], -a[1]})) << n;
    EXPECT_EQ(answer.Floats(2), c) << n;
    EXPECT_EQ(answer.Floats(3), d) << n;
    ASSERT_TRUE(Free(c_, {1, 2}).ok());
  }
}

// A loop in a branch in a loop: the sum of i j over j < i, for odd i < n.
constexpr const char* kNested = R"(
program @nested(%n: i64[], %x: f32[1]) -> (y: f32[1]) {
  %0 = repeat(%n, [%x], []) calls(@outer)
  return %0
}
function @outer(%i: i64[], inout %sum: f32[1]) -> (sum: f32[1]) {
  %one = full() {value = 1.0, dtype = i64, shape = []}
  %0 = bitwise_and(%i, %one)
  %1 = eq(%0, %one)
  %2 = if(%1, [%i, %sum]) calls(@odd, @even) -> (f32[1])
  return %2
}
function @odd(%i: i64[], %sum: f32[1]) -> (sum: f32[1]) {
  %0 = repeat(%i, [%sum], [%i]) calls(@inner)
  return %0
}
function @even(%i: i64[], %sum: f32[1]) -> (sum: f32[1]) {
  return %sum
}
function @inner(%j: i64[], %sum: f32[1], %i: i64[]) -> (sum: f32[1]) {
  %0 = mul(%i, %j)
  %1 = cast(%0) {dtype = f32}
  %2 = add(%sum, %1)
  return %2
})";

TEST_F(ControlTest, LoopsAndBranchesNest) {
  MustLoad(kNested);
  for (int64_t n = 0; n < 9; ++n) {
    float want = 0.5f;
    for (int64_t i = 1; i < n; i += 2) {
      for (int64_t j = 0; j < i; ++j) want += static_cast<float>(i * j);
    }
    const Answer a = RunInt(n, {0.5f});
    ASSERT_TRUE(a.ok()) << a.status;
    EXPECT_EQ(a.Floats(0), Floats{want}) << n;
  }
}

// ---- Where values lie
// -------------------------------------------------------------------------------------------------

TEST(Control, AWeightIsTrainedInPlace) {
  EXPECT_EQ(WithoutVariants(StepsOf(R"(
program @train(%n: i64[], inout %w: f32[8], %g: f32[8]) -> (w: f32[8]) {
  %0 = repeat(%n, [%w], [%g]) calls(@step)
  return %0
}
function @step(%iteration: i64[], inout %w: f32[8], %g: f32[8]) -> (w: f32[8]) {
  %0 = sub(%w, %g)
  return %0
})")),
            (std::vector<std::string>{"control", "control", "sub", "control"}))
      << "no copy";
}

TEST(Control, AValueThatEndsWithTheLoopBeginsItsCarriedOne) {
  EXPECT_EQ(WithoutVariants(StepsOf(R"(
program @sum(%n: i64[], %x: f32[8]) -> (w: f32[8]) {
  %0 = neg(%x)
  %1 = repeat(%n, [%0], []) calls(@step)
  %2 = neg(%1)
  return %2
}
function @step(%iteration: i64[], %w: f32[8]) -> (w: f32[8]) {
  %0 = add(%w, %w)
  return %0
})")),
            (std::vector<std::string>{"neg", "control", "control", "add", "control", "neg"}))
      << "no copy";
}

// ---- How they end
// -------------------------------------------------------------------------------------------------

constexpr const char* kEndless = R"(
program @endless(inout %x: f32[4]) -> (x: f32[4]) {
  %0 = while([%x], []) calls(@always, @step) {max_trips = 9223372036854775807}
  return %0
}
function @always(%x: f32[4]) -> (again: bool[]) {
  %0 = values() {value = [1.0], dtype = bool}
  %1 = reshape(%0) {shape = []}
  return %1
}
function @step(inout %x: f32[4]) -> (x: f32[4]) {
  %0 = mul(%x, %x)
  return %0
})";

TEST_F(ControlTest, AnEndlessLoopGivesWayAndIsCancelled) {
  options_.slice = 10 * kMicrosecond;
  Restart();
  c_ = Hello();
  MustLoad(kEndless);
  ASSERT_TRUE(Put(c_, 1, {1, 1, 1, 1}).ok());
  const uint64_t seq = Send(c_, RunOf(1).Tensor(c_, 1).None());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(WorkOnce());
  EXPECT_FALSE(Take(c_.peer, seq).came);
  Client other = Hello();
  const uint64_t flush = Send(other, fb::FlushT{});
  Answer served;
  for (int i = 0; i < 50 && !served.came; ++i) {
    ASSERT_TRUE(WorkOnce());
    served = Take(other.peer, flush);
  }
  EXPECT_TRUE(served.ok()) << "others are served: " << served.status;
  ASSERT_TRUE(Cancel(c_, seq).ok());
  WorkAll();
  const Answer a = Take(c_.peer, seq);
  EXPECT_EQ(a.code(), absl::StatusCode::kCancelled) << a.status;
  EXPECT_EQ(Get(c_, 1).code(), absl::StatusCode::kDataLoss) << "what it was writing is lost";
}

TEST_F(ControlTest, ADeadlineEndsALoop) {
  MustLoad(kEndless);
  ASSERT_TRUE(Put(c_, 1, {1, 1, 1, 1}).ok());
  const Answer a = Ask(c_, RunOf(1).Tensor(c_, 1).None().Deadline(100));
  EXPECT_EQ(a.code(), absl::StatusCode::kDeadlineExceeded) << a.status;
}

TEST_F(ControlTest, AValueOutsideItsDomainIsToldWithTheFunctionThatMetIt) {
  MustLoad(R"(
program @look(%n: i64[], %table: f32[3]) -> (y: f32[]) {
  %0 = full() {value = 0.0, dtype = f32, shape = []}
  %1 = repeat(%n, [%0], [%table]) calls(@step)
  return %1
}
function @step(%iteration: i64[], %sum: f32[], %table: f32[3]) -> (sum: f32[]) {
  %0 = reshape(%iteration) {shape = [1]}
  %1 = gather(%table, %0) {dim = 0}
  %2 = reshape(%1) {shape = []}
  %3 = add(%sum, %2)
  return %3
})");
  EXPECT_EQ(RunInt(3, {1, 2, 4}).Floats(0), Floats{7});
  const Answer a = RunInt(4, {1, 2, 4});
  EXPECT_EQ(a.code(), absl::StatusCode::kOutOfRange) << a.status;
  EXPECT_EQ(a.reply.site->program, "step");
  EXPECT_EQ(a.reply.site->node, 1);
  EXPECT_EQ(a.reply.site->op, "gather");
}

TEST_F(ControlTest, TheFirstFunctionMayBeCalledToo) {
  MustLoad(R"(
program @look(%iteration: i64[], %sum: f32[1]) -> (sum: f32[1]) {
  %0 = reshape(%iteration) {shape = [1]}
  %1 = index_select(%sum, %0) {dim = 0}
  return %1
}
function @loop(%n: i64[], %x: f32[1]) -> (y: f32[1]) {
  %0 = repeat(%n, [%x], []) calls(@look)
  return %0
})");
  RunOf once(1, 1), twice(1, 1);
  EXPECT_EQ(Ask(c_, Int(once, 1).Array({3}).Inline()).Floats(0), Floats{3});
  const Answer a = Ask(c_, Int(twice, 2).Array({3}).Inline());
  EXPECT_EQ(a.code(), absl::StatusCode::kOutOfRange) << a.status;
  EXPECT_EQ(a.reply.site->program, "look");
  EXPECT_EQ(a.reply.site->op, "index_select");
}

TEST_F(ControlTest, AFunctionWhoseCallersBindItsSizesIsNotRunByItself) {
  MustLoad(R"(
program @main(%n: i64[], %x: f32[?k]) -> (y: f32[?k+1]) {
  %0 = full() {value = 1.0, dtype = f32, shape = [?k+1]}
  %1 = repeat(%n, [%0], []) calls(@step)
  return %1
}
function @step(%iteration: i64[], %y: f32[?k+1]) -> (y: f32[?k+1]) {
  %0 = full() {value = 2.0, dtype = f32, shape = [?k+1]}
  %1 = mul(%y, %0)
  return %1
})");
  EXPECT_EQ(RunInt(3, {0, 0}).Floats(0), (Floats{8, 8, 8}));
  RunOf alone(1, 1);
  const Answer a = Ask(c_, Int(alone, 0).Array({1, 2}).Inline());
  EXPECT_EQ(a.code(), kInvalid) << a.status;
  EXPECT_NE(a.status.message().find("no parameter binds ?k"), std::string::npos) << a.status;
}

// ---- What they emit
// -------------------------------------------------------------------------------------------------

constexpr const char* kCount = R"(
program @count(%n: i64[], %x: f32[2]) -> (y: f32[2]) {
  %0 = repeat(%n, [%x], []) calls(@step)
  emit(%0) {name = "last"}
  return %0
}
function @step(%iteration: i64[], %x: f32[2]) -> (x: f32[2]) {
  emit(%iteration) {name = "iteration"}
  %0 = add(%x, %x)
  emit(%0) {name = "x"}
  return %0
})";

class EmitTest : public ControlTest {
 protected:
  // Returns the parts that went to the client, starting with `first`.
  std::vector<fb::ReplyT> Parts() const {
    std::vector<fb::ReplyT> out;
    for (const FakeShell::Message& m : shell_.sent) {
      AlignedBytes memory;
      const fb::Reply* const reply = DecodeReply(AsBytes(m.head), memory).value();
      if (!reply->last()) reply->UnPackTo(&out.emplace_back());
    }
    return out;
  }
};

TEST_F(EmitTest, ValuesComeInOrderBeforeTheReply) {
  MustLoad(kCount);
  shell_.sent.clear();
  RunOf run(1);
  Send(c_, Int(run, 3).Array({1, -1}).Inline());
  WorkAll();
  const std::vector<fb::ReplyT> parts = Parts();
  ASSERT_EQ(parts.size(), 7u);
  for (size_t i = 0; i < parts.size(); ++i) {
    const fb::EmittedT& e = *parts[i].body.AsEmitted();
    EXPECT_EQ(parts[i].part, i);
    const bool iteration = i < 6 && i % 2 == 0;
    EXPECT_EQ(e.name, i == 6 ? "last" : iteration ? "iteration" : "x");
    ASSERT_EQ(e.payload.size(), 8u);
    if (iteration) {
      EXPECT_EQ(e.type->dtype, static_cast<uint8_t>(DType::kI64));
      int64_t value;
      std::memcpy(&value, e.payload.data(), 8);
      EXPECT_EQ(value, static_cast<int64_t>(i / 2));
    } else {
      EXPECT_EQ(e.type->shape, std::vector<int64_t>{2});
      float values[2];
      std::memcpy(values, e.payload.data(), 8);
      const float want = i == 6 ? 8 : static_cast<float>(2 << i / 2);
      EXPECT_EQ(Floats(values, values + 2), (Floats{want, -want}));
    }
  }
  EXPECT_EQ(shell_.sent.size(), 8u);
  AlignedBytes memory;
  EXPECT_TRUE(DecodeReply(AsBytes(shell_.sent.back().head), memory).value()->last());
}

TEST_F(EmitTest, ARunWaitsForAClientThatDoesNotRead) {
  MustLoad(kCount);
  shell_.sent.clear();
  shell_.deaf.insert(c_.peer);
  RunOf run(1);
  const uint64_t seq = Send(c_, Int(run, 1000).Array({1, -1}).Inline());
  for (int i = 0; i < 1000 && core_->HasWork(); ++i) core_->Work(Clock());
  EXPECT_FALSE(core_->HasWork()) << "it does not spin";
  EXPECT_TRUE(core_->HasReplies());
  Client other = Hello();
  EXPECT_TRUE(Ask(other, fb::FlushT{}).ok()) << "others are served";
  shell_.sent.clear();
  shell_.deaf.clear();
  for (int i = 0; i < 1000 && core_->HasReplies(); ++i) {
    core_->Flush(Clock());
    while (core_->HasWork()) core_->Work(Clock());
  }
  EXPECT_EQ(Parts().size(), 2001u) << "nothing is lost";
  EXPECT_TRUE(Take(c_.peer, seq).came);
}

TEST_F(EmitTest, CancelAndDeadlineEndARunThatWaits) {
  MustLoad(kCount);
  for (const bool cancels : {true, false}) {
    shell_.deaf.insert(c_.peer);
    RunOf run(1);
    if (!cancels) run.Deadline(50'000);
    const uint64_t seq = Send(c_, Int(run, 1'000'000'000).Array({1, -1}).Inline());
    for (int i = 0; i < 1000 && core_->HasWork(); ++i) core_->Work(Clock());
    ASSERT_FALSE(core_->HasWork());
    if (cancels) {
      ASSERT_TRUE(Cancel(c_, seq).ok());
    } else {
      now_ += kSecond;
      core_->Flush(Clock());
    }
    ASSERT_TRUE(core_->HasWork());
    while (core_->HasWork()) core_->Work(Clock());
    shell_.deaf.clear();
    shell_.sent.clear();
    while (core_->HasReplies()) core_->Flush(Clock());
    AlignedBytes memory;
    const fb::Reply* const reply = DecodeReply(AsBytes(shell_.sent.back().head), memory).value();
    EXPECT_TRUE(reply->last());
    EXPECT_EQ(StatusOf(*reply).code(),
              cancels ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded);
  }
}

TEST_F(EmitTest, OfAClientThatIsAwayOnlyTheReplyIsKept) {
  Client named = Hello("named");
  const Answer loaded = Load(named, 1, kCount);
  ASSERT_TRUE(loaded.ok()) << loaded.status;
  RunOf run(1);
  Send(named, Int(run, 300).Array({1, -1}).Keep(7));
  core_->OnPeerGone(now_, named.peer);
  shell_.sent.clear();
  WorkAll();
  EXPECT_EQ(Parts().size(), 0u);
  Client again = Hello("named");
  fb::GetT get;
  get.id = IdPtr(named, 7);
  EXPECT_TRUE(Ask(again, std::move(get)).ok()) << "the run went to its end";
}

TEST_F(EmitTest, AValueThatNoMessageCarriesIsRefused) {
  MustLoad("program @big(%x: f32[?n]) -> () { emit(%x) {name = \"x\"} return }");
  EXPECT_TRUE(Ask(c_, RunOf(1).Array(Floats(16, 1))).ok());
  ASSERT_TRUE(Put(c_, 1, Floats((64 << 10) / 4 + 1, 1)).ok());
  const Answer a = Ask(c_, RunOf(1).Tensor(c_, 1));
  EXPECT_EQ(a.code(), kInvalid) << a.status;
  EXPECT_NE(a.status.message().find("more than the 65536 that a message carries"),
            std::string::npos)
      << a.status;
}

}  // namespace
}  // namespace opwire::executor
