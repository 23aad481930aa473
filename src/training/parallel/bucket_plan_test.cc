#include "parallel/bucket_plan.h"

#include <gtest/gtest.h>

namespace yard::parallel {
namespace {

// Odd, empty and oversized tensors on purpose: biases of 3, unused tensors, embeddings.
const std::vector<int64_t> kCounts = {3, 100'000, 0, 64, 64, 17, 1};

TEST(BucketPlanTest, BucketsCoverTheFlatBufferOnceFromTheEnd) {
  const BucketPlan plan = plan_buckets(kCounts, 128);
  int64_t end = plan.element_count;
  for (const Bucket& bucket : plan.buckets) {
    EXPECT_EQ(bucket.begin + bucket.element_count, end);
    end = bucket.begin;
  }
  EXPECT_EQ(end, 0);
}

TEST(BucketPlanTest, EveryParameterLiesInsideItsBucketOnACacheLine) {
  const BucketPlan plan = plan_buckets(kCounts, 128);
  std::vector<size_t> seen(plan.buckets.size());
  for (size_t i = 0; i < kCounts.size(); ++i) {
    const Bucket& bucket = plan.buckets[plan.bucket_of[i]];
    EXPECT_EQ(plan.offsets[i] % kAlignmentElements, 0);
    EXPECT_GE(plan.offsets[i], bucket.begin);
    EXPECT_LE(plan.offsets[i] + kCounts[i], bucket.begin + bucket.element_count);
    ++seen[plan.bucket_of[i]];
  }
  for (size_t b = 0; b < seen.size(); ++b) EXPECT_EQ(seen[b], plan.buckets[b].parameter_count);
}

TEST(BucketPlanTest, OnlyATensorLargerThanTheLimitMakesABucketLargerThanTheLimit) {
  const BucketPlan plan = plan_buckets(kCounts, 128);
  for (const Bucket& bucket : plan.buckets) {
    EXPECT_TRUE(bucket.element_count <= 128 || bucket.parameter_count == 1);
  }
}

TEST(BucketPlanTest, NoParametersMakeNoBuckets) {
  const BucketPlan plan = plan_buckets({}, 128);
  EXPECT_EQ(plan.element_count, 0);
  EXPECT_TRUE(plan.buckets.empty());
}

}  // namespace
}  // namespace yard::parallel
