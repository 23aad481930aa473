// JobWatch: looks at the running jobs of `yard serve` once a second: what they use, what numbers
// their logs say; also at those that began and ended between two looks.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/sagemaker_service.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "engine/platform_control.h"
#include "metrics/metric_store.h"
#include "observe/job_observer.h"

namespace yard::app {

// A thread of its own. `control` and `store` outlive it. What cannot be looked at is logged, once
// per kind of trouble.
class JobWatch {
 public:
  JobWatch(engine::PlatformControl& control, metrics::MetricStore& store);
  ~JobWatch();

  // For Prometheus; of the last look. Thread-safe.
  std::string prometheus_text();
  // Of the last look. Thread-safe.
  std::vector<observe::LiveHost> live_hosts();
  // See api::FinalMetrics.
  std::vector<api::FinalMetric> final_metrics(const engine::JobView& view, bool to_the_end);

 private:
  void run();
  Status add_jobs(engine::JobFilter filter, std::vector<observe::ObservedJob>& jobs);
  Result<std::vector<observe::ObservedJob>> jobs_to_look_at();
  Status look();

  engine::PlatformControl& control_;
  metrics::MetricStore& store_;
  std::mutex observer_mutex_;
  observe::JobObserver observer_;
  double looked_t_;  // jobs that ended before were read to their end
  StopSource stop_;
  std::mutex mutex_;
  std::string text_;
  std::vector<observe::LiveHost> live_;
  std::string last_trouble_;
  std::thread thread_;
};

}  // namespace yard::app
