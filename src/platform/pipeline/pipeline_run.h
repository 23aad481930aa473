// PipelineRun: the steps of a pipeline as jobs of the platform, one after the other, each submitted
// through the public API with the caller's credentials. Whoever runs it only asks and looks: the
// jobs belong to the platform, and what is known of them is in PIPELINE_DIR.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aws/aws_client.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "pipeline/pipeline_jobs.h"
#include "pipeline/pipeline_spec.h"
#include "pipeline/pipeline_state.h"
#include "storage/location.h"

namespace yard::pipeline {

// What a person sees of it; called on the thread that runs it.
struct PipelineScreen {
  std::function<void(const std::string& line)> tell;  // stays
  std::function<void(const std::string& line)> live;  // until the next of either
};

struct PipelineRunOptions {
  std::string dir;   // the state and the records of its steps; made when missing
  std::string file;  // the pipeline's own, for messages
  // Kills a rank once, in this step.
  std::string kill_step;
  std::optional<RankKill> kill;
  std::chrono::milliseconds look_period{300};
  StopToken stop;  // ends the running job, which can be gone on with later
};

// Blocks until all steps are completed. A step that is completed already is passed over; of one
// that runs the job is followed. Codes: kInvalidArgument: a completed step is defined otherwise now
// (the key is named), or a file or the platform refuses it; kNotFound: a step's file; kUnavailable:
// another process runs this pipeline, or the platform is away; kCancelled: stopped; of a failed job
// kInternal, kUnavailable where trying again may help. After any of them the same call goes on.
Status run_pipeline(const PipelineSpec& spec, const PipelineRunOptions& options,
                    const aws::AwsClient& platform, storage::Opener& store,
                    const PipelineScreen& screen);

}  // namespace yard::pipeline
