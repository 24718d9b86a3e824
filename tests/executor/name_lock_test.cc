// The lock on an executor's name.
#include "executor/serve/name_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/assert_ok.h"
#include "tests/folder.h"

namespace opwire::executor {
namespace {

TEST(NameLock, OneAtATimeWithOneClaim) {
  const Folder folder;
  std::vector<uint8_t> claim;
  {
    ASSERT_OK_AND(const auto lock, NameLock::Take(folder.path(), "e1"));
    claim = lock->claim();
    EXPECT_EQ(claim.size(), 16u);
    EXPECT_NE(claim, std::vector<uint8_t>(16));
    const Status second = NameLock::Take(folder.path(), "e1").status();
    EXPECT_EQ(second, AlreadyExists("an executor named e1 runs already (process {}); stop it, or "
                                    "take another --name",
                                    getpid()));
    ASSERT_OK_AND(const auto other, NameLock::Take(folder.path(), "e2"));
    EXPECT_NE(other->claim(), claim);
  }
  // After a death the claim is there still; after an orderly end it is another one.
  {
    ASSERT_OK_AND(const auto lock, NameLock::Take(folder.path(), "e1"));
    EXPECT_EQ(lock->claim(), claim);
    lock->Remove();
    EXPECT_FALSE(std::filesystem::exists(folder / "e1.lock"));
  }
  ASSERT_OK_AND(const auto lock, NameLock::Take(folder.path(), "e1"));
  EXPECT_NE(lock->claim(), claim);
}

TEST(NameLock, WaitsForOneThatEnds) {
  const Folder folder;
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = NameLock::Take(folder.path(), "e1");
    usleep(300'000);
    _exit(lock.ok() ? 0 : 1);
  }
  while (!std::filesystem::exists(folder / "e1.lock")) usleep(1000);
  EXPECT_TRUE(NameLock::Take(folder.path(), "e1").ok());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Of files that are shorter than a claim, and of those that are no file.
TEST(NameLock, WhatElseLiesThere) {
  const Folder folder;
  folder.Write("e1.lock", "short");
  ASSERT_OK_AND(const auto lock, NameLock::Take(folder.path(), "e1"));
  EXPECT_EQ(lock->claim().size(), 16u);
  std::filesystem::create_directory(folder / "e2.lock");
  EXPECT_TRUE(absl::IsUnavailable(NameLock::Take(folder.path(), "e2").status()));
  std::filesystem::create_symlink(folder / "e1.lock", folder / "e3.lock");
  EXPECT_TRUE(absl::IsUnavailable(NameLock::Take(folder.path(), "e3").status()));
}

}  // namespace
}  // namespace opwire::executor
