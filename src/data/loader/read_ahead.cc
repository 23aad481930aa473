#include <algorithm>

#include "loader/read_ahead_internal.h"

namespace yard::loader {
namespace {

constexpr int kTransfersFirst = 32;
constexpr int kTransfersMax = 256;
constexpr uint64_t kStretchFirst = 64;
constexpr uint64_t kStretchMax = 65'536;
constexpr uint64_t kRunBytesMax = 8 << 20;
// What may lie between two samples of one request (headers of the tar, a caption that is not
// wanted), and of all such bytes: no more than half of what is wanted, and this.
constexpr uint64_t kGapBytesMax = 16 << 10;
constexpr uint64_t kGapsBytesFree = 4 << 10;
// What a sample is taken for until some were found.
constexpr double kSampleBytesUnmeasured = 256 << 10;
// Stretches that must fit in memory: one that is used, one that comes, and what a stretch may have
// above the mean; where the second does not fit it waits for the end of the first.
constexpr double kStretchesAtOnce = 2.2;
// Of a stretch, before whose end the next one has been asked for.
constexpr uint64_t kAskedInQuarters = 3;

}  // namespace

ReadAhead::ReadAhead(SampleReader& reader, SampleAt sample_at, Limits limits)
    : reader_(reader),
      sample_at_(std::move(sample_at)),
      limits_(std::move(limits)),
      sample_bytes_(kSampleBytesUnmeasured),
      pool_({.transfer_count_first = kTransfersFirst, .transfer_count_max = kTransfersMax}) {
  const std::lock_guard lock(mutex_);
  start_more();
}

ReadAhead::~ReadAhead() {
  const std::lock_guard lock(mutex_);
  is_ending_ = true;  // the pool's destructor waits; what is queued then does nothing
}

// Under the mutex, as start_more().
uint64_t ReadAhead::next_stretch_size() {
  const uint64_t window_left = limits_.window_end ? limits_.window_end(next_) - next_ : 0;
  if (stretch_size_ == 0)
    stretch_size_ = kStretchFirst;
  else if (was_late_ || stretch_size_ < window_left)
    stretch_size_ = std::min(stretch_size_ * 2, kStretchMax);
  was_late_ = false;
  const auto affordable = static_cast<uint64_t>(static_cast<double>(limits_.bytes_max) /
                                                kStretchesAtOnce / sample_bytes_);
  stretch_size_ = std::clamp<uint64_t>(stretch_size_, 1, std::max<uint64_t>(1, affordable));
  // A window that all but fits is not cut in two; none is begun at the end of another.
  if (window_left > 0 && window_left <= stretch_size_) return window_left;
  return stretch_size_;
}

void ReadAhead::start_more() {
  while (!is_ending_) {
    const bool is_needed = next_ < wanted_end_;
    const bool is_due = next_ == 0 || wanted_end_ > stretch_begin_;
    if (!is_needed && !is_due) break;
    const uint64_t size = next_stretch_size();
    const auto size_bytes = static_cast<uint64_t>(static_cast<double>(size) * sample_bytes_);
    if (!is_needed && bytes_ + size_bytes > limits_.bytes_max) break;
    const Stretch stretch{stretch_begin_, next_, next_ + size, size_bytes};
    stretch_begin_ = next_;
    next_ += size;
    bytes_ += size_bytes;
    for (uint64_t number = stretch.begin; number < next_; ++number) entries_[number];
    pool_.push(0, [this, stretch] { return find_stretch(stretch); });
  }
  send_due();
}

void ReadAhead::send_due() {
  while (!is_ending_ && !planned_.empty() && planned_.begin()->first <= wanted_end_) {
    auto due = planned_.extract(planned_.begin());
    pool_.push(0, [this, run = std::move(due.mapped())]() mutable { return fetch(run); });
  }
}

// Not under the mutex: finding a sample may read an index.
Result<uint64_t> ReadAhead::find_stretch(const Stretch& stretch) {
  std::vector<Wanted> samples;
  double bytes = 0;
  for (uint64_t number = stretch.begin; number < stretch.end; ++number) {
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return uint64_t{0};
    }
    const auto sample_id = sample_at_(number);
    if (!sample_id) {
      finish(number, std::optional<EncodedSample>());
      continue;
    }
    auto range = reader_.find(*sample_id);
    if (!range) {
      finish(number, std::move(range).error());
      continue;
    }
    bytes += static_cast<double>(range->end() - range->begin());
    samples.push_back({number, *std::move(range)});
  }
  const size_t count = samples.size();
  auto runs = runs_of(std::move(samples));
  const std::lock_guard lock(mutex_);
  if (count > 0) sample_bytes_ = bytes / static_cast<double>(count);
  plan(stretch, std::move(runs));
  start_more();
  return uint64_t{0};
}

void ReadAhead::plan(const Stretch& stretch, std::vector<Run> runs) {
  bytes_ -= stretch.guessed_bytes;
  const uint64_t time = (stretch.begin - stretch.from) * kAskedInQuarters / 4;
  for (size_t i = 0; i < runs.size(); ++i) {
    bytes_ += runs[i].size_bytes();
    planned_.emplace(stretch.from + time * i / runs.size(), std::move(runs[i]));
  }
}

bool ReadAhead::Run::can_take(const SampleRange& range) const {
  if (samples.back().range.place.shard != range.place.shard || range.begin() < end()) return false;
  const uint64_t gap = range.begin() - end();
  const uint64_t gaps = end() - begin() - wanted_bytes + gap;
  return gap <= kGapBytesMax && gaps <= wanted_bytes / 2 + kGapsBytesFree &&
         range.end() - begin() <= kRunBytesMax;
}

std::vector<ReadAhead::Run> ReadAhead::runs_of(std::vector<Wanted> samples) {
  std::ranges::sort(samples, {}, [](const Wanted& wanted) {
    return std::pair(wanted.range.place.shard.get(), wanted.range.begin());
  });
  std::vector<Run> runs;
  for (Wanted& wanted : samples) {
    if (runs.empty() || !runs.back().can_take(wanted.range))
      runs.push_back({.samples = {}, .first_number = wanted.number, .wanted_bytes = 0});
    Run& run = runs.back();
    run.first_number = std::min(run.first_number, wanted.number);
    run.wanted_bytes += wanted.range.end() - wanted.range.begin();
    run.samples.push_back(std::move(wanted));
  }
  std::ranges::sort(runs, {}, &Run::first_number);
  return runs;
}

// Counts as long as anything of it is used.
std::shared_ptr<std::byte[]> ReadAhead::memory_of(const Run& run) {
  const auto free = [this, size_bytes = run.size_bytes()](std::byte* bytes) {
    delete[] bytes;
    const std::lock_guard lock(mutex_);
    bytes_ -= size_bytes;
    start_more();
  };
  return {new std::byte[run.size_bytes()], free};
}

Result<uint64_t> ReadAhead::fetch(Run& run) {
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return uint64_t{0};
  }
  const uint64_t begin = run.begin(), size_bytes = run.size_bytes();
  const auto buffer = memory_of(run);
  const std::span<std::byte> bytes(buffer.get(), size_bytes);
  const auto read = reader_.read_range(run.samples.front().range, begin, bytes);
  for (const Wanted& wanted : run.samples) {
    const SampleRange& range = wanted.range;
    if (!read) {
      finish(wanted.number, read.error());
      continue;
    }
    EncodedSample sample;
    auto taken = reader_.take(
        range, bytes.subspan(range.begin() - begin, range.end() - range.begin()), sample);
    sample.shared_bytes = buffer;
    if (taken)
      finish(wanted.number, std::optional(std::move(sample)));
    else
      finish(wanted.number, std::move(taken).error());
  }
  if (!read) return read.error();
  return size_bytes;
}

void ReadAhead::finish(uint64_t number, Result<std::optional<EncodedSample>> result) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[number];
  entry.result = std::move(result);
  if (entry.is_wanted) changed_.notify_all();
}

Result<std::optional<EncodedSample>> ReadAhead::take(uint64_t number) {
  std::unique_lock lock(mutex_);
  wanted_end_ = std::max(wanted_end_, number + 1);
  start_more();
  const auto found = entries_.find(number);
  YARD_CHECK(found != entries_.end());  // else it was taken before
  // The first stretch is late in any case.
  if (!found->second.result && number >= kStretchFirst) was_late_ = true;
  found->second.is_wanted = true;
  changed_.wait(lock, [&] { return found->second.result.has_value(); });
  auto result = std::move(*found->second.result);
  entries_.erase(found);
  return result;
}

}  // namespace yard::loader
