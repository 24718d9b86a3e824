// Ops of users in running executors: offered at once, built in the background, edited, broken,
// removed, killed, quarantined.
#include "tests/system/user_ops.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "kernels/jit/sanitized.h"
#include "tests/jit/support.h"
#include "tests/seed.h"

namespace opwire::client {
namespace {

namespace fs = std::filesystem;

// Dies, or does not return, for a value that no trial has.
constexpr const char* kFatal =
    "if (n > 0 && x[0] == 666.0f) abort(); for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];";
constexpr const char* kEndless =
    "while (n > 0 && x[0] == 666.0f) __asm__ volatile(\"\"); for (int64_t i = 0; i < n; ++i) y[i] "
    "= 2 * x[i];";

TEST_F(UserOpsTest, AnOpIsThereAtOnceAndThenFast) {
  CountCompilations("while [ ! -e '" + directory_ + "/go' ]; do sleep 0.02; done");
  WriteOp("twice", 2);
  StartRegistry();
  pid_t executor = StartWithOps();
  // Its reference answers, and the report gives the reason.
  Session early = Open();
  const Result first = Call(early, "twice", {1, 2, 3});
  ASSERT_OK(first.status);
  EXPECT_EQ(first.y, (Floats{2, 4, 6}));
  EXPECT_EQ(first.ran, "user.twice@reference");
  EXPECT_EQ(InReport("twice")["reason"], "is being built");
  const json candidates = Info("explain", "user.twice")["candidates"];
  ASSERT_EQ(candidates.size(), 2u) << candidates;
  for (const json& c : candidates) {
    EXPECT_EQ(c["chosen"], c["variant"] == "reference") << c;
    EXPECT_EQ(c["source"], fs::canonical(ops() + "/twice").string());
  }
  WriteFile(directory_ + "/go", "");
  ASSERT_TRUE(Becomes("twice", 2));
  EXPECT_EQ(InReport("twice")["state"], "built");
  EXPECT_EQ(Info("explain", "user.twice")["candidates"][0]["variant"], "own");
  EXPECT_EQ(Problem(ops() + "/twice"), "");
  EXPECT_EQ(Compilations(), 1);
  // A session keeps the variant that it began with.
  EXPECT_EQ(Call(early, "twice", {1}).ran, "user.twice@reference");
  // The registry knows it, with its signature.
  ASSERT_OK_AND(const auto all, Connect().Executors(/*with_ops=*/true));
  ASSERT_EQ(all.size(), 1u);
  // The next executor finds it.
  Kill(executor);
  executor = StartWithOps();
  EXPECT_EQ(CallNow("twice").ran, "user.twice@own");
  EXPECT_EQ(InReport("twice")["state"], "cached");
  EXPECT_EQ(Compilations(), 1);
}

TEST_F(UserOpsTest, EditsReachNewSessionsAndBrokenOnesNobody) {
  CountCompilations();
  const std::string folder = WriteOp("times", 2);
  StartRegistry();
  StartWithOps();
  ASSERT_TRUE(Becomes("times", 2));
  Session old = Open();
  ASSERT_OK_AND(Program kept, old.Load(Text("times")));
  const Nanos begun = MonotonicNow();
  WriteOp("times", 3);
  ASSERT_TRUE(Becomes("times", 3));
  EXPECT_LT(MonotonicNow() - begun, 10 * kSecond);
  EXPECT_EQ(Call(kept, {1}).y, Floats{2});

  const struct {
    const char* body;
    const char* says;
  } broken[] = {{"this is no C;", "error:"},
                {"for (int64_t i = 0; i < n; ++i) y[i] = 5 * x[i];", "result y[0]: expected"},
                {"y[n] = 1;", "result y (f32["},
                {"abort();", "an abort"},
                // Found in the cache, which stores the verdict next to the object.
                {"for (int64_t i = 0; i < n; ++i) y[i] = 5 * x[i];", "result y[0]: expected"}};
  for (const auto& edit : broken) {
    SCOPED_TRACE(edit.body);
    WriteOp("times", 3, edit.body);
    EXPECT_TRUE(Eventually([&] { return Problem(folder).find(edit.says) != std::string::npos; }))
        << Problem(folder);
    const Result still = CallNow("times", {1});
    EXPECT_EQ(still.y, Floats{3}) << still.status;
    EXPECT_EQ(still.ran, "user.times@own");
    WriteOp("times", 3);
    EXPECT_TRUE(Eventually([&] { return Problem(folder).empty(); })) << Problem(folder);
  }
  // A constructor that crashes, an invalid manifest and an invalid reference.
  Folder aside;
  const std::string good = jit::Slurp(folder + "/own.cc");
  WriteFile(folder + "/own.cc",
            good + "__attribute__((constructor)) static void Load() { abort(); }\n");
  EXPECT_TRUE(Eventually([&] {
    return Problem(folder).find("while it was loaded: an abort") != std::string::npos;
  })) << Problem(folder);
  WriteFile(folder + "/own.cc", good);
  EXPECT_TRUE(Eventually([&] { return Problem(folder).empty(); }));
  for (const char* file : {"/op.json", "/reference.opw"}) {
    const std::string before = jit::Slurp(folder + file);
    WriteFile(folder + file, "nothing of the kind");
    EXPECT_TRUE(Eventually([&] { return !Problem(folder).empty(); })) << file;
    EXPECT_EQ(CallNow("times", {1}).y, Floats{3});
    WriteFile(folder + file, before);
    EXPECT_TRUE(Eventually([&] { return Problem(folder).empty(); })) << Problem(folder);
  }
  WriteOp("times", 4);
  ASSERT_TRUE(Becomes("times", 4));
  EXPECT_EQ(Call(kept, {1}).y, Floats{2});
}

TEST_F(UserOpsTest, ASignatureMayChange) {
  const std::string folder = WriteOp("join", 2);
  StartRegistry();
  StartWithOps();
  ASSERT_TRUE(Becomes("join", 2));
  Session old = Open();
  WriteFile(folder + "/reference.opw",
            "program @reference(%x: f32[?N], %w: f32[?N]) -> (y: f32[?N]) { %0 = add(%x, %w) "
            "return %0 }\n");
  std::string source = jit::Slurp(folder + "/own.cc");
  source.replace(source.find("y[i] = 2 * x[i]"), 15,
                 "y[i] = x[i] + ((const float*)c->operands[1].data)[i]");
  WriteFile(folder + "/own.cc", source);
  std::string manifest = jit::Slurp(folder + "/op.json");
  manifest.replace(manifest.find("x: f32[N]"), 9, "x: f32[N], w: f32[N]");
  WriteFile(folder + "/op.json", manifest);
  constexpr const char* kTwo =
      "program @p(%x: f32[?n]) -> (y: f32[?n]) { %0 = user.join(%x, %x) return %0 }";
  EXPECT_TRUE(Eventually([&] {
    Session session = Open();
    auto program = session.Load(kTwo);
    return program.ok() && Call(*program, {3}).y == Floats{6} &&
           Call(*program, {3}).ran == "user.join@own";
  })) << Problem(folder);
  EXPECT_EQ(Call(old, "join", {1}).y, Floats{2});
  EXPECT_FALSE(old.Load(kTwo).ok());
  EXPECT_FALSE(CallNow("join").status.ok());
}

TEST_F(UserOpsTest, FoldersComeAndGo) {
  fs::create_directories(ops());
  StartRegistry();
  StartWithOps();
  WriteOp("first", 2);
  ASSERT_TRUE(Becomes("first", 2));
  // Also if it is written slowly.
  fs::create_directory(ops() + "/second");
  Eventually([] { return false; }, 200 * kMillisecond);
  WriteOp("second", 3);
  ASSERT_TRUE(Becomes("second", 3));
  const auto gone = [&](const std::string& name) {
    return Eventually(
        [&] { return !CallNow(name).status.ok() && InReport(name, "reference").is_null(); });
  };
  // Removed, moved away, and moved in again with other contents.
  Session old = Open();
  fs::remove_all(ops() + "/first");
  EXPECT_TRUE(gone("first"));
  EXPECT_EQ(Call(old, "first", {1}).y, Floats{2});
  fs::rename(ops() + "/second", directory_ + "/aside");
  EXPECT_TRUE(gone("second"));
  fs::rename(directory_ + "/aside", ops() + "/second");
  ASSERT_TRUE(Becomes("second", 3));
  fs::rename(ops() + "/second", directory_ + "/aside");
  WriteOp("third", 4);
  WriteFile(ops() + "/third/op.json", jit::Slurp(directory_ + "/aside/op.json"));
  fs::rename(ops() + "/third", ops() + "/second");
  ASSERT_TRUE(Becomes("second", 4));
  // Edits of the moved folder, and of files in its subfolders.
  const std::string source = jit::Slurp(ops() + "/second/own.cc");
  WriteFile(ops() + "/second/inc/factor.h", "#define FACTOR 4\n");
  WriteFile(ops() + "/second/own.cc", "#include \"inc/factor.h\"\n" + source);
  std::string manifest = jit::Slurp(ops() + "/second/op.json");
  manifest.replace(manifest.find("\"sources\""), 9, "\"headers\": [\"inc/factor.h\"], \"sources\"");
  WriteFile(ops() + "/second/op.json", manifest);
  EXPECT_TRUE(Eventually([&] {
    return InReport("second")["state"] == "built" && Problem(ops() + "/second").empty();
  }));
  Eventually([] { return false; }, 300 * kMillisecond);
  WriteFile(ops() + "/second/inc/factor.h", "#error broken\n");
  EXPECT_TRUE(Eventually(
      [&] { return Problem(ops() + "/second").find("#error broken") != std::string::npos; }));
  // The same op twice: the first folder by name provides it, and the next one after the first is
  // removed.
  WriteOp("zz_copy", 5);
  WriteFile(ops() + "/zz_copy/op.json", jit::Slurp(directory_ + "/aside/op.json"));
  EXPECT_TRUE(Eventually([&] {
    return Problem(ops() + "/zz_copy").find("another folder has the op user.second") !=
           std::string::npos;
  })) << Problem(ops() + "/zz_copy");
  EXPECT_EQ(CallNow("second", {1}).y, Floats{4});
  fs::remove_all(ops() + "/second");
  ASSERT_TRUE(Becomes("second", 5));
}

TEST_F(UserOpsTest, OfTwoFoldersWithOneOpItIsAlwaysTheSame) {
  for (const char* name : {"a", "b", "c", "d"}) {
    WriteOp(name, 2 + (name[0] - 'a'));
    std::string manifest = jit::Slurp(ops() + "/" + name + "/op.json");
    manifest.replace(manifest.find('"' + std::string(name) + '"'), 3, "\"same\"");
    WriteFile(ops() + "/" + name + "/op.json", manifest);
  }
  StartRegistry();
  for (int round = 0; round < system_options.rounds; ++round) {
    const pid_t executor = StartWithOps();
    EXPECT_EQ(CallNow("same", {1}).y, Floats{2});
    for (const char* name : {"b", "c", "d"})
      EXPECT_NE(Problem(ops() + "/" + name).find("another folder has the op user.same"),
                std::string::npos);
    Kill(executor);
  }
}

// The bits of a session do not change when ops around it change. Nor do the bits of an op that did
// not change.
TEST_F(UserOpsTest, BitsStayTheSame) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> x(1001);
  for (float& v : x) v = normal(random);
  WriteOp("steady", 3);
  WriteOp("other", 2);
  StartRegistry();
  pid_t executor = StartWithOps();
  ASSERT_TRUE(Becomes("steady", 3));
  ASSERT_TRUE(Becomes("other", 2));
  Session session = Open();
  ASSERT_OK_AND(Program steady, session.Load(Text("steady")));
  ASSERT_OK_AND(Program other, session.Load(Text("other")));
  const Floats first = Call(steady, x).y, first_other = Call(other, x).y;
  const auto same = [](const Floats& a, const Floats& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  for (int i = 0; i < 100; ++i) {
    if (i == 20) WriteOp("other", 4);  // built in the background during these runs
    if (i == 40) WriteOp("steady", 2);
    if (i == 60) WriteOp("other", 4, "no C at all");
    if (i == 80) fs::remove_all(ops() + "/other");
    ASSERT_TRUE(same(Call(steady, x).y, first)) << "run " << i;
    ASSERT_TRUE(same(Call(other, x).y, first_other)) << "run " << i;
    Eventually([] { return false; }, 5 * kMillisecond);
  }
  WriteOp("steady", 3);
  ASSERT_TRUE(Becomes("steady", 3));
  Kill(executor);
  StartWithOps();
  const Result after = CallNow("steady", x);
  EXPECT_EQ(after.ran, "user.steady@own");
  EXPECT_TRUE(same(after.y, first));
}

TEST_F(UserOpsTest, ManyExecutorsBuildEachObjectOnce) {
  CountCompilations();
  for (const char* name : {"a", "b", "c"}) WriteOp(name, 2 + (name[0] - 'a'));
  StartRegistry();
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) {
    names.push_back("e" + std::to_string(i));
    Start({OPWIRE_EXECUTOR, "--device", "cpu", "--name", names.back(), "--ops", ops(), "--cache",
           cache()});
  }
  ASSERT_TRUE(Eventually([&] { return Registered().size() == names.size(); }));
  for (const std::string& name : names) {
    for (const char* op : {"a", "b", "c"}) {
      Result last;
      EXPECT_TRUE(Eventually([&] {
        Session session = Open(name);
        last = Call(session, op, {1});
        return last.ran == std::string("user.") + op + "@own";
      })) << name
          << " " << op << ": " << last.status << " " << last.ran;
      EXPECT_EQ(last.y, Floats{static_cast<float>(2 + (op[0] - 'a'))});
    }
  }
  EXPECT_EQ(Compilations(), 3);
}

TEST_F(UserOpsTest, KilledWhileItBuilds) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  const int rounds = std::max(5, system_options.rounds);
  StartRegistry();
  for (int round = 0; round < rounds; ++round) {
    for (const char* name : {"a", "b", "c", "d"})
      WriteOp(name, 2 + round % 3,
              "/* " + std::to_string(round) + " */ for (int64_t i = 0; i < n; ++i) y[i] = " +
                  std::to_string(2 + round % 3) + " * x[i];");
    const pid_t executor = Start(
        {OPWIRE_EXECUTOR, "--device", "cpu", "--name", "e1", "--ops", ops(), "--cache", cache()});
    Eventually([] { return false; }, static_cast<Nanos>(random() % 500) * kMillisecond);
    Kill(executor);
  }
  StartWithOps();
  for (const char* name : {"a", "b", "c", "d"})
    EXPECT_TRUE(Becomes(name, static_cast<float>(2 + (rounds - 1) % 3)));
  // No incomplete files are left, except those that the next look removes.
  const json folders = Info("toolchains")["folders"];
  for (const json& f : folders) EXPECT_EQ(f["problem"], "");
}

TEST_F(UserOpsTest, AKernelThatKillsIsQuarantined) {
  const std::string folder = WriteOp("fatal", 2, kFatal);
  StartRegistry();
  pid_t executor = StartWithOps();
  ASSERT_TRUE(Becomes("fatal", 2));
  for (int death = 1; death <= 2; ++death) {
    SCOPED_TRACE(death);
    Result last = CallNow("fatal", {666});
    EXPECT_EQ(last.status.code(), absl::StatusCode::kUnavailable) << last.status;
    EXPECT_EQ(Wait(executor), 128 + SIGABRT);
    executor = StartWithOps();
    ASSERT_OK_AND(const auto all, Connect().Executors());
    std::string died;
    for (const ExecutorFacts& e : all) {
      for (const auto& [key, value] : e.facts) died += key == "died" ? value : "";
    }
    EXPECT_NE(died.find("user.fatal@own"), std::string::npos) << died;
    EXPECT_EQ(CallNow("fatal", {1}).ran, death == 1 ? "user.fatal@own" : "user.fatal@reference");
  }
  EXPECT_NE(InReport("fatal")["reason"].get<std::string>().find(
                "quarantined: executors died in it 2 times"),
            std::string::npos)
      << InReport("fatal");
  EXPECT_NE(Problem(folder).find("quarantined"), std::string::npos);
  EXPECT_EQ(CallNow("fatal", {666}).y, Floats{2 * 666});
  // The quarantine stays after a normal end. An edit is another chance.
  Signal(executor, SIGTERM);
  EXPECT_EQ(Wait(executor), 0);
  executor = StartWithOps();
  EXPECT_EQ(CallNow("fatal", {1}).ran, "user.fatal@reference");
  WriteOp("fatal", 2);
  EXPECT_TRUE(Becomes("fatal", 2));
}

TEST_F(UserOpsTest, AVariantOfOursThatKillsIsQuarantinedToo) {
  if (jit::kSanitized) GTEST_SKIP() << "a sanitizer must be loaded before all else";
  // Large enough for oneDNN.
  constexpr const char* kProduct =
      "program @p(%x: f32[?n]) -> (y: f32[?n]) { %0 = full() {value = 1.0, shape = [100, 100]} %1 "
      "= matmul(%0, %0) %2 = sum(%1) %3 = mul(%x, %2) return %3 }";
  const auto start = [&] {
    setenv("LD_PRELOAD", OPWIRE_FATAL_LIBRARY, 1);
    const pid_t executor = StartExecutor("e1", {"--cache", cache()});
    unsetenv("LD_PRELOAD");
    return executor;
  };
  const auto run = [&] {
    Session session = Open();
    const auto program = session.Load(kProduct);
    return program.ok() ? Call(*program, {2}) : Result{program.status(), {}, ""};
  };
  StartRegistry();
  for (int death = 1; death <= 2; ++death) {
    SCOPED_TRACE(death);
    const pid_t executor = start();
    const Result last = run();
    EXPECT_EQ(last.status.code(), absl::StatusCode::kUnavailable) << last.status;
    EXPECT_EQ(Wait(executor), 128 + SIGABRT);
  }
  start();
  const Result other = run();
  EXPECT_EQ(other.y, Floats{2e6}) << other.status;
  int quarantined = 0;
  const json candidates = Info("explain", "matmul")["candidates"];
  for (const json& c : candidates)
    quarantined +=
        c["reason"].get<std::string>().starts_with("quarantined: executors died in it 2 times");
  EXPECT_GT(quarantined, 0) << candidates;
}

TEST_F(UserOpsTest, AKernelThatDoesNotReturnIsNamed) {
  WriteOp("endless", 2, kEndless);
  StartRegistry();
  const pid_t executor = StartWithOps("e1", {"--kernel-timeout", "0.5"});
  ASSERT_TRUE(Becomes("endless", 2));
  EXPECT_EQ(CallNow("endless", {666}).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Wait(executor), 4);
  const std::string log = jit::Slurp(LogOf(executor));
  EXPECT_NE(log.find("a kernel does not return"), std::string::npos) << log;
  EXPECT_NE(log.find("user.endless@own"), std::string::npos) << log;
  EXPECT_NE(log.find("\"seconds\":\"0."), std::string::npos) << log;
}

TEST_F(UserOpsTest, WithoutACompilerReferencesAnswer) {
  setenv("OPWIRE_CXX", "/nonexistent/g++", 1);
  WriteOp("twice", 2);
  StartRegistry();
  StartWithOps();
  const Result answer = CallNow("twice", {1});
  EXPECT_EQ(answer.y, Floats{2}) << answer.status;
  EXPECT_EQ(answer.ran, "user.twice@reference");
  EXPECT_TRUE(Eventually([&] {
    return Problem(ops() + "/twice").find("/nonexistent/g++") != std::string::npos;
  })) << Problem(ops() + "/twice");
  EXPECT_NE(InReport("twice")["reason"].get<std::string>().find("/nonexistent/g++"),
            std::string::npos)
      << InReport("twice");
  bool told = false;
  const json toolchains = Info("toolchains")["toolchains"];
  for (const json& t : toolchains)
    told |= t["backend"] == "cpu" && !t["available"].get<bool>() &&
            !t["reason"].get<std::string>().empty();
  EXPECT_TRUE(told);
}

TEST_F(UserOpsTest, VariantsCanBeSteered) {
  const std::string folder = WriteOp("twice", 2, R"(
#ifdef SLOW
  for (volatile int i = 0; i < 100000;) i = i + 1;
#endif
  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];)");
  std::string manifest = jit::Slurp(folder + "/op.json");
  manifest.replace(manifest.find("\"variants\": {"), 13,
                   "\"variants\": {\"slow\": {\"sources\": [\"own.cc\"], \"flags\": [\"-DSLOW\"], "
                   "\"priority\": -5, \"deterministic\": false}, ");
  WriteFile(folder + "/op.json", manifest);
  StartRegistry();
  const struct {
    std::vector<std::string> flags;
    const char* chosen;
  } rows[] = {{{}, "own"},
              {{"--prefer", "user.twice@slow"}, "slow"},
              {{"--prefer", "reference"}, "reference"},
              {{"--forbid", "own"}, "slow"},
              {{"--forbid", "user.twice@own", "--forbid", "user.twice@slow"}, "reference"},
              {{"--forbid", "user.other@own"}, "own"}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.flags.empty() ? "no flags" : row.flags[1]);
    const pid_t executor = StartWithOps("e1", row.flags);
    EXPECT_TRUE(Becomes("twice", 2, row.chosen));
    EXPECT_TRUE(
        Eventually([&] { return InReport("twice", "slow")["reason"] != "is being built"; }));
    const json candidates = Info("explain", "user.twice")["candidates"];
    for (const json& c : candidates) EXPECT_EQ(c["chosen"], c["variant"] == row.chosen) << c;
    Session session = Open();
    for (const char* pin : {"own", "slow", "reference", "nothing"}) {
      const Result pinned = Call(session, "twice", {1}, pin);
      const bool forbidden = std::ranges::find(row.flags, "--forbid") != row.flags.end() &&
                             std::ranges::any_of(row.flags, [&](const std::string& f) {
                               return f == pin || f == std::string("user.twice@") + pin;
                             });
      if (std::string(pin) == "nothing" || forbidden) {
        EXPECT_EQ(pinned.status.code(), absl::StatusCode::kFailedPrecondition) << pinned.status;
        const std::string said = MessageOf(pinned.status);
        EXPECT_NE(said.find("these can: "), std::string::npos) << said;
        EXPECT_NE(said.find("reference", said.find("these can: ")), std::string::npos) << said;
        EXPECT_EQ(forbidden, said.find("forbidden by --forbid") != std::string::npos) << said;
      } else {
        EXPECT_EQ(pinned.ran, std::string("user.twice@") + pin) << pinned.status;
      }
    }
    Kill(executor);
  }
}

TEST_F(UserOpsTest, DeterministicLeavesOutWhatIsNot) {
  const std::string folder = WriteOp("twice", 2);
  std::string source = jit::Slurp(folder + "/own.cc");
  source.replace(source.find("OPW_DETERMINISTIC | "), 20, "");
  WriteFile(folder + "/own.cc", source);
  std::string manifest = jit::Slurp(folder + "/op.json");
  manifest.replace(manifest.find("\"sources\""), 9, "\"deterministic\": false, \"sources\"");
  WriteFile(folder + "/op.json", manifest);
  StartRegistry();
  pid_t executor = StartWithOps();
  ASSERT_TRUE(Becomes("twice", 2));
  Kill(executor);
  StartWithOps("e1", {"--deterministic"});
  EXPECT_EQ(CallNow("twice").ran, "user.twice@reference");
  EXPECT_NE(InReport("twice")["reason"].get<std::string>().find("not deterministic"),
            std::string::npos);
}

}  // namespace
}  // namespace opwire::client
