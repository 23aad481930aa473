// The life of a platform job, as a pure function: (state, event) -> next state, the status that a
// client sees, and the work that follows.
//
// Whoever applies it records the transition together with its work in one transaction, then does
// the work: after a crash between the two the record says what is still to be done.
//
//   queued -> launching -> downloading -> training -> uploading -> completed | failed | stopped
//     ^          |              |            |    \       ^
//     |          v              v            v     v      |
//     +------ restarting <------+------------+    ending -+     (ending: scripts are being stopped)
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace yard::jobs {

enum class JobStage : uint8_t {
  kQueued,
  kLaunching,
  kDownloading,
  kTraining,
  kRestarting,
  kEnding,
  kUploading,
  kCompleted,
  kFailed,
  kStopped
};
// Why a job comes to its end; kept until it is there.
enum class EndReason : uint8_t {
  kNone,  // its scripts ended well, or still run
  kFailure,
  kStopAsked,
  kMaxRuntime,
  kMaxWait,
  kMaxPending
};
enum class PlatformEvent : uint8_t {
  kNoHosts,        // its turn, but its hosts are taken
  kPlaced,         // hosts were found
  kDownloadBegan,  // on every host
  kTrainingBegan,  // on every host
  kHostsFaulty,    // some failed before their script began: others take their places
  kHostsReplaced,  // those were found
  kScriptsDone,    // on every host, well
  kScriptsEnded,   // on every host, after we asked, or badly
  kRelaunch,       // the attempt failed, another may follow
  kPreempted,      // the hosts were taken away, another attempt follows
  kHostsCleared,   // of a restarting job: nothing of the attempt is left
  kFault,          // the attempt failed, no other follows
  kUploaded,       // every host is done with everything
  kStopAsked,
  kRuntimeOver,
  kWaitOver,
  kPendingOver
};
enum class Work : uint8_t {
  kNone,
  kPlace,         // find hosts
  kStartHosts,    // a supervisor for each host that has none
  kReplaceHosts,  // end what is left on the faulty ones, find others
  kStopScripts,   // SIGTERM, the grace time, SIGKILL
  kKillScripts,   // SIGKILL
  kUpload,
  kClearHosts,  // end the attempt without an upload
  kRelease      // give the hosts back, or keep them as a warm pool
};

inline constexpr int kJobStageCount = 10;  // stored by name; append, never rename
inline constexpr int kEndReasonCount = 6;
inline constexpr int kPlatformEventCount = 17;
inline constexpr int kWorkCount = 9;

struct PlatformState {
  JobStage stage = JobStage::kQueued;
  EndReason ending = EndReason::kNone;
  bool operator==(const PlatformState&) const = default;
};

struct PlatformTransition {
  PlatformState next;
  Work work = Work::kNone;
  // The new secondary status and what is told with it; empty: the last one goes on.
  std::string_view secondary;
  std::string_view message;
  bool operator==(const PlatformTransition&) const = default;
};

// kInvalidArgument when the event makes no sense in this state (a stop of a job that has ended):
// the job is unharmed.
Result<PlatformTransition> advance_platform(PlatformState state, PlatformEvent event);

// The first entry of every job.
inline constexpr std::string_view kFirstSecondary = "Starting";
inline constexpr std::string_view kFirstMessage = "Starting the training job";

constexpr bool is_final(JobStage stage) {
  return stage >= JobStage::kCompleted;
}
// Supervisors of the current attempt may be there.
constexpr bool has_hosts(JobStage stage) {
  return stage != JobStage::kQueued && !is_final(stage);
}
// InProgress, Completed, Failed, Stopping, Stopped.
std::string_view primary_status(PlatformState state);

// Lower-case words, as stored: "queued", "stop_asked", "start_hosts".
std::string_view to_string(JobStage stage);
std::string_view to_string(EndReason reason);
std::string_view to_string(PlatformEvent event);
std::string_view to_string(Work work);
std::optional<JobStage> job_stage_from(std::string_view name);
std::optional<EndReason> end_reason_from(std::string_view name);
std::optional<PlatformEvent> platform_event_from(std::string_view name);
std::optional<Work> work_from(std::string_view name);

}  // namespace yard::jobs
