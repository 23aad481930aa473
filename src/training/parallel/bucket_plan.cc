#include "parallel/bucket_plan.h"

#include "base/result.h"

namespace yard::parallel {
namespace {

int64_t aligned(int64_t count) {
  return (count + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
}

}  // namespace

BucketPlan plan_buckets(const std::vector<int64_t>& element_counts, int64_t bucket_elements) {
  YARD_CHECK(bucket_elements > 0);
  BucketPlan plan;
  for (const int64_t count : element_counts) {
    YARD_CHECK(count >= 0);
    plan.offsets.push_back(plan.element_count);
    plan.element_count += aligned(count);
  }
  plan.bucket_of.resize(element_counts.size());
  for (size_t i = element_counts.size(); i-- > 0;) {
    const int64_t count = aligned(element_counts[i]);
    const bool full =
        plan.buckets.empty() || plan.buckets.back().element_count + count > bucket_elements;
    if (full) plan.buckets.push_back({});
    Bucket& bucket = plan.buckets.back();
    bucket.begin = plan.offsets[i];
    bucket.element_count += count;
    ++bucket.parameter_count;
    plan.bucket_of[i] = plan.buckets.size() - 1;
  }
  return plan;
}

}  // namespace yard::parallel
