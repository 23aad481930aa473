// Which log streams there are: the hosts of jobs, under the names that clients know.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/aws_error.h"
#include "api/job_desk.h"

namespace yard::api {

// "/aws/sagemaker/TrainingJobs" and the other.
std::string_view log_group_of(jobs::JobKind kind);
std::optional<jobs::JobKind> kind_of_log_group(std::string_view group);

struct JobStream {
  std::string name;  // "JOB/algo-1-1796007511"
  std::string path;  // of its file, which may not be there yet
  double created_t = 0;
};

// All hosts of a job, in the order of their stream's names; none before it has hosts.
std::vector<JobStream> streams_of(const jobs::JobView& view);

struct JobStreamPage {
  std::vector<JobStream> streams;
  std::string next_token;  // empty: that was the last one
};
// Those whose names begin with `prefix`, of `limit` jobs at most; a prefix with a '/' is of one
// job. latest_first: the newest jobs first, else by name.
Result<JobStreamPage> list_streams(JobDesk& desk, jobs::JobKind kind, const std::string& prefix,
                                   bool latest_first, const std::string& page_token, int limit);
// kNotFound.
Result<JobStream> find_stream(JobDesk& desk, jobs::JobKind kind, const std::string& name);

}  // namespace yard::api
