// What a store learns from its own requests: latency and rate, and from them how long the next one
// should take.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "storage/object_store.h"

namespace yard::storage {

// Thread-safe. Moving averages, each new value with a weight of 1/8 (as TCP smooths its round-trip
// time, RFC 6298).
class SpeedMeter {
 public:
  // A request that brought `bytes`. The rate is taken of bodies large enough to have one.
  void note(std::chrono::microseconds first_byte, std::chrono::microseconds total, uint64_t bytes,
            bool reused_connection);
  StoreSpeed speed() const;  // is_remote is left to the caller
  // The time for a request of that size; 0 before anything was measured.
  std::chrono::microseconds expected(uint64_t bytes) const;

 private:
  mutable std::mutex mutex_;
  double latency_us_ = 0;
  bool latency_is_of_new_connection_ = false;
  double bytes_per_second_ = 0;
};

// Doubled requests against single ones. Thread-safe.
class HedgeBudget {
 public:
  explicit HedgeBudget(double percent_max) : gain_(percent_max / 100) {}
  void note_request();
  bool take();

 private:
  static constexpr double kTokensMax = 8;
  const double gain_;
  std::mutex mutex_;
  double tokens_ = 2;
};

}  // namespace yard::storage
