#include "metrics/metric_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/random.h"
#include "base/testing/fake_clock.h"

namespace yard::metrics {
namespace {

using namespace std::chrono_literals;

const SeriesKey kLoss{"/aws/sagemaker/TrainingJobs", "train:loss", {{"TrainingJobName", "job-1"}}};

class MetricStoreTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  MetricStore& store() {
    if (!store_) {
      auto opened = MetricStore::open({.path = folder_ + "/metrics.db", .clock = &clock_});
      YARD_CHECK(opened.has_value());
      store_ = std::make_unique<MetricStore>(*std::move(opened));
    }
    return *store_;
  }
  void close() { store_.reset(); }
  int64_t now() const { return static_cast<int64_t>(to_unix_seconds(clock_.wall_now())); }
  void put(double t, double value) {
    const auto done = store().put({{.key = kLoss, .t = t, .values = Summary::of(value)}});
    ASSERT_TRUE(done) << done.error().message;
  }
  std::vector<MetricPoint> read(int64_t start, int64_t end, int64_t period) {
    auto points = store().read({.key = kLoss, .start_s = start, .end_s = end, .period_s = period});
    if (!points) ADD_FAILURE() << points.error().message;
    return points ? *points : std::vector<MetricPoint>{};
  }

  FakeClock clock_;
  std::string folder_ = testing::TempDir() + "yard_metrics_XXXXXX";
  std::unique_ptr<MetricStore> store_;
};

TEST_F(MetricStoreTest, ValuesOfAPeriodAreOnePoint) {
  const int64_t start = now();
  for (int i = 0; i < 120; ++i) put(static_cast<double>(start + i) + 0.5, i);
  const auto points = read(start, start + 120, 60);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].t_s, start);
  EXPECT_EQ(points[0].values, (Summary{60, 59.0 * 30, 0, 59}));
  EXPECT_EQ(points[1].values.mean(), 89.5);
  EXPECT_EQ(read(start + 5, start + 8, 1).size(), 3u);
}

TEST_F(MetricStoreTest, PeriodsWithoutValuesHaveNoPoint) {
  put(static_cast<double>(now()), 1);
  put(static_cast<double>(now() + 600), 2);
  EXPECT_EQ(read(now(), now() + 3600, 60).size(), 2u);
  EXPECT_TRUE(read(now() + 3600, now() + 7200, 60).empty());
  EXPECT_TRUE(read(now() + 10, now(), 60).empty());
}

// Whatever the age and the order in which samples come, no value is lost or counted twice.
TEST_F(MetricStoreTest, CountsAndSumsStayRightWhileTheStoreGrowsCoarser) {
  const int64_t begin = now();
  double count = 0;
  double sum = 0;
  uint64_t draws = 0;
  for (int round = 0; round < 300; ++round) {
    clock_.advance(std::chrono::seconds(random_below(9000, 3, 0, draws++)));
    std::vector<MetricSample> batch;
    for (int i = 0; i < 20; ++i) {
      // Most are new, some hours or days late.
      const int64_t late =
          static_cast<int64_t>(random_below(i % 4 == 0 ? 500'000 : 60, 3, 1, draws));
      const int64_t t = std::max(begin, now() - late);
      const double value = static_cast<double>(random_below(100, 3, 2, draws++));
      batch.push_back({.key = kLoss, .t = static_cast<double>(t), .values = Summary::of(value)});
      count += 1;
      sum += value;
    }
    ASSERT_TRUE(store().put(batch));
    if (round % 50 == 7) close();
    for (int64_t period : {int64_t{60}, int64_t{300}, int64_t{3600}, int64_t{7}}) {
      Summary all;
      for (const auto& point : read(begin, now() + 1, period)) all.add(point.values);
      ASSERT_EQ(all.count, count) << "round " << round << " period " << period;
      ASSERT_EQ(all.sum, sum);
    }
  }
}

TEST_F(MetricStoreTest, WhatIsTooOldForItsPeriodIsGivenCoarser) {
  const int64_t begin = now();
  for (int i = 0; i < 600; ++i) put(static_cast<double>(begin + i), 1);
  clock_.advance(std::chrono::hours(24 * 20));
  put(static_cast<double>(now()), 1);
  const auto points = read(begin, begin + 600, 60);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].values.count, 300);
}

TEST_F(MetricStoreTest, ASeriesThatIsTooOldIsForgotten) {
  put(static_cast<double>(now()), 1);
  clock_.advance(std::chrono::hours(24 * 456));
  ASSERT_TRUE(store().put(
      {{.key = {"s", "other", {}}, .t = static_cast<double>(now()), .values = Summary::of(1)}}));
  EXPECT_EQ(store().list({})->size(), 1u);
  EXPECT_TRUE(read(0, now(), 3600).empty());
}

TEST_F(MetricStoreTest, PercentilesAreOfTheSingleValues) {
  for (int i = 1; i <= 100; ++i) put(static_cast<double>(now() + i), i);
  const SeriesQuery range{.key = kLoss, .start_s = now(), .end_s = now() + 200};
  EXPECT_EQ(**store().percentile(range, 50), 50);
  EXPECT_EQ(**store().percentile(range, 99), 99);
  EXPECT_EQ(**store().percentile(range, 100), 100);
  EXPECT_EQ(**store().percentile(range, 0), 1);
  EXPECT_FALSE(store().percentile({.key = kLoss, .start_s = 0, .end_s = 1}, 50)->has_value());
  EXPECT_EQ(store().percentile(range, 101).error().code, Code::kInvalidArgument);
}

TEST_F(MetricStoreTest, SeriesAreListedByWhatIsKnownOfThem) {
  const auto add = [&](std::string space, std::string name,
                       std::map<std::string, std::string> dimensions) {
    ASSERT_TRUE(store().put({{.key = {space, name, dimensions},
                              .t = static_cast<double>(now()),
                              .values = Summary::of(1),
                              .unit = "Percent"}}));
  };
  add("a", "cpu", {{"Host", "algo-1"}, {"Job", "x"}});
  add("a", "cpu", {{"Host", "algo-2"}, {"Job", "x"}});
  add("a", "gpu", {{"Host", "algo-1"}});
  add("b", "cpu", {});
  EXPECT_EQ(store().list({})->size(), 4u);
  EXPECT_EQ(store().list({.space = "a", .name = "cpu"})->size(), 2u);
  EXPECT_EQ(store().list({.dimensions = {{"Host", "algo-1"}}})->size(), 2u);
  EXPECT_EQ(store().list({.dimensions = {{"Job", std::nullopt}}})->size(), 2u);
  EXPECT_EQ(store().list({.dimensions = {{"Job", "y"}}})->size(), 0u);
  EXPECT_EQ(store().list({.space = "b"})->front().unit, "Percent");
  clock_.advance(std::chrono::hours(4));
  add("b", "cpu", {});
  EXPECT_EQ(store().list({.active_since_s = now() - 3 * 3600})->size(), 1u);
}

TEST_F(MetricStoreTest, ABatchWithABadSampleChangesNothing) {
  const auto sample = [&](double value) {
    return MetricSample{
        .key = kLoss, .t = static_cast<double>(now()), .values = Summary::of(value)};
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(store().put({sample(1), sample(nan)}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(store().put({sample(1), sample(HUGE_VAL)}).error().code, Code::kInvalidArgument);
  MetricSample no_values = sample(1);
  no_values.values.count = 0;
  EXPECT_EQ(store().put({no_values}).error().code, Code::kInvalidArgument);
  MetricSample no_name = sample(1);
  no_name.key.name = "";
  EXPECT_EQ(store().put({no_name}).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(store().list({})->empty());
  EXPECT_EQ(store().read({.key = kLoss, .period_s = 0}).error().code, Code::kInvalidArgument);
}

TEST_F(MetricStoreTest, MarksAreKeptWithTheSamplesOrNotAtAll) {
  const MetricSample good{.key = kLoss, .t = static_cast<double>(now()), .values = Summary::of(1)};
  MetricSample bad = good;
  bad.key.name = "";
  EXPECT_FALSE(store().put({good, bad}, {{"job/a", 5}}));
  EXPECT_EQ(*store().mark("job/a"), std::nullopt);
  ASSERT_TRUE(store().put({good}, {{"job/a", 5}, {"job_b", 6}}));
  close();
  EXPECT_EQ(*store().mark("job/a"), 5);
  ASSERT_TRUE(store().put({}, {{"job/a", 9}}));
  EXPECT_EQ(*store().mark("job/a"), 9);
  ASSERT_TRUE(store().forget_marks("job/"));
  EXPECT_EQ(*store().mark("job/a"), std::nullopt);
  EXPECT_EQ(*store().mark("job_b"), 6);
}

TEST_F(MetricStoreTest, TheLastValueIsKeptAsItWasPutWhateverItsAge) {
  EXPECT_FALSE(store().last(kLoss)->has_value());
  const auto t = static_cast<double>(now());
  for (const double value : {3.5, 2.5, 0.25}) put(t + 0.5, value);  // one point, mean 2.08
  put(t + 0.25, 9);                                                 // late
  clock_.advance(std::chrono::hours(24 * 20));                      // and by now coarse
  ASSERT_TRUE(store().put({{.key = {"a", "b", {}}, .t = t + 86'400, .values = Summary::of(1)}}));
  close();
  const auto last = store().last(kLoss);
  ASSERT_TRUE(last && *last);
  EXPECT_EQ((*last)->t, t + 0.5);
  EXPECT_EQ((*last)->value, 0.25);
}

TEST_F(MetricStoreTest, EverythingIsThereAfterTheFileWasClosed) {
  put(static_cast<double>(now()), 3);
  close();
  EXPECT_EQ(read(now(), now() + 60, 60).size(), 1u);
}

}  // namespace
}  // namespace yard::metrics
