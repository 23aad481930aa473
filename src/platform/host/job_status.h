// JobStatus: status.json, what is happening to a job now (docs/formats/job.md).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "host/process.h"
#include "jobs/job_state.h"

namespace yard::host {

struct RankStatus {
  int rank = 0;
  int pid = 0;
  bool alive = false;
  int code = 0;
  int signal = 0;
};

struct JobStatus {
  std::string name;
  jobs::JobState state = jobs::JobState::kQueued;
  std::string reason;
  int exit_code = 0;
  int attempt = 0;
  int restarts = 0;
  int master_port = 0;
  int spare_count = 0;  // interpreters that wait for the next attempt
  ProcessId supervisor;
  std::vector<RankStatus> ranks;
  std::string stage;
  int64_t global_step = 0;
  int64_t global_steps = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
  double started_t = 0;
  double updated_t = 0;
  double ended_t = 0;
};

Json to_json(const JobStatus& status);
// kNotFound before the supervisor's first word.
Result<JobStatus> read_status(const std::string& path);

}  // namespace yard::host
