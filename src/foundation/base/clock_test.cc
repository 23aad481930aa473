#include "base/clock.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/testing/fake_clock.h"

namespace yard {
namespace {

using namespace std::chrono_literals;

Clock::Wall wall(std::chrono::milliseconds since_epoch) {
  return Clock::Wall(since_epoch);
}

TEST(Clock, Rfc3339IsUtcWithMilliseconds) {
  EXPECT_EQ(to_rfc3339(wall(1'796'015'787'123ms)), "2026-11-30T05:16:27.123Z");
  EXPECT_EQ(to_rfc3339(wall(0ms)), "1970-01-01T00:00:00.000Z");
}

TEST(Clock, TimesBefore1970RoundDown) {
  EXPECT_EQ(to_rfc3339(wall(-1ms)), "1969-12-31T23:59:59.999Z");
}

TEST(Clock, UnixSecondsKeepTheFraction) {
  EXPECT_DOUBLE_EQ(to_unix_seconds(wall(1'500ms)), 1.5);
}

TEST(Clock, RealSleepEndsAtOnceWhenStopped) {
  const StopSource stop;
  stop.request();
  EXPECT_FALSE(Clock::real().sleep_for(1h, stop.token()));
}

TEST(Clock, RealSleepLastsItsDuration) {
  auto& clock = Clock::real();
  const auto start = clock.now();
  EXPECT_TRUE(clock.sleep_for(2ms, StopSource().token()));
  EXPECT_TRUE(clock.sleep_for(2ms, StopToken()));
  EXPECT_GE(clock.now() - start, 4ms);
}

TEST(FakeClock, SleepMovesTheTimeAndReturns) {
  FakeClock clock;
  const auto start = clock.now();
  const auto wall_start = clock.wall_now();
  EXPECT_TRUE(clock.sleep_for(3h, StopToken()));
  EXPECT_EQ(clock.now() - start, 3h);
  EXPECT_EQ(clock.wall_now() - wall_start, 3h);
  EXPECT_EQ(clock.elapsed(), 3h);
  EXPECT_EQ(to_rfc3339(wall_start), "2026-01-01T00:00:00.000Z");
}

TEST(FakeClock, AWaitingSleepEndsWhenTheTimePassesItsEnd) {
  FakeClock clock(FakeClock::Sleep::kWaits);
  std::atomic<bool> awake = false;
  std::thread sleeper([&] {
    EXPECT_TRUE(clock.sleep_for(10s, StopToken()));
    awake = true;
  });
  clock.wait_for_sleepers(1);
  clock.advance(9s);
  EXPECT_FALSE(awake);
  clock.advance(1s);
  sleeper.join();
  EXPECT_EQ(clock.elapsed(), 10s);
}

TEST(FakeClock, AWaitingSleepEndsWhenStopped) {
  FakeClock clock(FakeClock::Sleep::kWaits);
  const StopSource stop;
  std::thread sleeper([&] { EXPECT_FALSE(clock.sleep_for(10s, stop.token())); });
  clock.wait_for_sleepers(1);
  stop.request();
  sleeper.join();
  EXPECT_EQ(clock.elapsed(), 0s);
}

}  // namespace
}  // namespace yard
