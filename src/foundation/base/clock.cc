#include "base/clock.h"

#include <fmt/format.h>

#include <ctime>

namespace yard {
namespace {

class RealClock : public Clock {
 public:
  Monotonic now() const override { return std::chrono::steady_clock::now(); }
  Wall wall_now() const override { return std::chrono::system_clock::now(); }
  bool sleep_for(std::chrono::nanoseconds duration, const StopToken& stop) override {
    return !stop.wait_for(duration);
  }
};

}  // namespace

Clock& Clock::real() {
  static RealClock clock;
  return clock;
}

std::string to_rfc3339(Clock::Wall time) {
  // floor, not a cast: a time before 1970 must not round towards it.
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto millis = std::chrono::floor<std::chrono::milliseconds>(time - seconds);
  const std::time_t unix_seconds = seconds.time_since_epoch().count();
  std::tm utc{};
  gmtime_r(&unix_seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     millis.count());
}

double to_unix_seconds(Clock::Wall time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace yard
