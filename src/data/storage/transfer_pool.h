// TransferPool: runs many blocking transfers at once, as many as make them faster, in a fixed
// amount of memory.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "storage/work_queue.h"

namespace yard::storage {

// How many transfers run at once, found by climbing: a round is as many ends of transfers as run at
// once (and 20 ms at least). While a round moves 15 % more per second than the best before it, the
// number doubles. When it does not, the number before is kept for 16 rounds; then a quarter more is
// tried, and kept if it brings 5 %. A server that asks to slow down halves it at once.
//
// Not thread-safe. Time is given, so that it is a pure function of what it is told.
class ConcurrencyRule {
 public:
  ConcurrencyRule(int first, int max) : max_(max), limit_(first < max ? first : max) {}

  int limit() const { return limit_; }
  void on_begin(Clock::Monotonic now);
  void on_end(uint64_t bytes, Clock::Monotonic now);
  void on_slow_down();

 private:
  enum class Phase { kGrowing, kHolding, kProbing };
  void end_round(double rate);

  const int max_;
  int limit_;
  Phase phase_ = Phase::kGrowing;
  int held_rounds_ = 0;
  int limit_before_ = 0;
  double rate_best_ = 0;
  std::optional<Clock::Monotonic> round_start_;
  int ends_ = 0;
  double moved_ = 0;
};

struct TransferOptions {
  uint64_t memory_bytes_max = uint64_t{256} << 20;  // of the buffers of all transfers under way
  int transfer_count_first = 16;
  int transfer_count_max = 256;
  StopToken stop;  // transfers not yet begun are not begun
};

// Thread-safe. The destructor waits for all that was pushed.
class TransferPool {
 public:
  // Returns the bytes that it moved. kUnavailable and kExhausted count as a server that is too
  // busy.
  using Task = std::function<Result<uint64_t>()>;

  explicit TransferPool(const TransferOptions& options, Clock& clock = Clock::real());
  ~TransferPool();

  // Runs `task` on another thread once there is room for it and for its `memory_bytes` (cut to
  // memory_bytes_max). After a stop it is not run, and `cancelled` is called instead.
  void push(uint64_t memory_bytes, Task task, std::function<void()> cancelled = nullptr);
  void wait_until_idle();
  int limit() const;  // transfers at once, now

 private:
  void run(uint64_t memory_bytes, const Task& task, const std::function<void()>& cancelled);

  const TransferOptions options_;
  Clock& clock_;
  ByteBudget memory_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  ConcurrencyRule rule_;
  size_t pending_count_ = 0;
  WorkQueue queue_;  // last: its threads use the others
};

}  // namespace yard::storage
