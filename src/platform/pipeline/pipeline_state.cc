#include "pipeline/pipeline_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file.h"

namespace yard::pipeline {
namespace {

constexpr std::array<std::pair<StepStatus, std::string_view>, 5> kStatuses{{
    {StepStatus::kWaiting, "waiting"},
    {StepStatus::kRunning, "running"},
    {StepStatus::kCompleted, "completed"},
    {StepStatus::kFailed, "failed"},
    {StepStatus::kStopped, "stopped"},
}};

Json to_json(const StepState& step) {
  return {{"name", step.name},
          {"kind", step.kind},
          {"status", to_string(step.status)},
          {"jobs", step.jobs},
          {"hosts", step.host_count},
          {"price_per_host_hour", step.price_per_host_hour},
          {"started_t", step.started_t},
          {"ended_t", step.ended_t},
          {"held_s", step.held_s},
          {"billable_s", step.billable_s},
          {"failure", step.failure},
          {"identity", step.identity}};
}

Result<StepState> step_from(const Json& json, std::string_view what) {
  StepState step;
  YARD_ASSIGN(step.name, json_field<std::string>(json, "name", what));
  YARD_ASSIGN(step.kind, json_field<std::string>(json, "kind", what));
  YARD_ASSIGN(const auto word, json_field<std::string>(json, "status", what));
  const auto known =
      std::ranges::find(kStatuses, word, &std::pair<StepStatus, std::string_view>::second);
  if (known == kStatuses.end())
    return Error{Code::kCorrupt, fmt::format("{}: unknown status '{}'", what, word)};
  step.status = known->first;
  YARD_ASSIGN(step.jobs, json_field<std::vector<std::string>>(json, "jobs", what));
  YARD_ASSIGN(step.host_count, json_field<int>(json, "hosts", what));
  YARD_ASSIGN(step.price_per_host_hour, json_field<double>(json, "price_per_host_hour", what));
  YARD_ASSIGN(step.started_t, json_field<double>(json, "started_t", what));
  YARD_ASSIGN(step.ended_t, json_field<double>(json, "ended_t", what));
  YARD_ASSIGN(step.held_s, json_field<double>(json, "held_s", what));
  YARD_ASSIGN(step.billable_s, json_field<double>(json, "billable_s", what));
  YARD_ASSIGN(step.failure, json_field<std::string>(json, "failure", what));
  YARD_ASSIGN(step.identity, json_field<Json>(json, "identity", what));
  return step;
}

}  // namespace

std::string_view to_string(StepStatus status) {
  for (const auto& [each, word] : kStatuses)
    if (each == status) return word;
  YARD_UNREACHABLE();
}

StepState* PipelineState::find(std::string_view step_name) {
  const auto found = std::ranges::find(steps, step_name, &StepState::name);
  return found == steps.end() ? nullptr : &*found;
}

Json to_json(const PipelineState& state) {
  Json steps = Json::array();
  for (const StepState& step : state.steps) steps.push_back(to_json(step));
  return {{"format", 1}, {"name", state.name}, {"file", state.file}, {"steps", steps}};
}

Result<PipelineState> pipeline_state_from(const Json& json, std::string_view what) {
  PipelineState state;
  YARD_ASSIGN(const int format, json_field<int>(json, "format", what));
  if (format != 1)
    return Error{Code::kInvalidArgument, fmt::format("{}: of format {}, not 1", what, format)};
  YARD_ASSIGN(state.name, json_field<std::string>(json, "name", what));
  YARD_ASSIGN(state.file, json_field<std::string>(json, "file", what));
  YARD_ASSIGN(const Json steps, json_field<Json>(json, "steps", what));
  for (const Json& item : steps) {
    YARD_ASSIGN(StepState step, step_from(item, what));
    state.steps.push_back(std::move(step));
  }
  return state;
}

std::string pipeline_state_path(const std::string& dir) {
  return dir + "/pipeline.json";
}

std::string step_record_dir(const std::string& dir, std::string_view step) {
  return fmt::format("{}/steps/{}", dir, step);
}

Result<PipelineState> load_pipeline_state(const std::string& dir) {
  const std::string path = pipeline_state_path(dir);
  YARD_ASSIGN(const std::string text, read_file(path));
  YARD_ASSIGN(const Json json, parse_json(text, path));
  return pipeline_state_from(json, path);
}

Status save_pipeline_state(const PipelineState& state, const std::string& dir) {
  return write_file_atomic(pipeline_state_path(dir), to_json(state).dump(2) + "\n");
}

}  // namespace yard::pipeline
