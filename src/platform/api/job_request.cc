#include "api/job_request.h"

#include <set>

#include "api/job_update.h"
#include "observe/job_observer.h"

namespace yard::api {
namespace {

const Json& member(const Json& object, const char* name) {
  static const Json nothing = Json::object();
  const auto found = object.find(name);
  return found == object.end() ? nothing : *found;
}

std::string text(const Json& object, const char* name) {
  return object.value(name, std::string());
}

AwsStatus check_s3_uri(const std::string& uri, const std::string& what) {
  const bool has_bucket = uri.starts_with("s3://") && uri.size() > 5 && uri[5] != '/';
  if (has_bucket) return Ok{};
  return validation_error(what + ": '" + uri + "' is not of the form s3://BUCKET/PREFIX");
}

AwsStatus check_algorithm(const Json& input) {
  const Json& algorithm = member(input, "AlgorithmSpecification");
  if (algorithm.contains("AlgorithmName"))
    return validation_error(
        "AlgorithmName: algorithms of the marketplace are not here; give a TrainingImage");
  if (text(algorithm, "TrainingImage").empty())
    return validation_error("AlgorithmSpecification: TrainingImage is missing");
  return Ok{};
}

AwsStatus check_hosts(const Json& input) {
  const Json& resources = member(input, "ResourceConfig");
  const Json& groups = member(resources, "InstanceGroups");
  if (groups.empty()) {
    if (text(resources, "InstanceType").empty() || resources.value("InstanceCount", 0) < 1)
      return validation_error(
          "ResourceConfig: InstanceType and an InstanceCount of at least 1, or InstanceGroups, are "
          "needed");
    return Ok{};
  }
  if (resources.contains("InstanceType") || resources.contains("InstanceCount"))
    return validation_error(
        "ResourceConfig: InstanceGroups exclude InstanceType and InstanceCount");
  std::set<std::string> names;
  for (const Json& group : groups) {
    if (!names.insert(text(group, "InstanceGroupName")).second)
      return validation_error("ResourceConfig: two InstanceGroups of one name");
    if (group.value("InstanceCount", 0) < 1)
      return validation_error("ResourceConfig: an InstanceGroup without hosts");
  }
  return Ok{};
}

AwsStatus check_keep_alive(const Json& input) {
  const Json& resources = member(input, "ResourceConfig");
  if (resources.value("KeepAlivePeriodInSeconds", 0) == 0) return Ok{};
  if (input.value("EnableManagedSpotTraining", false))
    return validation_error("KeepAlivePeriodInSeconds does not go with managed spot training");
  if (resources.contains("InstanceGroups"))
    return validation_error("KeepAlivePeriodInSeconds does not go with InstanceGroups");
  return Ok{};
}

AwsStatus check_times(const Json& input) {
  const Json& times = member(input, "StoppingCondition");
  const bool is_spot = input.value("EnableManagedSpotTraining", false);
  if (is_spot != times.contains("MaxWaitTimeInSeconds"))
    return validation_error("MaxWaitTimeInSeconds and EnableManagedSpotTraining need each other");
  if (is_spot && times.value("MaxWaitTimeInSeconds", int64_t{0}) <
                     times.value("MaxRuntimeInSeconds", int64_t{86400}))
    return validation_error("MaxWaitTimeInSeconds is less than MaxRuntimeInSeconds");
  return Ok{};
}

AwsStatus check_channel(const Json& channel) {
  const std::string what = "channel '" + text(channel, "ChannelName") + "'";
  const Json& source = member(channel, "DataSource");
  const bool is_s3 = source.contains("S3DataSource");
  const bool is_file_system = source.contains("FileSystemDataSource");
  if (is_s3 == is_file_system)
    return validation_error(what + ": one of S3DataSource and FileSystemDataSource is needed");
  if (is_file_system) return Ok{};
  const Json& s3 = source["S3DataSource"];
  const bool is_augmented = text(s3, "S3DataType") == "AugmentedManifestFile";
  if (is_augmented && member(s3, "AttributeNames").empty())
    return validation_error(what + ": an AugmentedManifestFile needs AttributeNames");
  return check_s3_uri(text(s3, "S3Uri"), what);
}

AwsStatus check_channels(const Json& input) {
  std::set<std::string> names;
  for (const Json& channel : member(input, "InputDataConfig")) {
    YARD_TRY(check_channel(channel));
    if (!names.insert(text(channel, "ChannelName")).second)
      return validation_error("channel '" + text(channel, "ChannelName") + "' is given twice");
  }
  return Ok{};
}

AwsStatus check_training(const Json& input) {
  YARD_TRY(check_algorithm(input));
  YARD_TRY(check_hosts(input));
  YARD_TRY(check_keep_alive(input));
  YARD_TRY(check_times(input));
  YARD_TRY(check_channels(input));
  YARD_TRY(check_s3_uri(text(member(input, "OutputDataConfig"), "S3OutputPath"), "S3OutputPath"));
  YARD_TRY(observe::metric_definitions(input));
  YARD_TRY(check_profiler(member(input, "ProfilerConfig")));
  const Json& checkpoints = member(input, "CheckpointConfig");
  if (checkpoints.empty()) return Ok{};
  return check_s3_uri(text(checkpoints, "S3Uri"), "CheckpointConfig");
}

AwsStatus check_names(const Json& list, const char* name) {
  std::set<std::string> names;
  for (const Json& each : list)
    if (!names.insert(text(each, name)).second)
      return validation_error(std::string(name) + " '" + text(each, name) + "' is given twice");
  return Ok{};
}

AwsStatus check_processing(const Json& input) {
  const Json& cluster = member(member(input, "ProcessingResources"), "ClusterConfig");
  if (text(cluster, "InstanceType").empty() || cluster.value("InstanceCount", 0) < 1)
    return validation_error(
        "ClusterConfig: InstanceType and an InstanceCount of at least 1 are needed");
  const Json& inputs = member(input, "ProcessingInputs");
  YARD_TRY(check_names(inputs, "InputName"));
  for (const Json& each : inputs) {
    const std::string what = "input '" + text(each, "InputName") + "'";
    if (!each.contains("S3Input"))
      return validation_error(what + ": only an S3Input can be read here");
    YARD_TRY(check_s3_uri(text(each["S3Input"], "S3Uri"), what));
  }
  const Json& outputs = member(member(input, "ProcessingOutputConfig"), "Outputs");
  YARD_TRY(check_names(outputs, "OutputName"));
  for (const Json& each : outputs) {
    const std::string what = "output '" + text(each, "OutputName") + "'";
    if (!each.contains("S3Output"))
      return validation_error(what + ": only an S3Output can be written here");
    YARD_TRY(check_s3_uri(text(each["S3Output"], "S3Uri"), what));
  }
  return Ok{};
}

AwsResult<jobs::JobRequest> request_of(jobs::JobKind kind, const std::string& name,
                                       const Json& input, const Caller& caller, const Arns& arns) {
  YARD_ASSIGN(auto tags, tags_of(member(input, "Tags")));
  return jobs::JobRequest{.kind = kind,
                          .name = name,
                          .arn = arns.of_job(kind, name),
                          .request = input,
                          .tags = std::move(tags),
                          .user = caller.user};
}

}  // namespace

AwsResult<jobs::JobRequest> training_request(const Json& input, const Caller& caller,
                                             const Arns& arns) {
  YARD_TRY(check_training(input));
  return request_of(jobs::JobKind::kTraining, text(input, "TrainingJobName"), input, caller, arns);
}

AwsResult<jobs::JobRequest> processing_request(const Json& input, const Caller& caller,
                                               const Arns& arns) {
  YARD_TRY(check_processing(input));
  return request_of(jobs::JobKind::kProcessing, text(input, "ProcessingJobName"), input, caller,
                    arns);
}

AwsResult<std::map<std::string, std::string>> tags_of(const Json& list) {
  std::map<std::string, std::string> tags;
  for (const Json& tag : list) {
    const std::string key = text(tag, "Key");
    if (key.starts_with("aws:"))
      return validation_error("tag '" + key + "': keys that begin with aws: are reserved");
    if (!tags.emplace(key, text(tag, "Value")).second)
      return validation_error("tag '" + key + "' is given twice");
  }
  return tags;
}

Json json_of_tags(const std::map<std::string, std::string>& tags) {
  Json list = Json::array();
  for (const auto& [key, value] : tags) list.push_back({{"Key", key}, {"Value", value}});
  return list;
}

}  // namespace yard::api
