// JobObserver: what running jobs use and what their logs say in numbers, second by second, put into
// the MetricStore under the names that CloudWatch has for them, and given out for Prometheus.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "metrics/log_metrics.h"
#include "metrics/metric_store.h"
#include "observe/gpu_usage.h"
#include "observe/host_usage.h"

namespace yard::observe {

struct ObservedJob {
  bool is_training = true;  // else processing
  std::string name;
  double created_t = 0;            // Unix seconds; a name may be given again
  bool has_ended = false;          // only its logs are still looked at
  std::string dir;                 // JOB_DIR: logs/algo-1.log, hosts/algo-1/status.json
  std::vector<std::string> hosts;  // "algo-1", ...
  std::vector<metrics::MetricDefinition> definitions;
};

// The last look at a host that runs.
struct LiveHost {
  bool is_training = true;
  std::string job;
  std::string host;  // "algo-1"
  HostUsage usage;
};

// "/aws/sagemaker/TrainingJobs", "/aws/sagemaker/ProcessingJobs".
std::string_view metric_space(bool is_training);
// The series that one of the job's MetricDefinitions makes.
metrics::SeriesKey metric_key(const ObservedJob& job, const std::string& metric);
// The MetricDefinitions of a CreateTrainingJob request. kInvalidArgument: an expression that cannot
// be read; a client should be told so before its job is accepted.
Result<std::vector<metrics::MetricDefinition>> metric_definitions(const Json& request);

// Not thread-safe. Jobs are known by kind, name and time of creation.
class JobObserver {
 public:
  // Both outlive it.
  JobObserver(metrics::MetricStore& store, const Clock& clock) : store_(store), clock_(clock) {}

  // To be called about once a second with the jobs that run now. Reads the logs of each, and of
  // those that have ended since the last call to their end. A job whose log or metrics cannot be
  // read does not keep the others from being looked at: the first error is returned.
  Status observe(const std::vector<ObservedJob>& running);
  // Reads the logs of a job that has ended to their end now, up to some 256 MiB of each host.
  Status settle(const ObservedJob& ended);
  // Prometheus' text format, version 0.0.4: the last look at every running job.
  std::string prometheus_text() const;
  // Likewise, by job and host.
  std::vector<LiveHost> live_hosts() const;

 private:
  struct Host {
    std::unique_ptr<metrics::LogMetrics> log;
    UsageMeter meter;
    std::optional<HostUsage> last;
  };
  struct Job {
    ObservedJob job;
    std::map<std::string, Host> hosts;
    bool seen = false;
  };

  Status take_up(const ObservedJob& observed);
  Status look_at(Job& job, std::vector<metrics::MetricSample>& samples);
  Status finish(Job& job, int reads_max);

  metrics::MetricStore& store_;
  const Clock& clock_;
  GpuMeter gpus_;
  std::map<std::string, Job> jobs_;
};

}  // namespace yard::observe
