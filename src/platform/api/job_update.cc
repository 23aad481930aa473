#include "api/job_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

namespace yard::api {
namespace {

constexpr std::array<int64_t, 6> kProfilingIntervals_ms = {100, 200, 500, 1000, 5000, 60'000};

std::string text(const Json& object, const char* name) {
  return object.value(name, std::string());
}

bool is_on(const Json& profiler) {
  return !profiler.empty() && !profiler.value("DisableProfiler", false);
}

AwsStatus check_runs(const jobs::JobView& view, const char* what) {
  if (view.status == "InProgress") return Ok{};
  return validation_error(
      fmt::format("{} can only be changed while the job is InProgress; {} is {}", what,
                  view.job.name, view.status));
}

AwsResult<Json> updated_profiler(const Json& before, const Json& given) {
  const std::string path = text(before, "S3OutputPath");
  const bool moves = given.contains("S3OutputPath") && text(given, "S3OutputPath") != path;
  if (is_on(before) && !path.empty() && moves)
    return validation_error("ProfilerConfig: S3OutputPath cannot be changed once profiling is on");
  Json profiler = before;
  profiler.update(given);
  // Whoever names where its output goes wants it.
  if (!given.contains("DisableProfiler") && !given.empty()) profiler["DisableProfiler"] = false;
  if (is_on(profiler) && text(profiler, "S3OutputPath").empty())
    return validation_error("ProfilerConfig: S3OutputPath is needed");
  YARD_TRY(check_profiler(profiler));
  return profiler;
}

AwsResult<Json> updated_rules(const Json& before, const Json& added) {
  Json rules = before;
  std::set<std::string> names;
  for (const Json& rule : before) names.insert(text(rule, "RuleConfigurationName"));
  for (const Json& rule : added) {
    const std::string name = text(rule, "RuleConfigurationName");
    if (!names.insert(name).second)
      return validation_error(fmt::format("profiler rule '{}' is there already", name));
    rules.push_back(rule);
  }
  if (rules.size() > kProfilerRulesMax)
    return AwsError("ResourceLimitExceeded", fmt::format("{} profiler rules, a job can have {}",
                                                         rules.size(), kProfilerRulesMax));
  return rules;
}

AwsStatus update_profiling(const jobs::JobView& view, const Json& input, Json& changed) {
  const Json& request = view.job.request;
  Json profiler = request.value("ProfilerConfig", Json::object());
  if (const auto given = input.find("ProfilerConfig"); given != input.end()) {
    YARD_TRY(check_runs(view, "ProfilerConfig"));
    YARD_ASSIGN(profiler, updated_profiler(profiler, *given));
    changed["ProfilerConfig"] = profiler;
  }
  const auto added = input.find("ProfilerRuleConfigurations");
  if (added == input.end() || added->empty()) return Ok{};
  YARD_TRY(check_runs(view, "ProfilerRuleConfigurations"));
  if (!is_on(profiler))
    return validation_error("ProfilerRuleConfigurations: profiling of this job is off");
  const Json before = request.value("ProfilerRuleConfigurations", Json::array());
  YARD_ASSIGN(changed["ProfilerRuleConfigurations"], updated_rules(before, *added));
  return Ok{};
}

AwsStatus update_remote_debug(const jobs::JobView& view, const Json& input, Json& changed) {
  const auto given = input.find("RemoteDebugConfig");
  if (given == input.end()) return Ok{};
  const std::string& now = view.secondary_status;
  if (view.status != "InProgress" || (now != "Downloading" && now != "Training"))
    return validation_error(fmt::format(
        "RemoteDebugConfig can only be changed while the job is Downloading or Training; {} is {}",
        view.job.name, now));
  changed["RemoteDebugConfig"] = *given;
  return Ok{};
}

}  // namespace

AwsStatus check_profiler(const Json& profiler_config) {
  const auto interval = profiler_config.find("ProfilingIntervalInMilliseconds");
  if (interval == profiler_config.end()) return Ok{};
  if (std::ranges::count(kProfilingIntervals_ms, interval->get<int64_t>()) > 0) return Ok{};
  return validation_error(
      fmt::format("ProfilerConfig: ProfilingIntervalInMilliseconds is one of {}, not {}",
                  fmt::join(kProfilingIntervals_ms, ", "), interval->get<int64_t>()));
}

AwsResult<Json> updated_members(const jobs::JobView& view, const Json& input) {
  Json changed = Json::object();
  YARD_TRY(update_profiling(view, input, changed));
  YARD_TRY(update_remote_debug(view, input, changed));
  if (const auto given = input.find("ResourceConfig"); given != input.end()) {
    Json resources = view.job.request.value("ResourceConfig", Json::object());
    resources.update(*given);
    changed["ResourceConfig"] = std::move(resources);
  }
  return changed;
}

}  // namespace yard::api
