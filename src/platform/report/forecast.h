// Forecast: how long a stage was to take by the pace of its beginning, and how long it took. Pure.
#pragma once

#include <string>
#include <vector>

#include "report/run_history.h"

namespace yard::report {

struct StageForecast {
  std::string stage;
  int64_t step_count = 0;      // that were done and count
  int64_t measured_count = 0;  // of them, the first ones, which the forecast was made by
  double forecast_s = 0;       // the median of those times all steps
  double actual_s = 0;         // inside steps
};

// Of each stage with at least kForecastStepsMin steps, in their order. The first twentieth of the
// steps, at least kForecastStepsMin and without the very first, is what the forecast is made by.
inline constexpr int64_t kForecastStepsMin = 5;
std::vector<StageForecast> stage_forecasts(const RunHistory& history);

// Of all steps that count: computing, and waiting for data and for peers, as shares of their time.
struct TimeShares {
  double compute = 0;
  double data_wait = 0;
  double comm_wait = 0;
  double steps_per_s = 0;
};
TimeShares time_shares(const RunHistory& history);

}  // namespace yard::report
