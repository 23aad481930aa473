#include "jobs/host_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "jobs/job_spec.h"

namespace yard::jobs {
namespace {

constexpr size_t kItemsMax = 4096;
constexpr size_t kChannelsMax = 20;
constexpr double kStopGraceMax_s = 86'400;
constexpr double kHangAfterMax_s = 1e9;

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

constexpr std::array<std::string_view, 2> kKinds = {"training", "processing"};
constexpr std::array<std::string_view, 3> kNetworks = {"auto", "own", "shared"};

template <typename Enum, size_t N>
Result<Enum> enum_field(const Json& json, std::string_view key, Enum fallback,
                        const std::array<std::string_view, N>& names, std::string_view what) {
  YARD_ASSIGN(const auto text,
              json_field_or<std::string>(json, key, std::string(names[size_t(fallback)]), what));
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  return invalid(fmt::format("{}: {} is '{}'", what, key, text));
}

// ---- checks

bool is_absolute(const std::string& path) {
  return path.starts_with('/') && path.find('\0') == std::string::npos;
}

Status check_absolute(std::string_view key, const std::string& path) {
  if (is_absolute(path)) return Ok{};
  return invalid(fmt::format("{} is '{}', must be an absolute path", key, path));
}

Status check_strings(std::string_view key, const std::vector<std::string>& items) {
  if (items.size() > kItemsMax)
    return invalid(fmt::format("{} has {} items, at most {}", key, items.size(), kItemsMax));
  for (const auto& item : items)
    if (item.find('\0') != std::string::npos)
      return invalid(fmt::format("{} holds a zero byte", key));
  return Ok{};
}

Status check_environment(const std::map<std::string, std::string>& environment) {
  if (environment.size() > kItemsMax) return invalid("environment has too many items");
  for (const auto& [name, value] : environment)
    if (name.empty() || name.find('=') != std::string::npos ||
        name.find('\0') != std::string::npos || value.find('\0') != std::string::npos)
      return invalid(fmt::format("environment: '{}' cannot be set", name));
  return Ok{};
}

// Becomes a host name and a file name.
bool is_host_name(std::string_view name) {
  return check_job_name(name).has_value();
}

Status check_hosts(const HostPlan& plan) {
  if (plan.hosts.empty() || plan.hosts.size() > kPlanHostCountMax)
    return invalid(
        fmt::format("hosts has {} items, must be 1 to {}", plan.hosts.size(), kPlanHostCountMax));
  std::set<std::string_view> names;
  for (const PlanHost& host : plan.hosts) {
    if (!is_host_name(host.name)) return invalid(fmt::format("hosts: '{}' is no name", host.name));
    if (!names.insert(host.name).second)
      return invalid(fmt::format("hosts: '{}' comes twice", host.name));
    if (host.address.empty() != plan.hosts[0].address.empty())
      return invalid("hosts: either all have an address or none has");
  }
  if (names.contains(plan.host)) return Ok{};
  return invalid(fmt::format("host is '{}', which is none of hosts", plan.host));
}

// A channel's name becomes a folder and a part of variables' names.
Status check_channels(const HostPlan& plan) {
  if (plan.channels.size() > kChannelsMax)
    return invalid(
        fmt::format("channels has {} items, at most {}", plan.channels.size(), kChannelsMax));
  std::set<std::string> names;
  for (const PlanChannel& channel : plan.channels) {
    YARD_ASSIGN(const auto name,
                json_field<std::string>(channel.config, "ChannelName", "channels"));
    const bool is_good = !name.empty() && name.size() <= 64 && name != "." && name != ".." &&
                         std::ranges::all_of(name, [](unsigned char c) {
                           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                         });
    if (!is_good) return invalid(fmt::format("channels: '{}' is no name", name));
    if (!names.insert(name).second) return invalid(fmt::format("channels: '{}' comes twice", name));
    if (!channel.directory.empty())
      YARD_TRY(check_absolute("channels: directory", channel.directory));
  }
  return Ok{};
}

Status check_runtime(const PlanRuntime& runtime) {
  if (runtime.python.empty() == runtime.root.empty())
    return invalid("runtime names either python or root");
  return runtime.root.empty() ? check_absolute("runtime.python", runtime.python)
                              : check_absolute("runtime.root", runtime.root);
}

// ---- JSON

Json hosts_to_json(const std::vector<PlanHost>& hosts) {
  Json out = Json::array();
  for (const PlanHost& host : hosts)
    out.push_back({{"name", host.name},
                   {"address", host.address},
                   {"group", host.group},
                   {"instance_type", host.instance_type}});
  return out;
}

Result<std::vector<PlanHost>> hosts_from(const Json& json, std::string_view what) {
  YARD_ASSIGN(const auto items, json_field<std::vector<Json>>(json, "hosts", what));
  std::vector<PlanHost> hosts;
  const std::string inner = fmt::format("{}: hosts", what);
  for (const Json& item : items) {
    YARD_TRY(refuse_unknown_keys(item, {"name", "address", "group", "instance_type"}, inner));
    PlanHost host;
    YARD_ASSIGN(host.name, json_field<std::string>(item, "name", inner));
    YARD_ASSIGN(host.address, json_field_or<std::string>(item, "address", {}, inner));
    YARD_ASSIGN(host.group, json_field_or<std::string>(item, "group", host.group, inner));
    YARD_ASSIGN(host.instance_type, json_field_or<std::string>(item, "instance_type", {}, inner));
    hosts.push_back(std::move(host));
  }
  return hosts;
}

Json channels_to_json(const std::vector<PlanChannel>& channels) {
  Json out = Json::array();
  for (const PlanChannel& channel : channels)
    out.push_back({{"config", channel.config}, {"directory", channel.directory}});
  return out;
}

Result<std::vector<PlanChannel>> channels_from(const Json& json, std::string_view what) {
  YARD_ASSIGN(const auto items, json_field_or<std::vector<Json>>(json, "channels", {}, what));
  std::vector<PlanChannel> channels;
  const std::string inner = fmt::format("{}: channels", what);
  for (const Json& item : items) {
    YARD_TRY(refuse_unknown_keys(item, {"config", "directory"}, inner));
    PlanChannel channel;
    YARD_ASSIGN(channel.config, json_field<Json>(item, "config", inner));
    YARD_ASSIGN(channel.directory, json_field_or<std::string>(item, "directory", {}, inner));
    channels.push_back(std::move(channel));
  }
  return channels;
}

Result<std::map<std::string, std::string>> strings_from(const Json& json, std::string_view key,
                                                        std::string_view what) {
  std::map<std::string, std::string> out;
  YARD_ASSIGN(const Json object, json_field_or<Json>(json, key, Json::object(), what));
  if (!object.is_object()) return invalid(fmt::format("{}: {} is not an object", what, key));
  for (const auto& [name, value] : object.items()) {
    if (!value.is_string())
      return invalid(fmt::format("{}: {}: '{}' is not a string", what, key, name));
    out[name] = value.get<std::string>();
  }
  return out;
}

Json to_json(const PlanHealth& health) {
  return {{"cpu_gflops_min", health.cpu_gflops_min},
          {"memory_bytes_per_second_min", health.memory_bytes_per_second_min},
          {"disk_bytes_per_second_min", health.disk_bytes_per_second_min},
          {"free_bytes_min", health.free_bytes_min},
          {"clock_skew_s_max", health.clock_skew_s_max},
          {"gpu_count_min", health.gpu_count_min},
          {"collective_bytes_per_second_min", health.collective_bytes_per_second_min}};
}

Result<PlanHealth> health_from(const Json& plan, std::string_view what) {
  PlanHealth health;
  YARD_ASSIGN(const Json json, json_field_or<Json>(plan, "health", Json::object(), what));
  const std::string inner = fmt::format("{}: health", what);
  YARD_TRY(refuse_unknown_keys(
      json,
      {"cpu_gflops_min", "memory_bytes_per_second_min", "disk_bytes_per_second_min",
       "free_bytes_min", "clock_skew_s_max", "gpu_count_min", "collective_bytes_per_second_min"},
      inner));
  const auto number = [&](std::string_view key, double& out) -> Status {
    YARD_ASSIGN(out, json_field_or<double>(json, key, out, inner));
    if (std::isfinite(out) && out >= 0) return Ok{};
    return invalid(fmt::format("{}: {} is {}", inner, key, out));
  };
  YARD_TRY(number("cpu_gflops_min", health.cpu_gflops_min));
  YARD_TRY(number("memory_bytes_per_second_min", health.memory_bytes_per_second_min));
  YARD_TRY(number("disk_bytes_per_second_min", health.disk_bytes_per_second_min));
  YARD_TRY(number("clock_skew_s_max", health.clock_skew_s_max));
  YARD_TRY(number("collective_bytes_per_second_min", health.collective_bytes_per_second_min));
  YARD_ASSIGN(health.free_bytes_min,
              json_field_or<uint64_t>(json, "free_bytes_min", health.free_bytes_min, inner));
  YARD_ASSIGN(health.gpu_count_min,
              json_field_or<int>(json, "gpu_count_min", health.gpu_count_min, inner));
  return health;
}

Status read_what_runs(const Json& json, std::string_view what, HostPlan& plan) {
  YARD_ASSIGN(plan.image, json_field_or<std::string>(json, "image", {}, what));
  YARD_ASSIGN(const Json runtime, json_field<Json>(json, "runtime", what));
  YARD_TRY(refuse_unknown_keys(runtime, {"python", "root"}, fmt::format("{}: runtime", what)));
  YARD_ASSIGN(plan.runtime.python, json_field_or<std::string>(runtime, "python", {}, what));
  YARD_ASSIGN(plan.runtime.root, json_field_or<std::string>(runtime, "root", {}, what));
  using Strings = std::vector<std::string>;
  YARD_ASSIGN(plan.entrypoint, json_field_or<Strings>(json, "entrypoint", {}, what));
  YARD_ASSIGN(plan.arguments, json_field_or<Strings>(json, "arguments", {}, what));
  YARD_ASSIGN(plan.hyperparameters, strings_from(json, "hyperparameters", what));
  YARD_ASSIGN(plan.environment, strings_from(json, "environment", what));
  YARD_ASSIGN(plan.processes_per_host, json_field_or<int>(json, "processes_per_host", 0, what));
  YARD_ASSIGN(plan.stop_grace_s,
              json_field_or<double>(json, "stop_grace_s", plan.stop_grace_s, what));
  return Ok{};
}

Status read_machine(const Json& json, std::string_view what, HostPlan& plan) {
  YARD_ASSIGN(plan.cores, json_field_or<std::vector<int>>(json, "cores", {}, what));
  YARD_ASSIGN(plan.gpus, json_field_or<std::vector<int>>(json, "gpus", {}, what));
  YARD_ASSIGN(plan.memory_limit_bytes,
              json_field_or<uint64_t>(json, "memory_limit_bytes", 0, what));
  YARD_ASSIGN(plan.volume_limit_bytes,
              json_field_or<uint64_t>(json, "volume_limit_bytes", 0, what));
  YARD_ASSIGN(plan.network, enum_field(json, "network", plan.network, kNetworks, what));
  YARD_ASSIGN(plan.network_dir, json_field_or<std::string>(json, "network_dir", {}, what));
  YARD_ASSIGN(plan.waits_for_go, json_field_or<bool>(json, "waits_for_go", false, what));
  YARD_ASSIGN(plan.hang_after_s, json_field_or<double>(json, "hang_after_s", 0, what));
  YARD_ASSIGN(plan.hang_after_steps, json_field_or<double>(json, "hang_after_steps", 0, what));
  YARD_ASSIGN(plan.log_dir, json_field<std::string>(json, "log_dir", what));
  YARD_ASSIGN(plan.health, health_from(json, what));
  return Ok{};
}

Status read_data(const Json& json, std::string_view what, HostPlan& plan) {
  YARD_ASSIGN(plan.input_mode, json_field_or<std::string>(json, "input_mode", "File", what));
  YARD_ASSIGN(plan.channels, channels_from(json, what));
  YARD_ASSIGN(const Json checkpoint, json_field_or<Json>(json, "checkpoint", Json::object(), what));
  const std::string in_checkpoint = fmt::format("{}: checkpoint", what);
  YARD_TRY(refuse_unknown_keys(checkpoint, {"s3_uri", "local_path"}, in_checkpoint));
  YARD_ASSIGN(plan.checkpoint.s3_uri,
              json_field_or<std::string>(checkpoint, "s3_uri", {}, in_checkpoint));
  YARD_ASSIGN(plan.checkpoint.local_path,
              json_field_or<std::string>(checkpoint, "local_path", plan.checkpoint.local_path,
                                         in_checkpoint));
  YARD_ASSIGN(const Json output, json_field_or<Json>(json, "output", Json::object(), what));
  const std::string in_output = fmt::format("{}: output", what);
  YARD_TRY(refuse_unknown_keys(output, {"s3_uri", "compression"}, in_output));
  YARD_ASSIGN(plan.output.s3_uri, json_field_or<std::string>(output, "s3_uri", {}, in_output));
  YARD_ASSIGN(const auto compression,
              json_field_or<std::string>(output, "compression", "GZIP", in_output));
  if (compression != "GZIP" && compression != "NONE")
    return invalid(fmt::format("{}: compression is '{}'", in_output, compression));
  plan.output.compress = compression == "GZIP";
  YARD_ASSIGN(const Json processing, json_field_or<Json>(json, "processing", Json::object(), what));
  YARD_ASSIGN(plan.processing_inputs,
              json_field_or<Json>(processing, "inputs", Json::array(), what));
  YARD_ASSIGN(plan.processing_outputs,
              json_field_or<Json>(processing, "outputs", Json::array(), what));
  YARD_ASSIGN(plan.request, json_field_or<Json>(json, "request", Json::object(), what));
  YARD_ASSIGN(const Json store, json_field_or<Json>(json, "store", Json::object(), what));
  YARD_ASSIGN(plan.store_endpoint, json_field_or<std::string>(store, "endpoint", {}, what));
  YARD_ASSIGN(plan.store_region, json_field_or<std::string>(store, "region", {}, what));
  using Strings = std::vector<std::string>;
  YARD_ASSIGN(plan.model_dirs, json_field_or<Strings>(json, "model_dirs", {}, what));
  YARD_ASSIGN(plan.output_dirs, json_field_or<Strings>(json, "output_dirs", {}, what));
  return Ok{};
}

const std::vector<std::string_view> kPlanKeys = {"version",
                                                 "kind",
                                                 "job",
                                                 "arn",
                                                 "region",
                                                 "attempt",
                                                 "host",
                                                 "hosts",
                                                 "cores",
                                                 "gpus",
                                                 "memory_limit_bytes",
                                                 "volume_limit_bytes",
                                                 "network",
                                                 "network_dir",
                                                 "waits_for_go",
                                                 "hang_after_s",
                                                 "hang_after_steps",
                                                 "image",
                                                 "runtime",
                                                 "entrypoint",
                                                 "arguments",
                                                 "hyperparameters",
                                                 "environment",
                                                 "input_mode",
                                                 "channels",
                                                 "checkpoint",
                                                 "output",
                                                 "processing",
                                                 "request",
                                                 "store",
                                                 "log_dir",
                                                 "processes_per_host",
                                                 "stop_grace_s",
                                                 "health",
                                                 "model_dirs",
                                                 "output_dirs"};

}  // namespace

Status check_host_plan(const HostPlan& plan) {
  YARD_TRY(check_job_name(plan.job));
  YARD_TRY(check_hosts(plan));
  YARD_TRY(check_runtime(plan.runtime));
  YARD_TRY(check_strings("entrypoint", plan.entrypoint));
  YARD_TRY(check_strings("arguments", plan.arguments));
  YARD_TRY(check_environment(plan.environment));
  YARD_TRY(check_channels(plan));
  YARD_TRY(check_absolute("log_dir", plan.log_dir));
  YARD_TRY(check_absolute("checkpoint.local_path", plan.checkpoint.local_path));
  for (const auto& dir : plan.model_dirs) YARD_TRY(check_absolute("model_dirs", dir));
  for (const auto& dir : plan.output_dirs) YARD_TRY(check_absolute("output_dirs", dir));
  if (plan.input_mode != "File" && plan.input_mode != "Pipe" && plan.input_mode != "FastFile")
    return invalid(fmt::format("input_mode is '{}'", plan.input_mode));
  if (plan.processes_per_host < 0 || plan.processes_per_host > kRanksMax)
    return invalid(fmt::format("processes_per_host is {}", plan.processes_per_host));
  if (!std::isfinite(plan.stop_grace_s) || plan.stop_grace_s < 0 ||
      plan.stop_grace_s > kStopGraceMax_s)
    return invalid(fmt::format("stop_grace_s is {}", plan.stop_grace_s));
  if (!std::isfinite(plan.hang_after_s) || plan.hang_after_s < 0 ||
      plan.hang_after_s > kHangAfterMax_s)
    return invalid(fmt::format("hang_after_s is {}", plan.hang_after_s));
  if (!std::isfinite(plan.hang_after_steps) || plan.hang_after_steps < 0)
    return invalid(fmt::format("hang_after_steps is {}", plan.hang_after_steps));
  if (!plan.network_dir.empty()) YARD_TRY(check_absolute("network_dir", plan.network_dir));
  return Ok{};
}

Json to_json(const HostPlan& plan) {
  return {
      {"version", kHostPlanVersion},
      {"kind", kKinds[size_t(plan.kind)]},
      {"job", plan.job},
      {"arn", plan.arn},
      {"region", plan.region},
      {"attempt", plan.attempt},
      {"host", plan.host},
      {"hosts", hosts_to_json(plan.hosts)},
      {"cores", plan.cores},
      {"gpus", plan.gpus},
      {"memory_limit_bytes", plan.memory_limit_bytes},
      {"volume_limit_bytes", plan.volume_limit_bytes},
      {"network", kNetworks[size_t(plan.network)]},
      {"network_dir", plan.network_dir},
      {"waits_for_go", plan.waits_for_go},
      {"hang_after_s", plan.hang_after_s},
      {"hang_after_steps", plan.hang_after_steps},
      {"image", plan.image},
      {"runtime", {{"python", plan.runtime.python}, {"root", plan.runtime.root}}},
      {"entrypoint", plan.entrypoint},
      {"arguments", plan.arguments},
      {"hyperparameters", plan.hyperparameters},
      {"environment", plan.environment},
      {"input_mode", plan.input_mode},
      {"channels", channels_to_json(plan.channels)},
      {"checkpoint",
       {{"s3_uri", plan.checkpoint.s3_uri}, {"local_path", plan.checkpoint.local_path}}},
      {"output",
       {{"s3_uri", plan.output.s3_uri}, {"compression", plan.output.compress ? "GZIP" : "NONE"}}},
      {"processing", {{"inputs", plan.processing_inputs}, {"outputs", plan.processing_outputs}}},
      {"request", plan.request},
      {"store", {{"endpoint", plan.store_endpoint}, {"region", plan.store_region}}},
      {"log_dir", plan.log_dir},
      {"processes_per_host", plan.processes_per_host},
      {"stop_grace_s", plan.stop_grace_s},
      {"health", to_json(plan.health)},
      {"model_dirs", plan.model_dirs},
      {"output_dirs", plan.output_dirs}};
}

Result<HostPlan> host_plan_from_json(const Json& json, std::string_view what) {
  YARD_TRY(refuse_unknown_keys(json, kPlanKeys, what));
  YARD_ASSIGN(const int version, json_field<int>(json, "version", what));
  if (version != kHostPlanVersion)
    return invalid(fmt::format("{}: version is {}, {} is known", what, version, kHostPlanVersion));
  HostPlan plan;
  YARD_ASSIGN(plan.kind, enum_field(json, "kind", plan.kind, kKinds, what));
  YARD_ASSIGN(plan.job, json_field<std::string>(json, "job", what));
  YARD_ASSIGN(plan.arn, json_field_or<std::string>(json, "arn", {}, what));
  YARD_ASSIGN(plan.region, json_field_or<std::string>(json, "region", {}, what));
  YARD_ASSIGN(plan.attempt, json_field_or<int>(json, "attempt", plan.attempt, what));
  YARD_ASSIGN(plan.host, json_field<std::string>(json, "host", what));
  YARD_ASSIGN(plan.hosts, hosts_from(json, what));
  YARD_TRY(read_machine(json, what, plan));
  YARD_TRY(read_what_runs(json, what, plan));
  YARD_TRY(read_data(json, what, plan));
  if (auto checked = check_host_plan(plan); !checked)
    return std::move(checked).error().while_(what);
  return plan;
}

std::vector<std::string> sorted_host_names(const HostPlan& plan) {
  std::vector<std::string> names;
  for (const PlanHost& host : plan.hosts) names.push_back(host.name);
  std::ranges::sort(names);
  return names;
}

int host_rank(const HostPlan& plan) {
  const auto names = sorted_host_names(plan);
  return static_cast<int>(std::ranges::find(names, plan.host) - names.begin());
}

const PlanHost& own_host(const HostPlan& plan) {
  const auto found = std::ranges::find(plan.hosts, plan.host, &PlanHost::name);
  YARD_CHECK(found != plan.hosts.end());
  return *found;
}

}  // namespace yard::jobs
