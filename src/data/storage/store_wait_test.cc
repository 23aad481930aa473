#include "storage/store_wait.h"

#include <gtest/gtest.h>

#include "base/testing/fake_clock.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;

TEST(StoreWaitTest, AsksAgainMoreAndMoreSlowlyUntilItsTimeIsUp) {
  FakeClock clock;
  Counter retries;
  StoreWait wait(10s, retries, {}, clock);
  const auto since = clock.now();
  std::chrono::nanoseconds before{0};
  int attempt = 0;
  while (wait.wait({Code::kUnavailable, "away"}, since, attempt)) {
    const auto elapsed = clock.now() - since;
    EXPECT_LE(elapsed - before, 2s) << attempt;
    before = elapsed;
    ++attempt;
  }
  EXPECT_EQ(clock.now(), wait.end(since));
  EXPECT_EQ(clock.now() - since, 10s);
  EXPECT_EQ(retries.value(), attempt);
}

TEST(StoreWaitTest, WhatDoesNotPassIsNotWaitedFor) {
  FakeClock clock;
  Counter retries;
  StoreWait wait(10s, retries, {}, clock);
  for (const Code code :
       {Code::kNotFound, Code::kCorrupt, Code::kInvalidArgument, Code::kCancelled})
    EXPECT_FALSE(wait.wait({code, "no"}, clock.now(), 0));
  EXPECT_EQ(retries.value(), 0);
}

TEST(StoreWaitTest, AStopEndsTheWait) {
  FakeClock clock;
  Counter retries;
  StopSource stop;
  StoreWait wait(10s, retries, stop.token(), clock);
  stop.request();
  EXPECT_FALSE(wait.wait({Code::kUnavailable, "away"}, clock.now(), 0));
}

}  // namespace
}  // namespace yard::storage
