// MetricStore: time series in one SQLite file, as CloudWatch keeps them: by second for 3 hours,
// then by minute, 5 minutes and hour, until they are 455 days old. The size of a series is bounded
// by that: 36,000 rows at most.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace yard::metrics {

struct SeriesKey {
  std::string space;  // "/aws/sagemaker/TrainingJobs"
  std::string name;
  std::map<std::string, std::string> dimensions;
  auto operator<=>(const SeriesKey&) const = default;
};

// What is kept of the values of a stretch of time.
struct Summary {
  double count = 0;
  double sum = 0;
  double min = 0;
  double max = 0;
  double mean() const { return count > 0 ? sum / count : 0; }
  void add(const Summary& other);
  static Summary of(double value) { return {1, value, value, value}; }
  bool operator==(const Summary&) const = default;
};

struct MetricSample {
  SeriesKey key;
  double t = 0;  // Unix seconds
  Summary values;
  std::string unit;  // CloudWatch's word; "None" when empty
};

// The sample with the latest time; of several with that time the one that was put last.
struct LastValue {
  double t = 0;  // Unix seconds
  double value = 0;
};

struct MetricPoint {
  int64_t t_s = 0;  // Unix seconds, a multiple of the period
  Summary values;
};

struct SeriesQuery {
  SeriesKey key;
  int64_t start_s = 0;  // inclusive
  int64_t end_s = 0;    // exclusive
  int64_t period_s = 60;
};

struct SeriesFilter {
  std::optional<std::string> space;
  std::optional<std::string> name;
  // A value that is absent stands for any.
  std::map<std::string, std::optional<std::string>> dimensions;
  std::optional<int64_t> active_since_s;
};

struct SeriesInfo {
  SeriesKey key;
  std::string unit;
  int64_t last_s = 0;
};

struct MetricStoreOptions {
  std::string path;
  Clock* clock = &Clock::real();  // must outlive it
};

// Thread-safe. Codes: kInvalidArgument (a period below 1, a value that is no number, a key beyond
// CloudWatch's limits), kExhausted (disk full: nothing was changed), kUnavailable, kCorrupt. After
// a power cut the last seconds may be missing.
class MetricStore {
 public:
  static Result<MetricStore> open(const MetricStoreOptions& options);
  MetricStore(MetricStore&&) noexcept;
  MetricStore& operator=(MetricStore&&) noexcept;
  ~MetricStore();

  // All or none, in one commit: collect some before you call. Samples may come late and in any
  // order; those older than 455 days are dropped.
  // `marks` are kept in the same commit: how far a source of samples was read.
  Status put(const std::vector<MetricSample>& samples,
             const std::map<std::string, int64_t>& marks = {});
  Result<std::optional<int64_t>> mark(const std::string& name);
  // nullopt: there is no such series. As exact as it was put, however old it is.
  Result<std::optional<LastValue>> last(const SeriesKey& key);
  // Those whose names begin with `prefix`.
  Status forget_marks(const std::string& prefix);
  // One point per period in which there are values, oldest first. Where the time that was asked
  // for is only kept coarser than the period, the points are as coarse.
  Result<std::vector<MetricPoint>> read(const SeriesQuery& query);
  // Of the whole range, from the finest that is kept; the values of one second that hold several
  // count as their mean. `percent`: 0 to 100. nullopt: no values.
  Result<std::optional<double>> percentile(const SeriesQuery& range, double percent);
  Result<std::vector<SeriesInfo>> list(const SeriesFilter& filter);

 private:
  struct Impl;
  explicit MetricStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::metrics
