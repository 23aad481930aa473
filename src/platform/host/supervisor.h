// Supervisor: runs the ranks of a job on this host, restarts them after a death, and keeps the
// job's records (docs/formats/job.md).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "jobs/job_spec.h"
#include "jobs/job_state.h"

namespace yard::host {

struct SupervisorOptions {
  std::string job_dir;
  std::map<std::string, std::string> env;  // the ranks' environment, before the job's own additions
  std::vector<int> cores;                  // of the host, split over the ranks; empty: no affinity
  StopToken stop;                          // as `stop` on the control FIFO
  Clock* clock = &Clock::real();
  // After a death the other ranks get SIGTERM and so long to notice it themselves, then SIGKILL.
  std::chrono::milliseconds fault_grace{300};
  std::chrono::milliseconds spares_after{2'000};  // SpareRanksOptions::start_after
  // Called before the transition's action is performed, to make it durable. A failure is logged:
  // the training goes on.
  std::function<Status(jobs::JobEvent event, int retries_left, const std::string& detail)> record;
  // Called once nothing but the ranks themselves can fail any more, before they are started.
  std::function<void()> on_ready;
};

struct SupervisorResult {
  jobs::JobState state = jobs::JobState::kFailed;  // final
  std::string reason;
};

// Blocks until the job has ended. The job must be `starting`. One supervisor per job at a time:
// kUnavailable while another one holds its events.jsonl locked; kNotFound, kInvalidArgument: no
// readable job in that folder. Ranks that fail, or cannot be started, are a result, not an error.
Result<SupervisorResult> supervise(const SupervisorOptions& options);

}  // namespace yard::host
