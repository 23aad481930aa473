#include "report/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "report/html.h"

namespace yard::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Of the curve's points; enough to see the trend through the noise of single steps.
constexpr double kSmoothShare = 0.04;
constexpr double kSmoothWidthMax = 200;

double smooth_width(size_t point_count) {
  return std::clamp(static_cast<double>(point_count) * kSmoothShare, 1.0, kSmoothWidthMax);
}

// A run of a few minutes is read in seconds.
struct TimeAxis {
  double begin_time = 0;
  double unit_s = 1;
  const char* label = "seconds";
  double at(double time) const { return (time - begin_time) / unit_s; }
};

TimeAxis time_axis(const RunHistory& history) {
  constexpr double kSecondsMax = 180;
  if (history.end_time - history.begin_time <= kSecondsMax)
    return {history.begin_time, 1, "seconds"};
  return {history.begin_time, 60, "minutes"};
}

// `value` of each step, smoothed, over the run's time; broken between attempts and stages, for
// nothing was trained there and what is measured changes.
template <typename Value>
std::vector<ChartPoint> over_time(const RunHistory& history, const Value& value) {
  std::vector<ChartPoint> points;
  std::vector<ChartPoint> piece;
  const double width = smooth_width(history.steps.size());
  const TimeAxis axis = time_axis(history);
  for (size_t i = 0; i < history.steps.size(); ++i) {
    const Step& step = history.steps[i];
    const double x = axis.at(step.time);
    if (i > 0 && (history.steps[i - 1].attempt != step.attempt ||
                  history.steps[i - 1].stage != step.stage)) {
      piece = smooth(piece, width);
      points.insert(points.end(), piece.begin(), piece.end());
      points.push_back({x, kNaN});
      piece.clear();
    }
    piece.push_back({x, value(step)});
  }
  piece = smooth(piece, width);
  points.insert(points.end(), piece.begin(), piece.end());
  return points;
}

std::vector<ChartMarker> time_markers(const RunHistory& history) {
  const TimeAxis axis = time_axis(history);
  std::vector<ChartMarker> markers;
  for (const Stage& stage : history.stages) {
    const auto first = std::find_if(history.steps.begin(), history.steps.end(),
                                    [&](const Step& step) { return step.stage == stage.name; });
    if (first == history.steps.end()) continue;
    markers.push_back({axis.at(first->time - first->step_s), stage.name, "stage"});
  }
  for (const Recovery& recovery : history.recoveries) {
    markers.push_back({axis.at(recovery.time), "restart", "kill"});
  }
  return markers;
}

}  // namespace

Chart loss_chart(const RunHistory& history, const Stage& stage) {
  std::vector<ChartPoint> raw;
  for (const Step& step : surviving_steps(history)) {
    if (step.stage == stage.name) raw.push_back({static_cast<double>(step.global_step), step.loss});
  }
  std::vector<ChartPoint> held_out;
  for (const HeldOutLoss& eval : history.held_out) {
    if (eval.stage == stage.name) {
      held_out.push_back({static_cast<double>(eval.global_step), eval.loss});
    }
  }
  Chart chart{.title = "Loss", .x_label = "step of the run"};
  chart.series = {{"", "train", SeriesStyle::kFaintLine, raw},
                  {"training", "train", SeriesStyle::kLine, smooth(raw, smooth_width(raw.size()))},
                  {"held out", "held", SeriesStyle::kDots, std::move(held_out)}};
  for (const Recovery& recovery : history.recoveries) {
    const bool here =
        !raw.empty() && static_cast<double>(recovery.resumed_step) + 1 >= raw.front().x;
    if (!here) continue;
    chart.markers.push_back({static_cast<double>(recovery.resumed_step),
                             fmt::format("restart, {} {} again", recovery.lost_step_count,
                                         recovery.lost_step_count == 1 ? "step" : "steps"),
                             "kill"});
  }
  return chart;
}

Chart speed_chart(const RunHistory& history) {
  Chart chart{.title = "Speed",
              .x_label = time_axis(history).label,
              .y_label = "steps/s",
              .from_zero = true};
  std::vector<ChartPoint> points = over_time(history, [](const Step& step) { return step.step_s; });
  for (ChartPoint& point : points) point.y = 1 / point.y;
  chart.series = {{"steps per second", "train", SeriesStyle::kLine, std::move(points)}};
  chart.markers = time_markers(history);
  return chart;
}

Chart wait_chart(const RunHistory& history) {
  Chart chart{.title = "Waiting",
              .x_label = time_axis(history).label,
              .y_label = "% of a step",
              .from_zero = true};
  const auto share = [&](double Step::*wait_s) {
    return over_time(history, [=](const Step& step) { return 100 * step.*wait_s / step.step_s; });
  };
  chart.series = {{"for data", "wait", SeriesStyle::kLine, share(&Step::data_wait_s)},
                  {"for peers", "comm", SeriesStyle::kLine, share(&Step::comm_wait_s)}};
  chart.markers = time_markers(history);
  return chart;
}

}  // namespace yard::report
