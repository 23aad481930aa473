// StoreWait: how long to go on asking a store that cannot be reached, and one line in the log about
// it.
#pragma once

#include <atomic>
#include <chrono>

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
  Clock::Monotonic end(Clock::Monotonic since) const { return since + wait_max_; }
  // After the failure number `attempt`, from 0, of what was begun at `since`: waits, and says
  // whether to ask again.
  bool wait(const Error& error, Clock::Monotonic since, int attempt);
  void note_answer();

 private:
  const std::chrono::milliseconds wait_max_;
  const StopToken stop_;
  Clock& clock_;
  Counter& retry_count_;
  std::atomic<bool> is_away_ = false;
};

}  // namespace yard::storage
