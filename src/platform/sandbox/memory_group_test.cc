#include "sandbox/memory_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/subprocess.h"

namespace yard::sandbox {
namespace {

TEST(MemoryHierarchyTest, IsFoundInBothVersions) {
  const auto v1 = find_memory_hierarchy(
      "35 24 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
      "36 24 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
      "37 24 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      "4:memory:/a/b\n1:cpu:/\n0::/c\n");
  EXPECT_EQ(v1.root, "/sys/fs/cgroup/memory");
  EXPECT_EQ(v1.own, "/a/b");
  EXPECT_FALSE(v1.is_v2);
  const auto v2 = find_memory_hierarchy("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                                        "0::/system.slice/yard.service\n");
  EXPECT_EQ(v2.root, "/sys/fs/cgroup");
  EXPECT_EQ(v2.own, "/system.slice/yard.service");
  EXPECT_TRUE(v2.is_v2);
  EXPECT_TRUE(find_memory_hierarchy("22 1 8:1 / / rw - ext4 /dev/vda rw\n", "0::/\n").root.empty());
  EXPECT_TRUE(find_memory_hierarchy("nonsense\n - \n", "nonsense").root.empty());
}

TEST(MemoryGroupTest, AProcessBeyondTheLimitIsEndedAndTheGroupGoes) {
  const std::string id = "/test/" + random_name(8);
  auto group = MemoryGroup::make(id, uint64_t{32} << 20);
  if (!group) GTEST_SKIP() << "NOT TESTED: " << group.error().message;
  const std::string procs = (*group)->procs_path();
  SubprocessOptions options;
  // tail keeps a line that never ends in memory.
  options.argv = {"/bin/sh", "-c", "echo $$ > \"$0\" && head -c 200000000 /dev/zero | tail", procs};
  options.env = {{"PATH", "/usr/bin:/bin"}};
  auto child = Subprocess::spawn(options);
  ASSERT_TRUE(child) << child.error().message;
  ASSERT_TRUE(child->wait(std::chrono::seconds(60)));
  EXPECT_GT((*group)->kill_count(), 0U);
  group->reset();
  EXPECT_NE(::access(procs.c_str(), F_OK), 0);
}

TEST(MemoryGroupTest, WhatAKilledSupervisorLeftIsCleaned) {
  const std::string id = "/test/" + random_name(8);
  auto group = MemoryGroup::make(id, uint64_t{32} << 20);
  if (!group) GTEST_SKIP() << "NOT TESTED: " << group.error().message;
  SubprocessOptions options;
  options.argv = {"/bin/sh", "-c", "echo $$ > \"$0\" && exec sleep 600", (*group)->procs_path()};
  options.env = {{"PATH", "/usr/bin:/bin"}};
  auto child = Subprocess::spawn(options);
  ASSERT_TRUE(child) << child.error().message;
  MemoryGroup::clean(id);
  EXPECT_NE(::access((*group)->procs_path().c_str(), F_OK), 0);
}

}  // namespace
}  // namespace yard::sandbox
