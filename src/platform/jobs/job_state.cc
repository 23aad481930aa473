#include "jobs/job_state.h"

#include <fmt/format.h>

#include "jobs/enum_names_internal.h"

namespace yard::jobs {
namespace {

constexpr std::string_view kStateNames[kJobStateCount] = {
    "queued", "starting", "running", "restarting", "stopping", "succeeded", "failed", "stopped"};
constexpr std::string_view kEventNames[kJobEventCount] = {
    "placed",     "ranks_started", "rank_fault",      "user_fault",  "all_done",
    "stop_asked", "ranks_stopped", "supervisor_lost", "resume_asked"};
constexpr std::string_view kActionNames[kActionCount] = {
    "none",       "acquire_hosts", "start_supervisor", "relaunch_ranks",
    "stop_ranks", "kill_ranks",    "release"};

using internal::from_name;

Error refuse(JobState state, JobEvent event) {
  return {Code::kInvalidArgument, fmt::format("a job that is {} cannot take the event {}",
                                              to_string(state), to_string(event))};
}

constexpr Transition kFail{JobState::kFailed, Action::kRelease};

// Ranks are wanted: starting, running or restarting.
Result<Transition> advance_active(JobState state, JobEvent event, int retries_left) {
  switch (event) {
    case JobEvent::kRanksStarted:
      if (state == JobState::kRunning) return refuse(state, event);
      return Transition{JobState::kRunning, Action::kNone};
    case JobEvent::kRankFault:
      if (retries_left == 0) return kFail;
      return Transition{JobState::kRestarting, Action::kRelaunchRanks};
    case JobEvent::kUserFault:
    case JobEvent::kSupervisorLost:
      return kFail;
    case JobEvent::kAllDone:
      if (state != JobState::kRunning) return refuse(state, event);
      return Transition{JobState::kSucceeded, Action::kRelease};
    case JobEvent::kStopAsked:
      return Transition{JobState::kStopping, Action::kStopRanks};
    case JobEvent::kRanksStopped:  // they stopped by themselves, as if asked
      if (state != JobState::kRunning) return refuse(state, event);
      return Transition{JobState::kStopped, Action::kRelease};
    case JobEvent::kPlaced:
    case JobEvent::kResumeAsked:
      return refuse(state, event);
  }
  YARD_UNREACHABLE();
}

Result<Transition> advance_stopping(JobEvent event) {
  switch (event) {
    case JobEvent::kRanksStopped:
      return Transition{JobState::kStopped, Action::kRelease};
    case JobEvent::kAllDone:  // the stop came too late to matter
      return Transition{JobState::kSucceeded, Action::kRelease};
    case JobEvent::kUserFault:
    case JobEvent::kSupervisorLost:
      return kFail;
    case JobEvent::kRankFault:  // nobody restarts what is to end
      return Transition{JobState::kStopping, Action::kKillRanks};
    case JobEvent::kStopAsked:  // asked twice: at once
      return Transition{JobState::kStopping, Action::kKillRanks};
    case JobEvent::kPlaced:
    case JobEvent::kRanksStarted:
    case JobEvent::kResumeAsked:
      return refuse(JobState::kStopping, event);
  }
  YARD_UNREACHABLE();
}

}  // namespace

Result<Transition> advance(JobState state, JobEvent event, int retries_left) {
  YARD_CHECK(retries_left >= 0);
  switch (state) {
    case JobState::kQueued:
      if (event == JobEvent::kPlaced)
        return Transition{JobState::kStarting, Action::kStartSupervisor};
      if (event == JobEvent::kStopAsked) return Transition{JobState::kStopped, Action::kRelease};
      if (event == JobEvent::kSupervisorLost) return kFail;
      return refuse(state, event);
    case JobState::kStarting:
    case JobState::kRunning:
    case JobState::kRestarting:
      return advance_active(state, event, retries_left);
    case JobState::kStopping:
      return advance_stopping(event);
    case JobState::kFailed:
    case JobState::kStopped:
      if (event == JobEvent::kResumeAsked)
        return Transition{JobState::kQueued, Action::kAcquireHosts};
      return refuse(state, event);
    case JobState::kSucceeded:
      return refuse(state, event);
  }
  YARD_UNREACHABLE();
}

std::string_view to_string(JobState state) {
  return kStateNames[static_cast<size_t>(state)];
}
std::string_view to_string(JobEvent event) {
  return kEventNames[static_cast<size_t>(event)];
}
std::string_view to_string(Action action) {
  return kActionNames[static_cast<size_t>(action)];
}
std::optional<JobState> job_state_from(std::string_view name) {
  return from_name<JobState>(kStateNames, name);
}
std::optional<JobEvent> job_event_from(std::string_view name) {
  return from_name<JobEvent>(kEventNames, name);
}
std::optional<Action> action_from(std::string_view name) {
  return from_name<Action>(kActionNames, name);
}

}  // namespace yard::jobs
