#include "metrics/log_metrics.h"

namespace yard::metrics {
namespace {

constexpr size_t kEventsMax = 20'000;
constexpr size_t kBytesMax = size_t{4} << 20;

}  // namespace

Result<bool> LogMetrics::feed() {
  YARD_ASSIGN(const auto read_until, store_.mark(options_.mark));
  logs::LogQuery query{.offset = static_cast<uint64_t>(read_until.value_or(0)),
                       .events_max = kEventsMax,
                       .bytes_max = kBytesMax};
  const auto page = logs::LogReader(options_.stream_path).read(query);
  if (!page && page.error().code == Code::kNotFound) return false;
  if (!page) return page.error();
  if (page->end_offset == query.offset) return false;
  std::vector<MetricSample> samples;
  for (const logs::LogEvent& event : page->events) {
    for (const ScrapedValue& found : scraper_.scrape(event.text)) {
      const std::string& name = scraper_.definitions()[found.definition_index].name;
      samples.push_back({.key = {options_.space, name, options_.dimensions},
                         .t = static_cast<double>(event.t_ms) / 1000,
                         .values = Summary::of(found.value),
                         .unit = {}});
    }
  }
  YARD_TRY(store_.put(samples, {{options_.mark, static_cast<int64_t>(page->end_offset)}}));
  for (MetricSample& sample : samples) last_[sample.key.name] = std::move(sample);
  return true;  // at most one call too many
}

}  // namespace yard::metrics
