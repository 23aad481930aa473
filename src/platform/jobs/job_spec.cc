#include "jobs/job_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace yard::jobs {
namespace {

constexpr size_t kNameSizeMax = 63;
constexpr size_t kCommandItemsMax = 4096;
constexpr size_t kCommandBytesMax = size_t{1} << 20;  // half of what exec takes by default
constexpr size_t kEnvItemsMax = 4096;
constexpr double kStopGraceMax_s = 86'400;
constexpr double kPriceMax = 1e6;

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

Status check_range(std::string_view key, double value, double min, double max) {
  if (std::isfinite(value) && value >= min && value <= max) return Ok{};
  return invalid(fmt::format("{} is {}, must be from {} to {}", key, value, min, max));
}

// What execve cannot carry.
bool has_zero_byte(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

Status check_command(const std::vector<std::string>& command) {
  if (command.empty() || command[0].empty()) return invalid("command is empty");
  if (command.size() > kCommandItemsMax)
    return invalid(
        fmt::format("command has {} items, at most {}", command.size(), kCommandItemsMax));
  size_t total_bytes = 0;
  for (const auto& item : command) {
    if (has_zero_byte(item)) return invalid("command holds a zero byte");
    total_bytes += item.size() + 1;
  }
  if (total_bytes <= kCommandBytesMax) return Ok{};
  return invalid(
      fmt::format("command is {} bytes long, at most {}", total_bytes, kCommandBytesMax));
}

Status check_env(const std::map<std::string, std::string>& env) {
  if (env.size() > kEnvItemsMax)
    return invalid(fmt::format("env has {} items, at most {}", env.size(), kEnvItemsMax));
  for (const auto& [name, value] : env) {
    if (name.empty() || name.find('=') != std::string::npos || has_zero_byte(name))
      return invalid(fmt::format("env: '{}' is not a variable's name", name));
    if (has_zero_byte(value)) return invalid(fmt::format("env: '{}' holds a zero byte", name));
  }
  return Ok{};
}

Status check_absolute(std::string_view key, const std::string& path) {
  if (!path.empty() && path[0] == '/' && !has_zero_byte(path)) return Ok{};
  return invalid(fmt::format("{} is '{}', must be an absolute path", key, path));
}

Status check_chaos(const JobSpec& spec) {
  if (!spec.chaos) return Ok{};
  YARD_TRY(check_range("chaos.kill_rank", spec.chaos->kill_rank, 0, spec.ranks - 1));
  if (spec.chaos->after_step >= 1) return Ok{};
  return invalid(fmt::format("chaos.after_step is {}, must be at least 1", spec.chaos->after_step));
}

// Whole numbers are read wide and checked before they are narrowed: 2^32 + 1 is not 1 rank.
Result<int> int_field_or(const Json& object, std::string_view key, int fallback, int max,
                         std::string_view what) {
  YARD_ASSIGN(const auto value, json_field_or<int64_t>(object, key, fallback, what));
  if (value >= 0 && value <= max) return static_cast<int>(value);
  return invalid(fmt::format("{}: {} is {}, must be from 0 to {}", what, key, value, max));
}

Result<std::map<std::string, std::string>> env_field(const Json& object, std::string_view what) {
  std::map<std::string, std::string> env;
  const auto found = object.find("env");
  if (found == object.end()) return env;
  if (!found->is_object()) return invalid(fmt::format("{}: 'env' is not an object", what));
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string())
      return invalid(fmt::format("{}: env: '{}' is not a string", what, name));
    env[name] = value.get<std::string>();
  }
  return env;
}

Result<RetryBudget> retries_field(const Json& object, std::string_view what) {
  RetryBudget budget;
  const auto found = object.find("retries");
  if (found == object.end()) return budget;
  const std::string inner = std::string(what) + ": retries";
  YARD_TRY(refuse_unknown_keys(*found, {"rank_fault", "unavailable"}, inner));
  YARD_ASSIGN(budget.rank_fault,
              int_field_or(*found, "rank_fault", budget.rank_fault, kRetriesMax, inner));
  YARD_ASSIGN(budget.unavailable,
              int_field_or(*found, "unavailable", budget.unavailable, kRetriesMax, inner));
  return budget;
}

Result<std::optional<Chaos>> chaos_field(const Json& object, std::string_view what) {
  const auto found = object.find("chaos");
  if (found == object.end()) return std::optional<Chaos>();
  const std::string inner = std::string(what) + ": chaos";
  YARD_TRY(refuse_unknown_keys(*found, {"kill_rank", "after_step"}, inner));
  Chaos chaos;
  YARD_ASSIGN(chaos.kill_rank, int_field_or(*found, "kill_rank", 0, kRanksMax - 1, inner));
  YARD_ASSIGN(chaos.after_step, json_field<int64_t>(*found, "after_step", inner));
  return std::optional<Chaos>(chaos);
}

}  // namespace

Status check_job_name(std::string_view name) {
  const bool ends_well = !name.empty() && name.front() != '-' && name.back() != '-';
  const bool letters_well =
      std::ranges::all_of(name, [](char c) { return is_letter_or_digit(c) || c == '-'; });
  if (ends_well && letters_well && name.size() <= kNameSizeMax) return Ok{};
  return invalid(
      fmt::format("'{}' cannot be a job's name: letters, digits and inner hyphens, 1 to {}", name,
                  kNameSizeMax));
}

Status check_spec(const JobSpec& spec) {
  YARD_TRY(check_job_name(spec.name));
  YARD_TRY(check_command(spec.command));
  YARD_TRY(check_range("ranks", spec.ranks, 1, kRanksMax));
  YARD_TRY(check_env(spec.env));
  YARD_TRY(check_absolute("working_dir", spec.working_dir));
  YARD_TRY(check_absolute("output_dir", spec.output_dir));
  YARD_TRY(check_range("retries.rank_fault", spec.retries.rank_fault, 0, kRetriesMax));
  YARD_TRY(check_range("retries.unavailable", spec.retries.unavailable, 0, kRetriesMax));
  YARD_TRY(check_range("stop_grace_s", spec.stop_grace_s, 0, kStopGraceMax_s));
  YARD_TRY(check_range("price_per_host_hour", spec.price_per_host_hour, 0, kPriceMax));
  return check_chaos(spec);
}

Json to_json(const JobSpec& spec) {
  Json json = {
      {"name", spec.name},
      {"command", spec.command},
      {"ranks", spec.ranks},
      {"env", spec.env},
      {"working_dir", spec.working_dir},
      {"output_dir", spec.output_dir},
      {"retries",
       {{"rank_fault", spec.retries.rank_fault}, {"unavailable", spec.retries.unavailable}}},
      {"stop_grace_s", spec.stop_grace_s},
      {"price_per_host_hour", spec.price_per_host_hour}};
  if (spec.chaos)
    json["chaos"] = {{"kill_rank", spec.chaos->kill_rank}, {"after_step", spec.chaos->after_step}};
  return json;
}

Result<JobSpec> job_spec_from_json(const Json& json, std::string_view what) {
  YARD_TRY(refuse_unknown_keys(json,
                               {"name", "command", "ranks", "env", "working_dir", "output_dir",
                                "retries", "stop_grace_s", "price_per_host_hour", "chaos"},
                               what));
  JobSpec spec;
  YARD_ASSIGN(spec.name, json_field<std::string>(json, "name", what));
  YARD_ASSIGN(spec.command, json_field<std::vector<std::string>>(json, "command", what));
  YARD_ASSIGN(spec.ranks, int_field_or(json, "ranks", spec.ranks, kRanksMax, what));
  YARD_ASSIGN(spec.env, env_field(json, what));
  YARD_ASSIGN(spec.working_dir, json_field<std::string>(json, "working_dir", what));
  YARD_ASSIGN(spec.output_dir, json_field<std::string>(json, "output_dir", what));
  YARD_ASSIGN(spec.retries, retries_field(json, what));
  YARD_ASSIGN(spec.stop_grace_s,
              json_field_or<double>(json, "stop_grace_s", spec.stop_grace_s, what));
  YARD_ASSIGN(spec.price_per_host_hour,
              json_field_or<double>(json, "price_per_host_hour", spec.price_per_host_hour, what));
  YARD_ASSIGN(spec.chaos, chaos_field(json, what));
  if (auto checked = check_spec(spec); !checked)
    return std::move(checked).error().while_(std::string(what));
  return spec;
}

}  // namespace yard::jobs
