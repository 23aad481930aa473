// The life of a job, as a pure function: (state, event) -> next state and what to do.
//
// No clock, no database, no process in here. Whoever applies it records the transition together
// with its action in one transaction, then performs the action: a crash between the two is seen.
//
//   queued -> starting -> running -> succeeded
//               |          |  ^
//               v          v  |
//              restarting -+--+       any -> stopping -> stopped       any -> failed
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace yard::jobs {

enum class JobState : uint8_t {
  kQueued,
  kStarting,
  kRunning,
  kRestarting,
  kStopping,
  kSucceeded,
  kFailed,
  kStopped
};
enum class JobEvent : uint8_t {
  kPlaced,          // hosts were found
  kRanksStarted,    // every rank of the attempt is spawned
  kRankFault,       // a rank died, or lost a peer or a store: a restart may help
  kUserFault,       // the program itself failed: a restart would fail again
  kAllDone,         // every rank ended with 0
  kStopAsked,       // a person, or the end of the host's time
  kRanksStopped,    // asked to stop, every rank has ended
  kSupervisorLost,  // the process responsible for the job is gone
  kResumeAsked      // a person wants an ended job to go on
};
enum class Action : uint8_t {
  kNone,
  kAcquireHosts,     // and place the job
  kStartSupervisor,  // which launches the ranks
  kRelaunchRanks,    // end what is left of the attempt, start the next one
  kStopRanks,        // SIGTERM, the grace time, SIGKILL
  kKillRanks,        // SIGKILL at once
  kRelease           // end what is left, give the hosts back
};

inline constexpr int kJobStateCount = 8;  // stored by name; append, never rename
inline constexpr int kJobEventCount = 9;
inline constexpr int kActionCount = 7;

struct Transition {
  JobState next;
  Action action;
  bool operator==(const Transition&) const = default;
};

// kInvalidArgument when the event makes no sense in this state (a death that is noticed after the
// job ended): the job is unharmed. `retries_left` counts restarts still allowed for the fault's
// cause (see retry.h), and matters to kRankFault alone.
Result<Transition> advance(JobState state, JobEvent event, int retries_left);

constexpr bool is_final(JobState state) {
  return state >= JobState::kSucceeded;
}

// Lower-case words, as stored and shown: "running", "rank_fault", "stop_ranks".
std::string_view to_string(JobState state);
std::string_view to_string(JobEvent event);
std::string_view to_string(Action action);
std::optional<JobState> job_state_from(std::string_view name);
std::optional<JobEvent> job_event_from(std::string_view name);
std::optional<Action> action_from(std::string_view name);

}  // namespace yard::jobs
