// Destinations of results: inline, kept, dropped, or a parameter. Also the state after a failed
// run, and copies on write.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/executor/fixture.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

using Floats = std::vector<float>;

class ResultsTest : public CoreTest {
 protected:
  ResultsTest() : c_(Hello()) {}
  void MustLoad(uint32_t slot, const std::string& text) {
    const Answer a = Load(c_, slot, text);
    ASSERT_TRUE(a.ok()) << a.status;
  }
  int64_t OffsetOf(uint64_t counter) { return Get(c_, counter).tensor().info->offset; }
  Client c_;
};

TEST_F(ResultsTest, InlineKeptAndDropped) {
  MustLoad(1, R"(program @f(%x: f32[?n]) -> (a: f32[?n], b: f32[?n], c: f32[?n]) {
    %0 = add(%x, %x)
    %1 = mul(%x, %x)
    %2 = neg(%x)
    return %0, %1, %2
  })");
  const Answer a = Ask(c_, RunOf(1).Array({1, 2, 3}).Inline().Keep(5).None());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.Floats(0), (Floats{2, 4, 6}));
  EXPECT_EQ(Get(c_, 5).BulkFloats(), (Floats{1, 4, 9}));
  EXPECT_EQ(a.run().shapes, (std::vector<int64_t>{3, 3, 3}));
  EXPECT_EQ(a.run().results[1].offset(), OffsetOf(5));
  // The same slots with other destinations.
  const Answer b = Ask(c_, RunOf(1).Array({1, 2, 3}).None().Inline().Keep(5));
  ASSERT_TRUE(b.ok()) << b.status;
  EXPECT_EQ(b.Floats(1), (Floats{1, 4, 9}));
  EXPECT_EQ(Get(c_, 5).BulkFloats(), (Floats{-1, -2, -3}));
}

TEST_F(ResultsTest, ANodeOfTwoResultsOfWhichOneMayBeUnread) {
  constexpr std::string_view kAttention = R"(program @f(%x: f32[?n]) -> ({}) {{
    %0 = reshape(%x) {{shape = [1, ?n, 1]}}
    %1, %2 = scaled_dot_product_attention(%0, %0, %0) {{causal = true}}
    return {}
  }})";
  const auto floats = [](float a, float b, float c) { return Floats{a, b, c}; };
  MustLoad(1, fmt::format(kAttention, "y: f32[1, ?n, 1], l: f32[1, ?n]", "%1, %2"));
  MustLoad(2, fmt::format(kAttention, "y: f32[1, ?n, 1]", "%1"));
  MustLoad(3, fmt::format(kAttention, "l: f32[1, ?n]", "%2"));
  const Floats logs = floats(0, std::log(2.0f), std::log(3.0f));
  for (int i = 0; i < 3; ++i) {
    const Answer both = Ask(c_, RunOf(1).Array({0, 0, 0}).Inline().Inline());
    ASSERT_TRUE(both.ok()) << both.status;
    EXPECT_EQ(both.Floats(0), floats(0, 0, 0));
    EXPECT_EQ(both.Floats(1), logs);
    EXPECT_EQ(Ask(c_, RunOf(2).Array({0, 0, 0}).Inline()).Floats(0), floats(0, 0, 0));
    EXPECT_EQ(Ask(c_, RunOf(3).Array({0, 0, 0}).Inline()).Floats(0), logs);
  }
}

TEST_F(ResultsTest, HeadsThatDoNotFitAreRefusedWhenTheyAreBound) {
  MustLoad(1, R"(program @f(%q: f32[?h], %k: f32[?g]) -> (y: f32[?h, 1, 1]) {
    %0 = reshape(%q) {shape = [?h, 1, 1]}
    %1 = reshape(%k) {shape = [?g, 1, 1]}
    %2, %3 = scaled_dot_product_attention(%0, %1, %1)
    return %2
  })");
  EXPECT_EQ(Ask(c_, RunOf(1).Array({1, 1, 1, 1}).Array({5, 7}).Inline()).Floats(0),
            (Floats{5, 5, 7, 7}));
  EXPECT_FALSE(Ask(c_, RunOf(1).Array({1, 1, 1}).Array({5, 7}).Inline()).ok());
  EXPECT_FALSE(Ask(c_, RunOf(1).Array({1, 1, 1}).Array({}).Inline()).ok());
  EXPECT_TRUE(Ask(c_, RunOf(1).Array({}).Array({5, 7}).Inline()).ok());
}

// Steps that a device replays, starting with the second run, read and write the tensors of each
// run.
TEST_F(ResultsTest, RepeatedRunsFollowTheirBindings) {
  MustLoad(1, R"(program @f(%x: f32[?n], %s: f32[]) -> (y: f32[?n], z: f32[?n], t: f32[?n]) {
    %0 = mul(%x, %s)
    %1 = add(%0, %x)
    %2 = zeros() {shape = [?n]}
    return %1, %x, %2
  })");
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  for (uint64_t t = 1; t <= 4; ++t)
    ASSERT_TRUE(Put(c_, t, {static_cast<float>(t), static_cast<float>(10 * t)}).ok());
  for (int i = 0; i < 40; ++i) {
    const uint64_t from = 1 + random() % 4, to = 10 + random() % 3;
    const auto s = static_cast<float>(random() % 8), v = static_cast<float>(from);
    RunOf run = RunOf(1).Tensor(c_, from).Scalar(s);
    random() % 2 ? run.Keep(to) : run.Inline();
    const Answer a = Ask(c_, run.Keep(20 + random() % 2).None());
    ASSERT_TRUE(a.ok()) << a.status;
    const Floats got = a.run().results[0].kind() == fb::ResultKind::Inline
                           ? a.Floats(0)
                           : Get(c_, to).BulkFloats();
    EXPECT_EQ(got, (Floats{v * s + v, 10 * v * s + 10 * v})) << "run " << i;
  }
}

// A returned parameter, one value returned twice, and a constant.
TEST_F(ResultsTest, ValuesWithSeveralHomes) {
  MustLoad(1, R"(program @f(%x: f32[2]) -> (a: f32[2], b: f32[2], c: f32[2]) {
    %0 = neg(%x)
    return %0, %0, %x
  })");
  for (int kinds = 0; kinds < 8; ++kinds) {
    RunOf run = RunOf(1).Array({1, 2});
    for (int r = 0; r < 3; ++r)
      (kinds >> r) & 1 ? run.Inline() : run.Keep(static_cast<uint64_t>(10 + r));
    const Answer a = Ask(c_, run);
    ASSERT_TRUE(a.ok()) << a.status;
    const Floats want[] = {{-1, -2}, {-1, -2}, {1, 2}};
    for (int r = 0; r < 3; ++r) {
      const Floats got = (kinds >> r) & 1 ? a.Floats(static_cast<size_t>(r))
                                          : Get(c_, static_cast<uint64_t>(10 + r)).BulkFloats();
      EXPECT_EQ(got, want[r]) << "kinds " << kinds << " result " << r;
    }
  }
}

TEST_F(ResultsTest, InoutsAreWrittenInPlace) {
  MustLoad(
      1,
      "program @inc(inout %w: f32[4], %g: f32[4]) -> (w: f32[4]) { %0 = add(%w, %g) return %0 }");
  ASSERT_TRUE(Put(c_, 1, {1, 2, 3, 4}).ok());
  const int64_t before = OffsetOf(1), in_use = InUse();
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(Ask(c_, RunOf(1).Tensor(c_, 1).Array({1, 1, 1, 1}).None()).ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{4, 5, 6, 7}));
  EXPECT_EQ(OffsetOf(1), before);
  EXPECT_EQ(InUse(), in_use);
  const Answer a = Ask(c_, RunOf(1).Tensor(c_, 1).Array({1, 1, 1, 1}).Inline());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.Floats(0), (Floats{5, 6, 7, 8}));
}

// The new parameters have no readers, and use the memory that the buffers are read from: a skipped
// step copies both nevertheless.
TEST_F(ResultsTest, SkippedStepsWriteOverWhatTheyHaveRead) {
  MustLoad(1, R"(program @f(%p: f32[?n], %g: f32[?n], %lr: f32[], %flag: f32[]) -> (m: f32[?n]) {
    %0 = mul(%p, %g)
    %1 = full() {value = 2.0, dtype = i64}
    %2 = full() {value = 0.0}
    %3 = gt(%flag, %2)
    %4, %5 = sgd([%p], [%g], [%0], %lr, %1, _, %3) {momentum = 0.5}
    return %5
  })");
  Floats p(1700), g(p.size()), skipped, stepped;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = static_cast<float>(i % 13), g[i] = static_cast<float>(i % 7) + 1;
    skipped.push_back(p[i] * g[i]);
    stepped.push_back(0.5f * skipped.back() + g[i]);
  }
  for (const float flag : {0.0f, 1.0f}) {
    const Answer a = Ask(c_, RunOf(1).Array(p).Array(g).Scalar(0.5f).Scalar(flag).Inline());
    ASSERT_TRUE(a.ok()) << a.status;
    EXPECT_EQ(a.Floats(0), flag != 0 ? skipped : stepped);
  }
}

// A node that reads its parameter in another order cannot write over it: it goes through scratch
// memory, with the same outcome.
TEST_F(ResultsTest, InoutsThatCannotBeWrittenInPlaceAreCopied) {
  MustLoad(1,
           "program @f(inout %w: f32[2, 2], %x: f32[2, 2]) -> (w: f32[2, 2]) { %0 = matmul(%w, %x) "
           "return %0 }");
  MustLoad(2,
           "program @t(inout %w: f32[2, 2]) -> (w: f32[2, 2]) { %0 = permute(%w) {dims = [1, 0]} "
           "return %0 }");
  ASSERT_TRUE(Put(c_, 1, {1, 2, 3, 4}, {2, 2}).ok());
  ASSERT_TRUE(Ask(c_, RunOf(1).Tensor(c_, 1).Array({1, 1, 0, 1}, {2, 2}).None()).ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1, 3, 3, 7}));
  ASSERT_TRUE(Ask(c_, RunOf(2).Tensor(c_, 1).None()).ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1, 3, 3, 7}));
  ASSERT_TRUE(Put(c_, 2, {1, 2, 3, 4}, {2, 2}).ok());
  ASSERT_TRUE(Ask(c_, RunOf(2).Tensor(c_, 2).None()).ok());
  EXPECT_EQ(Get(c_, 2).BulkFloats(), (Floats{1, 3, 2, 4}));
}

// Two parameters that take each other's values.
TEST_F(ResultsTest, InoutsThatChangePlaces) {
  MustLoad(1, R"(program @swap(inout %a: f32[2], inout %b: f32[2]) -> (a: f32[2], b: f32[2]) {
    %0 = copy(%a)
    %1 = copy(%b)
    %2 = neg(%1)
    %3 = neg(%0)
    return %2, %3
  })");
  ASSERT_TRUE(Put(c_, 1, {1, 2}).ok());
  ASSERT_TRUE(Put(c_, 2, {3, 4}).ok());
  const Answer a = Ask(c_, RunOf(1).Tensor(c_, 1).Tensor(c_, 2).Inline().None());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.Floats(0), (Floats{-3, -4}));
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{-3, -4}));
  EXPECT_EQ(Get(c_, 2).BulkFloats(), (Floats{-1, -2}));
}

TEST_F(ResultsTest, ReshapesAreViewsThatKeepTheirValues) {
  MustLoad(1,
           R"(program @v(%x: f32[2, 3], inout %w: f32[6]) -> (a: f32[6], b: f32[3, 2], w: f32[6]) {
    %0 = reshape(%x) {shape = [6]}
    %1 = reshape(%w) {shape = [3, 2]}
    %2 = add(%w, %0)
    return %0, %1, %2
  })");
  ASSERT_TRUE(Put(c_, 1, {1, 2, 3, 4, 5, 6}, {2, 3}).ok());
  ASSERT_TRUE(Put(c_, 2, {10, 20, 30, 40, 50, 60}).ok());
  const Answer a = Ask(c_, RunOf(1).Tensor(c_, 1).Tensor(c_, 2).Inline().Keep(3).Inline());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.Floats(0), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(a.Floats(2), (Floats{11, 22, 33, 44, 55, 66}));
  EXPECT_EQ(Get(c_, 3).BulkFloats(), (Floats{10, 20, 30, 40, 50, 60}))
      << "the view shows the old value";
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1, 2, 3, 4, 5, 6}));
}

constexpr const char* kPick =
    R"(program @pick(inout %w: f32[2], %x: f32[4], %i: i64[2]) -> (w: f32[2], y: f32[2]) {
  %0 = gather(%x, %i) {dim = 0}
  %1 = add(%w, %0)
  return %1, %0
})";

TEST_F(ResultsTest, FailedRunsPoisonWhatTheyWroteAndFailWhatTheyMade) {
  MustLoad(1, kPick);
  MustLoad(2, "program @id(%x: f32[2]) -> (y: f32[2]) { %0 = neg(%x) return %0 }");
  ASSERT_TRUE(Put(c_, 1, {1, 1}).ok());
  const auto index = [&](uint64_t counter, int64_t a, int64_t b) {
    const int64_t v[2] = {a, b};
    ASSERT_TRUE(
        PutTyped(c_, counter, DType::kI64, {2}, std::string(reinterpret_cast<const char*>(v), 16))
            .ok());
  };
  index(2, 0, 4);
  index(3, 0, 3);
  const Answer bad =
      Ask(c_, RunOf(1).Tensor(c_, 1).Array({1, 2, 3, 4}).Tensor(c_, 2).None().Keep(5));
  EXPECT_EQ(bad.code(), absl::StatusCode::kOutOfRange) << bad.status;
  EXPECT_EQ(SiteOf(bad.status).op, "gather");
  EXPECT_EQ(SiteOf(bad.status).node, 0);
  EXPECT_NE(MessageOf(bad.status).find("position 1"), std::string::npos) << bad.status;
  // Any use of tensors that it wrote is DATA_LOSS and names the run.
  const Answer use = Get(c_, 1);
  EXPECT_EQ(use.code(), absl::StatusCode::kDataLoss) << use.status;
  EXPECT_NE(MessageOf(use.status).find("@pick"), std::string::npos) << use.status;
  EXPECT_EQ(Ask(c_, RunOf(2).Tensor(c_, 1).Inline()).code(), absl::StatusCode::kDataLoss);
  // Any use of tensors that it should have created fails with its error. So does the use of their
  // results.
  EXPECT_EQ(Ask(c_, RunOf(2).Tensor(c_, 5).Keep(6)).code(), absl::StatusCode::kOutOfRange);
  // After a write it is usable again.
  ASSERT_TRUE(Put(c_, 1, {1, 1}).ok());
  ASSERT_TRUE(
      Ask(c_, RunOf(1).Tensor(c_, 1).Array({1, 2, 3, 4}).Tensor(c_, 3).None().Keep(5)).ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{2, 5}));
  EXPECT_EQ(Get(c_, 5).BulkFloats(), (Floats{1, 4}));
}

TEST_F(ResultsTest, AnUpdateOutOfRangeLeavesWhatItWouldUpdate) {
  const auto program = [](std::string_view first) {
    return fmt::format(
        "program @put(inout %w: f32[4], %v: f32[2], %i: i64[2]) -> (w: f32[4]) {{ {} return %1 }}",
        first);
  };
  MustLoad(1, program("%1 = index_put(%w, %v, [%i])"));
  MustLoad(2, program("%0 = neg(%w) %1 = index_put(%0, %v, [%i])"));
  const int64_t outside[2] = {0, 4};
  ASSERT_TRUE(
      PutTyped(c_, 2, DType::kI64, {2}, std::string(reinterpret_cast<const char*>(outside), 16))
          .ok());
  ASSERT_TRUE(Put(c_, 1, {1, 2, 3, 4}).ok());
  const auto put = [&](uint32_t slot) {
    return Ask(c_, RunOf(slot).Tensor(c_, 1).Array({8, 9}).Tensor(c_, 2).None());
  };
  EXPECT_EQ(put(1).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(put(2).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Get(c_, 1).code(), absl::StatusCode::kDataLoss) << "it was negated before";
}

// Requests in flight after the failed run inherit its error, to the end of the chain.
TEST_F(ResultsTest, DependantsInFlightInherit) {
  MustLoad(1, kPick);
  MustLoad(2, "program @id(%x: f32[2]) -> (y: f32[2]) { %0 = neg(%x) return %0 }");
  ASSERT_TRUE(Put(c_, 1, {1, 1}).ok());
  const int64_t v[2] = {-5, 0};
  ASSERT_TRUE(
      PutTyped(c_, 2, DType::kI64, {2}, std::string(reinterpret_cast<const char*>(v), 16)).ok());
  const uint64_t first =
      Send(c_, RunOf(1).Tensor(c_, 1).Array({1, 2, 3, 4}).Tensor(c_, 2).None().Keep(10));
  std::vector<uint64_t> chain;
  for (uint64_t i = 0; i < 5; ++i)
    chain.push_back(Send(c_, RunOf(2).Tensor(c_, 10 + i).Keep(11 + i)));
  const uint64_t unrelated = Send(c_, RunOf(2).Array({1, 2}).Inline());
  WorkAll();
  EXPECT_EQ(Take(c_.peer, first).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Take(c_.peer, chain[0]).code(), absl::StatusCode::kOutOfRange);
  for (size_t i = 1; i < chain.size(); ++i) {
    const Answer a = Take(c_.peer, chain[i]);
    EXPECT_EQ(a.code(), absl::StatusCode::kOutOfRange) << "link " << i << ": " << a.status;
  }
  EXPECT_TRUE(Take(c_.peer, unrelated).ok());
}

TEST_F(ResultsTest, ARunStoppedBeforeItsFirstWriteLeavesNoTrace) {
  UseHost(1 << 30);  // whose runs stop between steps
  options_.slice = 1;
  Restart();
  c_ = Hello();
  MustLoad(1, kSlow);
  ASSERT_TRUE(Put(c_, 1, Floats(128 * 128, 1), {128, 128}).ok());
  ASSERT_TRUE(Put(c_, 2, Floats(128 * 128, 2), {128, 128}).ok());
  const auto cancel_after = [&](int slices) {
    const uint64_t seq = Send(c_, RunOf(1).Tensor(c_, 1).Tensor(c_, 2).None().Keep(3));
    for (int i = 0; i < slices; ++i) EXPECT_TRUE(WorkOnce());
    const Answer early = Take(c_.peer, seq);
    EXPECT_FALSE(early.came) << early.status;
    EXPECT_TRUE(Cancel(c_, seq).ok());
    WorkAll();
    const Answer a = Take(c_.peer, seq);
    EXPECT_EQ(a.code(), absl::StatusCode::kCancelled) << a.status;
  };
  cancel_after(2);
  // 64 KiB: inline.
  EXPECT_EQ(Get(c_, 2).BulkFloats(), Floats(128 * 128, 2));
  EXPECT_EQ(Get(c_, 3).code(), absl::StatusCode::kCancelled);
  cancel_after(3);  // its next step would have been the writing one
  EXPECT_EQ(Get(c_, 2).BulkFloats(), Floats(128 * 128, 2));
  cancel_after(4);
  EXPECT_EQ(Get(c_, 2).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Get(c_, 1).BulkFloats(), Floats(128 * 128, 1));
}

TEST_F(ResultsTest, CopiesShareUntilOneIsWritten) {
  MustLoad(1, "program @inc(inout %w: f32[1024]) -> (w: f32[1024]) { %0 = neg(%w) return %0 }");
  ASSERT_TRUE(Put(c_, 1, Floats(1024, 3)).ok());
  const int64_t one = InUse();
  fb::CopyT copy;
  copy.from = IdPtr(c_, 1);
  copy.to = IdPtr(c_, 2);
  ASSERT_TRUE(Ask(c_, std::move(copy)).ok());
  EXPECT_EQ(InUse(), one);
  EXPECT_EQ(OffsetOf(1), OffsetOf(2));
  ASSERT_TRUE(Ask(c_, RunOf(1).Tensor(c_, 1).None()).ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), Floats(1024, -3));
  EXPECT_EQ(Get(c_, 2).BulkFloats(), Floats(1024, 3));
  EXPECT_EQ(InUse(), 2 * one);
  ASSERT_TRUE(Free(c_, {1, 2}).ok());
  EXPECT_EQ(InUse(), 0);
}

TEST_F(ResultsTest, CopiesGoNowhereElse) {
  ASSERT_TRUE(Put(c_, 1, {1, 2}).ok());
  fb::CopyT copy;
  copy.from = IdPtr(c_, 1);
  copy.to = std::make_unique<fb::TensorId>(0, 0, 2);
  EXPECT_EQ(Ask(c_, copy).code(), absl::StatusCode::kInvalidArgument);
  copy.to = std::make_unique<fb::TensorId>(c_.attachment + 1, 0, 2);  // another client's ids
  EXPECT_EQ(Ask(c_, copy).code(), absl::StatusCode::kInvalidArgument);
  copy.to = IdPtr(c_, 1);  // onto itself
  EXPECT_TRUE(Ask(c_, copy).ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1, 2}));
  copy.from = nullptr;
  EXPECT_EQ(Ask(c_, copy).code(), absl::StatusCode::kNotFound);
}

TEST_F(ResultsTest, OutOfMemoryFailsTheRunAndTheSessionGoesOn) {
  c_ = Hello("", "uid:1", (4 << 20) + (64 << 10));  // the program takes a part of the remaining
                                                    // memory
  MustLoad(1, "program @z(dim %n: ?n) -> (y: f32[?n]) { %0 = zeros() {shape = [?n]} return %0 }");
  EXPECT_EQ(Ask(c_, RunOf(1).Dim((1 << 20) + 1).Keep(1)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Get(c_, 1).code(), absl::StatusCode::kResourceExhausted)
      << "what it was to make fails as it did";
  EXPECT_TRUE(Ask(c_, RunOf(1).Dim(1 << 20).Keep(1)).ok());
  EXPECT_EQ(Ask(c_, RunOf(1).Dim(1 << 15).Keep(2)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Ask(c_, RunOf(1).Dim(4).Inline()).ok());
  ASSERT_TRUE(Free(c_, {1}).ok());
  EXPECT_TRUE(Ask(c_, RunOf(1).Dim(1 << 15).Keep(2)).ok());
}

// 65536^3 elements: refused with the program and node, before memory is taken.
TEST_F(ResultsTest, OverflowingSizesAreRefusedByName) {
  MustLoad(1,
           "program @huge(dim %n: ?n) -> (y: f32[?n, ?n, ?n]) { %0 = zeros() {shape = [?n, ?n, "
           "?n]} return %0 }");
  for (const int64_t n : {int64_t{65536}, kMaxExtent}) {
    const Answer a = Ask(c_, RunOf(1).Dim(n).None());
    EXPECT_EQ(a.code(), absl::StatusCode::kResourceExhausted) << a.status;
    if (n == kMaxExtent) {
      EXPECT_EQ(SiteOf(a.status).program, "huge") << a.status;
    }
  }
  EXPECT_EQ(InUse(), 0);
  EXPECT_TRUE(Ask(c_, RunOf(1).Dim(2).Inline()).ok());
}

// The same program with several sizes keeps few instances and stays correct.
TEST_F(ResultsTest, ManySizes) {
  options_.limits[LimitId::kInstances] = 4;
  Restart();
  c_ = Hello();
  MustLoad(1, "program @f(%x: f32[?n]) -> (y: f32[?n]) { %0 = add(%x, %x) return %0 }");
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 500; ++i) {
    const size_t n = random() % 12;
    const Answer a = Ask(c_, RunOf(1).Array(Floats(n, static_cast<float>(i))).Inline());
    ASSERT_TRUE(a.ok()) << a.status;
    ASSERT_EQ(a.Floats(0), Floats(n, static_cast<float>(2 * i)));
  }
}

TEST_F(ResultsTest, DivisionByZeroIsFlagged) {
  MustLoad(1, "program @d(%x: i32[2], %y: i32[2]) -> (z: i32[2]) { %0 = div(%x, %y) return %0 }");
  const int32_t x[2] = {INT32_MIN, 7}, y[2] = {-1, 0}, one[2] = {1, 1};
  const auto put = [&](uint64_t counter, const int32_t* v) {
    ASSERT_TRUE(
        PutTyped(c_, counter, DType::kI32, {2}, std::string(reinterpret_cast<const char*>(v), 8))
            .ok());
  };
  put(1, x);
  put(2, y);
  put(3, one);
  const Answer a = Ask(c_, RunOf(1).Tensor(c_, 1).Tensor(c_, 2).Inline());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.run().flags, 1u);
  int32_t z[2];
  std::memcpy(z, a.run().payload.data() + a.run().results[0].offset(), 8);
  EXPECT_EQ(z[0], INT32_MIN);
  EXPECT_EQ(z[1], 0);
  EXPECT_EQ(Ask(c_, RunOf(1).Tensor(c_, 1).Tensor(c_, 3).Inline()).run().flags, 0u);
}

}  // namespace
}  // namespace opwire::executor
