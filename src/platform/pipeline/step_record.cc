#include "pipeline/step_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "jobs/heartbeat.h"
#include "jobs/ledger.h"

namespace yard::pipeline {
namespace {

namespace fs = std::filesystem;
using jobs::SupervisorEvent;
using Kind = jobs::SupervisorEventKind;

constexpr int kStoppedCode = 8;  // of a rank that was asked to end

// The lines of a text, without newlines; what stands behind the last one is no line.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

// When ranks were started, over all jobs, and when the attempt that began so had certainly ended.
struct AttemptSpan {
  double begin_t = 0;
  double end_t = 0;
  bool failed = false;
};

std::vector<AttemptSpan> attempts_of(const std::vector<JobSight>& jobs) {
  std::vector<AttemptSpan> attempts;
  for (const JobSight& job : jobs) {
    const size_t first = attempts.size();
    for (const JobSight::Change& change : job.changes) {
      if (change.status == "Training") attempts.push_back({change.start_t, job.ended_t, false});
      const bool restarts = change.status == "Restarting" || change.status == "Interrupted";
      if (!restarts || attempts.size() == first) continue;
      attempts.back().end_t = change.start_t;
      attempts.back().failed = true;
    }
    if (job.end == JobEnd::kFailed && attempts.size() > first) attempts.back().failed = true;
  }
  return attempts;
}

bool is_failure(const SupervisorEvent& event) {
  return event.kind == Kind::kRankExited &&
         (event.signal != 0 || (event.code != 0 && event.code != kStoppedCode));
}

// The first thing that went wrong in an attempt; without any word of it, its end.
SupervisorEvent fault_of(const AttemptSpan& span, int64_t attempt,
                         const std::vector<SupervisorEvent>& told) {
  SupervisorEvent fault{.t = span.end_t, .kind = Kind::kFault, .attempt = attempt};
  fault.cause = "rank_fault";
  fault.detail = "the host or its supervisor was lost";
  for (const SupervisorEvent& event : told) {
    if (!is_failure(event) || event.t < span.begin_t || event.t >= fault.t) continue;
    fault.t = event.t;
    fault.rank = event.rank;
    fault.detail = event.signal != 0
                       ? fmt::format("rank {} was killed by signal {}", event.rank, event.signal)
                       : fmt::format("rank {} ended with exit code {}", event.rank, event.code);
  }
  return fault;
}

std::string_view word_of(JobEnd end) {
  if (end == JobEnd::kCompleted) return "succeeded";
  return end == JobEnd::kStopped ? "stopped" : "failed";
}

void add_recovery(const SupervisorEvent& fault, const AttemptSpan& next,
                  const std::vector<double>& step_times, std::vector<SupervisorEvent>& events) {
  const auto step = std::ranges::upper_bound(step_times, next.begin_t);
  if (step == step_times.end()) return;
  SupervisorEvent recovered{.t = *step, .kind = Kind::kRecovered, .attempt = fault.attempt + 1};
  recovered.recovery_s = *step - fault.t;
  events.push_back(recovered);
}

Result<std::vector<std::string>> read_launches(const std::string& dir) {
  std::vector<std::string> lines;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir + "/launches", error)) {
    YARD_ASSIGN(const std::string text, read_file(entry.path()));
    for (std::string& line : lines_of(text)) lines.push_back(std::move(line));
  }
  return lines;
}

// Of each rank, in their order; attempts are numbered on the way.
Result<std::vector<std::vector<jobs::Heartbeat>>> read_heartbeats(const std::string& dir,
                                                                  int rank_count) {
  std::vector<std::vector<jobs::Heartbeat>> ranks;
  for (int rank = 0; rank < rank_count; ++rank) {
    const std::string path = fmt::format("{}/heartbeats/rank-{}.jsonl", dir, rank);
    auto text = read_file(path);
    if (!text && text.error().code != Code::kNotFound) return std::move(text).error();
    ranks.emplace_back();
    if (!text) continue;
    const std::string numbered = number_attempts(*text);
    YARD_TRY(write_file_atomic(path, numbered));
    for (const std::string& line : lines_of(numbered))
      if (const auto heartbeat = jobs::parse_heartbeat(line)) ranks.back().push_back(*heartbeat);
  }
  return ranks;
}

std::vector<double> step_times_of(const std::vector<jobs::Heartbeat>& heartbeats) {
  std::vector<double> times;
  for (const jobs::Heartbeat& heartbeat : heartbeats)
    if (heartbeat.event == jobs::HeartbeatEvent::kStep) times.push_back(heartbeat.t);
  std::ranges::sort(times);
  return times;
}

Json job_json(const PipelineStep& step, const StepState& state) {
  std::vector<std::string> command = step.command;
  if (step.kind == StepKind::kTrain) {
    command = {"yard-train", "recipe.yaml"};
    command.insert(command.end(), step.overrides.begin(), step.overrides.end());
  }
  if (step.kind == StepKind::kPrep) command = {"yard", "prep", "run", "prep.yaml"};
  return {{"name", state.jobs.empty() ? step.name : state.jobs.back()},
          {"command", command},
          {"ranks", step.host_count * step.ranks_per_host}};
}

Status write_json(const std::string& path, const Json& json) {
  return write_file_atomic(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Status write_training_record(const std::string& dir, const PipelineStep& step,
                             const std::vector<JobSight>& jobs) {
  YARD_ASSIGN(const auto heartbeats, read_heartbeats(dir, step.host_count * step.ranks_per_host));
  YARD_ASSIGN(const auto launches, read_launches(dir));
  const auto events = events_of_jobs(jobs, launches, step_times_of(heartbeats.front()));
  std::string lines;
  for (const SupervisorEvent& event : events) lines += to_line(event) + "\n";
  YARD_TRY(write_file_atomic(dir + "/events.jsonl", lines));
  const double price = step.price_per_host_hour * step.host_count;
  return write_json(dir + "/ledger.json",
                    jobs::to_json(jobs::compute_ledger(events, heartbeats, price, 0)));
}

}  // namespace

std::vector<SupervisorEvent> events_of_jobs(const std::vector<JobSight>& jobs,
                                            const std::vector<std::string>& launches,
                                            const std::vector<double>& step_times) {
  std::vector<SupervisorEvent> events;
  if (jobs.empty() || jobs.front().started_t <= 0) return events;
  std::vector<SupervisorEvent> told;
  for (const std::string& line : launches)
    if (const auto event = jobs::parse_supervisor_event(line)) told.push_back(*event);
  events.push_back({.t = jobs.front().started_t, .kind = Kind::kSupervisorStarted});
  const std::vector<AttemptSpan> attempts = attempts_of(jobs);
  for (size_t i = 0; i < attempts.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    if (i > 0)
      events.push_back({.t = attempts[i].begin_t, .kind = Kind::kRelaunched, .attempt = number});
    events.push_back({.t = attempts[i].begin_t, .kind = Kind::kAttemptStarted, .attempt = number});
    if (!attempts[i].failed) continue;
    events.push_back(fault_of(attempts[i], number, told));
    if (i + 1 < attempts.size())
      add_recovery(SupervisorEvent(events.back()), attempts[i + 1], step_times, events);
  }
  for (const SupervisorEvent& event : told)
    if (event.kind == Kind::kChaosKill) events.push_back(event);
  const JobSight& last = jobs.back();
  if (last.end != JobEnd::kRuns) {
    SupervisorEvent ended{.t = last.ended_t, .kind = Kind::kEnded};
    ended.state = word_of(last.end);
    ended.detail = last.failure;
    events.push_back(std::move(ended));
  }
  std::ranges::stable_sort(events, {}, &SupervisorEvent::t);
  return events;
}

std::string number_attempts(const std::string& heartbeats) {
  std::string out;
  int attempt = 0;
  for (const std::string& line : lines_of(heartbeats)) {
    auto json = parse_json(line, "heartbeat");
    if (json && json->is_object() && json->contains("event") && (*json)["event"] == "start") {
      (*json)["attempt"] = attempt++;
      out += json->dump() + "\n";
    } else {
      out += line + "\n";
    }
  }
  return out;
}

Status write_step_record(const std::string& dir, const PipelineStep& step, const StepState& state,
                         const std::vector<JobSight>& jobs, const std::string& file_text) {
  YARD_TRY(make_directories(dir));
  YARD_TRY(write_json(dir + "/job.json", job_json(step, state)));
  YARD_TRY(write_json(dir + "/status.json",
                      {{"name", step.name},
                       {"state", word_of(jobs.empty() ? JobEnd::kFailed : jobs.back().end)},
                       {"reason", state.failure}}));
  if (!file_text.empty()) YARD_TRY(write_file_atomic(dir + "/recipe.yaml", file_text));
  return step.kind == StepKind::kTrain ? write_training_record(dir, step, jobs) : Status(Ok{});
}

}  // namespace yard::pipeline
