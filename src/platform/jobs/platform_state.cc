#include "jobs/platform_state.h"

#include <fmt/format.h>

#include <array>

#include "jobs/enum_names_internal.h"

namespace yard::jobs {
namespace {

constexpr std::array<std::string_view, kJobStageCount> kStageNames = {
    "queued", "launching", "downloading", "training", "restarting",
    "ending", "uploading", "completed",   "failed",   "stopped"};
constexpr std::array<std::string_view, kEndReasonCount> kReasonNames = {
    "none", "failure", "stop_asked", "max_runtime", "max_wait", "max_pending"};
constexpr std::array<std::string_view, kPlatformEventCount> kEventNames = {
    "no_hosts",       "placed",       "download_began", "training_began", "hosts_faulty",
    "hosts_replaced", "scripts_done", "scripts_ended",  "relaunch",       "preempted",
    "hosts_cleared",  "fault",        "uploaded",       "stop_asked",     "runtime_over",
    "wait_over",      "pending_over"};
constexpr std::array<std::string_view, kWorkCount> kWorkNames = {
    "none",         "place",  "start_hosts", "replace_hosts", "stop_scripts",
    "kill_scripts", "upload", "clear_hosts", "release"};

using internal::from_name;

using Outcome = Result<PlatformTransition>;
using enum JobStage;

Error refuse(PlatformState state, PlatformEvent event) {
  return {Code::kInvalidArgument, fmt::format("{} makes no sense for a job that is {}",
                                              to_string(event), to_string(state.stage))};
}

PlatformTransition finished(EndReason reason) {
  switch (reason) {
    case EndReason::kNone:
      return {{kCompleted, reason}, Work::kRelease, "Completed", "Training job completed"};
    case EndReason::kFailure:
      return {{kFailed, reason}, Work::kRelease, "Failed", "Training job failed"};
    case EndReason::kMaxPending:
      return {{kFailed, reason},
              Work::kRelease,
              "Failed",
              "Training job waited for capacity longer than MaxPendingTimeInSeconds"};
    case EndReason::kStopAsked:
      return {{kStopped, reason}, Work::kRelease, "Stopped", "Training job stopped"};
    case EndReason::kMaxRuntime:
      return {{kStopped, reason},
              Work::kRelease,
              "MaxRuntimeExceeded",
              "Training job runtime exceeded MaxRuntimeInSeconds provided"};
    case EndReason::kMaxWait:
      return {{kStopped, reason},
              Work::kRelease,
              "MaxWaitTimeExceeded",
              "Training job runtime and wait exceeded MaxWaitTimeInSeconds provided"};
  }
  YARD_UNREACHABLE();
}

// A failure keeps the status: the next one that is told is Uploading.
PlatformTransition end_scripts(EndReason reason) {
  if (reason == EndReason::kFailure) return {{kEnding, reason}, Work::kKillScripts, "", ""};
  return {{kEnding, reason}, Work::kStopScripts, "Stopping", "Stopping the training job"};
}

std::optional<EndReason> limit_of(PlatformEvent event) {
  switch (event) {
    case PlatformEvent::kStopAsked:
      return EndReason::kStopAsked;
    case PlatformEvent::kRuntimeOver:
      return EndReason::kMaxRuntime;
    case PlatformEvent::kWaitOver:
      return EndReason::kMaxWait;
    default:
      return std::nullopt;
  }
}

PlatformTransition upload(EndReason reason) {
  return {{kUploading, reason}, Work::kUpload, "Uploading", "Uploading generated training model"};
}

Outcome advance_queued(PlatformState state, PlatformEvent event) {
  switch (event) {
    case PlatformEvent::kNoHosts:
      return PlatformTransition{state, Work::kPlace, "Pending",
                                "Training job waiting for capacity"};
    case PlatformEvent::kPlaced:
      return PlatformTransition{{kLaunching, EndReason::kNone},
                                Work::kStartHosts,
                                "Starting",
                                "Preparing the instances for training"};
    case PlatformEvent::kFault:
      return finished(EndReason::kFailure);
    case PlatformEvent::kStopAsked:
      return finished(EndReason::kStopAsked);
    case PlatformEvent::kRuntimeOver:  // used up by earlier attempts
      return finished(EndReason::kMaxRuntime);
    case PlatformEvent::kWaitOver:
      return finished(EndReason::kMaxWait);
    case PlatformEvent::kPendingOver:
      return finished(EndReason::kMaxPending);
    default:
      return refuse(state, event);
  }
}

// launching, downloading, training
Outcome advance_working(PlatformState state, PlatformEvent event) {
  const bool before_training = state.stage != kTraining;
  if (const auto reason = limit_of(event)) return end_scripts(*reason);
  switch (event) {
    case PlatformEvent::kDownloadBegan:
      if (state.stage != kLaunching) return refuse(state, event);
      return PlatformTransition{
          {kDownloading, EndReason::kNone}, Work::kNone, "Downloading", "Downloading input data"};
    case PlatformEvent::kTrainingBegan:
      if (!before_training) return refuse(state, event);
      return PlatformTransition{{kTraining, EndReason::kNone},
                                Work::kNone,
                                "Training",
                                "Training image download completed. Training in progress."};
    case PlatformEvent::kHostsFaulty:
      if (!before_training) return refuse(state, event);
      return PlatformTransition{state, Work::kReplaceHosts, "", ""};
    case PlatformEvent::kHostsReplaced:
      if (!before_training) return refuse(state, event);
      return PlatformTransition{state, Work::kStartHosts, "", ""};
    case PlatformEvent::kScriptsDone:
      if (before_training) return refuse(state, event);
      return upload(EndReason::kNone);
    case PlatformEvent::kRelaunch:
      return PlatformTransition{{kRestarting, EndReason::kNone},
                                Work::kClearHosts,
                                "Restarting",
                                "Training job restarting after a fault"};
    case PlatformEvent::kPreempted:
      return PlatformTransition{{kRestarting, EndReason::kNone},
                                Work::kClearHosts,
                                "Interrupted",
                                "Training job interrupted, its hosts were taken away"};
    case PlatformEvent::kFault:
      return end_scripts(EndReason::kFailure);
    default:
      return refuse(state, event);
  }
}

Outcome advance_restarting(PlatformState state, PlatformEvent event) {
  // The scripts are being ended anyway; what is left is to wait for that.
  if (const auto reason = limit_of(event)) return end_scripts(*reason);
  if (event == PlatformEvent::kHostsCleared)
    return PlatformTransition{
        {kQueued, EndReason::kNone}, Work::kPlace, "Starting", "Starting the training job again"};
  if (event == PlatformEvent::kFault) return end_scripts(EndReason::kFailure);
  return refuse(state, event);
}

Outcome advance_ending(PlatformState state, PlatformEvent event) {
  // Nothing changes the reason any more. Hosts that never came to a script have nothing to upload.
  if (event == PlatformEvent::kScriptsEnded) return upload(state.ending);
  if (event == PlatformEvent::kUploaded) return finished(state.ending);
  return refuse(state, event);
}

Outcome advance_uploading(PlatformState state, PlatformEvent event) {
  if (event == PlatformEvent::kUploaded) return finished(state.ending);
  // An upload that failed: without its artifacts no job is Completed.
  if (event == PlatformEvent::kFault)
    return finished(state.ending == EndReason::kNone ? EndReason::kFailure : state.ending);
  return refuse(state, event);
}

}  // namespace

Result<PlatformTransition> advance_platform(PlatformState state, PlatformEvent event) {
  switch (state.stage) {
    case kQueued:
      return advance_queued(state, event);
    case kLaunching:
    case kDownloading:
    case kTraining:
      return advance_working(state, event);
    case kRestarting:
      return advance_restarting(state, event);
    case kEnding:
      return advance_ending(state, event);
    case kUploading:
      return advance_uploading(state, event);
    case kCompleted:
    case kFailed:
    case kStopped:
      return refuse(state, event);
  }
  YARD_UNREACHABLE();
}

std::string_view primary_status(PlatformState state) {
  const bool stops = state.ending != EndReason::kNone && state.ending != EndReason::kFailure;
  switch (state.stage) {
    case kCompleted:
      return "Completed";
    case kFailed:
      return "Failed";
    case kStopped:
      return "Stopped";
    case kEnding:
    case kUploading:
      return stops ? "Stopping" : "InProgress";
    default:
      return "InProgress";
  }
}

std::string_view to_string(JobStage stage) {
  return kStageNames[static_cast<size_t>(stage)];
}
std::string_view to_string(EndReason reason) {
  return kReasonNames[static_cast<size_t>(reason)];
}
std::string_view to_string(PlatformEvent event) {
  return kEventNames[static_cast<size_t>(event)];
}
std::string_view to_string(Work work) {
  return kWorkNames[static_cast<size_t>(work)];
}
std::optional<JobStage> job_stage_from(std::string_view name) {
  return from_name<JobStage>(kStageNames, name);
}
std::optional<EndReason> end_reason_from(std::string_view name) {
  return from_name<EndReason>(kReasonNames, name);
}
std::optional<PlatformEvent> platform_event_from(std::string_view name) {
  return from_name<PlatformEvent>(kEventNames, name);
}
std::optional<Work> work_from(std::string_view name) {
  return from_name<Work>(kWorkNames, name);
}

}  // namespace yard::jobs
