#include "observe/progress_forecast.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace yard::observe {
namespace {

// done and total; {-1, -1}: the line says nothing.
std::pair<double, double> said(std::string_view line) {
  const auto mark = progress_of_line(1, line);
  return mark ? std::pair(mark->done, mark->total) : std::pair(-1.0, -1.0);
}
using Said = std::pair<double, double>;

TEST(ProgressForecast, LinesOfCommonTrainersAreUnderstood) {
  EXPECT_EQ(said("step 120/1000 loss=0.3"), Said(120, 1000));
  EXPECT_EQ(said("Step [  12/100], Loss: 1.5"), Said(12, 100));
  EXPECT_EQ(said("iter=7/50"), Said(7, 50));
  EXPECT_EQ(said("Steps: 3 of 8"), Said(3, 8));
  EXPECT_EQ(said(" 12%|#2        | 12/100 [00:05<00:44,  2.00it/s]"), Said(12, 100));
  EXPECT_EQ(said("Epoch 3/10 done"), Said(3, 10));
  EXPECT_EQ(said("Epoch [2/10] iter 250/500"), Said(1.5, 10));
  EXPECT_EQ(said("Epoch 1/4: 100%|##########| 20/20 [00:05<00:00, 4it/s]"), Said(1, 4));
}

TEST(ProgressForecast, OtherNumbersAreNoProgress) {
  for (const char* line :
       {"", "loss 3/4", "2026/11/30 12:00", "step 9/3", "epoch 0/0", "step 1/2/3", "steps 12",
        "reading /data/step1/2.tar", "step 99999999999999999999999/3", "12/100 [no bar]",
        "gradient step a1/20"})
    EXPECT_EQ(said(line), Said(-1, -1)) << line;
}

std::vector<ProgressMark> steady(double from_t, double per_second, int from, int to, int total) {
  std::vector<ProgressMark> marks;
  for (int i = from; i <= to; ++i)
    marks.push_back({from_t + (i - from) / per_second, double(i), double(total)});
  return marks;
}

TEST(ProgressForecast, ASteadyRunEndsWhenItsRateSays) {
  const auto forecast = forecast_of(steady(1000, 2, 0, 50, 200));
  ASSERT_TRUE(forecast);
  EXPECT_NEAR(forecast->per_second, 2, 1e-9);
  EXPECT_NEAR(forecast->end_t, 1100, 1e-6);
}

TEST(ProgressForecast, WarmUpAndPausesDoNotBendTheRate) {
  std::vector<ProgressMark> marks = {{0, 0, 1000}, {10, 1, 1000}};  // the first step compiles
  double t = 10;
  for (int i = 2; i <= 200; ++i) marks.push_back({t += i == 120 ? 30 : 0.5, double(i), 1000.0});
  const auto forecast = forecast_of(marks);
  ASSERT_TRUE(forecast);
  EXPECT_NEAR(forecast->per_second, 2, 0.02);
}

TEST(ProgressForecast, ARestartBeginsAnew) {
  auto marks = steady(0, 10, 0, 100, 200);
  for (const auto& mark : steady(100, 2, 60, 100, 200)) marks.push_back(mark);
  const auto forecast = forecast_of(marks);
  ASSERT_TRUE(forecast);
  EXPECT_NEAR(forecast->end_t, 120 + 50, 1e-6);
}

TEST(ProgressForecast, WithoutMovementThereIsNone) {
  EXPECT_FALSE(forecast_of({}));
  EXPECT_FALSE(forecast_of(steady(0, 1, 0, 1, 10)));
  EXPECT_FALSE(forecast_of({{0, 5, 10}, {1, 5, 10}, {2, 5, 10}, {3, 5, 10}}));
}

TEST(ProgressForecast, ItsErrorIsToldAtTheEnd) {
  // Half of it at 2 a second, the rest at 1: from half way on it said 150 s instead of 100.
  auto marks = steady(0, 2, 0, 100, 200);
  for (int i = 101; i <= 200; ++i) marks.push_back({50.0 + (i - 100), double(i), 200.0});
  const auto errors = forecast_errors(marks, 150);
  ASSERT_EQ(errors.size(), 4u);
  EXPECT_NEAR(errors[0].forecast_s, 100, 1e-6);
  EXPECT_NEAR(errors[0].error_percent, -100.0 / 3, 1e-6);
  EXPECT_NEAR(errors[2].at_share, 0.5, 1e-9);
  EXPECT_TRUE(forecast_errors({}, 10).empty());
}

TEST(ProgressForecast, ALogIsReadToItsEndAndOfALongOneBothEnds) {
  std::string folder = testing::TempDir() + "yard_forecast_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/algo-1.log";
  auto writer = logs::LogWriter::open({.path = path});
  ASSERT_TRUE(writer);
  for (int i = 1; i <= 2000; ++i) {
    const std::string line = "step " + std::to_string(i) + "/2000";
    ASSERT_TRUE(writer->append_at(1000 * i, {line, "something else"}));
  }
  const logs::LogReader reader(path);
  const auto all = progress_of_log(reader);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 2000u);
  EXPECT_EQ(all->back().done, 2000);
  EXPECT_EQ(all->back().t, 2000);
  const auto ends = progress_of_log(reader, 2048);
  ASSERT_TRUE(ends);
  EXPECT_EQ(ends->front().done, 1);
  EXPECT_EQ(ends->back().done, 2000);
  EXPECT_LT(ends->size(), 2000u);
  EXPECT_EQ(progress_of_log(logs::LogReader(folder + "/none")).error().code, Code::kNotFound);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace yard::observe
