// JobSpec: what a person asked for, and its JSON form (docs/formats/job.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "jobs/retry.h"

namespace yard::jobs {

// A death on purpose, to show or test recovery: SIGKILL `kill_rank` once, when the global step
// `after_step` is done.
struct Chaos {
  int kill_rank = 0;
  int64_t after_step = 0;
};

struct JobSpec {
  std::string name;
  std::vector<std::string> command;  // of every rank
  int ranks = 1;
  std::map<std::string, std::string> env;  // added to the supervisor's own
  std::string working_dir;                 // absolute
  std::string output_dir;                  // absolute
  RetryBudget retries;
  double stop_grace_s = 120;
  double price_per_host_hour = 0;
  std::optional<Chaos> chaos;
};

inline constexpr int kRanksMax = 1024;
inline constexpr int kRetriesMax = 1000;

// kInvalidArgument, the key named, for everything that docs/formats/job.md rules out.
Status check_spec(const JobSpec& spec);
// Letters, digits and inner hyphens, 1 to 63: as SageMaker's.
Status check_job_name(std::string_view name);

Json to_json(const JobSpec& spec);
// Checked. `what` names the document in errors: "job.json".
Result<JobSpec> job_spec_from_json(const Json& json, std::string_view what);

}  // namespace yard::jobs
