#include "observe/progress_forecast.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace yard::observe {
namespace {

constexpr size_t kWordDistanceMax = 12;  // between "step" and its number: "Step [   12/100]"
constexpr size_t kLineBytesRead = 4096;
constexpr double kWarmUpShare = 0.1;
constexpr size_t kStretchesMax = 9;
constexpr std::array kErrorShares = {0.1, 0.25, 0.5, 0.75};
constexpr std::array<std::string_view, 6> kStepWords = {"step",  "iter",   "iteration",
                                                        "batch", "update", "it"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// A pair of numbers in a line, and where it stands.
struct CountInLine {
  double done = 0;
  double total = 0;
  size_t begin = 0;
  size_t end = 0;
};

// The number that begins at `at`, which moves behind it.
std::optional<double> take_number(std::string_view line, size_t& at) {
  const size_t begin = at;
  while (at < line.size() && is_digit(line[at])) ++at;
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(line.data() + begin, line.data() + at, value);
  if (at == begin || failed != std::errc() || end != line.data() + at) return std::nullopt;
  return static_cast<double>(value);
}

// "/" or " of " between two numbers, spaces around it allowed.
bool skip_separator(std::string_view line, size_t& at) {
  const size_t begin = at;
  while (at < line.size() && line[at] == ' ') ++at;
  if (at < line.size() && line[at] == '/')
    ++at;
  else if (line.substr(at, 3) == "of " && at > begin)
    at += 3;
  else
    return false;
  while (at < line.size() && line[at] == ' ') ++at;
  return true;
}

std::vector<CountInLine> counts_in(std::string_view line) {
  std::vector<CountInLine> counts;
  for (size_t at = 0; at < line.size();) {
    if (!is_digit(line[at])) {
      ++at;
      continue;
    }
    // A date, a path or a fraction is no count: "2026/11/30", "a1/2", "0.5/1".
    const bool is_inside = at > 0 && (std::isalpha(static_cast<unsigned char>(line[at - 1])) != 0 ||
                                      line[at - 1] == '.' || line[at - 1] == '/');
    CountInLine count{.begin = at};
    const auto done = take_number(line, at);
    size_t behind = at;
    if (!done || is_inside || !skip_separator(line, behind)) continue;
    const auto total = take_number(line, behind);
    if (!total) continue;
    at = behind;
    const bool goes_on =
        at < line.size() &&
        (line[at] == '/' || (line[at] == '.' && at + 1 < line.size() && is_digit(line[at + 1])));
    if (goes_on || *done > *total || *total < 2) continue;
    counts.push_back({*done, *total, count.begin, at});
  }
  return counts;
}

// The last word before `end`, in small letters, its plural s left out.
std::string word_before(std::string_view line, size_t end) {
  size_t stop = end;
  while (stop > 0 && end - stop < kWordDistanceMax &&
         std::isalpha(static_cast<unsigned char>(line[stop - 1])) == 0)
    --stop;
  size_t start = stop;
  while (start > 0 && std::isalpha(static_cast<unsigned char>(line[start - 1])) != 0) --start;
  std::string word(line.substr(start, stop - start));
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word.size() > 4 && word.ends_with('s')) word.pop_back();
  return word;
}

// "| 12/100 [00:05<00:44,  2.00it/s]"
bool is_bar(std::string_view line, const CountInLine& count) {
  const std::string_view behind = line.substr(count.end);
  return behind.starts_with(" [") && behind.find('<') != std::string_view::npos;
}

bool is_step_word(const std::string& word) {
  return std::ranges::find(kStepWords, word) != kStepWords.end();
}

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

std::optional<ProgressMark> progress_of_line(double t, std::string_view line) {
  line = line.substr(0, kLineBytesRead);
  std::optional<CountInLine> steps, epochs;
  for (const CountInLine& count : counts_in(line)) {
    const std::string word = word_before(line, count.begin);
    if (word == "epoch")
      epochs = count;
    else if (is_step_word(word) || (!steps && is_bar(line, count)))
      steps = count;
  }
  if (!steps && !epochs) return std::nullopt;
  if (!epochs) return ProgressMark{t, steps->done, steps->total};
  if (!steps) return ProgressMark{t, epochs->done, epochs->total};
  // Epochs that begin with 0 and those that begin with 1 differ by what is before the first step.
  const double before = std::max(0.0, epochs->done - (epochs->done > 0 ? 1 : 0));
  return ProgressMark{t, before + steps->done / steps->total, epochs->total};
}

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
