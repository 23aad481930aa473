#include "observe/progress_forecast.h"

#include <algorithm>
#include <array>

namespace yard::observe {
namespace {

constexpr double kWarmUpShare = 0.1;
constexpr size_t kStretchesMax = 9;
constexpr std::array kErrorShares = {0.1, 0.25, 0.5, 0.75};

// Since the last restart.
std::vector<ProgressMark> last_run(const std::vector<ProgressMark>& marks) {
  size_t begin = 0;
  for (size_t i = 1; i < marks.size(); ++i)
    if (marks[i].done < marks[i - 1].done || marks[i].total != marks[i - 1].total) begin = i;
  return {marks.begin() + static_cast<std::ptrdiff_t>(begin), marks.end()};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Of stretches of about equal progress.
double steady_rate(const std::vector<ProgressMark>& marks) {
  const size_t stretches = std::min(kStretchesMax, marks.size() - 1);
  std::vector<double> rates;
  for (size_t i = 0; i < stretches; ++i) {
    const ProgressMark& from = marks[i * (marks.size() - 1) / stretches];
    const ProgressMark& to = marks[(i + 1) * (marks.size() - 1) / stretches];
    if (to.t > from.t) rates.push_back((to.done - from.done) / (to.t - from.t));
  }
  return rates.empty() ? 0 : median(std::move(rates));
}

Status add_marks(const logs::LogReader& reader, uint64_t begin, uint64_t end,
                 std::vector<ProgressMark>& marks) {
  logs::LogQuery query;
  query.offset = begin;
  while (*query.offset < end) {
    YARD_ASSIGN(const logs::LogPage page, reader.read(query));
    if (page.events.empty()) break;
    for (const logs::LogEvent& event : page.events) {
      if (event.offset >= end) return Ok{};
      const double t = static_cast<double>(event.t_ms) / 1000;
      if (const auto mark = progress_of_line(t, event.text)) marks.push_back(*mark);
    }
    query.offset = page.end_offset;
  }
  return Ok{};
}

}  // namespace

std::optional<ProgressForecast> forecast_of(const std::vector<ProgressMark>& marks) {
  std::vector<ProgressMark> run = last_run(marks);
  if (run.size() < 3) return std::nullopt;
  const double steady_t = run.front().t + kWarmUpShare * (run.back().t - run.front().t);
  const auto is_early = [&](const ProgressMark& mark) { return mark.t < steady_t; };
  if (run.size() - size_t(std::ranges::count_if(run, is_early)) >= 3) std::erase_if(run, is_early);
  const double rate = steady_rate(run);
  if (rate <= 0) return std::nullopt;
  const ProgressMark& now = run.back();
  return ProgressForecast{now.done, now.total, rate, now.t + (now.total - now.done) / rate};
}

std::vector<ForecastError> forecast_errors(const std::vector<ProgressMark>& marks, double end_t) {
  const std::vector<ProgressMark> run = last_run(marks);
  std::vector<ForecastError> errors;
  if (run.empty()) return errors;
  const double actual_s = end_t - run.front().t;
  if (actual_s <= 0) return errors;
  for (const double share : kErrorShares) {
    const auto reached = std::ranges::find_if(
        run, [&](const ProgressMark& mark) { return mark.done >= share * mark.total; });
    if (reached == run.end()) break;
    const auto forecast = forecast_of({run.begin(), reached + 1});
    if (!forecast) continue;
    const double forecast_s = forecast->end_t - run.front().t;
    errors.push_back({share, forecast_s, actual_s, 100 * (forecast_s - actual_s) / actual_s});
  }
  return errors;
}

Result<std::vector<ProgressMark>> progress_of_log(const logs::LogReader& reader,
                                                  uint64_t bytes_max) {
  YARD_ASSIGN(const logs::LogSummary summary, reader.summary());
  std::vector<ProgressMark> marks;
  const uint64_t size = summary.end_offset - summary.begin_offset;
  const uint64_t first_end =
      size <= bytes_max ? summary.end_offset : summary.begin_offset + bytes_max / 2;
  YARD_TRY(add_marks(reader, summary.begin_offset, first_end, marks));
  if (size > bytes_max)
    YARD_TRY(add_marks(reader, summary.end_offset - bytes_max / 2, summary.end_offset, marks));
  return marks;
}

}  // namespace yard::observe
