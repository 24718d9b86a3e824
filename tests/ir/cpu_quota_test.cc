// Limits of control groups, of both versions and on any level.
#include "ir/base/cpu_quota.h"

#include <gtest/gtest.h>

#include "tests/folder.h"

namespace opwire {
namespace {

TEST(CpuQuota, IsTheLeastOnTheWayToTheRoot) {
  const Folder system;
  EXPECT_EQ(CpuQuota(system.path()), std::nullopt);
  system.Write("proc/self/cgroup", "0::/user.slice/job\n");
  EXPECT_EQ(CpuQuota(system.path()), std::nullopt);
  system.Write("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(CpuQuota(system.path()), std::nullopt);
  system.Write("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(CpuQuota(system.path()), 2.5);
  system.Write("sys/fs/cgroup/user.slice/job/cpu.max", "400000 100000\n");
  EXPECT_EQ(CpuQuota(system.path()), 2.5);
  system.Write("sys/fs/cgroup/user.slice/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(CpuQuota(system.path()), 0.5);
}

// A container sees the group's path outside of it, and its own files at the root.
TEST(CpuQuota, OfAContainer) {
  const Folder system;
  system.Write("proc/self/cgroup",
               "12:memory:/docker/1f\n5:cpuset:/docker/1f\n4:cpu,cpuacct:/docker/1f\n0::/\n");
  system.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  system.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(system.path()), std::nullopt);
  system.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(CpuQuota(system.path()), 3);
  system.Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(CpuQuota(system.path()), 2);
}

TEST(CpuQuota, ThreadsHaveAProcessorEach) {
  EXPECT_EQ(ThreadsWithin(8, std::nullopt), 8);
  EXPECT_EQ(ThreadsWithin(8, 2.9), 2);
  EXPECT_EQ(ThreadsWithin(8, 0.5), 1);
  EXPECT_EQ(ThreadsWithin(8, 64.0), 8);
  EXPECT_EQ(ThreadsWithin(1, 1.0), 1);
}

}  // namespace
}  // namespace opwire
