#include "gradwire/base/cpu.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace gradwire {
namespace {

/// The files of /proc and /sys of a process in control groups.
struct CpuQuota : ::testing::Test {
  void TearDown() override { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << content << "\n";
  }
  const std::filesystem::path root =
      std::filesystem::path(::testing::TempDir()) /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(CpuQuota, WithoutGroupsThereIsNone) {
  EXPECT_TRUE(std::isinf(cpu_quota(root)));
  write("proc/self/cgroup", "0::/\n9:cpuset:/a");
  EXPECT_TRUE(std::isinf(cpu_quota(root)));
}

TEST_F(CpuQuota, OfVersion2IsTheSmallestOfTheGroupsAround) {
  write("proc/self/cgroup", "0::/slice/job/step");
  write("sys/fs/cgroup/slice/job/step/cpu.max", "max 100000");
  write("sys/fs/cgroup/slice/job/cpu.max", "150000 100000");
  write("sys/fs/cgroup/slice/cpu.max", "800000 100000");
  EXPECT_EQ(cpu_quota(root), 1.5);
}

TEST_F(CpuQuota, OfAContainerIsAtTheRoot) {
  write("proc/self/cgroup", "0::/docker/of-the-host");
  write("sys/fs/cgroup/cpu.max", "400000 100000");
  EXPECT_EQ(cpu_quota(root), 4);
}

TEST_F(CpuQuota, OfVersion1HasTwoFiles) {
  write("proc/self/cgroup", "11:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/other");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_TRUE(std::isinf(cpu_quota(root)));
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpu_quota(root), 0.5);
}

TEST_F(CpuQuota, UsableCoresAreAtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace gradwire
