#include "pipeline/pipeline_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/nearest_name.h"
#include "pipeline/pipeline_document.h"

namespace yard::pipeline {
namespace {

constexpr int kVolumeGb = 30;
constexpr const char* kHostsFile = "/opt/ml/config/resourceconfig.json";

Json s3_source(const std::string& url) {
  return {{"S3DataSource",
           {{"S3DataType", "S3Prefix"},
            {"S3Uri", url},
            {"S3DataDistributionType", "FullyReplicated"}}}};
}

// Prefixes of channels are folders: "emoji" must not also mean "emoji-old".
std::string as_folder(std::string url) {
  if (!url.ends_with('/')) url += '/';
  return url;
}

Json tags_of(const PipelineSpec& spec, const PipelineStep& step) {
  return Json::array({{{"Key", "trainyard:pipeline"}, {"Value", spec.name}},
                      {{"Key", "trainyard:step"}, {"Value", step.name}}});
}

bool sets(const PipelineStep& step, std::string_view key) {
  return std::ranges::any_of(step.overrides, [&](const std::string& each) {
    return each.starts_with(fmt::format("{}=", key));
  });
}

// Inputs of these names are what the recipe's keys of that meaning point at.
void add_input_overrides(const PipelineStep& step, std::vector<std::string>& arguments) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kKeys{
      {{"shards", "data.shards"}, {"tokenizer", "model.tokenizer"}}};
  for (const auto& [input, key] : kKeys)
    if (step.inputs.contains(std::string(input)) && !sets(step, key))
      arguments.push_back(fmt::format("{}=/opt/ml/input/data/{}", key, input));
}

std::vector<std::string> launch_arguments(const PipelineStep& step, const JobPlan& plan) {
  std::vector<std::string> arguments = {"--ranks", std::to_string(step.ranks_per_host)};
  if (plan.stop_at_stage)
    arguments.insert(arguments.end(), {"--stop-at-stage", std::to_string(*plan.stop_at_stage)});
  if (plan.kill)
    arguments.insert(arguments.end(), {"--kill-rank", std::to_string(plan.kill->rank),
                                       "--after-step", std::to_string(plan.kill->after_step)});
  arguments.insert(arguments.end(), {"--", "yard-train", "/opt/ml/input/data/recipe/recipe.yaml"});
  add_input_overrides(step, arguments);
  arguments.insert(arguments.end(), step.overrides.begin(), step.overrides.end());
  return arguments;
}

Json training_job(const PipelineSpec& spec, const PipelineStep& step, const JobPlan& plan) {
  const StepPlace place = place_of(spec, step);
  Json channels = Json::array(
      {{{"ChannelName", "recipe"}, {"DataSource", s3_source(as_folder(place.input()))}}});
  for (const auto& [name, url] : step.inputs)
    channels.push_back({{"ChannelName", name},
                        {"DataSource", s3_source(as_folder(url))},
                        {"InputMode", step.input_mode}});
  const Json metrics =
      Json::array({{{"Name", "train:loss"}, {"Regex", "loss ([0-9.e+-]+)"}},
                   {{"Name", "train:steps_per_second"}, {"Regex", "([0-9.e+-]+) it/s"}}});
  return {{"TrainingJobName", plan.name},
          {"RoleArn", spec.role},
          {"AlgorithmSpecification",
           {{"TrainingImage", step.image},
            {"TrainingInputMode", "File"},
            {"ContainerEntrypoint", {"yard", "launch"}},
            {"ContainerArguments", launch_arguments(step, plan)},
            {"MetricDefinitions", metrics}}},
          {"InputDataConfig", channels},
          {"CheckpointConfig", {{"S3Uri", place.run()}}},
          {"OutputDataConfig", {{"S3OutputPath", place.model()}}},
          {"ResourceConfig",
           {{"InstanceType", step.instance_type},
            {"InstanceCount", step.host_count},
            {"VolumeSizeInGB", kVolumeGb}}},
          {"StoppingCondition", {{"MaxRuntimeInSeconds", step.max_runtime_s}}},
          {"Environment", step.environment},
          {"Tags", tags_of(spec, step)}};
}

Json processing_input(const std::string& name, const std::string& url, const std::string& path) {
  return {{"InputName", name},
          {"S3Input",
           {{"S3Uri", as_folder(url)},
            {"LocalPath", path},
            {"S3DataType", "S3Prefix"},
            {"S3InputMode", "File"}}}};
}

Json processing_output(const std::string& name, const std::string& url, const std::string& path) {
  return {{"OutputName", name},
          {"S3Output", {{"S3Uri", url}, {"LocalPath", path}, {"S3UploadMode", "EndOfJob"}}}};
}

Json processing_job(const PipelineSpec& spec, const PipelineStep& step, const JobPlan& plan) {
  Json inputs = Json::array();
  Json outputs = Json::array();
  std::vector<std::string> command = step.command;
  if (step.kind == StepKind::kPrep) {
    const StepPlace place = place_of(spec, step);
    inputs.push_back(processing_input("spec", place.input(), "/opt/ml/processing/input/spec"));
    command = {"yard",
               "prep",
               "run",
               "/opt/ml/processing/input/spec/prep.yaml",
               "--state",
               place.state(),
               "--hosts-file",
               kHostsFile,
               "--progress-lines"};
  }
  for (const auto& [name, url] : step.inputs)
    inputs.push_back(processing_input(name, url, "/opt/ml/processing/input/" + name));
  for (const auto& [name, url] : step.outputs)
    outputs.push_back(processing_output(name, url, "/opt/ml/processing/output/" + name));
  const std::vector<std::string> arguments(command.begin() + 1, command.end());
  Json app = {{"ImageUri", step.image}, {"ContainerEntrypoint", Json::array({command.front()})}};
  if (!arguments.empty()) app["ContainerArguments"] = arguments;
  Json request = {{"ProcessingJobName", plan.name},
                  {"RoleArn", spec.role},
                  {"AppSpecification", app},
                  {"ProcessingResources",
                   {{"ClusterConfig",
                     {{"InstanceType", step.instance_type},
                      {"InstanceCount", step.host_count},
                      {"VolumeSizeInGB", kVolumeGb}}}}},
                  {"StoppingCondition", {{"MaxRuntimeInSeconds", step.max_runtime_s}}},
                  {"Environment", step.environment},
                  {"Tags", tags_of(spec, step)}};
  if (!inputs.empty()) request["ProcessingInputs"] = inputs;
  if (!outputs.empty()) request["ProcessingOutputConfig"] = {{"Outputs", outputs}};
  return request;
}

std::string text_or(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

double number_or(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace

StepPlace place_of(const PipelineSpec& spec, const PipelineStep& step) {
  return {fmt::format("{}/{}/{}", spec.store, spec.name, step.name)};
}

bool is_training(const PipelineStep& step) {
  return step.kind == StepKind::kTrain;
}

Json job_request(const PipelineSpec& spec, const PipelineStep& step, const JobPlan& plan) {
  return is_training(step) ? training_job(spec, step, plan) : processing_job(spec, step, plan);
}

Result<std::optional<int64_t>> stage_to_stop_at(const std::string& recipe, std::string_view until,
                                                std::string_view what) {
  if (until.empty()) return std::optional<int64_t>();
  YARD_ASSIGN(const Json document, json_of_yaml(recipe, what));
  std::vector<std::string> names;
  for (const Json& stage : document.is_object() ? document.value("stages", Json::array()) : Json())
    names.push_back(text_or(stage, "name"));
  const auto found = std::ranges::find(names, until);
  if (found == names.end())
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: no stage has the name '{}'{}", what, until,
                             suggestion(until, {names.begin(), names.end()}))};
  const auto next = found - names.begin() + 1;
  if (next == std::ssize(names)) return std::optional<int64_t>();
  return std::optional<int64_t>(next);
}

JobSight sight_of(const PipelineStep& step, const Json& answer) {
  JobSight sight;
  const bool trains = is_training(step);
  const std::string primary = text_or(answer, trains ? "TrainingJobStatus" : "ProcessingJobStatus");
  if (primary == "Completed") sight.end = JobEnd::kCompleted;
  if (primary == "Stopped") sight.end = JobEnd::kStopped;
  if (primary == "Failed") sight.end = JobEnd::kFailed;
  sight.status = text_or(answer, "SecondaryStatus");
  if (sight.status.empty()) sight.status = primary;
  sight.failure = text_or(answer, "FailureReason");
  sight.created_t = number_or(answer, "CreationTime");
  sight.started_t = number_or(answer, trains ? "TrainingStartTime" : "ProcessingStartTime");
  sight.ended_t = number_or(answer, trains ? "TrainingEndTime" : "ProcessingEndTime");
  const double held_s =
      sight.started_t > 0 && sight.ended_t > 0 ? sight.ended_t - sight.started_t : 0;
  sight.billable_s = trains ? number_or(answer, "BillableTimeInSeconds") : held_s;
  for (const Json& change : answer.value("SecondaryStatusTransitions", Json::array()))
    sight.changes.push_back({text_or(change, "Status"), text_or(change, "StatusMessage"),
                             number_or(change, "StartTime")});
  return sight;
}

bool may_try_again(const JobSight& sight) {
  if (sight.end != JobEnd::kFailed) return false;
  return sight.failure.starts_with("InternalServerError") ||
         sight.failure.ends_with("exit code: 6") || sight.failure.ends_with("exit code: 7");
}

}  // namespace yard::pipeline
