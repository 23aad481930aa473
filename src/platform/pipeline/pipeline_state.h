// PipelineState: how far a pipeline has come: PIPELINE_DIR/pipeline.json, replaced as a whole at
// each change, so that whoever runs it next goes on where the last one ended.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace yard::pipeline {

enum class StepStatus : uint8_t { kWaiting, kRunning, kCompleted, kFailed, kStopped };
std::string_view to_string(StepStatus status);

struct StepState {
  std::string name;
  std::string kind;  // "prep", "process", "train"
  StepStatus status = StepStatus::kWaiting;
  std::vector<std::string> jobs;  // the last one is the present one
  int host_count = 1;
  double price_per_host_hour = 0;
  double started_t = 0;  // of its first job; 0: not yet
  double ended_t = 0;
  double held_s = 0;      // how long its jobs held their hosts
  double billable_s = 0;  // as the platform bills it
  std::string failure;
  Json identity;  // see identity_of(), of the definition that its first job was made by
};

struct PipelineState {
  std::string name;
  std::string file;  // as it was given
  std::vector<StepState> steps;

  StepState* find(std::string_view step_name);
};

Json to_json(const PipelineState& state);
Result<PipelineState> pipeline_state_from(const Json& json, std::string_view what);

// kNotFound: nothing was run there yet.
Result<PipelineState> load_pipeline_state(const std::string& dir);
Status save_pipeline_state(const PipelineState& state, const std::string& dir);
std::string pipeline_state_path(const std::string& dir);
// The folder of a step's record, in the form of a job's folder (docs/formats/job.md).
std::string step_record_dir(const std::string& dir, std::string_view step);

}  // namespace yard::pipeline
