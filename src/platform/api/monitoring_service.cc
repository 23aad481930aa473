#include "api/monitoring_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "api/timestamp.h"

namespace yard::api {
namespace {

using metrics::MetricPoint;
using metrics::SeriesKey;
using metrics::Summary;

constexpr int64_t kDatapointsMax = 1440;  // of GetMetricStatistics
constexpr int64_t kDataPerAnswerMax = 100'800;
constexpr size_t kQueriesMax = 500;
constexpr size_t kMetricsPage = 500;
constexpr size_t kSamplesPerPutMax = 1000;
constexpr size_t kValuesPerSampleMax = 150;
constexpr double kPast_s = 14 * 86'400;
constexpr double kFuture_s = 2 * 3600;

AwsError invalid(std::string message) {
  return AwsError("InvalidParameterValue", std::move(message));
}

SeriesKey key_of(const Json& metric) {
  SeriesKey key{metric.value("Namespace", ""), metric.value("MetricName", ""), {}};
  for (const Json& each : metric.value("Dimensions", Json::array()))
    key.dimensions[each.value("Name", "")] = each.value("Value", "");
  return key;
}

AwsResult<double> time_of(const Json& input, const char* name) {
  const Json& given = input.at(name);
  const auto t = given.is_number() ? std::optional(given.get<double>())
                                   : parse_timestamp(given.get<std::string>());
  if (!t) return invalid(fmt::format("The parameter {} must be a timestamp.", name));
  return *t;
}

// "Average" and its kin, or "p99", "p99.9".
struct Statistic {
  std::string name;
  std::optional<double> percent;
};

AwsResult<Statistic> statistic_of(const std::string& name) {
  for (const char* known : {"SampleCount", "Average", "Sum", "Minimum", "Maximum"})
    if (name == known) return Statistic{name, std::nullopt};
  double percent = -1;
  const char* end = name.data() + name.size();
  if (name.starts_with('p')) {
    const auto read = std::from_chars(name.data() + 1, end, percent);
    if (read.ec == std::errc{} && read.ptr == end && percent >= 0 && percent <= 100)
      return Statistic{name, percent};
  }
  return invalid(fmt::format("The value {} for parameter Stat is not supported.", name));
}

double value_of(const Statistic& statistic, const Summary& values) {
  if (statistic.name == "SampleCount") return values.count;
  if (statistic.name == "Sum") return values.sum;
  if (statistic.name == "Minimum") return values.min;
  if (statistic.name == "Maximum") return values.max;
  return values.mean();
}

AwsStatus check_period(int64_t period_s) {
  const bool known = period_s == 1 || period_s == 5 || period_s == 10 || period_s == 20 ||
                     period_s == 30 || (period_s > 0 && period_s % 60 == 0);
  if (known) return Ok{};
  return invalid("The parameter Period must be 1, 5, 10, 20, 30 or a multiple of 60.");
}

AwsResult<metrics::SeriesQuery> query_of(const SeriesKey& key, int64_t period_s, double start,
                                         double end) {
  YARD_TRY(check_period(period_s));
  if (!(start < end))
    return invalid("The parameter StartTime must be less than the parameter EndTime.");
  return metrics::SeriesQuery{.key = key,
                              .start_s = static_cast<int64_t>(std::floor(start)),
                              .end_s = static_cast<int64_t>(std::ceil(end)),
                              .period_s = period_s};
}

class MonitoringService final : public Service {
 public:
  MonitoringService(metrics::MetricStore& store, const Clock& clock)
      : store_(store), clock_(clock) {}

  const Model& model() const override { return model_; }
  Role needed_role(std::string_view operation) const override { return role_by_name(operation); }

  std::string resource_of(const Call& call) const override {
    return call.input.value("Namespace", "");
  }

  AwsResult<Json> call(const Call& call) override {
    if (call.operation == "PutMetricData") return put(call.input);
    if (call.operation == "ListMetrics") return list(call.input);
    if (call.operation == "GetMetricStatistics") return statistics(call.input);
    YARD_CHECK(call.operation == "GetMetricData");
    return data(call.input);
  }

 private:
  // -- PutMetricData

  AwsResult<Json> put(const Json& input) {
    const Json data = input.value("MetricData", Json::array());
    if (data.size() > kSamplesPerPutMax)
      return invalid(fmt::format("The collection MetricData must not have a size greater than {}.",
                                 kSamplesPerPutMax));
    std::vector<metrics::MetricSample> samples;
    for (size_t i = 0; i < data.size(); ++i) {
      auto sample = sample_of(input.value("Namespace", ""), data[i]);
      if (!sample)
        return AwsError(sample.error().code, fmt::format("The value for parameter MetricData.member"
                                                         ".{}: {}",
                                                         i + 1, sample.error().message));
      samples.push_back(*std::move(sample));
    }
    if (auto done = store_.put(samples); !done) {
      if (done.error().code == Code::kInvalidArgument) return invalid(done.error().message);
      return std::move(done).error();
    }
    return Json::object();
  }

  AwsResult<metrics::MetricSample> sample_of(const std::string& space, const Json& datum) const {
    metrics::MetricSample sample;
    sample.key = key_of(datum);
    sample.key.space = space;
    sample.unit = datum.value("Unit", "None");
    const double now = to_unix_seconds(clock_.wall_now());
    sample.t = now;
    if (datum.contains("Timestamp")) {
      YARD_ASSIGN(sample.t, time_of(datum, "Timestamp"));
      if (sample.t < now - kPast_s || sample.t > now + kFuture_s)
        return invalid("the timestamp is more than two weeks past or two hours ahead");
    }
    if (datum.value("StorageResolution", 60) != 1) sample.t = std::floor(sample.t / 60) * 60;
    YARD_ASSIGN(sample.values, values_of_datum(datum));
    return sample;
  }

  static AwsResult<Summary> values_of_datum(const Json& datum) {
    const int forms = static_cast<int>(datum.contains("Value")) +
                      static_cast<int>(datum.contains("Values")) +
                      static_cast<int>(datum.contains("StatisticValues"));
    if (forms != 1)
      return AwsError("InvalidParameterCombination",
                      "one of Value, Values and StatisticValues is needed");
    if (datum.contains("Value")) return Summary::of(datum["Value"].get<double>());
    if (datum.contains("StatisticValues")) {
      const Json& set = datum["StatisticValues"];
      return Summary{set.value("SampleCount", 0.0), set.value("Sum", 0.0),
                     set.value("Minimum", 0.0), set.value("Maximum", 0.0)};
    }
    const Json& values = datum["Values"];
    const Json counts = datum.value("Counts", Json::array());
    if (values.empty() || values.size() > kValuesPerSampleMax)
      return invalid(fmt::format("Values must have 1 to {} elements", kValuesPerSampleMax));
    if (!counts.empty() && counts.size() != values.size())
      return invalid("Counts must be as many as Values");
    Summary all;
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i].get<double>();
      const double count = counts.empty() ? 1.0 : counts[i].get<double>();
      if (count <= 0) return invalid("Counts must be above zero");
      all.add({count, value * count, value, value});
    }
    return all;
  }

  // -- ListMetrics

  AwsResult<Json> list(const Json& input) {
    metrics::SeriesFilter filter;
    if (input.contains("Namespace")) filter.space = input["Namespace"].get<std::string>();
    if (input.contains("MetricName")) filter.name = input["MetricName"].get<std::string>();
    for (const Json& each : input.value("Dimensions", Json::array()))
      filter.dimensions[each.value("Name", "")] =
          each.contains("Value") ? std::optional(each["Value"].get<std::string>()) : std::nullopt;
    if (input.contains("RecentlyActive"))
      filter.active_since_s = static_cast<int64_t>(to_unix_seconds(clock_.wall_now())) - 3 * 3600;
    YARD_ASSIGN(const auto series, store_.list(filter));
    const std::string token = input.value("NextToken", "0");
    size_t begin = 0;
    const auto read = std::from_chars(token.data(), token.data() + token.size(), begin);
    if (read.ec != std::errc{} || read.ptr != token.data() + token.size())
      return invalid("The value for parameter NextToken is not one that was given.");
    Json found = Json::array();
    const size_t end = std::min(series.size(), begin + kMetricsPage);
    for (size_t i = begin; i < end; ++i) found.push_back(metric_document(series[i].key));
    Json answer = {{"Metrics", std::move(found)}};
    if (end < series.size()) answer["NextToken"] = std::to_string(end);
    return answer;
  }

  static Json metric_document(const SeriesKey& key) {
    Json dimensions = Json::array();
    for (const auto& [name, value] : key.dimensions)
      dimensions.push_back({{"Name", name}, {"Value", value}});
    return {{"Namespace", key.space}, {"MetricName", key.name}, {"Dimensions", dimensions}};
  }

  // -- GetMetricStatistics

  AwsResult<std::string> unit_of(const SeriesKey& key) {
    YARD_ASSIGN(const auto found, store_.list({.space = key.space, .name = key.name}));
    for (const auto& each : found)
      if (each.key == key) return each.unit;
    return std::string("None");
  }

  AwsResult<Json> statistics(const Json& input) {
    const Json plain = input.value("Statistics", Json::array());
    const Json extended = input.value("ExtendedStatistics", Json::array());
    if (plain.empty() && extended.empty())
      return AwsError("MissingParameter", "The request must contain the parameter Statistics.");
    const SeriesKey key = key_of(input);
    YARD_ASSIGN(const double start, time_of(input, "StartTime"));
    YARD_ASSIGN(const double end, time_of(input, "EndTime"));
    YARD_ASSIGN(const auto query, query_of(key, input.value("Period", int64_t{60}), start, end));
    const int64_t count = (query.end_s - query.start_s) / query.period_s;
    if (count > kDatapointsMax)
      return AwsError("InvalidParameterCombination",
                      fmt::format("You have requested up to {} datapoints, which exceeds the limit "
                                  "of {}. You may reduce the datapoints requested by increasing "
                                  "Period, or decreasing the time range.",
                                  count, kDatapointsMax));
    YARD_ASSIGN(const std::string unit, unit_of(key));
    Json answer = {{"Label", key.name}, {"Datapoints", Json::array()}};
    if (input.contains("Unit") && input["Unit"] != unit) return answer;
    YARD_ASSIGN(const auto points, store_.read(query));
    for (const MetricPoint& point : points) {
      YARD_ASSIGN(Json document, datapoint(query, point, plain, extended));
      document["Unit"] = unit;
      answer["Datapoints"].push_back(std::move(document));
    }
    return answer;
  }

  AwsResult<Json> datapoint(const metrics::SeriesQuery& query, const MetricPoint& point,
                            const Json& plain, const Json& extended) {
    Json document = {{"Timestamp", point.t_s}};
    for (const Json& name : plain) {
      YARD_ASSIGN(const Statistic statistic, statistic_of(name.get<std::string>()));
      document[statistic.name] = value_of(statistic, point.values);
    }
    for (const Json& name : extended) {
      YARD_ASSIGN(const Statistic statistic, statistic_of(name.get<std::string>()));
      if (!statistic.percent) return invalid("ExtendedStatistics are p0 to p100");
      YARD_ASSIGN(const auto value, percentile(query, point, *statistic.percent));
      document["ExtendedStatistics"][statistic.name] = value;
    }
    return document;
  }

  AwsResult<double> percentile(const metrics::SeriesQuery& query, const MetricPoint& point,
                               double percent) {
    metrics::SeriesQuery range = query;
    range.start_s = point.t_s;
    range.end_s = point.t_s + query.period_s;
    YARD_ASSIGN(const auto value, store_.percentile(range, percent));
    return value.value_or(point.values.mean());
  }

  // -- GetMetricData

  AwsResult<Json> data(const Json& input) {
    const Json& queries = input.at("MetricDataQueries");
    if (queries.empty() || queries.size() > kQueriesMax)
      return invalid(fmt::format("MetricDataQueries must have 1 to {} elements.", kQueriesMax));
    YARD_ASSIGN(const double start, time_of(input, "StartTime"));
    YARD_ASSIGN(const double end, time_of(input, "EndTime"));
    const bool ascending = input.value("ScanBy", "") == "TimestampAscending";
    int64_t left = input.value("MaxDatapoints", kDataPerAnswerMax);
    Json results = Json::array();
    for (const Json& query : queries) {
      if (query.contains("Expression") || !query.contains("MetricStat"))
        return AwsError("ValidationError",
                        fmt::format("MetricDataQuery '{}': metric math is not served here: ask for "
                                    "MetricStat.",
                                    query.value("Id", "")));
      if (!query.value("ReturnData", true)) continue;
      YARD_ASSIGN(Json result, data_of(query, start, end, ascending, left));
      results.push_back(std::move(result));
    }
    return Json{{"MetricDataResults", std::move(results)}, {"Messages", Json::array()}};
  }

  AwsResult<Json> data_of(const Json& query, double start, double end, bool ascending,
                          int64_t& left) {
    const Json& wanted = query["MetricStat"];
    const SeriesKey key = key_of(wanted.value("Metric", Json::object()));
    YARD_ASSIGN(const Statistic statistic, statistic_of(wanted.value("Stat", "")));
    YARD_ASSIGN(const auto range, query_of(key, wanted.value("Period", int64_t{60}), start, end));
    YARD_ASSIGN(auto points, store_.read(range));
    if (!ascending) std::reverse(points.begin(), points.end());
    const bool is_whole = std::ssize(points) <= left;
    if (!is_whole) points.resize(static_cast<size_t>(std::max<int64_t>(left, 0)));
    left -= std::ssize(points);
    Json times = Json::array();
    Json values = Json::array();
    for (const MetricPoint& point : points) {
      times.push_back(point.t_s);
      if (statistic.percent) {
        YARD_ASSIGN(const double value, percentile(range, point, *statistic.percent));
        values.push_back(value);
      } else {
        values.push_back(value_of(statistic, point.values));
      }
    }
    return Json{{"Id", query.value("Id", "")},
                {"Label", query.value("Label", key.name)},
                {"Timestamps", std::move(times)},
                {"Values", std::move(values)},
                {"StatusCode", is_whole ? "Complete" : "PartialData"}};
  }

  const Model& model_ = Model::built_in("monitoring");
  metrics::MetricStore& store_;
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<Service> make_monitoring_service(metrics::MetricStore& store, const Clock& clock) {
  return std::make_unique<MonitoringService>(store, clock);
}

}  // namespace yard::api
