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

// Tells its step number `done` of 100 at each look.
bool stalls(StepWatch& watch, double done, double now_s) {
  return watch.is_stalled(jobs::ProgressMark{.t = 0, .done = done, .total = 100}, now_s);
}

TEST(StepWatchTest, NoStepInManyTimesTheMedianIsAStallWhateverElseIsPrinted) {
  StepWatch watch(10, 5);
  EXPECT_FALSE(watch.is_stalled(std::nullopt, 0));
  for (int step = 0; step <= 6; ++step) EXPECT_FALSE(stalls(watch, step, step));
  EXPECT_DOUBLE_EQ(watch.median_step_s(), 1);
  EXPECT_FALSE(stalls(watch, 6, 15.9));
  EXPECT_TRUE(stalls(watch, 6, 16));
}

TEST(StepWatchTest, AFewStepsTheLastOneAndPausesLikeEarlierOnesAreNone) {
  StepWatch few(10, 1);
  for (int step = 0; step <= 5; ++step) EXPECT_FALSE(stalls(few, step, step));
  EXPECT_TRUE(stalls(few, 5, 100));  // five were enough
  StepWatch fewer(10, 1);
  for (int step = 0; step <= 4; ++step) EXPECT_FALSE(stalls(fewer, step, step));
  EXPECT_FALSE(stalls(fewer, 4, 1e6));

  StepWatch pausing(10, 1);
  for (int step = 0; step <= 6; ++step) EXPECT_FALSE(stalls(pausing, step, step));
  EXPECT_FALSE(stalls(pausing, 7, 15));  // an evaluation of nine seconds
  EXPECT_FALSE(stalls(pausing, 7, 15 + 17.9));
  EXPECT_TRUE(stalls(pausing, 7, 15 + 18));

  StepWatch ended(10, 1);
  for (int step = 94; step <= 100; ++step) EXPECT_FALSE(stalls(ended, step, step));
  EXPECT_FALSE(stalls(ended, 100, 1e6));
}

TEST(StepWatchTest, ManyStepsBetweenTwoLooksAreManyAndANewEpochIsNoStep) {
  StepWatch watch(100, 1);
  for (int look = 0; look <= 6; ++look) EXPECT_FALSE(stalls(watch, 10 * look, look));
  EXPECT_FALSE(stalls(watch, 0, 7));
  EXPECT_DOUBLE_EQ(watch.median_step_s(), 0.1);
  EXPECT_FALSE(stalls(watch, 0, 16.9));
  EXPECT_TRUE(stalls(watch, 0, 17));
  StepWatch never(0, 1);
  for (int step = 0; step <= 9; ++step) EXPECT_FALSE(stalls(never, step, step));
  EXPECT_FALSE(stalls(never, 9, 1e9));
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
