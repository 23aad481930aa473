// LogMetrics: the numbers that the lines of a log stream hold, put into a MetricStore as the stream
// grows: each line once, also when whoever does it is killed and started again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "logs/log_stream.h"
#include "metrics/metric_scraper.h"
#include "metrics/metric_store.h"

namespace yard::metrics {

struct LogMetricsOptions {
  std::string stream_path;
  std::string mark;  // of this stream alone: how far it was read
  std::string space;
  std::map<std::string, std::string> dimensions;
};

// Not thread-safe. One per stream.
class LogMetrics {
 public:
  // `store` outlives it.
  LogMetrics(LogMetricsOptions options, MetricScraper scraper, MetricStore& store)
      : options_(std::move(options)), scraper_(std::move(scraper)), store_(store) {}

  // Reads what is new, up to a bounded amount: true when there is more. A stream that is not there
  // yet is empty. The codes of LogReader and MetricStore; nothing is lost by one.
  Result<bool> feed();
  // The last value of each definition that had one since we exist.
  const std::map<std::string, MetricSample>& last_values() const { return last_; }

 private:
  const LogMetricsOptions options_;
  MetricScraper scraper_;
  MetricStore& store_;
  std::map<std::string, MetricSample> last_;
};

}  // namespace yard::metrics
