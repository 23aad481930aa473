#include "jobs/job_needs.h"

#include <fmt/format.h>

#include <charconv>
#include <numeric>

namespace yard::jobs {
namespace {

const Json& child(const Json& object, std::string_view key) {
  static const Json kEmpty = Json::object();
  if (!object.is_object()) return kEmpty;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? kEmpty : *it;
}

Result<HostGroupNeed> read_group(const Json& json, std::string_view what) {
  HostGroupNeed group;
  YARD_ASSIGN(group.name, json_field_or(json, "InstanceGroupName", group.name, what));
  YARD_ASSIGN(group.instance_type,
              json_field_or(json, "InstanceType", std::string(kDefaultInstanceType), what));
  YARD_ASSIGN(group.host_count, json_field_or(json, "InstanceCount", 1, what));
  if (group.host_count < 1 || group.host_count > kJobHostsMax)
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: 'InstanceCount' is not from 1 to {}", what, kJobHostsMax)};
  return group;
}

Status read_resources(const Json& resources, std::string_view what, JobNeeds& needs) {
  const Json& groups = child(resources, "InstanceGroups");
  if (groups.is_array() && !groups.empty()) {
    for (const Json& item : groups) {
      YARD_ASSIGN(HostGroupNeed group, read_group(item, fmt::format("{}.InstanceGroups", what)));
      needs.groups.push_back(std::move(group));
    }
  } else {
    YARD_ASSIGN(HostGroupNeed group, read_group(resources, what));
    needs.groups.push_back(std::move(group));
  }
  YARD_ASSIGN(const auto volume_gb, json_field_or(resources, "VolumeSizeInGB", uint64_t{0}, what));
  needs.volume_bytes = std::min(volume_gb, uint64_t{1} << 20) << 30;
  YARD_ASSIGN(needs.keep_alive_s,
              json_field_or(resources, "KeepAlivePeriodInSeconds", int64_t{0}, what));
  if (needs.host_count() > kJobHostsMax)
    return Error{Code::kInvalidArgument, fmt::format("{}: more than {} hosts", what, kJobHostsMax)};
  return Ok{};
}

Result<std::optional<double>> read_seconds(const Json& condition, std::string_view key) {
  YARD_ASSIGN(const double seconds, json_field_or(condition, key, -1.0, "StoppingCondition"));
  return seconds < 0 ? std::optional<double>() : std::optional<double>(seconds);
}

Status read_limits(const Json& condition, JobNeeds& needs) {
  YARD_ASSIGN(const auto runtime_s, read_seconds(condition, "MaxRuntimeInSeconds"));
  needs.max_runtime_s = runtime_s.value_or(needs.max_runtime_s);
  YARD_ASSIGN(needs.max_wait_s, read_seconds(condition, "MaxWaitTimeInSeconds"));
  YARD_ASSIGN(needs.max_pending_s, read_seconds(condition, "MaxPendingTimeInSeconds"));
  return Ok{};
}

std::string tag_or(const JobRequest& request, std::string_view key, const std::string& fallback) {
  const auto it = request.tags.find(std::string(key));
  return it == request.tags.end() ? fallback : it->second;
}

Status read_tags(const JobRequest& request, JobNeeds& needs) {
  needs.share = tag_or(request, kShareTag, request.user);
  needs.never_relaunch = tag_or(request, kRelaunchTag, "") == "never";
  const std::string text = tag_or(request, kPriorityTag, "0");
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, needs.priority);
  if (failed != std::errc() || stop != end || needs.priority < -100 || needs.priority > 100)
    return Error{
        Code::kInvalidArgument,
        fmt::format("tag '{}': '{}' is not a number from -100 to 100", kPriorityTag, text)};
  return Ok{};
}

}  // namespace

int JobNeeds::host_count() const {
  return std::accumulate(groups.begin(), groups.end(), 0,
                         [](int sum, const auto& group) { return sum + group.host_count; });
}

Result<JobNeeds> job_needs(const JobRequest& request) {
  JobNeeds needs;
  const Json& body = request.request;
  if (request.kind == JobKind::kTraining) {
    YARD_TRY(read_resources(child(body, "ResourceConfig"), "ResourceConfig", needs));
    YARD_ASSIGN(needs.is_spot, json_field_or(body, "EnableManagedSpotTraining", false, "request"));
    YARD_ASSIGN(const int attempts, json_field_or(child(body, "RetryStrategy"),
                                                  "MaximumRetryAttempts", -1, "RetryStrategy"));
    if (attempts >= 0) needs.maximum_retry_attempts = attempts;
  } else {
    YARD_TRY(read_resources(child(child(body, "ProcessingResources"), "ClusterConfig"),
                            "ProcessingResources.ClusterConfig", needs));
  }
  YARD_TRY(read_limits(child(body, "StoppingCondition"), needs));
  YARD_TRY(read_tags(request, needs));
  return needs;
}

std::vector<NamedHost> named_hosts(const JobNeeds& needs) {
  std::vector<NamedHost> hosts;
  for (const auto& group : needs.groups)
    for (int i = 0; i < group.host_count; ++i)
      hosts.push_back({fmt::format("algo-{}", hosts.size() + 1), group});
  return hosts;
}

}  // namespace yard::jobs
