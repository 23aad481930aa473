#include "storage/transfer_pool.h"

#include <algorithm>

namespace yard::storage {
namespace {

constexpr std::chrono::milliseconds kRoundMin{20};
constexpr int kHeldRounds = 16;
constexpr double kGrowthWorthDoubling = 1.15;
constexpr double kGrowthWorthKeeping = 1.05;
// What a request costs besides its bytes, so that many small objects count for something.
constexpr double kRequestBytes = 16 << 10;

}  // namespace

void ConcurrencyRule::on_begin(Clock::Monotonic now) {
  if (!round_start_) round_start_ = now;
}

void ConcurrencyRule::on_end(uint64_t bytes, Clock::Monotonic now) {
  on_begin(now);
  ++ends_;
  moved_ += static_cast<double>(bytes) + kRequestBytes;
  const auto elapsed = now - *round_start_;
  if (ends_ < limit_ || elapsed < kRoundMin) return;
  const double rate = moved_ / std::chrono::duration<double>(elapsed).count();
  end_round(rate);
  round_start_ = now;
  ends_ = 0;
  moved_ = 0;
}

void ConcurrencyRule::end_round(double rate) {
  const auto set_limit = [&](int limit) {
    limit_before_ = limit_;
    limit_ = std::clamp(limit, 1, max_);
  };
  switch (phase_) {
    case Phase::kGrowing:
      if (rate >= rate_best_ * kGrowthWorthDoubling) {
        rate_best_ = rate;
        if (limit_ < max_) return set_limit(limit_ * 2);
      } else if (limit_before_ > 0) {
        limit_ = limit_before_;
      }
      phase_ = Phase::kHolding;
      held_rounds_ = 0;
      return;
    case Phase::kHolding:
      // The best of now, not of an hour ago.
      rate_best_ = held_rounds_ == 0 ? rate : rate_best_ + (rate - rate_best_) / 4;
      if (++held_rounds_ < kHeldRounds || limit_ == max_) return;
      phase_ = Phase::kProbing;
      return set_limit(limit_ + std::max(1, limit_ / 4));
    case Phase::kProbing:
      if (rate < rate_best_ * kGrowthWorthKeeping) limit_ = limit_before_;
      phase_ = Phase::kHolding;
      held_rounds_ = 0;
      return;
  }
}

void ConcurrencyRule::on_slow_down() {
  limit_ = std::max(1, limit_ / 2);
  limit_before_ = limit_;
  phase_ = Phase::kHolding;
  held_rounds_ = 0;
  ends_ = 0;
  moved_ = 0;
  round_start_.reset();
}

TransferPool::TransferPool(const TransferOptions& options, Clock& clock)
    : options_(options),
      clock_(clock),
      memory_(options.memory_bytes_max),
      rule_(options.transfer_count_first, options.transfer_count_max),
      queue_(rule_.limit()) {
  YARD_CHECK(options.transfer_count_max > 0 && options.memory_bytes_max > 0);
}

TransferPool::~TransferPool() {
  wait_until_idle();
}

void TransferPool::push(uint64_t memory_bytes, Task task, std::function<void()> cancelled) {
  {
    const std::lock_guard lock(mutex_);
    ++pending_count_;
  }
  queue_.push([this, memory = std::min(memory_bytes, options_.memory_bytes_max),
               task = std::move(task), cancelled = std::move(cancelled)]() mutable {
    run(memory, task, cancelled);
    // What the task holds goes before the pool can be seen idle.
    task = nullptr;
    cancelled = nullptr;
    const std::lock_guard lock(mutex_);
    if (--pending_count_ == 0) idle_.notify_all();
  });
}

void TransferPool::run(uint64_t memory_bytes, const Task& task,
                       const std::function<void()>& cancelled) {
  memory_.take(memory_bytes);
  if (options_.stop.stopped()) {
    memory_.give(memory_bytes);
    if (cancelled) cancelled();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    rule_.on_begin(clock_.now());
  }
  const auto moved = task();
  memory_.give(memory_bytes);
  int limit = 0;
  {
    const std::lock_guard lock(mutex_);
    if (moved)
      rule_.on_end(*moved, clock_.now());
    else if (moved.error().code == Code::kUnavailable || moved.error().code == Code::kExhausted)
      rule_.on_slow_down();
    limit = rule_.limit();
  }
  queue_.set_thread_count_max(limit);
}

void TransferPool::wait_until_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return pending_count_ == 0; });
}

int TransferPool::limit() const {
  const std::lock_guard lock(mutex_);
  return rule_.limit();
}

}  // namespace yard::storage
