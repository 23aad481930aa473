// Clock: time that a test can hold still. Code that waits or measures takes a Clock&.
#pragma once

#include <chrono>
#include <string>

#include "base/stop_token.h"

namespace yard {

// Thread-safe.
class Clock {
 public:
  using Monotonic = std::chrono::steady_clock::time_point;  // for durations
  using Wall = std::chrono::system_clock::time_point;       // for people and records

  virtual ~Clock() = default;
  virtual Monotonic now() const = 0;
  virtual Wall wall_now() const = 0;
  // Returns true after `duration`, false at once when `stop` is asked.
  virtual bool sleep_for(std::chrono::nanoseconds duration, const StopToken& stop) = 0;

  static Clock& real();  // the machine's clock; lives for the whole process
};

// "2026-11-30T05:16:27.123Z", UTC, milliseconds (RFC 3339).
std::string to_rfc3339(Clock::Wall time);
// Seconds since the Unix epoch, with fraction.
double to_unix_seconds(Clock::Wall time);

}  // namespace yard
