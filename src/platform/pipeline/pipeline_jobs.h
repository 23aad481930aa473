// The platform's jobs that a pipeline's steps become: requests in the words of SageMaker's API, and
// what its answers mean. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "pipeline/pipeline_spec.h"
#include "pipeline/rank_launcher.h"

namespace yard::pipeline {

// Where a step keeps its things: STORE/NAME/STEP/...
struct StepPlace {
  std::string url;

  std::string input() const { return url + "/input"; }  // the recipe, or the spec of prep
  std::string run() const { return url + "/run"; }      // checkpoints, heartbeats, samples
  std::string model() const { return url + "/model"; }
  std::string state() const { return url + "/state"; }  // of prep: its ledger's journal
};
StepPlace place_of(const PipelineSpec& spec, const PipelineStep& step);

// The key, below a step's run(), of its checkpoints' folder.
inline constexpr std::string_view kCheckpointFolder = "output/checkpoints/";

struct JobPlan {
  std::string name;                      // of the job
  std::optional<int64_t> stop_at_stage;  // of kTrain, see LaunchOptions
  std::optional<RankKill> kill;
};

bool is_training(const PipelineStep& step);
// Of CreateTrainingJob or CreateProcessingJob.
Json job_request(const PipelineSpec& spec, const PipelineStep& step, const JobPlan& plan);

// The number of the stage after `until` in the recipe, nullopt where that is its last or `until` is
// empty. kInvalidArgument: no such stage (the nearest is named), or not a recipe.
Result<std::optional<int64_t>> stage_to_stop_at(const std::string& recipe, std::string_view until,
                                                std::string_view what);

enum class JobEnd : uint8_t { kRuns, kCompleted, kStopped, kFailed };
// What DescribeTrainingJob or DescribeProcessingJob says.
struct JobSight {
  JobEnd end = JobEnd::kRuns;
  std::string status;  // secondary where there is one: "Downloading"
  std::string failure;
  double created_t = 0;
  double started_t = 0;  // 0: not yet
  double ended_t = 0;
  double billable_s = 0;
  struct Change {
    std::string status;
    std::string message;
    double start_t = 0;
  };
  std::vector<Change> changes;
};
JobSight sight_of(const PipelineStep& step, const Json& answer);
// A death, a lost peer or a lost store: another job may go on where this one ended.
bool may_try_again(const JobSight& sight);

}  // namespace yard::pipeline
