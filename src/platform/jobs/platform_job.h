// What a client of the platform asked for, and what can be told about it: plain values.
//
// docs/formats/platform.md describes the words; statuses and their order are SageMaker's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace yard::jobs {

enum class JobKind : uint8_t { kTraining, kProcessing };
inline constexpr int kJobKindCount = 2;

// "training", "processing": as stored, and as HostPlan says it.
std::string_view to_string(JobKind kind);
std::optional<JobKind> job_kind_from(std::string_view name);

struct JobRequest {
  JobKind kind = JobKind::kTraining;
  std::string name;
  std::string arn;
  Json request;  // the validated request of the AWS client, verbatim
  std::map<std::string, std::string> tags;
  std::string user;  // who sent it
};

// One entry of SecondaryStatusTransitions. Times are Unix seconds.
struct StatusChange {
  std::string status;  // "Starting", "Downloading", "Training", ...
  double start_t = 0;
  std::optional<double> end_t;  // empty: it lasts
  std::string message;
  bool operator==(const StatusChange&) const = default;
};

struct JobView {
  JobRequest job;
  std::string status;                 // InProgress Completed Failed Stopping Stopped
  std::string secondary_status;       // that of the last change
  std::vector<StatusChange> changes;  // oldest first, never empty
  std::string failure_reason;         // empty unless Failed
  std::optional<int> exit_code;       // of the script on the host that decided the end
  double created_t = 0;
  double modified_t = 0;
  std::optional<double> training_start_t;  // hosts were there
  std::optional<double> training_end_t;    // the artifacts were there, or it failed
  double training_s = 0;                   // up to now while it runs; see jobs/job_account.h
  double billable_s = 0;                   // of one host
  std::string model_uri;                   // S3ModelArtifacts; empty before the upload
  std::string output_uri;
  std::string warm_pool_status;  // InUse Available Reused Terminated; empty: none was asked for
  double warm_pool_billable_s = 0;
  std::string reused_by;  // the job that took the warm pool over
  double cost = 0;  // of all hosts, the warm pool too, at yard.yaml's prices when they were placed
  Json account = Json::object();   // where its seconds went: to_json(JobAccount)
  std::vector<std::string> hosts;  // "algo-1", ...; the names of the log streams
  std::string dir;                 // JOB_DIR: logs/, hosts/
  int attempt = 0;                 // 0-based
};

}  // namespace yard::jobs
