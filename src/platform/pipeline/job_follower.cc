#include "pipeline/job_follower.h"

#include <fmt/format.h>

namespace yard::pipeline {
namespace {

constexpr std::string_view kProgress = "progress: ";
constexpr int kPagesAtOnce = 20;

std::string log_group_of(const PipelineStep& step) {
  return is_training(step) ? "/aws/sagemaker/TrainingJobs" : "/aws/sagemaker/ProcessingJobs";
}

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

Result<JobSight> PlatformJobFollower::look() {
  const char* operation = is_training(step_) ? "DescribeTrainingJob" : "DescribeProcessingJob";
  const char* name = is_training(step_) ? "TrainingJobName" : "ProcessingJobName";
  YARD_ASSIGN(const Json answer, platform_.call(aws::kSageMaker, operation, {{name, job_}}));
  return sight_of(step_, answer);
}

Status PlatformJobFollower::ask_stop() {
  const char* operation = is_training(step_) ? "StopTrainingJob" : "StopProcessingJob";
  const char* name = is_training(step_) ? "TrainingJobName" : "ProcessingJobName";
  auto asked = platform_.call(aws::kSageMaker, operation, {{name, job_}});
  // Refused when it has ended meanwhile: the next look shows that.
  if (!asked && asked.error().code != Code::kInvalidArgument) return std::move(asked).error();
  return Ok{};
}

Result<JobSight> PlatformJobFollower::follow(std::chrono::milliseconds look_period,
                                             const StopToken& stop) {
  bool has_asked = false;
  while (true) {
    if (stop.stopped() && !has_asked) {
      has_asked = true;
      screen_.tell(fmt::format("stopping {}: it saves its state", job_));
      YARD_TRY(ask_stop());
    }
    // The status first: whatever was printed before the end is there to be read then.
    YARD_ASSIGN(const JobSight sight, look());
    show_status(sight);
    show_log();
    if (sight.end != JobEnd::kRuns) return sight;
    // A token that was stopped no longer waits.
    (void)(has_asked ? StopToken() : stop).wait_for(look_period);
  }
}

void PlatformJobFollower::show_status(const JobSight& sight) {
  if (sight.status == shown_status_) return;
  shown_status_ = sight.status;
  screen_.live(sight.status);
  if (sight.status == "Restarting")
    screen_.tell("the platform starts it again from its last checkpoint");
}

void PlatformJobFollower::show_log() {
  const std::string group = log_group_of(step_);
  if (stream_.empty()) {
    const auto streams =
        platform_.call(aws::kLogs, "DescribeLogStreams",
                       {{"logGroupName", group}, {"logStreamNamePrefix", job_ + "/algo-1-"}});
    if (!streams) return;
    const Json list = streams->value("logStreams", Json::array());
    if (list.empty()) return;
    stream_ = text_of(list.front(), "logStreamName");
  }
  for (int page = 0; page < kPagesAtOnce; ++page) {
    Json input = {{"logGroupName", group}, {"logStreamName", stream_}, {"startFromHead", true}};
    if (!log_token_.empty()) input["nextToken"] = log_token_;
    const auto events = platform_.call(aws::kLogs, "GetLogEvents", input);
    if (!events) return;
    log_token_ = text_of(*events, "nextForwardToken");
    const Json list = events->value("events", Json::array());
    if (list.empty()) return;
    for (const Json& event : list) show_line(text_of(event, "message"));
  }
}

void PlatformJobFollower::show_line(const std::string& line) {
  if (line.starts_with(kProgress))
    screen_.live(line.substr(kProgress.size()));
  else
    screen_.tell("  " + line);
}

}  // namespace yard::pipeline
