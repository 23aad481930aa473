#include "jobs/warm_pool.h"

#include <fmt/format.h>

#include <array>

#include "jobs/enum_names_internal.h"

namespace yard::jobs {
namespace {

constexpr std::array<std::string_view, kWarmStateCount> kStateNames = {"", "InUse", "Available",
                                                                       "Reused", "Terminated"};
constexpr std::array<std::string_view, kWarmEventCount> kEventNames = {
    "taking over a pool", "keeping its hosts", "giving its hosts back", "a match", "an end"};

Json field(const Json& object, std::string_view key, const Json& fallback) {
  if (!object.is_object()) return fallback;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? fallback : *it;
}

}  // namespace

std::string_view to_string(WarmState state) {
  return kStateNames[static_cast<size_t>(state)];
}

std::optional<WarmState> warm_state_from(std::string_view name) {
  return internal::from_name<WarmState>(kStateNames, name);
}

Result<WarmState> advance_warm(WarmState state, WarmEvent event) {
  const bool runs = state == WarmState::kNone || state == WarmState::kInUse;
  if (event == WarmEvent::kTakenOver && state == WarmState::kNone) return WarmState::kInUse;
  if (event == WarmEvent::kKept && runs) return WarmState::kAvailable;
  if (event == WarmEvent::kNotKept && runs)
    return state == WarmState::kInUse ? WarmState::kTerminated : WarmState::kNone;
  if (event == WarmEvent::kMatched && state == WarmState::kAvailable) return WarmState::kReused;
  if (event == WarmEvent::kExpired && state == WarmState::kAvailable) return WarmState::kTerminated;
  return Error{Code::kInvalidArgument,
               fmt::format("a warm pool that is '{}' cannot see {}", to_string(state),
                           kEventNames[static_cast<size_t>(event)])};
}

bool may_have_warm_pool(const JobRequest& request, const JobNeeds& needs) {
  return request.kind == JobKind::kTraining && needs.keep_alive_s > 0 && !needs.is_spot &&
         needs.groups.size() == 1;
}

bool keeps_warm_pool(JobStage final_stage, bool host_was_at_fault) {
  return is_final(final_stage) && !host_was_at_fault;
}

std::string warm_pool_key(const JobRequest& request) {
  const Json& body = request.request;
  const Json resources = field(body, "ResourceConfig", Json::object());
  const Json key = {
      {"RoleArn", field(body, "RoleArn", "")},
      {"VpcConfig", field(body, "VpcConfig", Json::object())},
      {"Encryption", field(body, "EnableInterContainerTrafficEncryption", false)},
      {"Isolation", field(body, "EnableNetworkIsolation", false)},
      {"InstanceType", field(resources, "InstanceType", std::string(kDefaultInstanceType))},
      {"InstanceCount", field(resources, "InstanceCount", 1)},
      {"VolumeKmsKeyId", field(resources, "VolumeKmsKeyId", "")},
      {"VolumeSizeInGB", field(resources, "VolumeSizeInGB", 0)},
  };
  return key.dump();
}

}  // namespace yard::jobs
