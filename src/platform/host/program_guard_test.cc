#include "host/program_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/ids.h"
#include "base/subprocess.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;

TEST(HangWatchTest, AnySignOfLifeStartsTheTimeAnew) {
  HangWatch watch(10);
  EXPECT_FALSE(watch.is_hung({}, 100));
  EXPECT_FALSE(watch.is_hung({}, 109));
  EXPECT_FALSE(watch.is_hung({.line_count = 1}, 110));
  EXPECT_FALSE(watch.is_hung({.line_count = 1}, 119));
  EXPECT_FALSE(watch.is_hung({.line_count = 1, .cpu_s = 1}, 120));
  EXPECT_FALSE(watch.is_hung({.line_count = 1, .cpu_s = 1, .io_bytes = 1 << 20}, 129));
  EXPECT_FALSE(watch.is_hung({.line_count = 1, .cpu_s = 1, .io_bytes = 1 << 20}, 138));
  EXPECT_TRUE(watch.is_hung({.line_count = 1, .cpu_s = 1, .io_bytes = 1 << 20}, 139));
}

TEST(HangWatchTest, ThreadsThatOnlyWakeUpDoNotCount) {
  HangWatch watch(100);
  EXPECT_FALSE(watch.is_hung({}, 0));
  for (int s = 1; s < 100; ++s)
    EXPECT_FALSE(watch.is_hung({.cpu_s = s * 0.001, .io_bytes = uint64_t(s) * 8}, s));
  EXPECT_TRUE(watch.is_hung({.cpu_s = 0.1, .io_bytes = 800}, 100));
}

TEST(HangWatchTest, APartOfTheProcessesThatEndedIsLife) {
  HangWatch watch(10);
  EXPECT_FALSE(watch.is_hung({.cpu_s = 50}, 0));
  EXPECT_FALSE(watch.is_hung({.cpu_s = 20}, 11));
}

TEST(HangWatchTest, WithoutALimitNothingHangs) {
  HangWatch watch(0);
  EXPECT_FALSE(watch.is_hung({}, 0));
  EXPECT_FALSE(watch.is_hung({}, 1e9));
}

TEST(DiskUsageTest, BlocksAreCountedNotHoles) {
  const fs::path root = fs::temp_directory_path() / ("yard-usage-test-" + random_name(8));
  fs::create_directories(root / "a/b");
  const uint64_t empty = disk_usage(root, {});
  std::ofstream(root / "a/b/full") << std::string(1 << 20, 'x');
  std::ofstream(root / "hole") << 'x';
  fs::resize_file(root / "hole", uint64_t{1} << 40);
  fs::create_symlink("/", root / "link");
  const uint64_t used = disk_usage(root, {});
  EXPECT_GE(used, empty + (1 << 20));
  EXPECT_LT(used, empty + (2 << 20));
  fs::remove_all(root);
  EXPECT_EQ(disk_usage(root, {}), 0U);
}

TEST(ProgramSignsTest, AProcessIsSeenAndOneThatIsGoneIsNot) {
  auto tree = read_tree_usage(::getpid());
  ASSERT_TRUE(tree);
  EXPECT_GT(memory_of(*tree, 0), uint64_t{1} << 20);
  EXPECT_EQ(memory_of(*tree, uint64_t{1} << 50), tree->resident_bytes);
  EXPECT_GT(life_signs_of(*tree).io_bytes, 0U);
  SubprocessOptions options;
  options.argv = {"/bin/true"};
  int gone = 0;
  {
    auto child = Subprocess::spawn(options);
    ASSERT_TRUE(child);
    gone = child->pid();
    ASSERT_TRUE(child->wait(std::chrono::seconds(60)));
  }
  tree->processes = {{.pid = gone}};
  EXPECT_EQ(memory_of(*tree, 0), 0U);
}

TEST(ProgramSignsTest, StacksNameTheProcessAndWhereItWaits) {
  SubprocessOptions options;
  options.argv = {"/bin/sleep", "1000"};
  auto child = Subprocess::spawn(options);
  ASSERT_TRUE(child);
  std::string text;
  for (const std::string& line : stacks_of({child->pid()})) text += line + "\n";
  EXPECT_NE(text.find("/bin/sleep 1000"), std::string::npos) << text;
  EXPECT_NE(text.find("(sleep): waits in"), std::string::npos) << text;
}

}  // namespace
}  // namespace yard::host
