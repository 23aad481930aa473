#include "report/run_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/json.h"

namespace yard::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A field of one line. Absent or of another type: `neutral`; a report shows what there is.
template <typename T>
T field(const Json& line, const char* key, T neutral) {
  Result<T> value = json_field_or<T>(line, key, neutral, "heartbeat");
  return value ? *std::move(value) : std::move(neutral);
}
double number(const Json& line, const char* key) {
  return field<double>(line, key, kNaN);
}
int64_t whole(const Json& line, const char* key) {
  return field<int64_t>(line, key, 0);
}
std::string text(const Json& line, const char* key) {
  return field<std::string>(line, key, "");
}

Step step_of(const Json& line, double time, int attempt) {
  return {.time = time,
          .attempt = attempt,
          .stage = text(line, "stage"),
          .global_step = whole(line, "global_step"),
          .loss = number(line, "loss"),
          .step_s = number(line, "step_s"),
          .compute_s = number(line, "compute_s"),
          .data_wait_s = number(line, "data_wait_s"),
          .comm_wait_s = number(line, "comm_wait_s"),
          .sample_count = whole(line, "samples")};
}

void note_stage(std::vector<Stage>& stages, const Json& line) {
  const std::string name = text(line, "stage");
  const auto known = std::find_if(stages.begin(), stages.end(),
                                  [&](const Stage& stage) { return stage.name == name; });
  if (known != stages.end()) return;  // it goes on after a restart
  stages.push_back({name, whole(line, "steps"), whole(line, "resolution"), 0});
}

void sort_by_time(RunHistory& history) {
  const auto earlier = [](const auto& a, const auto& b) { return a.time < b.time; };
  std::stable_sort(history.steps.begin(), history.steps.end(), earlier);
  std::stable_sort(history.events.begin(), history.events.end(), earlier);
  std::stable_sort(history.held_out.begin(), history.held_out.end(), earlier);
  std::stable_sort(history.samples.begin(), history.samples.end(), earlier);
}

// After a restart a grid or held-out loss is told again; the last one told is the one on disk.
template <typename T>
void keep_last_of_each_step(std::vector<T>& items) {
  std::map<std::pair<int64_t, std::string>, T> last;
  for (T& item : items) last[{item.global_step, item.stage}] = std::move(item);
  items.clear();
  for (auto& [key, item] : last) items.push_back(std::move(item));
}

void find_first_steps(RunHistory& history) {
  for (Stage& stage : history.stages) {
    for (const Step& step : history.steps) {
      if (step.stage != stage.name) continue;
      if (stage.first_global_step == 0 || step.global_step < stage.first_global_step) {
        stage.first_global_step = step.global_step;
      }
    }
  }
}

void find_recoveries(RunHistory& history) {
  for (size_t i = 1; i < history.steps.size(); ++i) {
    const Step& before = history.steps[i - 1];
    const Step& after = history.steps[i];
    if (after.attempt == before.attempt) continue;
    history.recoveries.push_back(
        {.attempt = after.attempt,
         .time = before.time,
         .seconds = after.time - before.time,
         .lost_step_count = std::max<int64_t>(0, before.global_step - (after.global_step - 1)),
         .resumed_step = after.global_step - 1});
  }
}

}  // namespace

bool RunHistoryReader::add_line(std::string_view line, Source& source) {
  Result<Json> parsed = parse_json(line, "heartbeat");
  if (!parsed || !parsed->is_object()) return false;
  const Json& fields = *parsed;
  const std::string event = text(fields, "event");
  const double time = number(fields, "t");
  if (event.empty() || !std::isfinite(time)) return false;
  RunHistory& out = history_;
  if (out.begin_time == 0 || time < out.begin_time) out.begin_time = time;
  out.end_time = std::max(out.end_time, time);

  const auto note = [&](EventKind kind, std::string what, double seconds = 0) {
    out.events.push_back({time, kind, source.attempt, source.rank, whole(fields, "global_step"),
                          seconds, std::move(what)});
  };
  const bool leads = source.rank == 0;
  if (event == "start") {
    source = {static_cast<int>(whole(fields, "rank")), static_cast<int>(whole(fields, "attempt"))};
    out.rank_count = std::max(out.rank_count, source.rank + 1);
    out.attempt_count = std::max(out.attempt_count, source.attempt + 1);
    note(EventKind::kStart, "");
  } else if (event == "step") {
    const Step step = step_of(fields, time, source.attempt);
    out.global_step_count = std::max(out.global_step_count, whole(fields, "global_steps"));
    if (leads) out.steps.push_back(step);
  } else if (event == "error") {
    note(EventKind::kError, text(fields, "message"));
  } else if (!leads) {
    return true;  // the others say the same as rank 0 from here on
  } else if (event == "resume") {
    note(EventKind::kResume, text(fields, "stage"));
  } else if (event == "stage") {
    note_stage(out.stages, fields);
    note(EventKind::kStage, text(fields, "stage"));
  } else if (event == "checkpoint") {
    note(EventKind::kCheckpoint, text(fields, "path"), number(fields, "blocked_s"));
  } else if (event == "eval") {
    out.held_out.push_back(
        {time, text(fields, "stage"), whole(fields, "global_step"), number(fields, "loss")});
  } else if (event == "sample") {
    out.samples.push_back({time, text(fields, "stage"), whole(fields, "global_step"),
                           text(fields, "path"),
                           field<std::vector<std::string>>(fields, "prompts", {})});
  } else if (event == "finish") {
    note(EventKind::kFinish, text(fields, "output"));
  }
  return true;
}

void RunHistoryReader::add(std::string_view heartbeats) {
  Source source;
  while (true) {
    const size_t end = heartbeats.find('\n');
    if (end == std::string_view::npos) return;  // a line still being written when the rank died
    const std::string_view line = heartbeats.substr(0, end);
    heartbeats.remove_prefix(end + 1);
    if (!line.empty() && !add_line(line, source)) ++history_.unreadable_line_count;
  }
}

RunHistory RunHistoryReader::finish() && {
  sort_by_time(history_);
  keep_last_of_each_step(history_.held_out);
  keep_last_of_each_step(history_.samples);
  find_first_steps(history_);
  find_recoveries(history_);
  return std::move(history_);
}

std::vector<Step> surviving_steps(const RunHistory& history) {
  std::map<int64_t, Step> last;
  for (const Step& step : history.steps) last[step.global_step] = step;
  std::vector<Step> out;
  out.reserve(last.size());
  for (auto& [global_step, step] : last) out.push_back(std::move(step));
  return out;
}

}  // namespace yard::report
