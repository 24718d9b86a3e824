// Several processes at one cache, and their deaths.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

#include "kernels/jit/cache_key.h"
#include "tests/jit/support.h"

namespace opwire::jit {
namespace {

std::string LockOf(const std::string& cache, Toolchain& cxx, const CompileRequest& op) {
  return cache + "/locks/" + UnitOf(cxx.facts(), op)->unit;
}

TEST(CacheProcesses, EightBuildEachObjectOnce) {
  Folder root;
  Folder sources[3];
  std::vector<std::string> arguments = {"--get", root / "cache", CountingCompiler(root)};
  for (int i = 0; i < 3; ++i) {
    OpIn(sources[i], i);
    arguments.push_back(sources[i].path());
  }
  std::vector<Process> processes;
  for (int i = 0; i < 8; ++i) processes.emplace_back(arguments);
  int built = 0;
  for (Process& p : processes) {
    const std::string said = p.Finish();
    EXPECT_EQ(p.code(), 0);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3);
    for (size_t at = said.find("built"); at != said.npos; at = said.find("built", at + 1)) ++built;
    EXPECT_FALSE(Contains(said, ":")) << said;
  }
  EXPECT_EQ(built, 3);
  EXPECT_EQ(CallsIn(root), 3);
}

// Lessons: "the waiter imports a library that never got built".
TEST(CacheProcesses, WaitersGetTheBuildersError) {
  Folder root, source;
  OpIn(source);
  const std::string compiler = FakeCompiler(root, "sleep 1.5; echo \"attempt of $$\" >&2; exit 7");
  std::vector<Process> processes;
  for (int i = 0; i < 4; ++i)
    processes.emplace_back(
        std::vector<std::string>{"--get", root / "cache", compiler, source.path()});
  std::vector<std::string> said;
  for (Process& p : processes) said.push_back(p.Finish());
  EXPECT_TRUE(Contains(said[0], "INVALID_ARGUMENT") && Contains(said[0], "exit code 7") &&
              Contains(said[0], "attempt of"))
      << said[0];
  for (const std::string& s : said) EXPECT_EQ(s, said[0]);
  EXPECT_EQ(CallsIn(root), 1);
  // Who comes later builds again.
  Process later({"--get", root / "cache", compiler, source.path()});
  EXPECT_TRUE(Contains(later.Finish(), "exit code 7"));
  EXPECT_EQ(CallsIn(root), 2);
}

// Lessons: "stale lock file after a killed build hangs every later run".
TEST(CacheProcesses, ALockEndsWithItsHolder) {
  Folder root, source;
  const CompileRequest op = OpIn(source);
  const auto cxx = HostCompiler({});
  const auto cache = OpenCache(root / "cache");
  Process holder({"--hold", LockOf(root / "cache", *cxx, op)});
  ASSERT_EQ(holder.ReadLine(), "held");
  ASSERT_OK_AND(const auto hurried,
                BuildCache::Open({.directory = root / "cache", .wait_seconds = 0.2}));
  const Status s = hurried->Get(*cxx, op).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(s)) << s;
  EXPECT_TRUE(Contains(MessageOf(s), "process " + std::to_string(holder.pid()))) << s;
  holder.Kill();
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_OK(cache->Get(*cxx, op).status());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
}

TEST(CacheProcesses, TheNextGoesOnWhenABuilderIsKilled) {
  Folder root, source;
  OpIn(source);
  const std::string compiler =
      CountingCompiler(root, "[ -e '" + (root / "calls2") + "' ] || { touch '" + (root / "calls2") +
                                 "'; sleep 100; }");
  Process first({"--get", root / "cache", compiler, source.path()});
  for (int i = 0; i < 1000 && CallsIn(root) < 1; ++i) usleep(5'000);
  Process second({"--get", root / "cache", compiler, source.path()});
  usleep(200'000);
  first.Kill();
  EXPECT_EQ(second.Finish(), "built\n");
  EXPECT_EQ(CallsIn(root), 2);
}

TEST(CacheProcesses, KilledAtAnyMomentTheCacheStaysWhole) {
  Folder root, source;
  const CompileRequest op = OpIn(source);
  const std::string compiler = CountingCompiler(root);
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    Process p({"--get", root / "cache", compiler, source.path()});
    usleep(std::uniform_int_distribution<useconds_t>(1'000, 250'000)(random));
    p.Kill();
    if (i % 4 == 3)
      std::filesystem::remove_all(root /
                                  "cache/objects");  // so that there is something to build again
  }
  const auto cache = OpenCache(root / "cache");
  EXPECT_TRUE(NamesIn(root / "cache/tmp").empty());
  const auto cxx = HostCompiler({.compiler = compiler});
  ASSERT_OK_AND(const CacheEntry entry, cache->Get(*cxx, op));
  EXPECT_EQ(Call(entry.object), 1);
  EXPECT_EQ(cache->List().size(), 1u);
  EXPECT_TRUE(cache->Find(*cxx, op));
}

}  // namespace
}  // namespace opwire::jit
