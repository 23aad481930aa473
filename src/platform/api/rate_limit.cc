#include "api/rate_limit.h"

#include <algorithm>

namespace yard::api {

bool RateLimit::admits(const std::string& key) {
  if (per_second_ <= 0) return true;
  const Clock::Monotonic now = clock_.now();
  const std::lock_guard lock(mutex_);
  if (buckets_.size() >= kKeysMax && !buckets_.contains(key)) buckets_.clear();
  Bucket& bucket = buckets_.try_emplace(key, Bucket{burst_, now}).first->second;
  const std::chrono::duration<double> passed = now - bucket.filled;
  bucket.tokens = std::min(burst_, bucket.tokens + passed.count() * per_second_);
  bucket.filled = now;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

}  // namespace yard::api
