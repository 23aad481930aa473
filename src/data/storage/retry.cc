#include "storage/retry.h"

#include <algorithm>
#include <cmath>

namespace yard::storage {

std::chrono::milliseconds retry_delay(const RetryOptions& options, int retry, double uniform) {
  const double first_ms = static_cast<double>(options.delay_first_max.count());
  const double bound_ms = std::min(std::ldexp(first_ms, std::min(retry, 40)),
                                   static_cast<double>(options.delay_max.count()));
  return std::chrono::milliseconds(static_cast<int64_t>(bound_ms * uniform));
}

bool RetryBudget::take(bool after_timeout) {
  const double cost = options_.retry_cost * (after_timeout ? 2 : 1);
  const std::lock_guard lock(mutex_);
  if (tokens_ < cost) return false;
  tokens_ -= cost;
  return true;
}

void RetryBudget::give() {
  const std::lock_guard lock(mutex_);
  tokens_ = std::min(options_.budget_max, tokens_ + options_.success_gain);
}

}  // namespace yard::storage
