// Every value in memory of its own (--no-arena): equal results, aligned as in the arena, bounded,
// and an overrun is seen.
#include <algorithm>
#include <random>

#include "ir/text/text.h"
#include "tests/executor/fixture.h"
#include "tests/ir/random_program.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

class ArenaTest : public CoreTest {
 protected:
  ArenaTest() { UseHost(int64_t{8} << 30); }  // others have no such option

  void Start(bool no_arena) {
    options_.no_arena = no_arena;
    Restart();
    c_ = Hello();
  }

  Client c_;
};

TEST_F(ArenaTest, RandomProgramsGiveEqualResults) {
  const uint64_t programs = ProgramCount(40);
  uint64_t done = 0;
  for (uint64_t seed = 1; done < programs && seed <= 10 * programs; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    RandomOptions options{.nodes = 15, .control = true};
    options.decorations = false;  // pins
    const Module m = RandomModule(rng, options);
    Start(false);
    const std::vector<std::string> arena = Outcome(c_, m, seed);
    Start(true);
    EXPECT_EQ(Outcome(c_, m, seed), arena) << Print(m);
    done += arena[0] == "OK";
  }
  EXPECT_EQ(done, programs) << "programs that run to their end: about one of three, as random "
                               "indices and numbers of iterations are often refused";
}

// ---- Kernels of the test's own
// -------------------------------------------------------------------------------------------------

constexpr int64_t kWorkspace = 1;
const char* misaligned = nullptr;

int NeedsWorkspace(const opw_call*, void**, int64_t* bytes) {
  *bytes = kWorkspace;
  return OPW_OK;
}
int NotesAlignment(const opw_call* c) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; };
  if (!aligned(c->workspace)) misaligned = "workspace";
  if (!aligned(c->operands[0].data)) misaligned = "operand";
  if (!aligned(c->results[0].data)) misaligned = "result";
  std::memset(c->results[0].data, 0, static_cast<size_t>(c->results[0].elements));
  return OPW_OK;
}
int WritesOneTooMany(const opw_call* c) {
  std::memset(c->results[0].data, 1, static_cast<size_t>(c->results[0].elements) + 1);
  return OPW_OK;
}

VariantTable Only(int (*run)(const opw_call*)) {
  VariantTable table;
  table.Add({"neg",
             "own",
             Tier::kReference,
             0,
             kAll,
             "",
             "test",
             {OPW_ABI_VERSION, OPW_CONTIGUOUS, nullptr, NeedsWorkspace, nullptr, run}});
  return table;
}

// Bytes, so that odd sizes follow one another.
constexpr const char* kChain = R"(
program @chain(%x: i8[13]) -> (y: i8[13]) {
  %0 = neg(%x)
  %1 = neg(%0)
  %2 = neg(%1)
  %3 = neg(%2)
  return %3
})";

TEST_F(ArenaTest, ValuesAndWorkspacesAreAligned) {
  variants_ = Only(NotesAlignment);
  for (bool no_arena : {false, true}) {
    misaligned = nullptr;
    Start(no_arena);
    EXPECT_TRUE(Load(c_, 1, kChain).ok());
    EXPECT_TRUE(PutTyped(c_, 1, DType::kI8, {13}, std::string(13, '\1')).ok());
    EXPECT_TRUE(Ask(c_, RunOf(1).Tensor(c_, 1).Inline()).ok());
    EXPECT_EQ(misaligned, nullptr)
        << misaligned << (no_arena ? " without the arena" : " in the arena");
  }
}

TEST_F(ArenaTest, IsBoundedBothWays) {
  for (bool no_arena : {false, true}) {
    Start(no_arena);
    EXPECT_TRUE(Load(c_, 1,
                     "program @big(dim %n: ?n) -> (y: i8[]) { %0 = zeros() {shape = [?n, 1048576], "
                     "dtype = i8} "
                     "%1 = full() {shape = [], value = 1, dtype = i8} return %1 }")
                    .ok());
    EXPECT_TRUE(Ask(c_, RunOf(1).Dim(1).Inline()).ok());
    const Answer over = Ask(c_, RunOf(1).Dim(1 << 28).Inline());
    EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted) << over.status;
    EXPECT_NE(MessageOf(over.status).find("out of memory"), std::string::npos) << over.status;
    EXPECT_TRUE(Ask(c_, RunOf(1).Dim(1).Inline()).ok());
  }
}

TEST_F(ArenaTest, AnOverrunIsSeen) {
#ifndef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "needs the address sanitizer";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  variants_ = Only(WritesOneTooMany);
  const auto run = [&](bool no_arena) {
    Start(no_arena);
    Load(c_, 1, kChain);
    PutTyped(c_, 1, DType::kI8, {13}, std::string(13, '\1'));
    return Ask(c_, RunOf(1).Tensor(c_, 1).Inline());
  };
  EXPECT_TRUE(run(false).ok()) << "in the arena it lands in padding";
  EXPECT_DEATH(run(true), "heap-buffer-overflow");
}

}  // namespace
}  // namespace opwire::executor
