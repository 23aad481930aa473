#include "observe/job_observer.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/testing/fake_clock.h"
#include "jobs/host_plan.h"
#include "logs/log_stream.h"

namespace yard::observe {
namespace {

using namespace std::chrono_literals;

class JobObserverTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    std::filesystem::create_directories(folder_ + "/job/logs");
    std::filesystem::create_directories(folder_ + "/job/hosts/algo-1");
    auto opened = metrics::MetricStore::open({.path = folder_ + "/metrics.db", .clock = &clock_});
    ASSERT_TRUE(opened);
    store_ = std::make_unique<metrics::MetricStore>(*std::move(opened));
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  int64_t now() const { return static_cast<int64_t>(to_unix_seconds(clock_.wall_now())); }
  ObservedJob job() const {
    return {.name = "job",
            .dir = folder_ + "/job",
            .hosts = {"algo-1"},
            .definitions = {{"loss", "loss=(\\S+)"}}};
  }
  void print(const std::vector<std::string_view>& lines) {
    auto log = logs::LogWriter::open({.path = folder_ + "/job/logs/algo-1.log"});
    ASSERT_TRUE(log);
    ASSERT_TRUE(log->append_at(1000 * now(), lines));
  }
  // As if this test were the host's supervisor.
  void come_up(jobs::HostPhase phase = jobs::HostPhase::kTraining) {
    jobs::HostStatus status;
    status.phase = phase;
    status.phases = {{phase, 1}};
    status.supervisor_pid = ::getpid();
    ASSERT_TRUE(
        write_file_atomic(folder_ + "/job/hosts/algo-1/status.json", to_json(status).dump()));
  }
  metrics::Summary all(const metrics::SeriesKey& key) {
    metrics::Summary sum;
    const auto points = store_->read({.key = key, .start_s = now() - 3600, .end_s = now() + 3600});
    EXPECT_TRUE(points);
    for (const auto& point : *points) sum.add(point.values);
    return sum;
  }
  metrics::SeriesKey of_host(const std::string& name) const {
    return {"/aws/sagemaker/TrainingJobs", name, {{"Host", "job/algo-1"}}};
  }
  metrics::SeriesKey of_job(const std::string& name) const {
    return {"/aws/sagemaker/TrainingJobs", name, {{"TrainingJobName", "job"}}};
  }

  FakeClock clock_;
  std::string folder_ = testing::TempDir() + "yard_observe_XXXXXX";
  std::unique_ptr<metrics::MetricStore> store_;
};

TEST_F(JobObserverTest, WhatAHostUsesIsInItsMetricsAndInPrometheus) {
  JobObserver observer(*store_, clock_);
  come_up();
  ASSERT_TRUE(observer.observe({job()}));
  EXPECT_EQ(all(of_host("CPUUtilization")).count, 0);  // a rate needs two looks
  // Half a second of work in what the clock calls a second.
  volatile double x = 1;
  const clock_t begin = ::clock();
  while (::clock() - begin < CLOCKS_PER_SEC / 2) x = x * 1.0001;
  clock_.advance(1s);
  ASSERT_TRUE(observer.observe({job()}));
  const auto cpu = all(of_host("CPUUtilization"));
  EXPECT_EQ(cpu.count, 1);
  EXPECT_GE(cpu.mean(), 45);
  EXPECT_GT(all(of_host("MemoryUtilization")).mean(), 0);
  EXPECT_GT(all(of_host("DiskUtilization")).mean(), 0);
  EXPECT_NE(observer.prometheus_text().find(
                "yard_host_cpu_percent{kind=\"training\",job=\"job\",host=\"algo-1\"} "),
            std::string::npos);
}

TEST_F(JobObserverTest, AHostThatHasNotComeUpOrHasEndedIsNotMeasured) {
  JobObserver observer(*store_, clock_);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1s);
    ASSERT_TRUE(observer.observe({job()}));
  }
  come_up(jobs::HostPhase::kEnded);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1s);
    ASSERT_TRUE(observer.observe({job()}));
  }
  EXPECT_EQ(all(of_host("CPUUtilization")).count, 0);
}

TEST_F(JobObserverTest, NumbersInLogsAreMetricsOfTheJobAlsoItsLastLines) {
  JobObserver observer(*store_, clock_);
  ASSERT_TRUE(observer.observe({job()}));
  print({"loss=3", "x", "loss=2"});
  ASSERT_TRUE(observer.observe({job()}));
  EXPECT_NE(observer.prometheus_text().find(
                "yard_job_metric{job=\"job\",host=\"algo-1\",name=\"loss\"} 2\n"),
            std::string::npos);
  print({"loss=1"});
  ASSERT_TRUE(observer.observe({}));
  EXPECT_EQ(all(of_job("loss")), (metrics::Summary{3, 6, 1, 3}));
  EXPECT_EQ(observer.prometheus_text().find("job=\"job\""), std::string::npos);
  // Somebody who looks again later counts nothing twice.
  JobObserver later(*store_, clock_);
  ASSERT_TRUE(later.observe({job()}));
  EXPECT_EQ(all(of_job("loss")).count, 3);
}

TEST_F(JobObserverTest, AJobThatHasEndedIsReadToItsEndAtOnce) {
  JobObserver observer(*store_, clock_);
  come_up();
  print({"loss=3", "loss=2"});
  ObservedJob ended = job();
  ended.has_ended = true;
  ASSERT_TRUE(observer.settle(ended));
  EXPECT_EQ((*store_->last(metric_key(ended, "loss")))->value, 2);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1s);
    ASSERT_TRUE(observer.observe({ended}));
  }
  EXPECT_EQ(all(of_job("loss")).count, 2);
  EXPECT_EQ(all(of_host("CPUUtilization")).count, 0);  // its processes are nobody's any more
  EXPECT_TRUE(observer.live_hosts().empty());
}

TEST_F(JobObserverTest, ALaterJobOfTheSameNameHasLogsOfItsOwn) {
  JobObserver observer(*store_, clock_);
  print({"loss=3", "loss=2"});
  ASSERT_TRUE(observer.observe({job()}));
  std::filesystem::remove(folder_ + "/job/logs/algo-1.log");
  print({"loss=1"});
  ObservedJob later = job();
  later.created_t = 1;
  ASSERT_TRUE(observer.observe({later}));
  EXPECT_EQ(all(of_job("loss")), (metrics::Summary{3, 6, 1, 3}));
}

TEST_F(JobObserverTest, AJobWithBadExpressionsDoesNotHideTheOthers) {
  JobObserver observer(*store_, clock_);
  ObservedJob bad = job();
  bad.name = "a";
  bad.definitions = {{"loss", "("}};
  print({"loss=3"});
  const Status observed = observer.observe({bad, job()});
  ASSERT_FALSE(observed);
  EXPECT_EQ(observed.error().code, Code::kInvalidArgument);
  EXPECT_EQ(all(of_job("loss")).count, 1);
}

TEST_F(JobObserverTest, DefinitionsAreReadFromTheRequest) {
  const Json request = {
      {"AlgorithmSpecification",
       {{"MetricDefinitions", {{{"Name", "train:loss"}, {"Regex", "loss=([0-9.]+)"}}}}}}};
  const auto definitions = metric_definitions(request);
  ASSERT_TRUE(definitions);
  ASSERT_EQ(definitions->size(), 1u);
  EXPECT_EQ(definitions->front().name, "train:loss");
  EXPECT_TRUE(metric_definitions(Json::object())->empty());
  Json bad = request;
  bad["AlgorithmSpecification"]["MetricDefinitions"][0]["Regex"] = "(";
  EXPECT_EQ(metric_definitions(bad).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace yard::observe
