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

// All places of an epoch, in order; padding is left out.
std::vector<uint64_t> batches_of(const SamplePlan& plan, uint64_t epoch, uint64_t batch_size) {
  std::vector<uint64_t> samples;
  for (uint64_t batch = 0; batch < plan.batches_per_epoch(); ++batch)
    for (uint64_t i = 0; i < batch_size; ++i)
      if (const auto place = plan.at(epoch, batch, i); !place.is_padding)
        samples.push_back(place.sample);
  return samples;
}

TEST(SamplePlanTest, AtIsThePlaceInTheEpochsOrder) {
  const SamplePlan plan =
      plan_of({.seed = 3, .sample_count = 1000, .held_out_count = 10, .global_batch_size = 12});
  for (uint64_t batch = 0; batch < plan.batches_per_epoch(); ++batch)
    for (uint64_t i = 0; i < 12; ++i)
      ASSERT_EQ(plan.at(2, batch, i).sample, plan.sample_at(2, batch * 12 + i));
  EXPECT_EQ(plan.at(0, 3, 5, 2).sample, plan.sample_at(0, 3 * 12 + 7));
}

TEST(SamplePlanTest, AtUnevenEndsPaddingIsMarkedAndWrappingBeginsAgain) {
  SamplePlanOptions options{.seed = 1, .sample_count = 100, .global_batch_size = 16};
  EXPECT_EQ(plan_of(options).batches_per_epoch(), 6U);
  options.ends = EndPolicy::kPad;
  const SamplePlan padded = plan_of(options);
  ASSERT_EQ(padded.batches_per_epoch(), 7U);
  EXPECT_EQ(sorted(batches_of(padded, 3, 16)), sorted(epoch_of(padded, 3)));
  for (uint64_t i = 0; i < 16; ++i) EXPECT_EQ(padded.at(3, 6, i).is_padding, i >= 4);
  options.ends = EndPolicy::kWrap;
  const SamplePlan wrapped = plan_of(options);
  ASSERT_EQ(wrapped.batches_per_epoch(), 7U);
  for (uint64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(wrapped.at(3, 6, 4 + i).sample, wrapped.sample_at(3, i));
    EXPECT_FALSE(wrapped.at(3, 6, 4 + i).is_padding);
  }
  options.global_batch_size = 300;  // one batch of all, three times
  EXPECT_EQ(plan_of(options).batches_per_epoch(), 1U);
}

TEST(SamplePlanTest, EveryBatchIsOfOneBucketAndEverySampleIsUsedOnce) {
  SamplePlanOptions options{.seed = 4,
                            .sample_count = 5000,
                            .held_out_count = 50,
                            .global_batch_size = 8,
                            .block_size = 16,
                            .window_size = 128,
                            .ends = EndPolicy::kPad};
  for (uint32_t i = 0; i < 5000; ++i)
    options.buckets.push_back(i % 7 == 0 ? SamplePlanOptions::kLeftOut : i * i % 11);
  const SamplePlan plan = plan_of(options);
  std::set<uint64_t> held_out;
  for (uint64_t i = 0; i < 50; ++i) held_out.insert(plan.held_out(i));
  EXPECT_EQ(held_out.size(), 50U);
  std::vector<uint64_t> expected;
  for (uint64_t i = 0; i < 5000; ++i)
    if (i % 7 != 0 && !held_out.contains(i)) expected.push_back(i);
  for (const uint64_t epoch : {0U, 1U}) {
    EXPECT_EQ(sorted(batches_of(plan, epoch, 8)), expected);
    std::vector<uint32_t> order;
    for (uint64_t batch = 0; batch < plan.batches_per_epoch(); ++batch) {
      order.push_back(plan.bucket(epoch, batch));
      for (uint64_t i = 0; i < 8; ++i)
        for (const uint64_t attempt : {0U, 5U})
          ASSERT_EQ(options.buckets[plan.at(epoch, batch, i, attempt).sample], order.back());
    }
    uint64_t same_as_before = 0;
    for (size_t i = 1; i < order.size(); ++i) same_as_before += order[i] == order[i - 1];
    EXPECT_LT(same_as_before, order.size() / 2);  // mixed over the epoch
  }
  EXPECT_NE(batches_of(plan, 0, 8), batches_of(plan, 1, 8));
}

TEST(SamplePlanTest, BucketsThatFillNoBatchAreCounted) {
  const SamplePlan plan = plan_of(
      {.sample_count = 10, .global_batch_size = 4, .buckets = {0, 0, 0, 0, 0, 1, 1, 1, 2, 0}});
  EXPECT_EQ(plan.batches_per_epoch(), 1U);
  EXPECT_EQ(plan.unused_count(), 4U);
  EXPECT_EQ(plan.bucket(0, 0), 0U);
}

// Of a mix: how often each sample was given in `count` places, by source.
std::vector<std::map<uint64_t, uint64_t>> uses_of(const SamplePlan& plan,
                                                  const std::vector<WeightedSource>& sources,
                                                  uint64_t batch_size, uint64_t batch_count) {
  std::vector<std::map<uint64_t, uint64_t>> uses(sources.size());
  for (uint64_t n = 0; n < batch_count; ++n)
    for (uint64_t i = 0; i < batch_size; ++i) {
      const uint64_t sample =
          plan.at(n / plan.batches_per_epoch(), n % plan.batches_per_epoch(), i).sample;
      uint64_t begin = 0;
      size_t source = 0;
      while (sample >= begin + sources[source].sample_count)
        begin += sources[source++].sample_count;
      ++uses[source][sample];
    }
  return uses;
}

TEST(SamplePlanTest, SourcesAreMixedByWeightAndEachGoesThroughEpochsOfItsOwn) {
  const std::vector<WeightedSource> sources{{100, 1}, {3000, 2}, {700, 0.5}};
  const SamplePlan plan = plan_of({.seed = 8,
                                   .sample_count = 3800,
                                   .held_out_count = 20,
                                   .global_batch_size = 16,
                                   .block_size = 16,
                                   .window_size = 128,
                                   .sources = sources});
  const uint64_t kPeriods = 3;
  const auto uses = uses_of(plan, sources, 16, kPeriods * 4096 / 16);
  const double weight_sum = 3.5;
  for (size_t i = 0; i < sources.size(); ++i) {
    uint64_t total = 0, most = 0, least = UINT64_MAX;
    for (const auto& [sample, count] : uses[i]) {
      total += count;
      most = std::max(most, count);
      least = std::min(least, count);
    }
    EXPECT_NEAR(double(total), sources[i].weight / weight_sum * kPeriods * 4096, kPeriods) << i;
    // Within a period places are permuted, so that two epochs of a source may overlap by a few.
    EXPECT_LE(most - least, 2U) << i;
    EXPECT_GE(uses[i].size(), sources[i].sample_count - 20) << i;
  }
}

TEST(SamplePlanTest, SourcesWithBucketsAreMixedByBatches) {
  SamplePlanOptions options{
      .seed = 8, .sample_count = 900, .global_batch_size = 4, .sources = {{300, 3}, {600, 1}}};
  for (uint32_t i = 0; i < 900; ++i) options.buckets.push_back(i % 3);
  const SamplePlan plan = plan_of(options);
  uint64_t of_first = 0;
  for (uint64_t n = 0; n < 4096; ++n) {
    const uint64_t epoch = n / plan.batches_per_epoch(), batch = n % plan.batches_per_epoch();
    const bool is_first = plan.at(epoch, batch, 0).sample < 300;
    of_first += is_first;
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t sample = plan.at(epoch, batch, i).sample;
      ASSERT_EQ(sample < 300, is_first);
      ASSERT_EQ(options.buckets[sample], plan.bucket(epoch, batch));
    }
  }
  EXPECT_EQ(of_first, 3072U);
}

TEST(SamplePlanTest, ABillionSamplesCostNoMemoryAndNoTime) {
  const SamplePlan plan = plan_of(
      {.seed = 1, .sample_count = 1'000'000'000, .held_out_count = 1000, .global_batch_size = 512});
  EXPECT_NE(plan.at(3, plan.batches_per_epoch() - 1, 511).sample, plan.at(4, 0, 0).sample);
}

TEST(SamplePlanTest, ImpossibleSizesAreRefused) {
  using Sources = std::vector<WeightedSource>;
  for (const Sources& sources :
       {Sources{{5, 1}, {4, 1}}, Sources{{10, 1}, {0, 1}}, Sources{{5, 1}, {5, 0}},
        Sources{{5, 1}, {5, -1}}, Sources{{5, 1}, {5, 1e-9}}})
    EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .sources = sources}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 3, .buckets = {0, 1}}));
  EXPECT_FALSE(SamplePlan::create(
      {.sample_count = 2, .buckets = {SamplePlanOptions::kLeftOut, SamplePlanOptions::kLeftOut}}));
  EXPECT_FALSE(
      SamplePlan::create({.sample_count = 4, .global_batch_size = 3, .buckets = {0, 1, 0, 1}}));

  EXPECT_FALSE(SamplePlan::create({.sample_count = 0}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .held_out_count = 10}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .global_batch_size = 11}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .global_batch_size = 0}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .block_size = 0}));
  EXPECT_FALSE(SamplePlan::create({.sample_count = 10, .block_size = 3, .window_size = 10}));
  EXPECT_TRUE(SamplePlan::create({.sample_count = 10, .global_batch_size = 10}));
}

TEST(SamplePlanTest, WithoutShuffleEveryEpochIsTheDataSetInOrder) {
  const SamplePlan plan = plan_of({.seed = 3,
                                   .sample_count = 50'000,
                                   .held_out_count = 2,
                                   .global_batch_size = 4,
                                   .shuffle = false});
  const auto epoch = epoch_of(plan, 7);
  EXPECT_TRUE(std::ranges::is_sorted(epoch));
  EXPECT_EQ(plan.at(7, 2, 1).sample, epoch[9]);
  // Of buckets, one after the other.
  std::vector<uint32_t> buckets;
  for (uint32_t i = 0; i < 8; ++i) buckets.push_back(i % 2);
  const SamplePlan two = plan_of(
      {.sample_count = 8, .global_batch_size = 2, .shuffle = false, .buckets = std::move(buckets)});
  std::vector<uint64_t> samples;
  for (uint64_t i = 0; i < 8; ++i) samples.push_back(two.at(1, i / 2, i % 2).sample);
  EXPECT_EQ(samples, (std::vector<uint64_t>{0, 2, 4, 6, 1, 3, 5, 7}));
}

}  // namespace
}  // namespace yard::shards
