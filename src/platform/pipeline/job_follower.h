// PlatformJobFollower: looks at one job of the platform until it has ended, and shows what it
// prints.
#pragma once

#include <chrono>
#include <string>

#include "aws/aws_client.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "pipeline/pipeline_jobs.h"
#include "pipeline/pipeline_run.h"

namespace yard::pipeline {

// For one thread; what it is given outlives it.
class PlatformJobFollower {
 public:
  PlatformJobFollower(const aws::AwsClient& platform, const PipelineStep& step, std::string job,
                      const PipelineScreen& screen)
      : platform_(platform), step_(step), job_(std::move(job)), screen_(screen) {}

  // kNotFound: there is no such job.
  Result<JobSight> look();
  // Until it has ended. When `stop` is asked the job is asked to stop, once, and waited for.
  Result<JobSight> follow(std::chrono::milliseconds look_period, const StopToken& stop);

 private:
  Status ask_stop();
  void show_status(const JobSight& sight);
  // What its first host has printed since the last look, as far as it can be read now.
  void show_log();
  void show_line(const std::string& line);

  const aws::AwsClient& platform_;
  const PipelineStep& step_;
  const std::string job_;
  const PipelineScreen& screen_;
  std::string shown_status_;
  std::string stream_;  // the log stream's name, once it is known
  std::string log_token_;
};

}  // namespace yard::pipeline
