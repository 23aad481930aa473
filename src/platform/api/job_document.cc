#include "api/job_document.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "api/timestamp.h"

namespace yard::api {
namespace {

// What of the request is said again as it was given.
constexpr std::array kTrainingEcho = {"HyperParameters",
                                      "AlgorithmSpecification",
                                      "RoleArn",
                                      "InputDataConfig",
                                      "OutputDataConfig",
                                      "ResourceConfig",
                                      "VpcConfig",
                                      "StoppingCondition",
                                      "CheckpointConfig",
                                      "DebugHookConfig",
                                      "DebugRuleConfigurations",
                                      "TensorBoardOutputConfig",
                                      "ExperimentConfig",
                                      "ProfilerConfig",
                                      "ProfilerRuleConfigurations",
                                      "Environment",
                                      "RetryStrategy",
                                      "RemoteDebugConfig",
                                      "InfraCheckConfig",
                                      "EnableNetworkIsolation",
                                      "EnableInterContainerTrafficEncryption",
                                      "EnableManagedSpotTraining"};
constexpr std::array kProcessingEcho = {"ProcessingInputs",    "ProcessingOutputConfig",
                                        "ProcessingResources", "StoppingCondition",
                                        "AppSpecification",    "Environment",
                                        "NetworkConfig",       "RoleArn",
                                        "ExperimentConfig"};

template <size_t kCount>
Json echo(const Json& request, const std::array<const char*, kCount>& names) {
  Json document = Json::object();
  for (const char* name : names)
    if (const auto found = request.find(name); found != request.end()) document[name] = *found;
  return document;
}

std::string cut(std::string text) {
  if (text.size() <= kFailureReasonBytesMax) return text;
  size_t end = kFailureReasonBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

void set_time(Json& document, const char* name, const std::optional<double>& time) {
  if (time) document[name] = rounded_to_ms(*time);
}

// What was made may be looked for there already; before, it is where it will be.
std::string model_uri_of(const jobs::JobView& view) {
  if (!view.model_uri.empty()) return view.model_uri;
  const Json output = view.job.request.value("OutputDataConfig", Json::object());
  std::string path = output.value("S3OutputPath", std::string());
  while (path.ends_with('/')) path.pop_back();
  const bool is_plain = output.value("CompressionType", std::string("GZIP")) == "NONE";
  return path + "/" + view.job.name + "/output/" + (is_plain ? "model/" : "model.tar.gz");
}

Json transitions_of(const jobs::JobView& view) {
  Json list = Json::array();
  for (const jobs::StatusChange& change : view.changes) {
    Json entry = {{"Status", change.status},
                  {"StartTime", rounded_to_ms(change.start_t)},
                  {"StatusMessage", change.message}};
    set_time(entry, "EndTime", change.end_t);
    list.push_back(std::move(entry));
  }
  return list;
}

Json warm_pool_of(const jobs::JobView& view) {
  Json pool = {{"Status", view.warm_pool_status},
               {"ResourceRetainedBillableTimeInSeconds",
                static_cast<int64_t>(std::ceil(view.warm_pool_billable_s))}};
  if (!view.reused_by.empty()) pool["ReusedByJob"] = view.reused_by;
  return pool;
}

// What AWS adds to what was not said.
void set_training_defaults(Json& document) {
  for (const char* flag : {"EnableNetworkIsolation", "EnableInterContainerTrafficEncryption",
                           "EnableManagedSpotTraining"})
    document.emplace(flag, false);
  document.emplace("HyperParameters", Json::object());
  Json& output = document["OutputDataConfig"];
  output.emplace("KmsKeyId", "");
  output.emplace("CompressionType", "GZIP");
  document.emplace("StoppingCondition", Json::object());
  document["StoppingCondition"].emplace("MaxRuntimeInSeconds", 86400);
  for (Json& channel : document["InputDataConfig"]) {
    channel.emplace("CompressionType", "None");
    channel.emplace("RecordWrapperType", "None");
  }
  document["AlgorithmSpecification"].emplace("EnableSageMakerMetricsTimeSeries", false);
  const Json profiler = document.value("ProfilerConfig", Json::object());
  const bool is_on = !profiler.empty() && !profiler.value("DisableProfiler", false);
  document["ProfilingStatus"] = is_on ? "Enabled" : "Disabled";
}

// Whole seconds; never 0 once there is time to pay for, since clients divide by it.
void set_training_seconds(Json& document, const jobs::JobView& view) {
  if (!view.training_start_t) return;
  document["TrainingTimeInSeconds"] =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(view.training_s)));
  if (view.training_end_t)
    document["BillableTimeInSeconds"] =
        std::max<int64_t>(1, static_cast<int64_t>(std::ceil(view.billable_s)));
}

}  // namespace

Json training_document(const jobs::JobView& view, const std::vector<FinalMetric>& final_metrics) {
  Json document = echo(view.job.request, kTrainingEcho);
  document.emplace("InputDataConfig", Json::array());
  set_training_defaults(document);
  document["TrainingJobName"] = view.job.name;
  document["TrainingJobArn"] = view.job.arn;
  document["ModelArtifacts"] = {{"S3ModelArtifacts", model_uri_of(view)}};
  document["TrainingJobStatus"] = view.status;
  document["SecondaryStatus"] = view.secondary_status;
  if (!view.failure_reason.empty()) document["FailureReason"] = cut(view.failure_reason);
  document["SecondaryStatusTransitions"] = transitions_of(view);
  document["CreationTime"] = rounded_to_ms(view.created_t);
  document["LastModifiedTime"] = rounded_to_ms(view.modified_t);
  set_time(document, "TrainingStartTime", view.training_start_t);
  set_time(document, "TrainingEndTime", view.training_end_t);
  set_training_seconds(document, view);
  if (!view.warm_pool_status.empty()) document["WarmPoolStatus"] = warm_pool_of(view);
  for (const FinalMetric& metric : final_metrics)
    document["FinalMetricDataList"].push_back({{"MetricName", metric.name},
                                               {"Value", metric.value},
                                               {"Timestamp", rounded_to_ms(metric.t)}});
  return document;
}

Json training_summary(const jobs::JobView& view) {
  Json summary = {{"TrainingJobName", view.job.name},
                  {"TrainingJobArn", view.job.arn},
                  {"CreationTime", rounded_to_ms(view.created_t)},
                  {"LastModifiedTime", rounded_to_ms(view.modified_t)},
                  {"TrainingJobStatus", view.status},
                  {"SecondaryStatus", view.secondary_status}};
  set_time(summary, "TrainingEndTime", view.training_end_t);
  if (!view.warm_pool_status.empty()) summary["WarmPoolStatus"] = warm_pool_of(view);
  return summary;
}

namespace {

void set_processing_end(Json& document, const jobs::JobView& view) {
  set_time(document, "ProcessingEndTime", view.training_end_t);
  if (view.failure_reason.empty()) return;
  document["FailureReason"] = cut(view.failure_reason);
  document["ExitMessage"] = cut(view.failure_reason);
}

}  // namespace

Json processing_document(const jobs::JobView& view) {
  Json document = echo(view.job.request, kProcessingEcho);
  document.emplace("StoppingCondition", Json{{"MaxRuntimeInSeconds", 86400}});
  if (const auto output = document.find("ProcessingOutputConfig"); output != document.end())
    output->emplace("KmsKeyId", "");
  document["ProcessingJobName"] = view.job.name;
  document["ProcessingJobArn"] = view.job.arn;
  document["ProcessingJobStatus"] = view.status;
  document["CreationTime"] = rounded_to_ms(view.created_t);
  document["LastModifiedTime"] = rounded_to_ms(view.modified_t);
  set_time(document, "ProcessingStartTime", view.training_start_t);
  set_processing_end(document, view);
  return document;
}

Json processing_summary(const jobs::JobView& view) {
  Json summary = {{"ProcessingJobName", view.job.name},
                  {"ProcessingJobArn", view.job.arn},
                  {"CreationTime", rounded_to_ms(view.created_t)},
                  {"LastModifiedTime", rounded_to_ms(view.modified_t)},
                  {"ProcessingJobStatus", view.status}};
  set_processing_end(summary, view);
  return summary;
}

}  // namespace yard::api
