// RateLimit: how many requests a key may send.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"

namespace yard::api {

// A bucket of tokens per key. Thread-safe. Holds kKeysMax keys at most and forgets them all when it
// would hold more: only known keys come here, and full buckets are the worst that follows.
class RateLimit {
 public:
  // per_second 0: no limit.
  RateLimit(double per_second, double burst, const Clock& clock)
      : per_second_(per_second), burst_(burst), clock_(clock) {}

  bool admits(const std::string& key);

  static constexpr size_t kKeysMax = 10'000;

 private:
  struct Bucket {
    double tokens;
    Clock::Monotonic filled;
  };

  const double per_second_;
  const double burst_;
  const Clock& clock_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace yard::api
