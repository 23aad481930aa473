// What the states of a job's hosts mean for the job. Pure: the controller's decisions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/host_plan.h"
#include "jobs/job_needs.h"
#include "jobs/platform_retry.h"
#include "jobs/platform_state.h"

namespace yard::jobs {

// A host of a job, as the database has it.
enum class HostLife : uint8_t {
  kWanted,    // it has no slice yet
  kHeld,      // it has one; its supervisor is to be started
  kStarted,   // its supervisor was started
  kClearing,  // what is left of its supervisor is to be ended; then it is wanted again
  kKept,      // its job has ended, the slice stays as a warm pool
  kFree       // its job has ended, the slice was given back
};
inline constexpr int kHostLifeCount = 6;
std::string_view to_string(HostLife life);  // "wanted", ...
std::optional<HostLife> host_life_from(std::string_view name);
constexpr bool holds_slice(HostLife life) {
  return life != HostLife::kWanted && life != HostLife::kFree;
}

struct HostSeen {
  std::string name;
  HostLife life = HostLife::kWanted;
  std::optional<HostStatus> status;  // what its supervisor told last in this attempt
  bool is_alive = false;             // its supervisor; true while it is being started, too
  std::string lost_reason;           // why not, as far as is known
};

struct JobSeen {
  PlatformState state;
  std::vector<HostSeen> hosts;
  double created_t = 0;
  double queued_t = 0;  // since when it waits
  double active_s = 0;  // JobAccount::active_s()
  FaultCounts budgets;
  FaultCounts used;
  int replaced_count = 0;
};

// The next event of a job. Events that lie behind already come one by one, in their order.
struct Verdict {
  PlatformEvent event = PlatformEvent::kNoHosts;
  double t = 0;                     // when it was; not after now
  std::string detail;               // the FailureReason when the job fails by it
  std::optional<FaultCause> cause;  // of kRelaunch, kPreempted and kFault
  std::vector<std::string> hosts;   // that are at fault
  std::optional<int> exit_code;     // of the script that decided it
  bool operator==(const Verdict&) const = default;
};

// Replacements of hosts before a script started, over the whole job.
inline constexpr int kReplacementsMax = 32;

// nullopt: nothing to do but wait. Never kPlaced, kNoHosts, kHostsReplaced, kHostsCleared and
// kStopAsked, which the controller and clients bring.
std::optional<Verdict> judge(const JobSeen& job, const JobNeeds& needs, double now_t);

// When the first host came to `phase` or beyond; nullopt: it is not there yet.
std::optional<double> time_of(const HostStatus& status, HostPhase phase);

}  // namespace yard::jobs
