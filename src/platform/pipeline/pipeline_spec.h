// PipelineSpec: what `yard run PIPELINE.yaml` is to do, step by step. docs/formats/pipeline.md has
// every key.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace yard::pipeline {

enum class StepKind : uint8_t {
  kPrep,     // a processing job that runs `yard prep run`
  kProcess,  // a processing job with a command of the user's
  kTrain,    // a training job: some stages of a recipe, by yard-train
};
std::string_view to_string(StepKind kind);

struct PipelineStep {
  std::string name;
  StepKind kind = StepKind::kProcess;
  std::vector<std::string> needs;  // earlier steps
  std::string image;
  std::string instance_type;
  int host_count = 1;
  double price_per_host_hour = 0;
  int64_t max_runtime_s = 86'400;
  int retries = 2;  // jobs after the first, where a rank, a peer or the store was lost
  std::map<std::string, std::string> environment;

  std::string file;                  // kPrep: the spec; kTrain: the recipe; absolute
  std::vector<std::string> command;  // kProcess
  // Name to s3:// URL. kProcess: below /opt/ml/processing/input and .../output; kTrain: channels.
  std::map<std::string, std::string> inputs;
  std::map<std::string, std::string> outputs;

  std::string until;  // kTrain: the last stage of the recipe that is trained; empty: all
  int ranks_per_host = 1;
  std::string input_mode = "File";     // or FastFile
  int checkpoints_kept = 2;            // kTrain, in the store, once a job has ended; 0: all
  std::vector<std::string> overrides;  // key=value of the recipe
};

struct PipelineSpec {
  std::string name;
  std::string store;  // "s3://train/emoji": what steps leave goes below it
  std::string role;
  std::vector<PipelineStep> steps;

  const PipelineStep* find(std::string_view step_name) const;
  // The training step whose checkpoint the step goes on from: the nearest that it needs; null:
  // none.
  const PipelineStep* resumed_by(const PipelineStep& step) const;
};

// Whether the file is a pipeline, not a recipe: it has `steps`. False for what is no YAML.
bool is_pipeline(const std::string& yaml);

// `what` names the file in errors, as in "pipeline.yaml: steps.small: unknown key 'host', did you
// mean 'hosts'?"; relative files are taken from `dir`. `overrides`: "steps.small.hosts=2" and the
// like. kInvalidArgument, naming file, step and key.
Result<PipelineSpec> parse_pipeline(const std::string& yaml, const std::string& what,
                                    const std::string& dir,
                                    const std::vector<std::string>& overrides);

// All of the step that decides what it makes: what it says and the text of its file.
Json identity_of(const PipelineStep& step, const std::string& file_text);

}  // namespace yard::pipeline
