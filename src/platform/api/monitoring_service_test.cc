#include "api/monitoring_service.h"

#include <gtest/gtest.h>

#include "api/testing/service_calls.h"
#include "api/testing/signed_client.h"
#include "base/testing/fake_clock.h"

namespace yard::api {
namespace {

class MonitoringServiceTest : public testing::Test {
 protected:
  MonitoringServiceTest() {
    auto opened = metrics::MetricStore::open({.path = folder_ / "metrics.db", .clock = &clock_});
    YARD_CHECK(opened.has_value());
    store_ = std::make_unique<metrics::MetricStore>(*std::move(opened));
    service_ = make_monitoring_service(*store_, clock_);
  }
  Json ok(const std::string& operation, const Json& input) {
    return answer_of(*service_, operation, input);
  }
  std::string code(const std::string& operation, const Json& input) {
    return error_code_of(*service_, operation, input);
  }
  int64_t now() const { return static_cast<int64_t>(to_unix_seconds(clock_.wall_now())); }
  void put(const Json& datum) {
    ok("PutMetricData", {{"Namespace", "n"}, {"MetricData", Json::array({datum})}});
  }
  Json wanted(const Json& more) const {
    Json input = {{"Namespace", "n"},
                  {"MetricName", "loss"},
                  {"StartTime", now() - 60},
                  {"EndTime", now() + 600},
                  {"Period", 60}};
    input.update(more);
    return input;
  }

  TempFolder folder_;
  FakeClock clock_;
  std::unique_ptr<metrics::MetricStore> store_;
  std::unique_ptr<Service> service_;
};

const Json kJob = Json::array({{{"Name", "Job"}, {"Value", "x"}}});

TEST_F(MonitoringServiceTest, WhatWasPutIsGivenBackAsStatistics) {
  for (int i = 0; i < 120; ++i)
    put({{"MetricName", "loss"},
         {"Value", i},
         {"Unit", "Percent"},
         {"Timestamp", now() + i},
         {"StorageResolution", 1}});
  const Json answer =
      ok("GetMetricStatistics",
         wanted({{"Statistics", {"Average", "Sum", "Minimum", "Maximum", "SampleCount"}},
                 {"ExtendedStatistics", {"p50"}}}));
  EXPECT_EQ(answer["Label"], "loss");
  ASSERT_EQ(answer["Datapoints"].size(), 2u);
  EXPECT_EQ(answer["Datapoints"][0], (Json{{"Timestamp", now()},
                                           {"Average", 29.5},
                                           {"Sum", 1770.0},
                                           {"Minimum", 0.0},
                                           {"Maximum", 59.0},
                                           {"SampleCount", 60.0},
                                           {"Unit", "Percent"},
                                           {"ExtendedStatistics", {{"p50", 29.0}}}}));
  EXPECT_TRUE(
      ok("GetMetricStatistics", wanted({{"Statistics", {"Sum"}}, {"Unit", "Count"}}))["Datapoints"]
          .empty());
}

TEST_F(MonitoringServiceTest, EveryFormOfValuesCounts) {
  put({{"MetricName", "loss"}, {"Value", 1}});
  put({{"MetricName", "loss"}, {"Values", {2, 3}}, {"Counts", {1, 2}}});
  put({{"MetricName", "loss"},
       {"StatisticValues", {{"SampleCount", 4}, {"Sum", 40}, {"Minimum", 9}, {"Maximum", 11}}}});
  const Json points =
      ok("GetMetricStatistics", wanted({{"Statistics", {"Sum", "SampleCount"}}}))["Datapoints"];
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0]["Sum"], 49.0);
  EXPECT_EQ(points[0]["SampleCount"], 8.0);
}

TEST_F(MonitoringServiceTest, SeriesOfOtherDimensionsAreOthers) {
  put({{"MetricName", "loss"}, {"Value", 1}, {"Dimensions", kJob}});
  put({{"MetricName", "loss"}, {"Value", 5}});
  const Json points = ok("GetMetricStatistics",
                         wanted({{"Statistics", {"Sum"}}, {"Dimensions", kJob}}))["Datapoints"];
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0]["Sum"], 1.0);
  EXPECT_EQ(ok("ListMetrics", {{"Dimensions", {{{"Name", "Job"}}}}})["Metrics"],
            Json::array({{{"Namespace", "n"}, {"MetricName", "loss"}, {"Dimensions", kJob}}}));
  EXPECT_EQ(ok("ListMetrics", {{"Namespace", "n"}})["Metrics"].size(), 2u);
}

TEST_F(MonitoringServiceTest, DataOfSeveralMetricsComeNewestFirst) {
  for (int i = 0; i < 3; ++i)
    put({{"MetricName", "loss"}, {"Value", i}, {"Timestamp", now() + 60 * i}});
  const auto query = [&](const std::string& stat) {
    return Json{{"Id", "m"},
                {"MetricStat",
                 {{"Metric", {{"Namespace", "n"}, {"MetricName", "loss"}}},
                  {"Period", 60},
                  {"Stat", stat}}}};
  };
  Json input = {{"MetricDataQueries", Json::array({query("Average")})},
                {"StartTime", now()},
                {"EndTime", now() + 180}};
  const Json result = ok("GetMetricData", input)["MetricDataResults"][0];
  EXPECT_EQ(result["Values"], (Json{2.0, 1.0, 0.0}));
  EXPECT_EQ(result["Timestamps"][0], now() + 120);
  EXPECT_EQ(result["StatusCode"], "Complete");
  input["ScanBy"] = "TimestampAscending";
  input["MaxDatapoints"] = 2;
  const Json part = ok("GetMetricData", input)["MetricDataResults"][0];
  EXPECT_EQ(part["Values"], (Json{0.0, 1.0}));
  EXPECT_EQ(part["StatusCode"], "PartialData");
  input["MetricDataQueries"] = Json::array({{{"Id", "e"}, {"Expression", "m*2"}}});
  EXPECT_EQ(code("GetMetricData", input), "ValidationError");
  input["MetricDataQueries"] = Json::array({query("p101")});
  EXPECT_EQ(code("GetMetricData", input), "InvalidParameterValue");
}

TEST_F(MonitoringServiceTest, WhatIsWrongIsNamedByItsCode) {
  const auto put_code = [&](const Json& datum) {
    return code("PutMetricData", {{"Namespace", "n"}, {"MetricData", Json::array({datum})}});
  };
  EXPECT_EQ(put_code({{"MetricName", "m"}}), "InvalidParameterCombination");
  EXPECT_EQ(put_code({{"MetricName", "m"}, {"Value", 1}, {"Values", {1}}}),
            "InvalidParameterCombination");
  EXPECT_EQ(put_code({{"MetricName", "m"}, {"Values", {1, 2}}, {"Counts", {1}}}),
            "InvalidParameterValue");
  EXPECT_EQ(put_code({{"MetricName", "m"}, {"Value", 1}, {"Timestamp", now() - 15 * 86'400}}),
            "InvalidParameterValue");
  EXPECT_EQ(put_code({{"MetricName", "m"}, {"Value", 1}, {"Timestamp", now() + 3 * 3600}}),
            "InvalidParameterValue");
  EXPECT_EQ(code("GetMetricStatistics", wanted(Json::object())), "MissingParameter");
  EXPECT_EQ(code("GetMetricStatistics", wanted({{"Statistics", {"Sum"}}, {"Period", 45}})),
            "InvalidParameterValue");
  EXPECT_EQ(code("GetMetricStatistics", wanted({{"Statistics", {"Sum"}}, {"EndTime", now() - 61}})),
            "InvalidParameterValue");
  EXPECT_EQ(code("GetMetricStatistics",
                 wanted({{"Statistics", {"Sum"}}, {"StartTime", now() - 90'000'000}})),
            "InvalidParameterCombination");
  EXPECT_EQ(code("ListMetrics", {{"NextToken", "x"}}), "InvalidParameterValue");
}

}  // namespace
}  // namespace yard::api
