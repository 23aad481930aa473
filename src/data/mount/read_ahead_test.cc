#include "mount/read_ahead.h"

#include <gtest/gtest.h>

#include "base/testing/fake_clock.h"

namespace yard::mount {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kKib = 1 << 10, kMib = 1 << 20;
constexpr uint64_t kNoLimit = uint64_t{1} << 40;

class ReadAheadTest : public testing::Test {
 protected:
  ReadAhead::Plan read(uint64_t offset, uint64_t size_bytes, uint64_t limit = kNoLimit) {
    return rule.on_read(offset, size_bytes, limit, milliseconds(40), clock.now());
  }
  // Reads on, `size_bytes` at a time, with so long between two reads.
  void read_on(uint64_t& offset, int count, uint64_t size_bytes,
               milliseconds pause = milliseconds(0)) {
    for (int i = 0; i < count; ++i, offset += size_bytes) {
      read(offset, size_bytes);
      clock.advance(pause);
    }
  }

  FakeClock clock;
  ReadAhead rule;
};

TEST_F(ReadAheadTest, SmallReadsAtTheBeginFetchNothingAhead) {
  EXPECT_EQ(read(0, 16 * kKib).window_bytes, 0U);
  EXPECT_EQ(read(16 * kKib, 16 * kKib).window_bytes, 0U);
}

TEST_F(ReadAheadTest, ARunOf128KibBeginsAWindow) {
  uint64_t offset = 5 * kMib;
  read_on(offset, 8, 16 * kKib);
  EXPECT_EQ(rule.window_bytes(), kMib);
}

TEST_F(ReadAheadTest, ALargeFirstReadBeginsAWindowAtOnce) {
  EXPECT_GT(read(0, 128 * kKib).window_bytes, kMib);
}

TEST_F(ReadAheadTest, RandomReadsNeverBeginAWindow) {
  for (const uint64_t place : {7U, 900U, 3U, 512U, 511U, 77U, 1000U})
    EXPECT_EQ(read(place * kMib, 64 * kKib).window_bytes, 0U) << place;
}

TEST_F(ReadAheadTest, ASeekEndsTheWindowAtOnceAndSaysSo) {
  read(0, kMib);
  ASSERT_GT(rule.window_bytes(), 0U);
  const auto plan = read(500 * kMib, 64 * kKib);
  EXPECT_EQ(plan.window_bytes, 0U);
  EXPECT_TRUE(plan.left_stream);
  EXPECT_FALSE(read(900 * kMib, 64 * kKib).left_stream);  // nothing was left to leave
}

TEST_F(ReadAheadTest, RequestsThatOvertakeEachOtherAreStillOneStream) {
  read(0, kMib);
  EXPECT_GT(read(2 * kMib, kMib).window_bytes, 0U);
  EXPECT_GT(read(kMib, kMib).window_bytes, 0U);
}

TEST_F(ReadAheadTest, LateBytesMakeTheWindowLargerOncePerWindow) {
  read(0, kMib);
  const uint64_t first = rule.window_bytes();
  rule.on_late(0);  // as every first read
  EXPECT_EQ(rule.window_bytes(), first);
  read(kMib, kMib);
  rule.on_late(kMib);
  const uint64_t grown = rule.window_bytes();
  EXPECT_EQ(grown, 4 * first);
  read(2 * kMib, kMib);
  rule.on_late(2 * kMib);  // of bytes that were asked for before it grew
  EXPECT_EQ(rule.window_bytes(), grown);
  read(3 * kMib, first);
  read(3 * kMib + first, kMib);
  rule.on_late(3 * kMib + first);
  EXPECT_GT(rule.window_bytes(), grown);
}

TEST_F(ReadAheadTest, TheWindowNeverExceedsWhatTheMemoryAllows) {
  read(0, kMib);
  for (uint64_t offset = kMib; offset < 64 * kMib; offset += kMib) {
    rule.on_late(offset);
    EXPECT_LE(read(offset, kMib, 3 * kMib).window_bytes, 3 * kMib);
  }
}

TEST_F(ReadAheadTest, ASlowReaderThatNeverWaitsGetsASmallerWindow) {
  uint64_t offset = 0;
  read_on(offset, 2, kMib);
  rule.on_late(kMib);
  const uint64_t grown = rule.window_bytes();
  // 1 MiB each 100 ms: at 40 ms of latency four latencies of that pace are 1.6 MiB.
  read_on(offset, 200, kMib, milliseconds(100));
  EXPECT_LT(rule.window_bytes(), grown);
  EXPECT_GE(rule.window_bytes(), kMib);
  EXPECT_LE(rule.window_bytes(), 2 * kMib);
}

TEST_F(ReadAheadTest, AReaderFasterThanItsWindowGetsALargerOneWithoutEverWaiting) {
  read(0, kMib);
  const uint64_t first = rule.window_bytes();
  rule.on_waited(milliseconds(50));  // for the first byte
  clock.advance(milliseconds(50));
  uint64_t offset = kMib;
  read_on(offset, 8, kMib, milliseconds(2));  // at 500 MiB/s four latencies are 80 MiB
  EXPECT_EQ(rule.window_bytes(), 8 * first);
}

TEST_F(ReadAheadTest, AFastReaderKeepsItsWindow) {
  uint64_t offset = 0;
  read_on(offset, 2, kMib);
  rule.on_late(kMib);
  const uint64_t grown = rule.window_bytes();
  read_on(offset, 200, kMib, milliseconds(1));
  EXPECT_GE(rule.window_bytes(), grown);
}

}  // namespace
}  // namespace yard::mount
