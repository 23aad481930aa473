#include "storage/store_wait.h"

#include <algorithm>

#include "base/log.h"

namespace yard::storage {
namespace {

constexpr std::chrono::milliseconds kDelayFirst{200};
constexpr std::chrono::milliseconds kDelayMax{2'000};
constexpr std::chrono::hours kWaitMax{24 * 365};  // within what a clock can count

bool may_pass(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kExhausted;
}

}  // namespace

StoreWait::StoreWait(std::chrono::milliseconds wait_max, Counter& retry_count, StopToken stop,
                     Clock& clock)
    : wait_max_(std::min<std::chrono::milliseconds>(wait_max, kWaitMax)),
      stop_(std::move(stop)),
      clock_(clock),
      retry_count_(retry_count) {}

// An old failure, behind which nobody asked for so long, says nothing of now.
Clock::Monotonic StoreWait::end_locked(Clock::Monotonic since) {
  const bool is_known =
      failed_last_ != Clock::Monotonic() && clock_.now() - failed_last_ <= wait_max_;
  return (is_known ? std::min(since, away_since_) : since) + wait_max_;
}

Clock::Monotonic StoreWait::end(Clock::Monotonic since) {
  const std::lock_guard lock(mutex_);
  return end_locked(since);
}

bool StoreWait::wait(const Error& error, Clock::Monotonic since, int attempt) {
  if (!may_pass(error.code)) return false;
  std::chrono::nanoseconds left{0};
  {
    const std::lock_guard lock(mutex_);
    const Clock::Monotonic end = end_locked(since);
    away_since_ = end - wait_max_;
    failed_last_ = clock_.now();
    left = end - failed_last_;
  }
  const bool was_away = is_away_.exchange(true);
  if (left.count() <= 0) return false;
  if (!was_away)
    log_warning("the store cannot be reached; readers wait, for {} s at most: {}",
                std::chrono::duration_cast<std::chrono::seconds>(wait_max_).count(), error.message);
  retry_count_.add(1);
  const auto delay = std::min(kDelayMax, kDelayFirst * (1 << std::min(attempt, 10)));
  return clock_.sleep_for(std::min<std::chrono::nanoseconds>(delay, left), stop_);
}

void StoreWait::note_answer() {
  if (!is_away_ || !is_away_.exchange(false)) return;
  {
    const std::lock_guard lock(mutex_);
    failed_last_ = {};
  }
  log_info("the store can be reached again");
}

}  // namespace yard::storage
