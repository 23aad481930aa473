// What a client is told about a job, out of its rows. Pure.
#pragma once

#include <vector>

#include "jobdb/platform_db.h"
#include "jobs/platform_job.h"

namespace yard::engine::internal {

struct JobRows {
  jobdb::PlatformJobRow row;
  std::vector<jobdb::PlatformHostRow> hosts;
  std::vector<jobs::StatusChange> changes;
  std::vector<jobdb::PlatformAttemptRow> attempts;
};
Result<JobRows> load_job_rows(jobdb::PlatformDb& db, jobdb::PlatformJobRow row);
jobs::JobView view_of(const JobRows& rows, double now_t);

}  // namespace yard::engine::internal
