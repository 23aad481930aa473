#include "storage/speed_meter.h"

#include <algorithm>

namespace yard::storage {
namespace {

constexpr double kWeight = 1.0 / 8;
// Smaller bodies come with their first packet; they tell of the latency only.
constexpr uint64_t kRatedBytesMin = 256 << 10;

void average(double& value, double next) {
  value = value == 0 ? next : value + (next - value) * kWeight;
}

}  // namespace

void SpeedMeter::note(std::chrono::microseconds first_byte, std::chrono::microseconds total,
                      uint64_t bytes, bool reused_connection) {
  const std::lock_guard lock(mutex_);
  const auto latency_us = static_cast<double>(std::max<int64_t>(1, first_byte.count()));
  if (reused_connection && latency_is_of_new_connection_) latency_us_ = 0;  // forget the handshake
  if (reused_connection || latency_us_ == 0) {
    average(latency_us_, latency_us);
    latency_is_of_new_connection_ = !reused_connection;
  }
  if (bytes < kRatedBytesMin) return;
  const auto body_us = std::max<int64_t>(1, (total - first_byte).count());
  average(bytes_per_second_, static_cast<double>(bytes) * 1e6 / static_cast<double>(body_us));
}

StoreSpeed SpeedMeter::speed() const {
  const std::lock_guard lock(mutex_);
  return {.latency = std::chrono::microseconds(static_cast<int64_t>(latency_us_)),
          .stream_bytes_per_second = bytes_per_second_};
}

std::chrono::microseconds SpeedMeter::expected(uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  double us = latency_us_;
  if (bytes_per_second_ > 0) us += static_cast<double>(bytes) * 1e6 / bytes_per_second_;
  return std::chrono::microseconds(static_cast<int64_t>(us));
}

void HedgeBudget::note_request() {
  const std::lock_guard lock(mutex_);
  tokens_ = std::min(kTokensMax, tokens_ + gain_);
}

bool HedgeBudget::take() {
  const std::lock_guard lock(mutex_);
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

}  // namespace yard::storage
