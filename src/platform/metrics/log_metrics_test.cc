#include "metrics/log_metrics.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>

#include "base/testing/fake_clock.h"

namespace yard::metrics {
namespace {

class LogMetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    auto opened = MetricStore::open({.path = folder_ + "/metrics.db", .clock = &clock_});
    ASSERT_TRUE(opened);
    store_ = std::make_unique<MetricStore>(*std::move(opened));
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  int64_t now() const { return static_cast<int64_t>(to_unix_seconds(clock_.wall_now())); }
  std::string path() const { return folder_ + "/algo-1.log"; }
  LogMetrics metrics() {
    auto scraper = MetricScraper::create({{"train:loss", "loss=([0-9.]+)"}, {"lr", "lr=(\\S+)"}});
    YARD_CHECK(scraper.has_value());
    return LogMetrics({.stream_path = path(),
                       .mark = "job-1/algo-1",
                       .space = "/aws/sagemaker/TrainingJobs",
                       .dimensions = {{"TrainingJobName", "job-1"}}},
                      *std::move(scraper), *store_);
  }
  void append(const std::vector<std::string_view>& lines) {
    auto log = logs::LogWriter::open({.path = path(), .segment_bytes = 200});
    ASSERT_TRUE(log);
    ASSERT_TRUE(log->append_at(1000 * now(), lines));
  }
  Summary all(const std::string& name) {
    Summary sum;
    const auto points =
        store_->read({.key = {"/aws/sagemaker/TrainingJobs", name, {{"TrainingJobName", "job-1"}}},
                      .start_s = now() - 3600,
                      .end_s = now() + 3600});
    EXPECT_TRUE(points);
    for (const auto& point : *points) sum.add(point.values);
    return sum;
  }

  FakeClock clock_;
  std::string folder_ = testing::TempDir() + "yard_log_metrics_XXXXXX";
  std::unique_ptr<MetricStore> store_;
};

TEST_F(LogMetricsTest, EveryLineCountsOnceAlsoAfterARestart) {
  auto first = metrics();
  EXPECT_FALSE(*first.feed());  // no stream yet
  append({"epoch 1", "loss=4 lr=0.5", "loss=2"});
  EXPECT_TRUE(*first.feed());
  EXPECT_FALSE(*first.feed());
  EXPECT_EQ(first.last_values().at("train:loss").values, Summary::of(2));
  for (int i = 0; i < 50; ++i) append({"loss=1"});
  auto second = metrics();
  while (*second.feed()) {
  }
  EXPECT_EQ(all("train:loss"), (Summary{52, 56, 1, 4}));
  EXPECT_EQ(all("lr"), Summary::of(0.5));
}

TEST_F(LogMetricsTest, AStreamWithoutNumbersIsReadOnce) {
  append({"nothing", "here"});
  auto log = metrics();
  EXPECT_TRUE(*log.feed());
  EXPECT_FALSE(*log.feed());
  EXPECT_EQ(all("train:loss").count, 0);
}

}  // namespace
}  // namespace yard::metrics
