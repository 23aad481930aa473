// ReadAhead: how far beyond a reader's position to fetch, for one open file.
//
// Nothing is fetched ahead until a reader has read on from where it was for 128 KiB, or begins the
// file with a read of that size: a small or random read costs its own bytes. Then there is a
// window, and whenever a whole window was read it is measured again by the reader's own pace,
// without the time it waited for us: it should hold what the reader takes in four latencies of the
// store. It becomes at most eight times as large at once, at most twice as small, and
//  - four times as large as soon as the reader had to wait for bytes that came too late, once for
//    each window, since what is under way already cannot come sooner;
//  - nothing at once after a seek.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace yard::mount {

// Not thread-safe. Time is given, so that it is a pure function of what it is told.
class ReadAhead {
 public:
  struct Plan {
    uint64_t window_bytes = 0;  // to have under way behind this read
    bool left_stream = false;   // the reader went elsewhere: what was fetched ahead is useless
  };

  // A read of [offset, offset + size_bytes) arrived. latency: of the store, to a first byte.
  // window_bytes_max: what the memory allows, now.
  Plan on_read(uint64_t offset, uint64_t size_bytes, uint64_t window_bytes_max,
               std::chrono::microseconds latency, Clock::Monotonic now);
  // The bytes of that read were late, and came so long after it.
  void on_late(uint64_t offset);
  void on_waited(std::chrono::nanoseconds duration) { waited_ += duration; }

  uint64_t window_bytes() const { return window_bytes_; }

 private:
  bool continues(uint64_t offset) const;
  void start(uint64_t window_bytes, Clock::Monotonic now);
  void end_window(std::chrono::microseconds latency, Clock::Monotonic now);

  uint64_t position_ = 0;  // end of the furthest read of this stream
  uint64_t run_bytes_ = 0;
  bool has_read_ = false;
  uint64_t window_bytes_ = 0;
  uint64_t grow_at_ = 0;     // a wait before this position was for bytes of an older window
  uint64_t window_end_ = 0;  // of the window whose pace is measured
  uint64_t window_start_ = 0;
  std::chrono::nanoseconds waited_{0};  // within it
  bool was_late_ = false;
  Clock::Monotonic window_begun_{};
};

}  // namespace yard::mount
