#include "storage/transfer_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <vector>

#include "base/testing/fake_clock.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;

// A link of which `requests` at once each get a share: latency, and a rate for all together.
struct Link {
  double latency_s;
  double bytes_per_second;

  double seconds_of(uint64_t bytes, int at_once) const {
    return latency_s + static_cast<double>(bytes) * at_once / bytes_per_second;
  }
};

// The limit after `seconds` of transfers of that size.
int settle(const Link& link, uint64_t bytes, double seconds, ConcurrencyRule& rule) {
  double now_s = 0;
  while (now_s < seconds) {
    // One wave of as many as run at once, ending one after the other.
    const int at_once = rule.limit();
    const double wave_s = link.seconds_of(bytes, at_once);
    rule.on_begin(Clock::Monotonic(std::chrono::duration_cast<Clock::Monotonic::duration>(
        std::chrono::duration<double>(now_s))));
    for (int i = 1; i <= at_once; ++i)
      rule.on_end(bytes, Clock::Monotonic(std::chrono::duration_cast<Clock::Monotonic::duration>(
                             std::chrono::duration<double>(now_s + wave_s * i / at_once))));
    now_s += wave_s;
  }
  return rule.limit();
}

TEST(ConcurrencyRuleTest, SmallObjectsBehindLatencyGoAllTheWayUp) {
  ConcurrencyRule rule(16, 128);
  EXPECT_EQ(settle({0.040, 1e9}, 50'000, 3, rule), 128);
}

TEST(ConcurrencyRuleTest, AFullLinkIsNotCrowded) {
  ConcurrencyRule rule(16, 128);
  EXPECT_LE(settle({0.001, 1e8}, 8 << 20, 60, rule), 20);
}

TEST(ConcurrencyRuleTest, TheLimitStaysBetweenOneAndTheMost) {
  ConcurrencyRule rule(64, 8);
  EXPECT_EQ(rule.limit(), 8);
  for (int i = 0; i < 20; ++i) rule.on_slow_down();
  EXPECT_EQ(rule.limit(), 1);
  settle({0.040, 1e9}, 50'000, 30, rule);
  EXPECT_LE(rule.limit(), 8);
  EXPECT_GE(rule.limit(), 1);
}

TEST(ConcurrencyRuleTest, AServerThatAsksToSlowDownHalvesItAndItComesBackSlowly) {
  ConcurrencyRule rule(16, 128);
  settle({0.040, 1e9}, 50'000, 3, rule);
  rule.on_slow_down();
  EXPECT_EQ(rule.limit(), 64);
  settle({0.040, 1e9}, 50'000, 0.5, rule);
  EXPECT_LE(rule.limit(), 80);
  settle({0.040, 1e9}, 50'000, 30, rule);
  EXPECT_GT(rule.limit(), 64);
}

TEST(TransferPoolTest, EveryTaskRunsOnceAndNoMoreMemoryIsUsedThanGiven) {
  std::atomic<int> run_count = 0;
  std::atomic<int64_t> used = 0, most = 0;
  {
    TransferPool pool({.memory_bytes_max = 10});
    for (int i = 0; i < 500; ++i) {
      const int64_t bytes = 1 + i % 20;  // some are larger than all there is
      pool.push(uint64_t(bytes), [&, bytes]() -> Result<uint64_t> {
        const int64_t now = used += std::min<int64_t>(bytes, 10);
        int64_t seen = most;
        while (seen < now && !most.compare_exchange_weak(seen, now)) {
        }
        ++run_count;
        used -= std::min<int64_t>(bytes, 10);
        return uint64_t(bytes);
      });
    }
  }
  EXPECT_EQ(run_count, 500);
  EXPECT_LE(most, 10);
}

TEST(TransferPoolTest, AfterAStopNothingIsBegunAndEveryTaskIsToldOf) {
  StopSource stop;
  std::atomic<int> run_count = 0, cancelled_count = 0;
  {
    TransferPool pool({.transfer_count_first = 1, .transfer_count_max = 1, .stop = stop.token()});
    for (int i = 0; i < 100; ++i)
      pool.push(
          1,
          [&]() -> Result<uint64_t> {
            if (++run_count == 3) stop.request();
            return uint64_t{1};
          },
          [&] { ++cancelled_count; });
  }
  EXPECT_EQ(run_count, 3);
  EXPECT_EQ(cancelled_count, 97);
}

TEST(TransferPoolTest, ATaskMayPushFurtherTasks) {
  std::atomic<int> run_count = 0;
  TransferPool pool({.transfer_count_first = 2, .transfer_count_max = 2});
  for (int i = 0; i < 10; ++i)
    pool.push(0, [&]() -> Result<uint64_t> {
      for (int k = 0; k < 10; ++k)
        pool.push(0, [&]() -> Result<uint64_t> { return uint64_t(++run_count > 0); });
      return uint64_t{1};
    });
  pool.wait_until_idle();
  EXPECT_EQ(run_count, 100);
}

TEST(TransferPoolTest, ManyTransfersRunAtOnce) {
  // Each waits for all of the first limit to have begun.
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  TransferPool pool({.transfer_count_first = 8, .transfer_count_max = 8});
  for (int i = 0; i < 8; ++i)
    pool.push(1, [&]() -> Result<uint64_t> {
      std::unique_lock lock(mutex);
      ++begun;
      changed.notify_all();
      changed.wait(lock, [&] { return begun == 8; });
      return uint64_t{1};
    });
  pool.wait_until_idle();
  EXPECT_EQ(begun, 8);
}

}  // namespace
}  // namespace yard::storage
