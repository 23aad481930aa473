#include "shards/sample_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace yard::shards {
namespace {

SamplePlan plan_of(const SamplePlanOptions& options) {
  auto plan = SamplePlan::create(options);
  YARD_CHECK(plan);
  return *std::move(plan);
}

std::vector<uint64_t> epoch_of(const SamplePlan& plan, uint64_t epoch) {
  std::vector<uint64_t> samples;
  for (uint64_t i = 0; i < plan.training_count(); ++i) samples.push_back(plan.sample_at(epoch, i));
  return samples;
}

std::vector<uint64_t> sorted(std::vector<uint64_t> values) {
  std::ranges::sort(values);
  return values;
}

// (samples, block, window): one permutation; windows with and without rest; a rest of a block.
struct Shape {
  uint64_t sample_count, held_out_count, block_size, window_size;
};
class SamplePlanShapeTest : public ::testing::TestWithParam<Shape> {
 protected:
  SamplePlanOptions options() const {
    const Shape& shape = GetParam();
    return {.seed = 7,
            .sample_count = shape.sample_count,
            .held_out_count = shape.held_out_count,
            .global_batch_size = std::min<uint64_t>(12, shape.sample_count - shape.held_out_count),
            .block_size = shape.block_size,
            .window_size = shape.window_size};
  }
};

TEST_P(SamplePlanShapeTest, EverySampleIsHeldOutOrOnceInTheEpoch) {
  const SamplePlan plan = plan_of(options());
  for (uint64_t epoch : {0U, 1U, 5U}) {
    std::vector<uint64_t> all = epoch_of(plan, epoch);
    for (uint64_t i = 0; i < GetParam().held_out_count; ++i) all.push_back(plan.held_out(i));
    all = sorted(all);
    ASSERT_EQ(all.size(), GetParam().sample_count);
    for (uint64_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
  }
}

TEST_P(SamplePlanShapeTest, GlobalBatchesAreTheSameForEveryWorldSize) {
  const SamplePlan plan = plan_of(options());
  const uint64_t batch_size = options().global_batch_size;
  for (uint64_t world : {1U, 2U, 3U, 4U, 6U, 12U}) {
    if (batch_size % world != 0) continue;
    uint64_t position = 0;
    for (uint64_t batch = 0; batch < plan.batches_per_epoch(); ++batch) {
      for (uint64_t rank = 0; rank < world; ++rank) {
        const auto share = plan.share(batch, rank, world);
        ASSERT_EQ(share.begin, position);
        position += share.count;
      }
    }
    EXPECT_LE(plan.training_count() - position, batch_size - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, SamplePlanShapeTest,
                         ::testing::Values(Shape{1, 0, 256, 16384}, Shape{2, 1, 256, 16384},
                                           Shape{1000, 0, 256, 16384}, Shape{1000, 100, 256, 16384},
                                           Shape{1024, 0, 16, 128}, Shape{1000, 7, 16, 128},
                                           Shape{1031, 0, 16, 128}, Shape{999, 99, 1, 1},
                                           Shape{5000, 0, 64, 64}, Shape{257, 0, 128, 128}),
                         [](const auto& param_info) {
                           const Shape& s = param_info.param;
                           return std::to_string(s.sample_count) + "_" +
                                  std::to_string(s.held_out_count) + "_" +
                                  std::to_string(s.block_size) + "_" +
                                  std::to_string(s.window_size);
                         });

// Stopped after some batches on two ranks, gone on with three, ended with one: nothing is lost or
// used twice.
TEST(SamplePlanTest, AChangeOfWorldSizeInsideAnEpochUsesEachSampleOnce) {
  const SamplePlan plan = plan_of({.seed = 3,
                                   .sample_count = 10'000,
                                   .global_batch_size = 6,
                                   .block_size = 32,
                                   .window_size = 1024});
  std::vector<uint64_t> used;
  for (uint64_t batch = 0; batch < plan.batches_per_epoch(); ++batch) {
    const uint64_t world = batch < 500 ? 2 : batch < 1200 ? 3 : 1;
    for (uint64_t rank = 0; rank < world; ++rank) {
      const auto share = plan.share(batch, rank, world);
      for (uint64_t i = 0; i < share.count; ++i) used.push_back(plan.sample_at(0, share.begin + i));
    }
  }
  EXPECT_EQ(used.size(), 9996U);
  const std::set<uint64_t> different(used.begin(), used.end());
  EXPECT_EQ(different.size(), used.size());
}

TEST(SamplePlanTest, TheSameSeedGivesTheSameOrderAnotherSeedOrEpochAnother) {
  for (const uint64_t count : {1000U, 40'000U}) {
    const SamplePlanOptions options{.seed = 1, .sample_count = count, .global_batch_size = 10};
    SamplePlanOptions other = options;
    other.seed = 2;
    const auto order = epoch_of(plan_of(options), 0);
    EXPECT_EQ(order, epoch_of(plan_of(options), 0));
    for (const auto& different : {epoch_of(plan_of(options), 1), epoch_of(plan_of(other), 0)}) {
      uint64_t same = 0;
      for (uint64_t i = 0; i < count; ++i) same += order[i] == different[i];
      EXPECT_LT(same, 20U);  // one is expected
    }
  }
}

TEST(SamplePlanTest, HeldOutSamplesDependOnTheDataSetAlone) {
  const SamplePlanOptions options{
      .seed = 1, .sample_count = 500, .held_out_count = 50, .global_batch_size = 10};
  SamplePlanOptions other = options;
  other.seed = 2;
  other.global_batch_size = 8;
  other.held_out_count = 60;
  for (uint64_t i = 0; i < 50; ++i)
    EXPECT_EQ(plan_of(options).held_out(i), plan_of(other).held_out(i));
}

// Neighbours in the data set are read within one window; and a window mixes many blocks.
TEST(SamplePlanTest, ABoundedShuffleReadsRunsOfNeighbours) {
  const uint64_t kBlock = 64, kWindow = 1024;
  const SamplePlan plan = plan_of({.seed = 5,
                                   .sample_count = 20'000,
                                   .global_batch_size = 10,
                                   .block_size = kBlock,
                                   .window_size = kWindow});
  for (uint64_t begin = 0; begin + kWindow <= 18'432; begin += kWindow) {
    std::vector<uint64_t> window;
    for (uint64_t i = 0; i < kWindow; ++i) window.push_back(plan.sample_at(2, begin + i));
    uint64_t in_sequence = 0;
    for (uint64_t i = 1; i < kWindow; ++i) in_sequence += window[i] == window[i - 1] + 1;
    EXPECT_LT(in_sequence, 12U);
    std::ranges::sort(window);
    uint64_t run_count = 1;
    for (uint64_t i = 1; i < kWindow; ++i) run_count += window[i] != window[i - 1] + 1;
    EXPECT_LE(run_count, kWindow / kBlock + 1);  // one block may lie around the end
    EXPECT_GE(run_count, kWindow / kBlock / 2);
  }
}

// No sample may have a better chance of an early place, or of being dropped, than another.
TEST(SamplePlanTest, OverEpochsEverySampleSeesTheWholeEpoch) {
  for (const uint64_t window : {1024U, 64U}) {
    const SamplePlan plan = plan_of({.seed = 9,
                                     .sample_count = 515,
                                     .global_batch_size = 16,
                                     .block_size = 8,
                                     .window_size = window});
    const uint64_t kEpochs = 2000;
    std::map<uint64_t, double> place_sum;
    std::map<uint64_t, uint64_t> dropped;
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (uint64_t i = 0; i < 515; ++i) place_sum[plan.sample_at(epoch, i)] += double(i);
      for (uint64_t i = 512; i < 515; ++i) ++dropped[plan.sample_at(epoch, i)];
    }
    // Mean 257; the mean of 2000 uniform places has a deviation of 3.3: six of them.
    for (const auto& [sample, sum] : place_sum) EXPECT_NEAR(sum / kEpochs, 257, 20) << sample;
    // 11.65 expected of each.
    for (const auto& [sample, count] : dropped) EXPECT_LT(count, 45U) << sample;
    EXPECT_GT(dropped.size(), 500U);
  }
}

TEST(SamplePlanTest, ImpossibleSizesAreRefused) {
  EXPECT_FALSE(SamplePlan::create({.sample_count = 0}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .held_out_count = 10}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .global_batch_size = 11}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .global_batch_size = 0}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .block_size = 0}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .block_size = 3, .window_size = 10}));
  EXPECT_TRUE(SamplePlan::create({.sample_count = 10, .global_batch_size = 10}));
}

}  // namespace
}  // namespace yard::shards
