// The cache in one process: what an object is kept under, what is wrong with a directory or an
// entry, and what goes when it is full.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "kernels/jit/cache_key.h"
#include "kernels/jit/files.h"
#include "tests/jit/support.h"

namespace opwire::jit {
namespace {

namespace fs = std::filesystem;

class CacheTest : public ::testing::Test {
 protected:
  CacheTest()
      : cache_(OpenCache(root_ / "cache")),
        cxx_(HostCompiler({.compiler = CountingCompiler(root_)})),
        op_(OpIn(source_)) {}

  CacheEntry Get(const CompileRequest& request) {
    auto entry = cache_->Get(*cxx_, request);
    EXPECT_TRUE(entry.ok()) << entry.status();
    return entry.ok() ? *std::move(entry) : CacheEntry{};
  }
  int Calls() { return CallsIn(root_); }

  Folder root_, source_;
  std::unique_ptr<BuildCache> cache_;
  std::unique_ptr<Toolchain> cxx_;
  CompileRequest op_;
};

TEST_F(CacheTest, BuildsOnceAndThenFinds) {
  EXPECT_FALSE(cache_->Find(*cxx_, op_));
  const CacheEntry built = Get(op_);
  EXPECT_TRUE(built.built);
  EXPECT_EQ(built.object, root_ / ("cache/objects/" + built.key + "/object"));
  EXPECT_EQ(built.name, "test.op");
  EXPECT_EQ(built.toolchain, "c++");
  EXPECT_EQ(built.bytes, static_cast<int64_t>(fs::file_size(built.object)));
  EXPECT_EQ(Call(built.object), 1);
  const CacheEntry again = Get(op_);
  EXPECT_FALSE(again.built);
  EXPECT_EQ(again.key, built.key);
  EXPECT_EQ(OpenCache(root_ / "cache")->Find(*cxx_, op_)->key, built.key);  // another process would
  EXPECT_EQ(Calls(), 1);
  EXPECT_TRUE(NamesIn(root_ / "cache/tmp").empty());
  struct stat s;
  ASSERT_EQ(stat((root_ / "cache").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700u);
  EXPECT_EQ(cache_->warning(), "");
}

// Lessons: "cache poisoned by a framework or compiler upgrade": the key is all that the object was
// made of.
TEST_F(CacheTest, AnyChangeIsAnotherObject) {
  std::vector<std::string> keys = {Get(op_).key};
  const auto differs = [&](const CompileRequest& request, const char* what) {
    const CacheEntry e = Get(request);
    EXPECT_TRUE(e.built) << what;
    EXPECT_EQ(std::count(keys.begin(), keys.end(), e.key), 0) << what;
    keys.push_back(e.key);
  };
  CompileRequest r = op_;
  r.flags = {"-DX"};
  differs(r, "flags");
  r.flags = {"-D", "X"};
  EXPECT_FALSE(cache_->Find(*cxx_, r)) << "fields run together";
  r = op_;
  r.arch = "x86-64-v2";
  if (op_.arch.starts_with("x86-64-v") && op_.arch != r.arch) differs(r, "architecture");
  r = op_;
  r.libraries = {"m"};
  differs(r, "libraries");
  SetNumber(source_, 2);
  differs(op_, "a header that a header includes");
  EXPECT_EQ(Call(Get(op_).object), 2);
  source_.Write("op.cc", Slurp(source_ / "op.cc") + "// more\n");
  differs(op_, "source");
  const auto other = HostCompiler({.compiler = CountingCompiler(root_, "# upgraded")});
  ASSERT_OK_AND(const CacheEntry upgraded, cache_->Get(*other, op_));
  EXPECT_TRUE(upgraded.built) << "compiler";
}

TEST_F(CacheTest, WhatChangesBackIsFound) {
  const std::string first = Get(op_).key;
  SetNumber(source_, 2);
  EXPECT_NE(Get(op_).key, first);
  SetNumber(source_, 1);
  const CacheEntry back = Get(op_);
  EXPECT_FALSE(back.built);
  EXPECT_EQ(back.key, first);
  EXPECT_EQ(Call(back.object), 1);
}

TEST_F(CacheTest, TouchedFilesAreTheSame) {
  const std::string key = Get(op_).key;
  for (const char* name : {"op.cc", "a.h", "b.h"}) source_.Write(name, Slurp(source_ / name));
  ASSERT_TRUE(cache_->Find(*cxx_, op_));
  EXPECT_EQ(cache_->Find(*cxx_, op_)->key, key);
  EXPECT_EQ(Calls(), 1);
}

// The same size within the grain of file times.
TEST_F(CacheTest, AChangeThatTimesDoNotShowIsSeen) {
  Get(op_);
  const std::string text = Slurp(source_ / "b.h");
  for (int number = 2; number < 6; ++number) {
    SetNumber(source_, number);
    ASSERT_EQ(Call(Get(op_).object), number);
    source_.Write("b.h", text);
    ASSERT_EQ(Call(Get(op_).object), 1);
  }
}

// File times advance by steps on most systems, so a stamp says nothing of a file that was written
// in the present step.
TEST(CacheKey, StampsOfNewFilesAreNotTrusted) {
  Folder folder;
  const std::string path = folder.Write("x.h", "1");
  const int64_t later = RealTimeNs() + 1'000'000'000;
  ASSERT_OK_AND(const std::vector<Header> fresh, ReadHeaders({path}, later));
  EXPECT_EQ(fresh.at(0).stamp, FileStamp());
  usleep(25'000);
  ASSERT_OK_AND(const std::vector<Header> settled, ReadHeaders({path}, later));
  EXPECT_EQ(settled.at(0).stamp, *StampOf(path));
  bool changed = false;
  EXPECT_TRUE(Refresh(settled, changed));
  EXPECT_FALSE(changed);
  EXPECT_EQ(Refresh(fresh, changed)->at(0).stamp, *StampOf(path));
  EXPECT_TRUE(changed);
  EXPECT_TRUE(absl::IsAborted(ReadHeaders({path}, settled.at(0).stamp.modified_ns).status()));
  EXPECT_EQ(ParseHeaders(WriteHeaders(settled))->at(0).path, path);
}

TEST_F(CacheTest, ANewHeaderBeforeAnotherIsSeen) {
  source_.Write("op.cc",
                "#include <cstdint.h>\nextern \"C\" __attribute__((visibility(\"default\"))) int "
                "number() { return kWhich; }\n");
  source_.Write("later/cstdint.h", "constexpr int kWhich = 1;\n");
  op_.flags = {"-I" + (source_ / "later")};
  EXPECT_EQ(Call(Get(op_).object), 1);
  source_.Write("cstdint.h", "constexpr int kWhich = 2;\n");
  op_.flags = {"-idirafter" + (source_ / "later")};
  EXPECT_EQ(Call(Get(op_).object), 2);
  fs::remove(source_ / "cstdint.h");
  EXPECT_EQ(Call(Get(op_).object), 1);
  source_.Write("cstdint.h", "constexpr int kWhich = 3;\n");
  usleep(25'000);
  EXPECT_EQ(Call(Get(op_).object), 3);
}

TEST_F(CacheTest, FoldersWithEqualContentsShareAnObject) {
  Folder other;
  const CompileRequest same = OpIn(other, 1);
  const std::string key = Get(op_).key;
  EXPECT_EQ(Get(same).key, key);
  SetNumber(other, 9);
  EXPECT_EQ(Call(Get(same).object), 9);
  EXPECT_EQ(Call(Get(op_).object), 1);
}

TEST_F(CacheTest, FailuresAreToldAndNotKept) {
  const std::string good = Slurp(source_ / "op.cc");
  source_.Write("op.cc", "#error on purpose\n");
  for (int i = 1; i <= 2; ++i) {
    const Status s = cache_->Get(*cxx_, op_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(s)) << s;
    EXPECT_TRUE(Contains(MessageOf(s), "on purpose"));
    EXPECT_EQ(Calls(), i);
  }
  source_.Write("op.cc", good);
  EXPECT_TRUE(Get(op_).built);
  EXPECT_TRUE(NamesIn(root_ / "cache/tmp").empty());
  CompileRequest missing = op_;
  missing.sources = {"none.cc"};
  EXPECT_TRUE(absl::IsNotFound(cache_->Get(*cxx_, missing).status()));
  const auto none = HostCompiler({.compiler = "/no/such"});
  EXPECT_TRUE(absl::IsFailedPrecondition(cache_->Get(*none, op_).status()));
  EXPECT_FALSE(cache_->Find(*none, op_));
}

TEST_F(CacheTest, SourcesThatChangeWhileTheyAreCompiledAreCompiledAgain) {
  const auto slow = HostCompiler({.compiler = CountingCompiler(root_, "sleep 0.3")});
  std::thread editor([&] {
    usleep(150'000);
    SetNumber(source_, 5);
  });
  const auto entry = cache_->Get(*slow, op_);
  editor.join();
  ASSERT_OK(entry.status());
  EXPECT_EQ(Call(entry->object), 5);
  EXPECT_EQ(Calls(), 2);
}

TEST_F(CacheTest, BrokenEntriesAreBuiltAgain) {
  const CacheEntry first = Get(op_);
  const std::string folder = fs::path(first.object).parent_path(), object = Slurp(first.object),
                    record = Slurp(folder + "/record.json");
  const auto overwrite = [](const std::string& path, const std::string& bytes) {
    fs::remove(path);
    EXPECT_TRUE(WriteFile(path, bytes, false).ok());
  };
  const std::function<void()> breakings[] = {
      [&] { overwrite(first.object, object.substr(0, object.size() / 2)); },
      [&] { overwrite(first.object, ""); },
      [&] {
        std::string flipped = object;
        flipped[flipped.size() / 2] ^= 1;
        overwrite(first.object, flipped);
      },
      [&] { fs::remove(first.object); },
      [&] { overwrite(folder + "/record.json", "garbage"); },
      [&] { overwrite(folder + "/record.json", ""); },
      [&] { overwrite(folder + "/record.json", "{\"record\": 1, \"key\": 7}"); },
      [&] { overwrite(folder + "/record.json", record.substr(0, record.size() / 2)); },
      [&] { fs::remove(folder + "/record.json"); },
      [&] {
        for (const std::string& unit : NamesIn(root_ / "cache/headers"))
          overwrite(root_ / ("cache/headers/" + unit), "opwire headers 1\nx y z\n");
      },
      [&] {
        for (const std::string& unit : NamesIn(root_ / "cache/headers"))
          overwrite(root_ / ("cache/headers/" + unit), "");
      },
  };
  int calls = Calls();
  for (const auto& breaking : breakings) {
    breaking();
    EXPECT_FALSE(cache_->Find(*cxx_, op_));
    const CacheEntry again = Get(op_);
    EXPECT_TRUE(again.built);
    EXPECT_EQ(again.key, first.key);
    EXPECT_EQ(Call(again.object), 1);
    EXPECT_EQ(Calls(), ++calls);
  }
}

TEST_F(CacheTest, VerdictsStay) {
  const std::string key = Get(op_).key;
  EXPECT_FALSE(cache_->Find(*cxx_, op_)->verdict.tried);
  ASSERT_OK(cache_->SetVerdict(key, {.tried = true, .failure = "signal 11 \xff", .deaths = 2}));
  const Verdict v = OpenCache(root_ / "cache")->Find(*cxx_, op_)->verdict;
  EXPECT_TRUE(v.tried);
  EXPECT_TRUE(v.failure.starts_with("signal 11 "));
  EXPECT_EQ(v.deaths, 2);
  EXPECT_EQ(cache_->List().at(0).verdict.deaths, 2);
  EXPECT_TRUE(absl::IsNotFound(cache_->SetVerdict(std::string(64, 'a'), {})));
  EXPECT_TRUE(absl::IsNotFound(cache_->SetVerdict("../../x", {})));
}

TEST_F(CacheTest, TheLeastLatelyUsedGo) {
  std::vector<CompileRequest> ops;
  std::vector<CacheEntry> entries;
  for (int i = 0; i < 3; ++i) {
    ops.push_back(op_);
    ops.back().flags = {"-DVARIANT=" + std::to_string(i)};
    entries.push_back(Get(ops.back()));
    usleep(25'000);
  }
  ASSERT_TRUE(cache_->Find(*cxx_, ops[0]));  // used now, so the second is the oldest
  ASSERT_OK_AND(const int removed, cache_->Prune(entries[0].bytes + entries[2].bytes));
  EXPECT_EQ(removed, 1);
  EXPECT_FALSE(cache_->Find(*cxx_, ops[1]));
  EXPECT_TRUE(cache_->Find(*cxx_, ops[0]) && cache_->Find(*cxx_, ops[2]));
  EXPECT_EQ(cache_->List().size(), 2u);
  EXPECT_EQ(NamesIn(root_ / "cache/headers").size(), 2u);
  EXPECT_EQ(NamesIn(root_ / "cache/locks").size(), 2u);

  // A bound goes for each build; what was built last stays, even alone.
  ASSERT_OK_AND(const auto small, BuildCache::Open({.directory = root_ / "cache", .max_bytes = 1}));
  ASSERT_OK_AND(const CacheEntry last, small->Get(*cxx_, ops[1]));
  EXPECT_EQ(small->List().size(), 1u);
  EXPECT_EQ(Call(last.object), 1);
  const int open_object = open(last.object.c_str(), O_RDONLY);
  ASSERT_OK_AND(const int rest, small->Prune(0));
  EXPECT_EQ(rest, 1);
  EXPECT_EQ(lseek(open_object, 0, SEEK_END), last.bytes) << "what is being read stays readable";
  close(open_object);
}

TEST_F(CacheTest, ManyThreadsAtOnceBuildEachObjectOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> built{0}, good{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        CompileRequest op = op_;
        op.flags = {"-DVARIANT=" + std::to_string((i + t) % 2)};
        const auto entry = cache_->Get(*cxx_, op);
        good += entry.ok();
        built += entry.ok() && entry->built;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 32);
  EXPECT_EQ(built, 2);
  EXPECT_EQ(Calls(), 2);
}

TEST_F(CacheTest, ADirectoryThatIsRemovedUnderItIsMadeAgain) {
  Get(op_);
  fs::remove_all(root_ / "cache");
  EXPECT_TRUE(Get(op_).built);
  EXPECT_EQ(cache_->warning(), "");
}

TEST(CacheDirectory, ComesFromTheEnvironment) {
  Folder folder;
  setenv("OPWIRE_CACHE", (folder / "own/deep").c_str(), 1);
  EXPECT_EQ(OpenCache("")->directory(), folder / "own/deep");
  unsetenv("OPWIRE_CACHE");
  setenv("XDG_CACHE_HOME", (folder / "xdg").c_str(), 1);
  EXPECT_EQ(OpenCache("")->directory(), folder / "xdg/opwire");
  unsetenv("XDG_CACHE_HOME");
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  setenv("HOME", folder.path().c_str(), 1);
  EXPECT_EQ(OpenCache("")->directory(), folder / ".cache/opwire");
  setenv("HOME", home.c_str(), 1);
}

// Lessons: "another user's cache directory is not writable".
TEST(CacheDirectory, OfOthersIsRefused) {
  Folder folder;
  for (const mode_t mode : {0777, 0770, 0702}) {
    mkdir((folder / "open").c_str(), 0700);
    chmod((folder / "open").c_str(), mode);
    const Status s = BuildCache::Open({.directory = folder / "open"}).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(s)) << s;
    EXPECT_TRUE(Contains(MessageOf(s), "others may write it"));
  }
  folder.Write("file", "");
  EXPECT_TRUE(
      absl::IsFailedPrecondition(BuildCache::Open({.directory = folder / "file"}).status()));
  mkdir((folder / "theirs").c_str(), 0700);
  if (chown((folder / "theirs").c_str(), 65534, 65534) != 0)
    GTEST_SKIP() << "only root can give a directory away";
  const Status s = BuildCache::Open({.directory = folder / "theirs"}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(s)) << s;
  EXPECT_TRUE(Contains(MessageOf(s), "belongs to user 65534"));
}

// To that user, where this one can.
void GiveAway(const std::string& path) {
  EXPECT_TRUE(geteuid() != 0 || chown(path.c_str(), 65534, 65534) == 0);
}

// Runs the body as a user whom permissions bind; its result is the number of what failed.
int AsNobody(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 &&
        (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0))
      _exit(99);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(CacheDirectory, ThatIsReadOnlyIsReadAndABuildGoesElsewhere) {
  Folder folder, source;
  CompileRequest op = OpIn(source);
  for (const std::string& path : {folder.path(), source.path()}) chmod(path.c_str(), 0755);
  ASSERT_OK(OpenCache(folder / "cache")->Get(*HostCompiler({}), op).status());
  for (const auto& entry : fs::recursive_directory_iterator(folder / "cache")) {
    GiveAway(entry.path());
    if (entry.is_directory()) chmod(entry.path().c_str(), 0500);
  }
  GiveAway(folder / "cache");
  chmod((folder / "cache").c_str(), 0500);
  EXPECT_EQ(AsNobody([&] {
              auto cache = BuildCache::Open({.directory = folder / "cache"});
              if (!cache.ok()) return 1;
              if (!Contains((*cache)->warning(), "is removed when this process ends")) return 2;
              const auto cxx = HostCompiler({});
              if (!(*cache)->Find(*cxx, op)) return 3;
              CompileRequest other = op;
              other.flags = {"-DOTHER"};
              const auto built = (*cache)->Get(*cxx, other);
              if (!built.ok() || !built->built || built->object.starts_with(folder.path()) ||
                  Call(built->object) != 1)
                return 4;
              if ((*cache)->Get(*cxx, other)->built || (*cache)->List().size() != 2) return 5;
              if (!(*cache)->SetVerdict(built->key, {.tried = true}).ok() ||
                  !(*cache)->Find(*cxx, other)->verdict.tried)
                return 6;
              cache->reset();
              return access(built->object.c_str(), F_OK) == 0 ? 7 : 0;  // it went with the cache
            }),
            0);
  chmod((folder / "cache").c_str(), 0700);
  for (const auto& entry : fs::recursive_directory_iterator(folder / "cache")) {
    if (entry.is_directory()) chmod(entry.path().c_str(), 0700);
  }
}

TEST(CacheDirectory, OnAFullDiskABuildGoesElsewhere) {
  Folder folder, source;
  const std::string disk = folder / "disk";
  mkdir(disk.c_str(), 0700);
  if (mount("opwire", disk.c_str(), "tmpfs", 0, "size=512k,mode=0700") != 0)
    GTEST_SKIP() << "no right to mount a small disk";
  {
    const auto cache = OpenCache(disk + "/cache");
    EXPECT_FALSE(WriteFile(disk + "/filler", std::string(1 << 20, 'x'), false).ok());
    const auto entry = cache->Get(*HostCompiler({}), OpIn(source));
    EXPECT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ(entry.ok() ? Call(entry->object) : 0, 1);
    EXPECT_TRUE(Contains(cache->warning(), "is removed when this process ends"))
        << cache->warning();
  }
  umount2(disk.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace opwire::jit
