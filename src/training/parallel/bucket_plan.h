// Where each parameter lies in the flat buffer and which bucket reduces it. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace yard::parallel {

// Starts of tensors in the flat buffer are multiples of this: a 64-byte cache line of f32.
inline constexpr int64_t kAlignmentElements = 16;

struct Bucket {
  int64_t begin = 0;          // element index in the flat buffer
  int64_t element_count = 0;  // alignment gaps included
  size_t parameter_count = 0;
};

struct BucketPlan {
  int64_t element_count = 0;      // of the flat buffer
  std::vector<int64_t> offsets;   // per parameter, element index
  std::vector<size_t> bucket_of;  // per parameter
  std::vector<Bucket> buckets;    // in the order of reduction: last used parameters first
};

// `element_counts` in order of use in the forward pass. The backward pass makes gradients ready
// from the end, so buckets are filled from the end, each up to `bucket_elements` or one tensor.
BucketPlan plan_buckets(const std::vector<int64_t>& element_counts, int64_t bucket_elements);

}  // namespace yard::parallel
