#include "loop/weak_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

namespace yard::loop {
namespace {

constexpr double kSecond = 1.0;

// A second for 8 samples, 0.1 s for the optimiser, 100 MB of gradients in ten buckets.
MeasuredStage measured() {
  return {.name = "low",
          .steps = 3600,
          .batch = 64,
          .micro_batch = 8,
          .micro_batch_s = kSecond,
          .optimizer_s = 0.1,
          .gradient_bytes = 100'000'000,
          .bucket_bytes = 10'000'000};
}

ClusterModel cluster(const std::string& text) {
  auto parsed = parse_cluster(text);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return *parsed;
}

TEST(WeakScalingTest, OneRankExchangesNothing) {
  const PredictedStage one = *predict(measured(), 0, cluster("hosts=1,price=3"));
  EXPECT_EQ(one.micro_batch_count, 8);
  EXPECT_NEAR(one.step_s, 8.1, 1e-9);
  EXPECT_EQ(one.efficiency, 1);
  EXPECT_NEAR(one.hours, 8.1, 1e-9);
  EXPECT_NEAR(one.cost, 24.3, 1e-9);
}

TEST(WeakScalingTest, ABatchIsSharedOutAndTheExchangeHiddenByTheBackwardPass) {
  const PredictedStage four =
      *predict(measured(), 0, cluster("hosts=4,between=1GB/s,between_latency=0us"));
  EXPECT_EQ(four.batch, 64);
  EXPECT_EQ(four.micro_batch_count, 2);
  EXPECT_NEAR(four.compute_s, 2.1, 1e-9);
  // Ten all-reduces of 10 MB, each 2 * 3/4 of them over the link.
  EXPECT_NEAR(four.communication_s, 0.15, 1e-9);
  EXPECT_NEAR(four.exposed_s, 0.015, 1e-9) << "the last bucket";
  EXPECT_NEAR(four.efficiency, 2.1 / 2.115, 1e-9);
}

TEST(WeakScalingTest, ASlowLinkShows) {
  const PredictedStage four =
      *predict(measured(), 0, cluster("hosts=4,between=50MB/s,between_latency=0us"));
  EXPECT_NEAR(four.communication_s, 3, 1e-9);
  // Nine buckets in 2.7 s beside 0.9 of two thirds of a second.
  EXPECT_NEAR(four.exposed_s, 0.3 + 2.7 - 0.6, 1e-9);
}

TEST(WeakScalingTest, InsideAHostTheFasterLinkCarriesMost) {
  const PredictedStage stage = *predict(
      measured(), 0,
      cluster(
          "hosts=2,gpus=4,inside=10GB/s,inside_latency=1us,between=1GB/s,between_latency=10us"));
  EXPECT_EQ(stage.ranks, 8);
  // A bucket: 2*3/4*10MB/10GB/s + 6 us inside, 2*1/2*10MB/1GB/s + 20 us between.
  EXPECT_NEAR(stage.communication_s, 10 * (0.0015 + 6e-6 + 0.01 + 20e-6), 1e-9);
}

TEST(WeakScalingTest, ABatchThatGrowsKeepsTheShare) {
  const PredictedStage stage =
      *predict(measured(), 0, cluster("hosts=4,batch=grows,speed=10,between=100GB/s"));
  EXPECT_EQ(stage.batch, 256);
  EXPECT_EQ(stage.micro_batch_count, 8);
  EXPECT_NEAR(stage.compute_s, 0.81, 1e-9);
}

TEST(WeakScalingTest, StragglersAreWaitedFor) {
  MeasuredStage stage = measured();
  stage.micro_batch_deviation_s = 0.01;
  const PredictedStage predicted = *predict(stage, 0, cluster("hosts=16"));
  EXPECT_NEAR(predicted.straggler_s, 0.01 * std::sqrt(2 * std::log(16.0)), 1e-9);
}

TEST(WeakScalingTest, HostsMayGrowFromStageToStage) {
  const ClusterModel model = cluster("hosts=1:2:4,gpus=8");
  EXPECT_EQ(predict(measured(), 1, model)->ranks, 16);
  EXPECT_EQ(predict(measured(), 2, model)->ranks, 32);
  EXPECT_EQ(model.hosts_of(7), 4);
}

TEST(WeakScalingTest, BadClustersAreRefusedByKey) {
  const auto refusal = [](const std::string& text) {
    auto parsed = parse_cluster(text);
    return parsed ? "accepted" : parsed.error().message;
  };
  const auto expect = [&](const std::string& text, const std::string& part) {
    EXPECT_PRED_FORMAT2(testing::IsSubstring, part, refusal(text));
  };
  expect("gpus=8", "hosts= is missing");
  expect("hosts=0", "hosts=0");
  expect("hosts=2:x", "hosts=x");
  expect("hosts=2,gpu=8", "did you mean 'gpus'?");
  expect("hosts=2,between=25GB", "a bandwidth is like 25GB/s");
  expect("hosts=2,between=/s", "a bandwidth");
  expect("hosts=2,between_latency=5", "a latency is like");
  expect("hosts=2,speed=-1", "speed=-1");
  expect("hosts=2,batch=huge", "batch=huge");
  expect("hosts", "expected key=value");
  const auto shared = predict(measured(), 0, cluster("hosts=5"));
  ASSERT_FALSE(shared);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "60 or 65 would fit", shared.error().message);
}

TEST(WeakScalingTest, TheTableSumsUp) {
  const ClusterModel model = cluster("hosts=1,price=2");
  const std::vector<MeasuredStage> stages = {measured(), measured()};
  const std::string table =
      to_table(stages, {*predict(stages[0], 0, model), *predict(stages[1], 1, model)});
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "8 x 8", table);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "16.2", table) << "hours of both";
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "32.4", table) << "their cost";
}

}  // namespace
}  // namespace yard::loop
