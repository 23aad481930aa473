#include "engine/plan_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "jobs/job_needs.h"

namespace yard::engine {
namespace {

using jobs::HostPlan;

const Json& child(const Json& object, std::string_view key) {
  static const Json kNothing = Json::object();
  if (!object.is_object()) return kNothing;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? kNothing : *it;
}

Result<std::vector<std::string>> strings(const Json& object, std::string_view key) {
  return json_field_or(object, key, std::vector<std::string>(), "request");
}

Result<std::map<std::string, std::string>> string_map(const Json& object, std::string_view key) {
  std::map<std::string, std::string> map;
  for (const auto& [name, value] : child(object, key).items()) {
    if (!value.is_string())
      return Error{Code::kInvalidArgument, fmt::format("request: '{}' is not of strings", key)};
    map[name] = value.get<std::string>();
  }
  return map;
}

Result<std::string> text(const Json& object, std::string_view key, std::string fallback = "") {
  return json_field_or(object, key, std::move(fallback), "request");
}

// Where a file system's id means a folder of this machine.
Result<std::string> file_system_folder(const PlatformConfig& config, const Json& channel) {
  const Json& source = child(child(channel, "DataSource"), "FileSystemDataSource");
  if (source.empty()) return std::string();
  YARD_ASSIGN(const std::string id, text(source, "FileSystemId"));
  YARD_ASSIGN(const std::string path, text(source, "DirectoryPath", "/"));
  const auto it = config.file_systems.find(id);
  if (it == config.file_systems.end())
    return Error{Code::kInvalidArgument,
                 fmt::format("no file system '{}' under 'file_systems' in yard.yaml", id)};
  if (("/" + path + "/").find("/../") != std::string::npos)
    return Error{Code::kInvalidArgument, fmt::format("DirectoryPath '{}' leaves '{}'", path, id)};
  return it->second + (path.starts_with('/') ? "" : "/") + path;
}

Status read_channels(const PlatformConfig& config, const Json& request, HostPlan& plan) {
  for (const Json& item : child(request, "InputDataConfig")) {
    YARD_ASSIGN(std::string folder, file_system_folder(config, item));
    plan.channels.push_back({.config = item, .directory = std::move(folder)});
  }
  return Ok{};
}

Status read_training(const PlanContext& context, const Json& request, HostPlan& plan) {
  const Json& algorithm = child(request, "AlgorithmSpecification");
  YARD_ASSIGN(plan.image, text(algorithm, "TrainingImage"));
  YARD_ASSIGN(plan.input_mode, text(algorithm, "TrainingInputMode", "File"));
  YARD_ASSIGN(plan.entrypoint, strings(algorithm, "ContainerEntrypoint"));
  YARD_ASSIGN(plan.arguments, strings(algorithm, "ContainerArguments"));
  YARD_ASSIGN(plan.hyperparameters, string_map(request, "HyperParameters"));
  YARD_TRY(read_channels(*context.config, request, plan));
  const Json& checkpoint = child(request, "CheckpointConfig");
  YARD_ASSIGN(plan.checkpoint.s3_uri, text(checkpoint, "S3Uri"));
  YARD_ASSIGN(plan.checkpoint.local_path,
              text(checkpoint, "LocalPath", plan.checkpoint.local_path));
  const Json& output = child(request, "OutputDataConfig");
  YARD_ASSIGN(plan.output.s3_uri, text(output, "S3OutputPath"));
  YARD_ASSIGN(const std::string compression, text(output, "CompressionType", "GZIP"));
  plan.output.compress = compression != "NONE";
  return Ok{};
}

Status read_processing(const Json& request, HostPlan& plan) {
  const Json& app = child(request, "AppSpecification");
  YARD_ASSIGN(plan.image, text(app, "ImageUri"));
  YARD_ASSIGN(plan.entrypoint, strings(app, "ContainerEntrypoint"));
  YARD_ASSIGN(plan.arguments, strings(app, "ContainerArguments"));
  const Json& inputs = child(request, "ProcessingInputs");
  if (inputs.is_array()) plan.processing_inputs = inputs;
  const Json& outputs = child(child(request, "ProcessingOutputConfig"), "Outputs");
  if (outputs.is_array()) plan.processing_outputs = outputs;
  return Ok{};
}

Result<HostPlan> read_request(const PlanContext& context, const jobs::JobRequest& job) {
  HostPlan plan;
  plan.job = job.name;
  plan.arn = job.arn;
  plan.request = job.request;
  plan.region = plan.store_region = context.region;
  plan.store_endpoint = context.store_endpoint;
  YARD_ASSIGN(plan.environment, string_map(job.request, "Environment"));
  if (job.kind == jobs::JobKind::kTraining) {
    plan.kind = jobs::HostJobKind::kTraining;
    YARD_TRY(read_training(context, job.request, plan));
  } else {
    plan.kind = jobs::HostJobKind::kProcessing;
    YARD_TRY(read_processing(job.request, plan));
  }
  YARD_ASSIGN(plan.runtime, runtime_of_image(*context.config, plan.image, context.default_python));
  return plan;
}

// algo-1 packs what all hosts left in their model folders.
void add_result_dirs(const std::string& job_dir, const std::vector<jobdb::PlatformHostRow>& hosts,
                     HostPlan& plan) {
  if (plan.host != "algo-1" || plan.kind != jobs::HostJobKind::kTraining) return;
  for (const auto& host : hosts) {
    const jobs::HostFolder folder{host_dir(job_dir, host.name)};
    plan.model_dirs.push_back(folder.model());
    plan.output_dirs.push_back(folder.output_data());
  }
}

}  // namespace

std::string host_dir(const std::string& job_dir, std::string_view host) {
  return fmt::format("{}/hosts/{}", job_dir, host);
}

Status check_plannable(const PlanContext& context, const jobs::JobRequest& request) {
  YARD_TRY(read_request(context, request));
  return Ok{};
}

Result<HostPlan> build_host_plan(const PlanContext& context, const jobdb::PlatformJobRow& job,
                                 const std::vector<jobdb::PlatformHostRow>& hosts,
                                 const jobdb::PlatformHostRow& host) {
  YARD_ASSIGN(HostPlan plan, read_request(context, job.job));
  YARD_ASSIGN(const auto needs, jobs::job_needs(job.job));
  plan.attempt = job.attempt + 1;
  plan.host = host.name;
  for (const auto& other : hosts)
    plan.hosts.push_back({.name = other.name,
                          .address = "",
                          .group = other.group,
                          .instance_type = other.slice.instance_type});
  plan.cores = host.slice.cores;
  plan.gpus = host.slice.gpus;
  plan.memory_limit_bytes = host.slice.memory_bytes;
  plan.volume_limit_bytes = needs.volume_bytes;
  plan.network = context.config->network;
  plan.stop_grace_s = context.config->stop_grace_s;
  plan.waits_for_go = hosts.size() > 1;
  plan.hang_after_s = context.config->hang_after_s;
  plan.hang_after_steps = context.config->hang_after_steps;
  plan.log_dir = job.dir + "/logs";
  plan.health = context.config->health;
  plan.health.gpu_count_min = static_cast<int>(host.slice.gpus.size());
  // No machine passes this: for tests of what follows a failed health check.
  if (jobs::is_declared_faulty(context.config->slices, host.slice.number) ||
      (context.slice_faults != nullptr && context.slice_faults->contains(host.slice.number)))
    plan.health.cpu_gflops_min = 1e12;
  add_result_dirs(job.dir, hosts, plan);
  YARD_TRY(jobs::check_host_plan(plan));
  return plan;
}

}  // namespace yard::engine
