#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jobs/host_plan.h"

namespace yard::jobs {
namespace {

constexpr std::array<std::string_view, 7> kPhases = {"health",   "download", "start", "training",
                                                     "finished", "upload",   "ended"};
constexpr std::array<std::string_view, 4> kOutcomes = {"", "completed", "failed", "stopped"};
constexpr std::array<std::string_view, 6> kCauses = {
    "", "user_error", "host_fault", "unavailable", "stopped", "hang"};

template <typename Enum, size_t N>
Result<Enum> name_field(const Json& json, std::string_view key,
                        const std::array<std::string_view, N>& names, std::string_view what) {
  YARD_ASSIGN(const auto text, json_field<std::string>(json, key, what));
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  return Error{Code::kCorrupt, fmt::format("{}: {} is '{}'", what, key, text)};
}

Status read_outcome(const Json& json, std::string_view what, HostStatus& status) {
  YARD_ASSIGN(status.outcome, (name_field<HostOutcome>(json, "outcome", kOutcomes, what)));
  YARD_ASSIGN(status.exit_code, json_field<int>(json, "exit_code", what));
  YARD_ASSIGN(status.failure_reason, json_field<std::string>(json, "failure_reason", what));
  YARD_ASSIGN(status.cause, (name_field<HostCause>(json, "cause", kCauses, what)));
  YARD_ASSIGN(status.model_uri, json_field<std::string>(json, "model_uri", what));
  YARD_ASSIGN(status.output_uri, json_field<std::string>(json, "output_uri", what));
  return Ok{};
}

Status read_progress(const Json& json, std::string_view what, HostStatus& status) {
  YARD_ASSIGN(const Json progress, json_field<Json>(json, "progress", what));
  YARD_ASSIGN(status.downloaded_bytes, json_field<uint64_t>(progress, "downloaded_bytes", what));
  YARD_ASSIGN(status.total_bytes, json_field<uint64_t>(progress, "total_bytes", what));
  YARD_ASSIGN(status.cached_bytes, json_field_or<uint64_t>(progress, "cached_bytes", 0, what));
  YARD_ASSIGN(const Json checkpoint, json_field<Json>(json, "checkpoint", what));
  YARD_ASSIGN(status.checkpoint_behind, json_field<bool>(checkpoint, "behind", what));
  YARD_ASSIGN(status.checkpoint_bytes, json_field<uint64_t>(checkpoint, "uploaded_bytes", what));
  YARD_ASSIGN(status.has_own_network, json_field<bool>(json, "has_own_network", what));
  YARD_ASSIGN(status.is_ready, json_field_or<bool>(json, "is_ready", false, what));
  YARD_ASSIGN(status.is_kept, json_field_or<bool>(json, "is_kept", false, what));
  YARD_ASSIGN(const Json supervisor, json_field<Json>(json, "supervisor", what));
  YARD_ASSIGN(status.supervisor_pid, json_field<int>(supervisor, "pid", what));
  YARD_ASSIGN(status.supervisor_start_ticks, json_field<uint64_t>(supervisor, "start_ticks", what));
  YARD_ASSIGN(status.updated_t, json_field<double>(json, "updated_t", what));
  return Ok{};
}

}  // namespace

std::string_view to_string(HostPhase phase) {
  return kPhases[size_t(phase)];
}
std::string_view to_string(HostOutcome outcome) {
  return kOutcomes[size_t(outcome)];
}
std::string_view to_string(HostCause cause) {
  return kCauses[size_t(cause)];
}

Json to_json(const HostStatus& status) {
  Json phases = Json::array();
  for (const PhaseChange& change : status.phases)
    phases.push_back({{"phase", to_string(change.phase)}, {"t", change.t}});
  return {{"phase", to_string(status.phase)},
          {"phases", std::move(phases)},
          {"outcome", to_string(status.outcome)},
          {"exit_code", status.exit_code},
          {"failure_reason", status.failure_reason},
          {"cause", to_string(status.cause)},
          {"progress",
           {{"downloaded_bytes", status.downloaded_bytes},
            {"total_bytes", status.total_bytes},
            {"cached_bytes", status.cached_bytes}}},
          {"model_uri", status.model_uri},
          {"output_uri", status.output_uri},
          {"checkpoint",
           {{"behind", status.checkpoint_behind}, {"uploaded_bytes", status.checkpoint_bytes}}},
          {"has_own_network", status.has_own_network},
          {"is_ready", status.is_ready},
          {"is_kept", status.is_kept},
          {"supervisor",
           {{"pid", status.supervisor_pid}, {"start_ticks", status.supervisor_start_ticks}}},
          {"updated_t", status.updated_t}};
}

Result<HostStatus> host_status_from_json(const Json& json, std::string_view what) {
  HostStatus status;
  YARD_ASSIGN(status.phase, (name_field<HostPhase>(json, "phase", kPhases, what)));
  YARD_ASSIGN(const auto phases, json_field<std::vector<Json>>(json, "phases", what));
  for (const Json& item : phases) {
    PhaseChange change;
    YARD_ASSIGN(change.phase, (name_field<HostPhase>(item, "phase", kPhases, what)));
    YARD_ASSIGN(change.t, json_field<double>(item, "t", what));
    status.phases.push_back(change);
  }
  YARD_TRY(read_outcome(json, what, status));
  YARD_TRY(read_progress(json, what, status));
  return status;
}

}  // namespace yard::jobs
