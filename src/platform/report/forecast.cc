#include "report/forecast.h"

#include <algorithm>
#include <cmath>

namespace yard::report {
namespace {

constexpr int64_t kMeasuredShare = 20;  // one of so many steps

double finite(double seconds) {
  return std::isfinite(seconds) ? seconds : 0;
}

StageForecast forecast_of(const std::string& stage, const std::vector<double>& step_seconds) {
  StageForecast out{.stage = stage, .step_count = std::ssize(step_seconds)};
  // The first step also warms caches and allocates.
  out.measured_count = std::clamp(out.step_count / kMeasuredShare, kForecastStepsMin,
                                  std::max<int64_t>(kForecastStepsMin, out.step_count));
  std::vector<double> first(step_seconds.begin() + 1,
                            step_seconds.begin() + std::min(out.measured_count, out.step_count));
  std::ranges::nth_element(first, first.begin() + std::ssize(first) / 2);
  out.forecast_s = first[first.size() / 2] * static_cast<double>(out.step_count);
  for (const double seconds : step_seconds) out.actual_s += seconds;
  return out;
}

}  // namespace

std::vector<StageForecast> stage_forecasts(const RunHistory& history) {
  const std::vector<Step> steps = surviving_steps(history);
  std::vector<StageForecast> forecasts;
  for (const Stage& stage : history.stages) {
    std::vector<double> seconds;
    for (const Step& step : steps)
      if (step.stage == stage.name) seconds.push_back(finite(step.step_s));
    if (std::ssize(seconds) >= kForecastStepsMin)
      forecasts.push_back(forecast_of(stage.name, seconds));
  }
  return forecasts;
}

TimeShares time_shares(const RunHistory& history) {
  TimeShares shares;
  double total_s = 0;
  const std::vector<Step> steps = surviving_steps(history);
  for (const Step& step : steps) {
    total_s += finite(step.step_s);
    shares.compute += finite(step.compute_s);
    shares.data_wait += finite(step.data_wait_s);
    shares.comm_wait += finite(step.comm_wait_s);
  }
  if (!(total_s > 0)) return {};
  shares.compute /= total_s;
  shares.data_wait /= total_s;
  shares.comm_wait /= total_s;
  shares.steps_per_s = static_cast<double>(steps.size()) / total_s;
  return shares;
}

}  // namespace yard::report
