#include "host/job_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "host/job_folder.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMl = "/opt/ml";
const std::vector<std::string_view> kTrainingFolders = {
    "/input/config",        "/input/data", "/model",       "/output/data",
    "/output/intermediate", "/code",       "/checkpoints", kWarmPoolCache};
const std::vector<std::string_view> kProcessingFolders = {"/config", "/processing", "/output"};

Json groups_json(const jobs::HostPlan& plan) {
  Json groups = Json::array();
  for (const std::string& name : jobs::sorted_host_names(plan)) {
    const auto host = std::ranges::find(plan.hosts, name, &jobs::PlanHost::name);
    auto group = std::ranges::find_if(
        groups, [&](const Json& item) { return item["instance_group_name"] == host->group; });
    if (group == groups.end()) {
      groups.push_back({{"instance_group_name", host->group},
                        {"instance_type", host->instance_type},
                        {"hosts", Json::array()}});
      group = groups.end() - 1;
    }
    (*group)["hosts"].push_back(name);
  }
  return groups;
}

Status write_json(const std::string& path, const Json& json) {
  return replace_file(path, json.dump());
}

Status write_training_files(const jobs::HostPlan& plan, const std::string& ml_dir,
                            const std::string& network_interface) {
  const std::string config = ml_dir + "/input/config";
  YARD_TRY(write_json(config + "/hyperparameters.json", hyperparameters_json(plan)));
  YARD_TRY(
      write_json(config + "/resourceconfig.json", resource_config_json(plan, network_interface)));
  return write_json(config + "/inputdataconfig.json", input_data_config_json(plan));
}

Status write_processing_files(const jobs::HostPlan& plan, const std::string& ml_dir) {
  YARD_TRY(
      write_json(ml_dir + "/config/processingjobconfig.json", processing_job_config_json(plan)));
  return write_json(ml_dir + "/config/resourceconfig.json", processing_resource_config_json(plan));
}

}  // namespace

Json hyperparameters_json(const jobs::HostPlan& plan) {
  Json json = Json::object();
  for (const auto& [name, value] : plan.hyperparameters) json[name] = value;
  return json;
}

Json resource_config_json(const jobs::HostPlan& plan, const std::string& network_interface) {
  const jobs::PlanHost& own = jobs::own_host(plan);
  return {{"current_host", own.name},
          {"current_instance_type", own.instance_type},
          {"current_group_name", own.group},
          {"hosts", jobs::sorted_host_names(plan)},
          {"instance_groups", groups_json(plan)},
          {"network_interface_name", network_interface},
          {"topology", nullptr}};
}

Json input_data_config_json(const jobs::HostPlan& plan) {
  Json out = Json::object();
  for (const jobs::PlanChannel& channel : plan.channels) {
    const Json& config = channel.config;
    const auto text = [&](const char* key, const std::string& fallback) {
      const auto found = config.find(key);
      return found != config.end() && found->is_string() ? found->get<std::string>() : fallback;
    };
    Json item = {{"TrainingInputMode", text("InputMode", plan.input_mode)},
                 {"RecordWrapperType", text("RecordWrapperType", "None")}};
    if (const std::string type = text("ContentType", ""); !type.empty()) item["ContentType"] = type;
    const Json::json_pointer distribution("/DataSource/S3DataSource/S3DataDistributionType");
    item["S3DistributionType"] =
        config.contains(distribution) ? config[distribution] : Json("FullyReplicated");
    out[text("ChannelName", "")] = std::move(item);
  }
  return out;
}

Json processing_job_config_json(const jobs::HostPlan& plan) {
  Json json = {{"ProcessingJobArn", plan.arn}, {"ProcessingJobName", plan.job}};
  for (const char* key :
       {"Environment", "AppSpecification", "ProcessingInputs", "ProcessingOutputConfig",
        "ProcessingResources", "RoleArn", "StoppingCondition"})
    if (plan.request.contains(key)) json[key] = plan.request[key];
  return json;
}

Json processing_resource_config_json(const jobs::HostPlan& plan) {
  return {{"current_host", plan.host}, {"hosts", jobs::sorted_host_names(plan)}};
}

Status make_layout_folders(jobs::HostJobKind kind, const std::string& ml_dir) {
  std::error_code error;
  fs::remove_all(ml_dir, error);
  if (error) return errno_error(ml_dir, error.value());
  const bool is_processing = kind == jobs::HostJobKind::kProcessing;
  for (const std::string_view name : is_processing ? kProcessingFolders : kTrainingFolders)
    YARD_TRY(make_directories(ml_dir + std::string(name)));
  return Ok{};
}

Status write_layout(const jobs::HostPlan& plan, const std::string& ml_dir,
                    const std::string& network_interface) {
  if (plan.kind == jobs::HostJobKind::kProcessing) return write_processing_files(plan, ml_dir);
  return write_training_files(plan, ml_dir, network_interface);
}

Result<std::string> path_in_ml(const std::string& ml_dir, const std::string& path) {
  const std::string normal = fs::path(path).lexically_normal();
  if (normal == kMl || normal == "/opt/ml/") return ml_dir;
  if (!normal.starts_with("/opt/ml/"))
    return Error{Code::kInvalidArgument, fmt::format("'{}' does not lie below {}", path, kMl)};
  std::string below = normal.substr(kMl.size());
  while (below.ends_with('/')) below.pop_back();
  return ml_dir + below;
}

std::map<std::string, std::string> sandbox_environment() {
  return {{"HOME", "/root"},
          {"LANG", "C.UTF-8"},
          {"PYTHONUNBUFFERED", "1"},
          {"PYTHONDONTWRITEBYTECODE", "1"},
          // A job that hangs is ended by SIGABRT: then it says where.
          {"PYTHONFAULTHANDLER", "1"},
          {"AWS_EC2_METADATA_DISABLED", "true"},
          {"TMPDIR", "/tmp"}};
}

std::map<std::string, std::string> platform_environment(
    const jobs::HostPlan& plan, const std::map<std::string, std::string>& own) {
  auto env = sandbox_environment();
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
                           "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTP_PROXY", "HTTPS_PROXY",
                           "NO_PROXY", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"})
    if (const auto found = own.find(name); found != own.end()) env[name] = found->second;
  if (!plan.store_endpoint.empty()) {
    env["AWS_ENDPOINT_URL_S3"] = plan.store_endpoint;
    env["S3_ENDPOINT_URL"] = plan.store_endpoint;
  }
  if (!plan.region.empty()) {
    env["AWS_REGION"] = plan.region;
    env["AWS_DEFAULT_REGION"] = plan.region;
  }
  if (plan.kind == jobs::HostJobKind::kTraining) {
    env["TRAINING_JOB_NAME"] = plan.job;
    env["TRAINING_JOB_ARN"] = plan.arn;
    env["SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"] = "/opt/ml/sagemaker/warmpoolcache";
  } else {
    env["PROCESSING_JOB_NAME"] = plan.job;
    env["PROCESSING_JOB_ARN"] = plan.arn;
  }
  for (const auto& [name, value] : plan.environment) env[name] = value;
  return env;
}

}  // namespace yard::host
