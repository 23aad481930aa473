// JobWatch: looks at the running jobs of `yard serve` once a second: what they use, what numbers
// their logs say.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

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

 private:
  void run();
  Result<std::vector<observe::ObservedJob>> running_jobs();
  Status look();

  engine::PlatformControl& control_;
  observe::JobObserver observer_;
  StopSource stop_;
  std::mutex mutex_;
  std::string text_;
  std::vector<observe::LiveHost> live_;
  std::string last_trouble_;
  std::thread thread_;
};

}  // namespace yard::app
