// MetricScraper: numbers out of log lines, by the MetricDefinitions of a job.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::metrics {

struct MetricDefinition {
  std::string name;
  std::string
      regex;  // Perl's syntax; its first group, or without one the whole match, is the number
};

struct ScrapedValue {
  size_t definition_index = 0;
  double value = 0;
};

// Not thread-safe. A regular expression has a bounded amount of work per line: one that needs more
// gives no value, and is told by `overran`.
class MetricScraper {
 public:
  // kInvalidArgument: an expression that cannot be read; name, place and reason are told.
  static Result<MetricScraper> create(std::vector<MetricDefinition> definitions);
  MetricScraper(MetricScraper&&) noexcept;
  MetricScraper& operator=(MetricScraper&&) noexcept;
  ~MetricScraper();

  // The first match of each definition that is a finite number ("0.5", "1e-3", "-7").
  std::vector<ScrapedValue> scrape(std::string_view line);
  const std::vector<MetricDefinition>& definitions() const;
  // How often a definition gave up.
  uint64_t overran(size_t definition_index) const;

 private:
  struct Impl;
  explicit MetricScraper(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::metrics
