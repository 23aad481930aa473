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

bool StoreWait::wait(const Error& error, Clock::Monotonic since, int attempt) {
  const std::chrono::nanoseconds left = wait_max_ - (clock_.now() - since);
  if (!may_pass(error.code) || left.count() <= 0) return false;
  if (!is_away_.exchange(true))
    log_warning("the store cannot be reached; readers wait, for {} s at most: {}",
                std::chrono::duration_cast<std::chrono::seconds>(wait_max_).count(), error.message);
  retry_count_.add(1);
  const auto delay = std::min(kDelayMax, kDelayFirst * (1 << std::min(attempt, 10)));
  return clock_.sleep_for(std::min<std::chrono::nanoseconds>(delay, left), stop_);
}

void StoreWait::note_answer() {
  if (is_away_ && is_away_.exchange(false)) log_info("the store can be reached again");
}

}  // namespace yard::storage
