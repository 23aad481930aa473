// Counters: named numbers that any thread may add to and one reporter reads.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace yard {

// One number. add() is wait-free where the CPU allows; safe from any thread.
class Counter {
 public:
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_ = 0;
};

// The counters of one process. Thread-safe. Counters live as long as the registry.
class CounterRegistry {
 public:
  // The counter of that name (see metric_names.h), made at first use.
  Counter& counter(std::string_view name);
  std::map<std::string, double> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Counter>, std::less<>> counters_;
};

// Adds the seconds of its own lifetime to a counter.
class ScopedTimer {
 public:
  explicit ScopedTimer(Counter& counter);
  ~ScopedTimer();
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  Counter& counter_;
  double start_seconds_;
};

}  // namespace yard
