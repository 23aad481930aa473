// When a failed request is sent again: full jitter between attempts, and a budget over all of them,
// so that an ailing server is not drowned in repetitions.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace yard::storage {

struct RetryOptions {
  int attempts_max = 8;  // of one request, the first included
  std::chrono::milliseconds delay_first_max{100};
  std::chrono::milliseconds delay_max{10'000};
  // The budget: a retry costs `retry_cost`, one after a time-out twice that; each success gives
  // `success_gain` back. At the start and at most `budget_max`.
  double budget_max = 500;
  double retry_cost = 5;
  double success_gain = 1;
};

// The wait before retry 0, 1, ...: uniform in [0, delay_first_max * 2^retry), within delay_max
// ("full jitter": Brooker, "Exponential Backoff and Jitter", AWS 2015). uniform: in [0, 1).
std::chrono::milliseconds retry_delay(const RetryOptions& options, int retry, double uniform);

// Thread-safe.
class RetryBudget {
 public:
  explicit RetryBudget(const RetryOptions& options)
      : options_(options), tokens_(options.budget_max) {}

  // Whether one more retry may be made; takes its cost.
  bool take(bool after_timeout);
  void give();  // after a success

 private:
  const RetryOptions options_;
  std::mutex mutex_;
  double tokens_;
};

}  // namespace yard::storage
