#include "report/run_history.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace yard::report {
namespace {

std::string start(int rank, int attempt, double t) {
  return fmt::format(R"({{"t":{},"event":"start","rank":{},"attempt":{},"pid":1}})"
                     "\n",
                     t, rank, attempt);
}
std::string step(int64_t global_step, double t, double loss) {
  return fmt::format(
      R"({{"t":{},"event":"step","stage":"vae","step":{},"global_step":{},"global_steps":9,)"
      R"("loss":{},"step_s":0.5,"compute_s":0.4,"data_wait_s":0.1,"comm_wait_s":0,"samples":8}})"
      "\n",
      t, global_step, global_step, loss);
}

RunHistory history_of(std::initializer_list<std::string> files) {
  RunHistoryReader reader;
  for (const std::string& file : files) reader.add(file);
  return std::move(reader).finish();
}

TEST(RunHistoryTest, NothingReportedIsAnEmptyHistory) {
  const RunHistory history = history_of({});
  EXPECT_EQ(history.rank_count, 0);
  EXPECT_TRUE(history.steps.empty());
  EXPECT_TRUE(surviving_steps(history).empty());
}

TEST(RunHistoryTest, StepsDoneTwiceCountOnceWithTheirLastLoss) {
  const RunHistory history =
      history_of({start(0, 0, 100) + step(1, 101, 5) + step(2, 102, 4) + step(3, 103, 3) +
                  start(0, 1, 110) + step(2, 111, 4.5) + step(3, 112, 3.5)});
  EXPECT_EQ(history.attempt_count, 2);
  EXPECT_EQ(history.steps.size(), 5u);
  const std::vector<Step> steps = surviving_steps(history);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[1].loss, 4.5);
  EXPECT_EQ(steps[2].loss, 3.5);
}

TEST(RunHistoryTest, RestartTellsItsSecondsAndItsLostSteps) {
  const RunHistory history = history_of({start(0, 0, 100) + step(1, 101, 5) + step(2, 102, 4) +
                                         step(3, 103, 3) + start(0, 1, 110) + step(2, 111, 4)});
  ASSERT_EQ(history.recoveries.size(), 1u);
  EXPECT_EQ(history.recoveries[0].attempt, 1);
  EXPECT_DOUBLE_EQ(history.recoveries[0].seconds, 8);
  EXPECT_EQ(history.recoveries[0].lost_step_count, 2);
  EXPECT_EQ(history.recoveries[0].resumed_step, 1);
}

TEST(RunHistoryTest, OnlyRankZeroTellsTheCurve) {
  const RunHistory history =
      history_of({start(1, 0, 100) + step(1, 101, 99), start(0, 0, 100) + step(1, 101, 5)});
  EXPECT_EQ(history.rank_count, 2);
  ASSERT_EQ(history.steps.size(), 1u);
  EXPECT_EQ(history.steps[0].loss, 5);
}

TEST(RunHistoryTest, UnfinishedLastLineIsIgnoredAndDamagedLinesAreCounted) {
  const RunHistory history = history_of({start(0, 0, 100) + "not json\n" +
                                         R"({"event":"step"})"
                                         "\n[1]\n" +
                                         step(1, 101, 5) + R"({"t":102,"event":"st)"});
  EXPECT_EQ(history.unreadable_line_count, 3);
  EXPECT_EQ(history.steps.size(), 1u);
}

TEST(RunHistoryTest, LossThatIsNotFiniteIsKeptAsAGap) {
  const RunHistory history = history_of(
      {start(0, 0, 100) + R"({"t":101,"event":"step","stage":"s","global_step":1,"loss":null})"
                          "\n"});
  ASSERT_EQ(history.steps.size(), 1u);
  EXPECT_TRUE(std::isnan(history.steps[0].loss));
}

TEST(RunHistoryTest, StageThatGoesOnAfterARestartIsOneStage) {
  const std::string stage =
      R"({"t":100.5,"event":"stage","stage":"vae","stage_index":0,"stage_count":1,"steps":9,"resolution":32})"
      "\n";
  const RunHistory history = history_of(
      {start(0, 0, 100) + stage + step(4, 101, 1) + start(0, 1, 103) + stage + step(3, 104, 1)});
  ASSERT_EQ(history.stages.size(), 1u);
  EXPECT_EQ(history.stages[0].resolution, 32);
  EXPECT_EQ(history.stages[0].first_global_step, 3);
}

TEST(RunHistoryTest, GridWrittenAgainReplacesTheFirst) {
  const auto sample = [](double t, const char* path) {
    return fmt::format(
        R"({{"t":{},"event":"sample","stage":"s","global_step":5,"path":"{}","prompts":["a","b"]}})"
        "\n",
        t, path);
  };
  const RunHistory history =
      history_of({start(0, 0, 1) + sample(2, "old.png") + start(0, 1, 3) + sample(4, "new.png")});
  ASSERT_EQ(history.samples.size(), 1u);
  EXPECT_EQ(history.samples[0].path, "new.png");
  EXPECT_EQ(history.samples[0].prompts, (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace yard::report
