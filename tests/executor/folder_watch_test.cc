// Changes that a watch of folders notices.
#include "executor/ops/folder_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/folder.h"

namespace opwire::executor {
namespace {

using Names = std::set<std::string>;

TEST(FolderWatch, TellsOfWritesAndOfWhatTheyBelongTo) {
  Folder folder;
  folder.Write("a/x", "1");
  folder.Write("b/x", "1");
  FolderWatch watch;
  watch.Add({{folder / "a", folder / "a"}, {folder / "b", "owner"}});
  folder.Write("a/x", "2");
  EXPECT_EQ(watch.Wait(), Names{folder / "a"});
  folder.Write("b/y", "2");
  folder.Write("a/y", "2");
  EXPECT_EQ(watch.Wait(), (Names{folder / "a", "owner"}));
}

// As a checkout swaps folders: the watch follows the name, so it watches the present folder of that
// name.
TEST(FolderWatch, FollowsNames) {
  Folder folder;
  folder.Write("a/x", "1");
  folder.Write("b/x", "2");
  FolderWatch watch;
  watch.Add({{folder / "a", folder / "a"}});
  std::filesystem::rename(folder / "a", folder / "c");
  EXPECT_EQ(watch.Wait(), Names{folder / "a"});
  std::filesystem::rename(folder / "b", folder / "a");
  EXPECT_EQ(watch.Wait(), Names{folder / "a"});
  folder.Write("a/x", "3");
  EXPECT_EQ(watch.Wait(), Names{folder / "a"});
  std::filesystem::remove_all(folder / "a");
  EXPECT_EQ(watch.Wait(), Names{folder / "a"});
  folder.Write("a/x", "4");
  EXPECT_EQ(watch.Wait(), Names{folder / "a"});
}

// A folder that changes without end does not delay Wait for ever.
TEST(FolderWatch, EndsWaitingForQuiet) {
  Folder folder;
  folder.Write("a/x", "1");
  FolderWatch watch;
  watch.Add({{folder / "a", folder / "a"}});
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    for (int i = 0; i < 2000 && !ended; ++i) {
      folder.Write("a/log", std::to_string(i));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  EXPECT_EQ(watch.Wait(), Names{folder / "a"});
  EXPECT_FALSE(ended.exchange(true));
  writer.join();
}

TEST(FolderWatch, StopsFromAnotherThread) {
  FolderWatch watch;
  std::thread other([&] { watch.Stop(); });
  EXPECT_EQ(watch.Wait(), Names());
  other.join();
  EXPECT_EQ(watch.Wait(), Names());
}

}  // namespace
}  // namespace opwire::executor
