#include "mount/read_ahead.h"

#include <algorithm>

namespace yard::mount {
namespace {

constexpr uint64_t kRunBytesMin = 128 << 10;
constexpr uint64_t kWindowFirst = 1 << 20;
// The first read asks for as much as a kernel does at once: nobody reads headers so.
constexpr uint64_t kWindowOfLargeRead = 8 << 20;
constexpr uint64_t kWindowMin = 512 << 10;
constexpr uint64_t kGrowthWhenLate = 4;
constexpr uint64_t kGrowthByPace = 8;
constexpr double kWaitShareMax = 8;
constexpr double kLatenciesAhead = 4;
// Requests of one stream come in parallel and so may overtake each other.
constexpr uint64_t kDisorderBytes = 4 << 20;

}  // namespace

bool ReadAhead::continues(uint64_t offset) const {
  if (window_bytes_ == 0) return offset == position_;
  return offset <= position_ + kDisorderBytes && position_ <= offset + kDisorderBytes;
}

void ReadAhead::start(uint64_t window_bytes, Clock::Monotonic now) {
  window_bytes_ = window_bytes;
  grow_at_ = std::max(grow_at_, position_);
  window_start_ = position_;
  window_end_ = position_ + window_bytes;
  was_late_ = false;
  waited_ = {};
  window_begun_ = now;
}

ReadAhead::Plan ReadAhead::on_read(uint64_t offset, uint64_t size_bytes, uint64_t window_bytes_max,
                                   std::chrono::microseconds latency, Clock::Monotonic now) {
  Plan plan;
  const bool is_first = !has_read_;
  has_read_ = true;
  if (!is_first && !continues(offset)) {
    plan.left_stream = window_bytes_ > 0;
    window_bytes_ = 0;
    grow_at_ = 0;
    run_bytes_ = 0;
    position_ = offset;
  } else if (is_first) {
    position_ = offset;
  }
  position_ = std::max(position_, offset + size_bytes);
  run_bytes_ += size_bytes;
  if (window_bytes_ == 0) {
    const bool begins_large = is_first && offset == 0 && size_bytes >= kRunBytesMin;
    const bool runs = run_bytes_ > size_bytes && run_bytes_ >= kRunBytesMin;
    if (begins_large || runs) start(begins_large ? kWindowOfLargeRead : kWindowFirst, now);
  } else if (position_ >= window_end_) {
    end_window(latency, now);
  }
  window_bytes_ = std::min(window_bytes_, window_bytes_max);
  plan.window_bytes = window_bytes_;
  return plan;
}

void ReadAhead::end_window(std::chrono::microseconds latency, Clock::Monotonic now) {
  const double elapsed = std::chrono::duration<double>(now - window_begun_).count();
  // Reads that wait at the same time are counted each.
  const double reading =
      std::max(elapsed - std::chrono::duration<double>(waited_).count(), elapsed / kWaitShareMax);
  if (reading > 0) {
    const double pace = static_cast<double>(position_ - window_start_) / reading;
    const auto wanted = static_cast<uint64_t>(
        pace * std::chrono::duration<double>(latency).count() * kLatenciesAhead);
    if (wanted > window_bytes_)
      window_bytes_ = std::min(wanted, window_bytes_ * kGrowthByPace);
    else if (!was_late_)
      window_bytes_ = std::max({wanted, window_bytes_ / 2, std::min(kWindowMin, window_bytes_)});
  }
  start(window_bytes_, now);
}

void ReadAhead::on_late(uint64_t offset) {
  if (window_bytes_ == 0) return;
  was_late_ = true;
  if (offset < grow_at_) return;
  grow_at_ = position_ + window_bytes_;
  window_bytes_ *= kGrowthWhenLate;
}

}  // namespace yard::mount
