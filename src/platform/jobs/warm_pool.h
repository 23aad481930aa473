// Warm pools: hosts that stay after a job for the next one like it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "jobs/job_needs.h"
#include "jobs/platform_state.h"

namespace yard::jobs {

// As SageMaker words them in WarmPoolStatus, by to_string(); kNone is no word.
enum class WarmState : uint8_t { kNone, kInUse, kAvailable, kReused, kTerminated };
enum class WarmEvent : uint8_t {
  kTakenOver,  // this job runs on the hosts of an earlier one
  kKept,       // it ended, its hosts stay
  kNotKept,    // it ended, its hosts do not
  kMatched,    // another job took the hosts over
  kExpired     // or was deleted, or told to keep them for 0 s
};
inline constexpr int kWarmStateCount = 5;
inline constexpr int kWarmEventCount = 5;

std::string_view to_string(WarmState state);  // "", "InUse", "Available", "Reused", "Terminated"
std::optional<WarmState> warm_state_from(std::string_view name);
// kInvalidArgument for an event that cannot be.
Result<WarmState> advance_warm(WarmState state, WarmEvent event);

// Training jobs of one group of hosts that ask for it, and not on spot.
bool may_have_warm_pool(const JobRequest& request, const JobNeeds& needs);
// A job that ended so leaves its hosts usable: on success, on a stop, and when its own script
// failed, but not after a fault of a host.
bool keeps_warm_pool(JobStage final_stage, bool host_was_at_fault);
// Two jobs with the same key may follow each other on the same hosts.
std::string warm_pool_key(const JobRequest& request);

inline constexpr double kWarmPoolSecondsMax = 28.0 * 86'400;

}  // namespace yard::jobs
