#include "report/forecast.h"

#include <gtest/gtest.h>

namespace yard::report {
namespace {

RunHistory history_of(const std::vector<double>& step_seconds) {
  RunHistory history;
  history.stages = {{.name = "small"}};
  for (size_t i = 0; i < step_seconds.size(); ++i)
    history.steps.push_back({.time = double(i),
                             .stage = "small",
                             .global_step = int64_t(i) + 1,
                             .step_s = step_seconds[i],
                             .compute_s = step_seconds[i] / 2,
                             .data_wait_s = step_seconds[i] / 4});
  return history;
}

TEST(Forecast, IsThePaceOfTheFirstStepsWithoutTheVeryFirst) {
  std::vector<double> seconds(100, 3.0);
  seconds[0] = 50;
  for (size_t i = 1; i < 5; ++i) seconds[i] = 2.0;
  const auto forecasts = stage_forecasts(history_of(seconds));
  ASSERT_EQ(forecasts.size(), 1u);
  EXPECT_EQ(forecasts[0].measured_count, 5);
  EXPECT_DOUBLE_EQ(forecasts[0].forecast_s, 200);
  EXPECT_DOUBLE_EQ(forecasts[0].actual_s, 50 + 4 * 2 + 95 * 3);
}

TEST(Forecast, AStageOfFewStepsHasNone) {
  EXPECT_TRUE(stage_forecasts(history_of({1, 1, 1, 1})).empty());
  EXPECT_EQ(stage_forecasts(history_of({1, 1, 1, 1, 1})).size(), 1u);
}

TEST(Forecast, SharesAreOfTheTimeInsideSteps) {
  const TimeShares shares = time_shares(history_of({1, 1, 2}));
  EXPECT_DOUBLE_EQ(shares.compute, 0.5);
  EXPECT_DOUBLE_EQ(shares.data_wait, 0.25);
  EXPECT_DOUBLE_EQ(shares.steps_per_s, 0.75);
  EXPECT_EQ(time_shares({}).steps_per_s, 0);
}

}  // namespace
}  // namespace yard::report
