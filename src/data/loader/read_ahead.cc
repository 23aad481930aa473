#include <algorithm>

#include "loader/read_ahead_internal.h"

namespace yard::loader {
namespace {

constexpr int kTransfersFirst = 32;
constexpr int kTransfersMax = 256;
constexpr uint64_t kAheadFirst = 64;
constexpr uint64_t kAheadMax = 16'384;
// What a sample is taken for until some were fetched.
constexpr uint64_t kSampleBytesUnmeasured = 256 << 10;

}  // namespace

ReadAhead::ReadAhead(SampleReader& reader, SampleAt sample_at, uint64_t bytes_max)
    : reader_(reader),
      sample_at_(std::move(sample_at)),
      bytes_max_(bytes_max),
      ahead_(kAheadFirst),
      pool_({.transfer_count_first = kTransfersFirst, .transfer_count_max = kTransfersMax}) {
  const std::lock_guard lock(mutex_);
  start_more();
}

ReadAhead::~ReadAhead() {
  const std::lock_guard lock(mutex_);
  is_ending_ = true;  // the pool's destructor waits; what is queued then does nothing
}

// Under the mutex. A sample counts as the mean of those before until its size is known.
void ReadAhead::start_more() {
  const uint64_t guess =
      finished_count_ > 0 ? finished_bytes_ / finished_count_ : kSampleBytesUnmeasured;
  while (next_ < wanted_end_ || (next_ < wanted_end_ + ahead_ && bytes_ + guess <= bytes_max_)) {
    const uint64_t number = next_++;
    entries_[number].bytes = guess;
    bytes_ += guess;
    pool_.push(0, [this, number] { return fetch(number); });
  }
}

Result<uint64_t> ReadAhead::fetch(uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return uint64_t{0};
  }
  Result<std::optional<EncodedSample>> result = std::optional<EncodedSample>();
  if (const auto sample_id = sample_at_(number)) {
    EncodedSample sample;
    auto read = reader_.read(*sample_id, sample);
    if (read)
      result = std::optional(std::move(sample));
    else
      result = std::move(read).error();
  }
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[number];
  const uint64_t bytes = result && *result ? (*result)->bytes.size() : 0;
  bytes_ = bytes_ - entry.bytes + bytes;
  entry.bytes = bytes;
  if (bytes > 0) {
    ++finished_count_;
    finished_bytes_ += bytes;
  }
  Result<uint64_t> moved = result ? Result<uint64_t>(bytes) : result.error();
  entry.result = std::move(result);
  start_more();
  changed_.notify_all();
  return moved;
}

Result<std::optional<EncodedSample>> ReadAhead::take(uint64_t number) {
  std::unique_lock lock(mutex_);
  wanted_end_ = std::max(wanted_end_, number + 1);
  const auto begun = entries_.find(number);
  const bool is_late = begun == entries_.end() || !begun->second.result;
  // The first ones are late in any case.
  if (is_late && taken_since_growth_ > ahead_ / 2) {
    ahead_ = std::min(ahead_ * 2, kAheadMax);
    taken_since_growth_ = 0;
  }
  ++taken_since_growth_;
  start_more();
  const auto found = entries_.find(number);
  YARD_CHECK(found != entries_.end());  // else it was taken before
  changed_.wait(lock, [&] { return found->second.result.has_value(); });
  auto result = std::move(*found->second.result);
  bytes_ -= found->second.bytes;
  entries_.erase(found);
  start_more();
  return result;
}

}  // namespace yard::loader
