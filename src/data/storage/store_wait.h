// StoreWait: how long to go on asking a store that cannot be reached, and one line in the log about
// it. The time is one for all who ask: it begins with the first request that failed and ends with
// any answer, so that who asks later does not wait as long once more.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "telemetry/counters.h"

namespace yard::storage {

// Thread-safe; shared by all who ask one store.
class StoreWait {
 public:
  // `retry_count` and `clock` outlive it.
  StoreWait(std::chrono::milliseconds wait_max, Counter& retry_count, StopToken stop, Clock& clock);

  // When what was begun at `since` has waited long enough: a RequestDeadline for asking.
  Clock::Monotonic end(Clock::Monotonic since);
  // After the failure number `attempt`, from 0, of what was begun at `since`: waits, and says
  // whether to ask again.
  bool wait(const Error& error, Clock::Monotonic since, int attempt);
  void note_answer();

 private:
  Clock::Monotonic end_locked(Clock::Monotonic since);

  const std::chrono::milliseconds wait_max_;
  const StopToken stop_;
  Clock& clock_;
  Counter& retry_count_;
  std::atomic<bool> is_away_ = false;
  std::mutex mutex_;
  Clock::Monotonic away_since_{};   // under the mutex, as what follows
  Clock::Monotonic failed_last_{};  // the epoch: not since the last answer
};

}  // namespace yard::storage
