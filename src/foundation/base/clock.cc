#include "base/clock.h"

#include <fmt/format.h>

#include <ctime>

namespace yard {
namespace {

class RealClock final : public Clock {
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
  const auto since_epoch = time.time_since_epoch();
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(since_epoch).count();
  const std::time_t seconds = ms >= 0 ? ms / 1000 : (ms - 999) / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     ms - seconds * 1000);
}

double to_unix_seconds(Clock::Wall time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace yard
